/*
 * onednn: three directions per convolution shape, each a primitive that reads or writes weights in
 * the layout that oneDNN chose, and a reorder between that layout and ours.
 *
 * What differs between the C APIs of 2.x and 3.x (memory descriptors by value or by handle,
 * operation descriptors or none) stands in the block "two APIs"; nothing below it knows the
 * version.
 */
#include "kernels/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

/* ---- two APIs ---- */

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t descriptor; /* a handle, to be destroyed */
typedef const_dnnl_memory_desc_t descriptor_view;

static descriptor_view view_of(const descriptor *d) {
    return *d;
}

static dnnl_status_t
describe(descriptor *d, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(d, ndims, dims, dnnl_f32, tag);
}

static void forget(descriptor *d) {
    if (*d != NULL) {
        (void)dnnl_memory_desc_destroy(*d);
        *d = NULL;
    }
}

#else

typedef dnnl_memory_desc_t descriptor; /* a plain value */
typedef const dnnl_memory_desc_t *descriptor_view;

static descriptor_view view_of(const descriptor *d) {
    return d;
}

static dnnl_status_t
describe(descriptor *d, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(d, ndims, dims, dnnl_f32, tag);
}

static void forget(descriptor *d) {
    (void)d;
}

#endif

enum direction { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT, DIRECTION_COUNT };

struct geometry {
    descriptor src, weight, dst; /* weight: any layout */
    dnnl_dims_t strides, dilates, pads;
};

#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *pd,
                                         enum direction d,
                                         const struct geometry *g,
                                         dnnl_engine_t engine) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t s = dnnl_convolution_forward_primitive_desc_create(
        &hint, engine, dnnl_forward_training, dnnl_convolution_direct, g->src, g->weight, NULL,
        g->dst, g->strides, g->dilates, g->pads, g->pads, NULL);
    if (s != dnnl_success || d == FORWARD) {
        *pd = hint;
        return s;
    }
    if (d == BACKWARD_DATA) {
        s = dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, dnnl_convolution_direct, g->src, g->weight, g->dst, g->strides, g->dilates,
            g->pads, g->pads, hint, NULL);
    } else {
        s = dnnl_convolution_backward_weights_primitive_desc_create(
            pd, engine, dnnl_convolution_direct, g->src, g->weight, NULL, g->dst, g->strides,
            g->dilates, g->pads, g->pads, hint, NULL);
    }
    (void)dnnl_primitive_desc_destroy(hint);
    return s;
}

#else

static dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *pd,
                                         enum direction d,
                                         const struct geometry *g,
                                         dnnl_engine_t engine) {
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t s = dnnl_convolution_forward_desc_init(
        &op, dnnl_forward_training, dnnl_convolution_direct, &g->src, &g->weight, NULL, &g->dst,
        g->strides, g->pads, g->pads);
    if (s == dnnl_success) {
        s = dnnl_primitive_desc_create(&hint, &op, NULL, engine, NULL);
    }
    if (s != dnnl_success || d == FORWARD) {
        *pd = hint;
        return s;
    }
    if (d == BACKWARD_DATA) {
        s = dnnl_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &g->src,
                                                     &g->weight, &g->dst, g->strides, g->pads,
                                                     g->pads);
    } else {
        s = dnnl_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, &g->src,
                                                        &g->weight, NULL, &g->dst, g->strides,
                                                        g->pads, g->pads);
    }
    if (s == dnnl_success) {
        s = dnnl_primitive_desc_create(pd, &op, NULL, engine, hint);
    }
    (void)dnnl_primitive_desc_destroy(hint);
    return s;
}

#endif

/* ---- one shape ---- */

struct pass { /* one direction */
    dnnl_primitive_t primitive;
    dnnl_primitive_t reorder; /* ours -> oneDNN's, or back for BACKWARD_WEIGHT */
    dnnl_memory_t src, dst, weight, our_weight;
    void *blocked; /* the weights in oneDNN's layout */
};

struct shape_entry {
    struct conv_shape shape;
    struct pass passes[DIRECTION_COUNT];
    bool ready[DIRECTION_COUNT];
};

struct convolutions {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct shape_entry *entries[CONVOLUTIONS_MAX_SHAPES];
    int32_t count;
};

static enum status check(dnnl_status_t s, const char *what, struct error *err) {
    if (s == dnnl_success) {
        return STATUS_OK;
    }
    return error_set(err, s == dnnl_out_of_memory ? STATUS_NOMEM : STATUS_DEVICE,
                     "oneDNN: %s failed (%d)", what, (int)s);
}

static void pass_fini(struct pass *p) {
    (void)dnnl_primitive_destroy(p->primitive);
    (void)dnnl_primitive_destroy(p->reorder);
    const dnnl_memory_t memories[] = {p->src, p->dst, p->weight, p->our_weight};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        (void)dnnl_memory_destroy(memories[i]);
    }
    free(p->blocked);
    memset(p, 0, sizeof *p);
}

static enum status make_geometry(struct geometry *g,
                                 descriptor *our_weight,
                                 const struct conv_shape *c,
                                 struct error *err) {
    const dnnl_dims_t src = {c->n, c->in, c->h, c->w};
    const dnnl_dims_t weight = {c->out, c->in, c->kernel_h, c->kernel_w};
    const dnnl_dims_t dst = {c->n, c->out, c->out_h, c->out_w};
    g->strides[0] = g->strides[1] = c->stride;
    g->dilates[0] = g->dilates[1] = 0;
    g->pads[0] = g->pads[1] = c->pad;
    TRY(check(describe(&g->src, 4, src, dnnl_nhwc), "describing the input", err));
    TRY(check(describe(&g->dst, 4, dst, dnnl_nhwc), "describing the output", err));
    TRY(check(describe(&g->weight, 4, weight, dnnl_format_tag_any), "describing the weights", err));
    return check(describe(our_weight, 4, weight, dnnl_acdb), "describing the weights", err);
}

static enum status make_memory(dnnl_memory_t *out,
                               descriptor_view d,
                               dnnl_engine_t engine,
                               void *data,
                               struct error *err) {
    return check(dnnl_memory_create(out, d, engine, data), "making a memory object", err);
}

static enum status fill_pass(struct pass *p,
                             enum direction d,
                             const struct geometry *g,
                             const descriptor *our_weight,
                             dnnl_primitive_desc_t pd,
                             dnnl_engine_t engine,
                             struct error *err) {
    const dnnl_query_t query =
        d == BACKWARD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    descriptor_view blocked = dnnl_primitive_desc_query_md(pd, query, 0);
    const size_t size = (dnnl_memory_desc_get_size(blocked) + 63) / 64 * 64;
    p->blocked = aligned_alloc(64, size);
    if (p->blocked == NULL) {
        return error_set(err, STATUS_NOMEM, "oneDNN: no memory for %zu bytes of weights", size);
    }
    TRY(check(dnnl_primitive_create(&p->primitive, pd), "making a convolution", err));
    TRY(make_memory(&p->src, view_of(&g->src), engine, NULL, err));
    TRY(make_memory(&p->dst, view_of(&g->dst), engine, NULL, err));
    TRY(make_memory(&p->weight, blocked, engine, p->blocked, err));
    TRY(make_memory(&p->our_weight, view_of(our_weight), engine, NULL, err));
    descriptor_view from = d == BACKWARD_WEIGHT ? blocked : view_of(our_weight);
    descriptor_view to = d == BACKWARD_WEIGHT ? view_of(our_weight) : blocked;
    dnnl_primitive_desc_t reorder = NULL;
    TRY(check(dnnl_reorder_primitive_desc_create(&reorder, from, engine, to, engine, NULL),
              "describing a reorder", err));
    const enum status s =
        check(dnnl_primitive_create(&p->reorder, reorder), "making a reorder", err);
    (void)dnnl_primitive_desc_destroy(reorder);
    return s;
}

static enum status make_pass(struct convolutions *c,
                             struct pass *p,
                             enum direction d,
                             const struct conv_shape *shape,
                             struct error *err) {
    struct geometry g;
    descriptor our_weight;
    dnnl_primitive_desc_t pd = NULL;
    memset(&g, 0, sizeof g);
    memset(&our_weight, 0, sizeof our_weight);
    enum status s = make_geometry(&g, &our_weight, shape, err);
    if (s == STATUS_OK) {
        s = check(make_primitive_desc(&pd, d, &g, c->engine), "describing a convolution", err);
    }
    if (s == STATUS_OK) {
        s = fill_pass(p, d, &g, &our_weight, pd, c->engine, err);
        (void)dnnl_primitive_desc_destroy(pd);
    }
    forget(&g.src);
    forget(&g.weight);
    forget(&g.dst);
    forget(&our_weight);
    if (s != STATUS_OK) {
        pass_fini(p);
    }
    return s;
}

static enum status find_pass(struct convolutions *c,
                             struct pass **out,
                             enum direction d,
                             const struct conv_shape *shape,
                             struct error *err) {
    struct shape_entry *entry = NULL;
    for (int32_t i = 0; entry == NULL && i < c->count; i++) {
        if (memcmp(&c->entries[i]->shape, shape, sizeof *shape) == 0) {
            entry = c->entries[i];
        }
    }
    if (entry == NULL) {
        if (c->count == CONVOLUTIONS_MAX_SHAPES) {
            return error_set(err, STATUS_LIMIT, "more than %d convolution shapes",
                             CONVOLUTIONS_MAX_SHAPES);
        }
        entry = calloc(1, sizeof *entry);
        if (entry == NULL) {
            return error_set(err, STATUS_NOMEM, "no memory for a convolution");
        }
        entry->shape = *shape;
        c->entries[c->count++] = entry;
    }
    if (!entry->ready[d]) {
        TRY(make_pass(c, &entry->passes[d], d, shape, err));
        entry->ready[d] = true;
    }
    *out = &entry->passes[d];
    return STATUS_OK;
}

/* oneDNN takes all data as writable; what it only reads stays as it is. */
static void *writable(const float *data) {
    union {
        const float *in;
        void *out;
    } u = {.in = data};
    return u.out;
}

static enum status
run_reorder(struct convolutions *c, const struct pass *p, bool to_ours, struct error *err) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, to_ours ? p->weight : p->our_weight},
                                    {DNNL_ARG_TO, to_ours ? p->our_weight : p->weight}};
    return check(dnnl_primitive_execute(p->reorder, c->stream, 2, args), "a reorder", err);
}

static enum status run(struct convolutions *c,
                       const struct pass *p,
                       const int names[3],
                       const float *src,
                       const float *dst,
                       struct error *err) {
    TRY(check(dnnl_memory_set_data_handle(p->src, writable(src)), "setting memory", err));
    TRY(check(dnnl_memory_set_data_handle(p->dst, writable(dst)), "setting memory", err));
    const dnnl_exec_arg_t args[] = {{names[0], p->src}, {names[1], p->weight}, {names[2], p->dst}};
    TRY(check(dnnl_primitive_execute(p->primitive, c->stream, 3, args), "a convolution", err));
    return check(dnnl_stream_wait(c->stream), "waiting", err);
}

enum status convolve_forward(struct convolutions *c,
                             const struct conv_shape *shape,
                             float *dst,
                             const float *src,
                             const float *weight,
                             struct error *err) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    struct pass *p;
    TRY(find_pass(c, &p, FORWARD, shape, err));
    TRY(check(dnnl_memory_set_data_handle(p->our_weight, writable(weight)), "setting memory", err));
    TRY(run_reorder(c, p, false, err));
    return run(c, p, names, src, dst, err);
}

enum status convolve_backward_data(struct convolutions *c,
                                   const struct conv_shape *shape,
                                   float *dsrc,
                                   const float *ddst,
                                   const float *weight,
                                   struct error *err) {
    static const int names[] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST};
    struct pass *p;
    TRY(find_pass(c, &p, BACKWARD_DATA, shape, err));
    TRY(check(dnnl_memory_set_data_handle(p->our_weight, writable(weight)), "setting memory", err));
    TRY(run_reorder(c, p, false, err));
    return run(c, p, names, dsrc, ddst, err);
}

enum status convolve_backward_weight(struct convolutions *c,
                                     const struct conv_shape *shape,
                                     float *dweight,
                                     const float *ddst,
                                     const float *src,
                                     struct error *err) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
    struct pass *p;
    TRY(find_pass(c, &p, BACKWARD_WEIGHT, shape, err));
    TRY(check(dnnl_memory_set_data_handle(p->our_weight, dweight), "setting memory", err));
    TRY(run(c, p, names, src, ddst, err));
    TRY(run_reorder(c, p, true, err));
    return check(dnnl_stream_wait(c->stream), "waiting", err);
}

enum status convolutions_create(struct convolutions **out, struct error *err) {
    *out = NULL;
    struct convolutions *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for oneDNN");
    }
    enum status s = check(dnnl_engine_create(&c->engine, dnnl_cpu, 0), "opening the CPU", err);
    if (s == STATUS_OK) {
        s = check(dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags),
                  "opening a stream", err);
    }
    if (s != STATUS_OK) {
        convolutions_destroy(c);
        return s;
    }
    *out = c;
    return STATUS_OK;
}

void convolutions_destroy(struct convolutions *c) {
    if (c == NULL) {
        return;
    }
    for (int32_t i = 0; i < c->count; i++) {
        for (int d = 0; d < DIRECTION_COUNT; d++) {
            pass_fini(&c->entries[i]->passes[d]);
        }
        free(c->entries[i]);
    }
    (void)dnnl_stream_destroy(c->stream);
    (void)dnnl_engine_destroy(c->engine);
    free(c);
}

enum status matrix_product(float *out,
                           int64_t m,
                           int64_t n,
                           int64_t k,
                           const float *a,
                           bool transpose_a,
                           const float *b,
                           bool transpose_b,
                           float alpha,
                           float beta,
                           struct error *err) {
    const dnnl_status_t s =
        dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a,
                   transpose_a ? m : k, b, transpose_b ? k : n, beta, out, n);
    return check(s, "a matrix product", err);
}
