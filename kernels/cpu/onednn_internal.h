/*
 * onednn_internal: what the files of onednn.h share. The first part contains all differences
 * between the C APIs of oneDNN 2.x and 3.x: memory descriptors by value or by handle, operation
 * descriptors or none. Nothing else depends on the version.
 */
#ifndef KERNELS_CPU_ONEDNN_INTERNAL_H
#define KERNELS_CPU_ONEDNN_INTERNAL_H

#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/onednn.h"

/* ---- two APIs ---- */

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t descriptor; /* a handle, to be destroyed */
typedef const_dnnl_memory_desc_t descriptor_view;

static inline descriptor_view view_of(const descriptor *d) {
    return *d;
}

static inline dnnl_status_t describe(descriptor *d,
                                     int ndims,
                                     const dnnl_dims_t dims,
                                     dnnl_data_type_t type,
                                     dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(d, ndims, dims, type, tag);
}

static inline dnnl_status_t describe_matrix(descriptor *d,
                                            const dnnl_dims_t dims,
                                            dnnl_data_type_t type,
                                            const dnnl_dims_t strides) {
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides);
}

static inline dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

static inline void forget(descriptor *d) {
    if (*d != NULL) {
        (void)dnnl_memory_desc_destroy(*d);
        *d = NULL;
    }
}

#else

typedef dnnl_memory_desc_t descriptor; /* a plain value */
typedef const dnnl_memory_desc_t *descriptor_view;

static inline descriptor_view view_of(const descriptor *d) {
    return d;
}

static inline dnnl_status_t describe(descriptor *d,
                                     int ndims,
                                     const dnnl_dims_t dims,
                                     dnnl_data_type_t type,
                                     dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(d, ndims, dims, type, tag);
}

static inline dnnl_status_t describe_matrix(descriptor *d,
                                            const dnnl_dims_t dims,
                                            dnnl_data_type_t type,
                                            const dnnl_dims_t strides) {
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides);
}

static inline dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static inline void forget(descriptor *d) {
    (void)d;
}

#endif

struct geometry {
    descriptor src, weight, dst; /* weight: any layout */
    descriptor dweight;          /* the same in f32 */
    dnnl_dims_t strides, dilates, pads;
    dnnl_primitive_attr_t how; /* of the forward pass; NULL: nothing special */
};

#if DNNL_VERSION_MAJOR >= 3

static inline dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *pd,
                                                enum conv_direction d,
                                                const struct geometry *g,
                                                dnnl_engine_t engine) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t s = dnnl_convolution_forward_primitive_desc_create(
        &hint, engine, dnnl_forward_training, dnnl_convolution_direct, g->src, g->weight, NULL,
        g->dst, g->strides, g->dilates, g->pads, g->pads, d == CONV_FORWARD ? g->how : NULL);
    if (s != dnnl_success || d == CONV_FORWARD) {
        *pd = hint;
        return s;
    }
    if (d == CONV_BACKWARD_DATA) {
        s = dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, dnnl_convolution_direct, g->src, g->weight, g->dst, g->strides, g->dilates,
            g->pads, g->pads, hint, NULL);
    } else {
        s = dnnl_convolution_backward_weights_primitive_desc_create(
            pd, engine, dnnl_convolution_direct, g->src, g->dweight, NULL, g->dst, g->strides,
            g->dilates, g->pads, g->pads, hint, NULL);
    }
    (void)dnnl_primitive_desc_destroy(hint);
    return s;
}

#else

static inline dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *pd,
                                                enum conv_direction d,
                                                const struct geometry *g,
                                                dnnl_engine_t engine) {
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t s = dnnl_convolution_forward_desc_init(
        &op, dnnl_forward_training, dnnl_convolution_direct, &g->src, &g->weight, NULL, &g->dst,
        g->strides, g->pads, g->pads);
    if (s == dnnl_success) {
        s = dnnl_primitive_desc_create(&hint, &op, d == CONV_FORWARD ? g->how : NULL, engine, NULL);
    }
    if (s != dnnl_success || d == CONV_FORWARD) {
        *pd = hint;
        return s;
    }
    if (d == CONV_BACKWARD_DATA) {
        s = dnnl_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &g->src,
                                                     &g->weight, &g->dst, g->strides, g->pads,
                                                     g->pads);
    } else {
        s = dnnl_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, &g->src,
                                                        &g->dweight, NULL, &g->dst, g->strides,
                                                        g->pads, g->pads);
    }
    if (s == dnnl_success) {
        s = dnnl_primitive_desc_create(pd, &op, NULL, engine, hint);
    }
    (void)dnnl_primitive_desc_destroy(hint);
    return s;
}

#endif

struct matrices {
    descriptor a, b, bias, out;
};

#if DNNL_VERSION_MAJOR >= 3

static inline dnnl_status_t make_product_desc(dnnl_primitive_desc_t *pd,
                                              const struct matrices *m,
                                              bool biased,
                                              const_dnnl_primitive_attr_t attr,
                                              dnnl_engine_t engine) {
    return dnnl_matmul_primitive_desc_create(pd, engine, m->a, m->b, biased ? m->bias : NULL,
                                             m->out, attr);
}

#else

static inline dnnl_status_t make_product_desc(dnnl_primitive_desc_t *pd,
                                              const struct matrices *m,
                                              bool biased,
                                              const_dnnl_primitive_attr_t attr,
                                              dnnl_engine_t engine) {
    dnnl_matmul_desc_t op;
    const dnnl_status_t s =
        dnnl_matmul_desc_init(&op, &m->a, &m->b, biased ? &m->bias : NULL, &m->out);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &op, attr, engine, NULL) : s;
}

#endif

/* ---- the library's objects, one set for each shape ---- */

struct pass { /* one direction */
    dnnl_primitive_t primitive;
    dnnl_primitive_t reorder; /* ours -> oneDNN's, or back for CONV_BACKWARD_WEIGHT */
    dnnl_memory_t src, dst, weight, our_weight;
};

struct shape_entry {
    struct conv_shape shape;
    struct pass passes[CONV_DIRECTIONS];
    bool ready[CONV_DIRECTIONS];
};

struct product_entry {
    struct product_shape shape; /* k is 0 if it is open until execution */
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, bias, out;
    int64_t inputs_k; /* k of a and b */
    uint64_t used;    /* number of the call that last used it */
};

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct shape_entry *entries[ONEDNN_MAX_CONVOLUTIONS];
    int32_t count;
    struct product_entry products[ONEDNN_MAX_PRODUCTS];
    int32_t products_count;
    uint64_t calls;
    void *weights; /* of the running convolution, in oneDNN's layout; as large as any needed yet */
    size_t weights_bytes;
};

/* ---- shared helpers ---- */

enum status onednn_check(dnnl_status_t s, const char *what, struct error *err);
dnnl_data_type_t onednn_type(int64_t dtype);
/* oneDNN requires writable pointers; it does not change what it only reads. */
void *onednn_writable(const void *data);
/* Attributes of a primitive that adds to its output. */
enum status onednn_adding(dnnl_primitive_attr_t *out, struct error *err);
enum status onednn_memory(dnnl_memory_t *out,
                          descriptor_view d,
                          dnnl_engine_t engine,
                          void *data,
                          struct error *err);

void onednn_convolutions_fini(struct onednn *o);
void onednn_products_fini(struct onednn *o);

#endif
