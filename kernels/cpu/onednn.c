/*
 * onednn: three directions per convolution shape, each a primitive that reads or writes weights in
 * the layout that oneDNN chose, and a reorder between that layout and ours. f32 products go through
 * sgemm, which keeps nothing; bf16 ones are primitives, found by their shape.
 *
 * A bf16 product into f32 leaves k open until it runs, since k is then the number of rows of a
 * batch: the kernels that this selects are also the faster ones for it in 2.6.
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

static dnnl_status_t describe(descriptor *d,
                              int ndims,
                              const dnnl_dims_t dims,
                              dnnl_data_type_t type,
                              dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(d, ndims, dims, type, tag);
}

static dnnl_status_t describe_matrix(descriptor *d,
                                     const dnnl_dims_t dims,
                                     dnnl_data_type_t type,
                                     const dnnl_dims_t strides) {
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
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

static dnnl_status_t describe(descriptor *d,
                              int ndims,
                              const dnnl_dims_t dims,
                              dnnl_data_type_t type,
                              dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(d, ndims, dims, type, tag);
}

static dnnl_status_t describe_matrix(descriptor *d,
                                     const dnnl_dims_t dims,
                                     dnnl_data_type_t type,
                                     const dnnl_dims_t strides) {
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static void forget(descriptor *d) {
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

static dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *pd,
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

static dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *pd,
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

static dnnl_status_t make_product_desc(dnnl_primitive_desc_t *pd,
                                       const struct matrices *m,
                                       bool biased,
                                       const_dnnl_primitive_attr_t attr,
                                       dnnl_engine_t engine) {
    return dnnl_matmul_primitive_desc_create(pd, engine, m->a, m->b, biased ? m->bias : NULL,
                                             m->out, attr);
}

#else

static dnnl_status_t make_product_desc(dnnl_primitive_desc_t *pd,
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

/* ---- one shape ---- */

struct pass { /* one direction */
    dnnl_primitive_t primitive;
    dnnl_primitive_t reorder; /* ours -> oneDNN's, or back for CONV_BACKWARD_WEIGHT */
    dnnl_memory_t src, dst, weight, our_weight;
    void *blocked; /* the weights in oneDNN's layout */
};

struct shape_entry {
    struct conv_shape shape;
    struct pass passes[CONV_DIRECTIONS];
    bool ready[CONV_DIRECTIONS];
};

struct product_entry {
    struct product_shape shape; /* k is 0 where it is left open */
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, bias, out;
    int64_t inputs_k; /* what a and b were made for */
    uint64_t used;    /* when, in calls */
};

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct shape_entry *entries[ONEDNN_MAX_CONVOLUTIONS];
    int32_t count;
    struct product_entry products[ONEDNN_MAX_PRODUCTS];
    int32_t products_count;
    uint64_t calls;
};

static dnnl_data_type_t type_of(int64_t dtype) {
    return dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

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
                                 enum conv_direction d,
                                 const struct conv_shape *c,
                                 struct error *err) {
    const dnnl_dims_t src = {c->n, c->in, c->h, c->w};
    const dnnl_dims_t weight = {c->out, c->in, c->kernel_h, c->kernel_w};
    const dnnl_dims_t dst = {c->n, c->out, c->out_h, c->out_w};
    g->strides[0] = g->strides[1] = c->stride;
    g->dilates[0] = g->dilates[1] = 0;
    g->pads[0] = g->pads[1] = c->pad;
    const dnnl_data_type_t type = type_of(c->dtype);
    static const char what[] = "describing the weights";
    TRY(check(describe(&g->src, 4, src, type, dnnl_nhwc), "describing the input", err));
    TRY(check(describe(&g->dst, 4, dst, type, dnnl_nhwc), "describing the output", err));
    TRY(check(describe(&g->weight, 4, weight, type, dnnl_format_tag_any), what, err));
    TRY(check(describe(&g->dweight, 4, weight, dnnl_f32, dnnl_format_tag_any), what, err));
    return check(
        describe(our_weight, 4, weight, d == CONV_BACKWARD_WEIGHT ? dnnl_f32 : type, dnnl_acdb),
        what, err);
}

/* Attributes of a primitive that adds to what its output holds. */
static enum status make_adding(dnnl_primitive_attr_t *out, struct error *err) {
    static const char what[] = "describing a sum";
    dnnl_post_ops_t ops = NULL;
    enum status s = STATUS_OK;
    TRY_OR_FAIL(s, check(dnnl_primitive_attr_create(out), what, err));
    TRY_OR_FAIL(s, check(dnnl_post_ops_create(&ops), what, err));
    TRY_OR_FAIL(s, check(append_sum(ops), what, err));
    TRY_OR_FAIL(s, check(dnnl_primitive_attr_set_post_ops(*out, ops), what, err));
fail:
    (void)dnnl_post_ops_destroy(ops);
    return s;
}

static enum status make_memory(dnnl_memory_t *out,
                               descriptor_view d,
                               dnnl_engine_t engine,
                               void *data,
                               struct error *err) {
    return check(dnnl_memory_create(out, d, engine, data), "making a memory object", err);
}

static enum status fill_pass(struct pass *p,
                             enum conv_direction d,
                             const struct geometry *g,
                             const descriptor *our_weight,
                             dnnl_primitive_desc_t pd,
                             dnnl_engine_t engine,
                             struct error *err) {
    const dnnl_query_t query =
        d == CONV_BACKWARD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    descriptor_view blocked = dnnl_primitive_desc_query_md(pd, query, 0);
    const size_t size = (dnnl_memory_desc_get_size(blocked) + 63) / 64 * 64;
    p->blocked = aligned_alloc(64, size);
    if (p->blocked == NULL) {
        return error_set(err, STATUS_NOMEM, "oneDNN: no memory for %zu bytes of weights", size);
    }
    memset(p->blocked, 0, size);
    TRY(check(dnnl_primitive_create(&p->primitive, pd), "making a convolution", err));
    TRY(make_memory(&p->src, view_of(&g->src), engine, NULL, err));
    TRY(make_memory(&p->dst, view_of(&g->dst), engine, NULL, err));
    TRY(make_memory(&p->weight, blocked, engine, p->blocked, err));
    TRY(make_memory(&p->our_weight, view_of(our_weight), engine, NULL, err));
    descriptor_view from = d == CONV_BACKWARD_WEIGHT ? blocked : view_of(our_weight);
    descriptor_view to = d == CONV_BACKWARD_WEIGHT ? view_of(our_weight) : blocked;
    dnnl_primitive_desc_t reorder = NULL;
    TRY(check(dnnl_reorder_primitive_desc_create(&reorder, from, engine, to, engine, NULL),
              "describing a reorder", err));
    const enum status s =
        check(dnnl_primitive_create(&p->reorder, reorder), "making a reorder", err);
    (void)dnnl_primitive_desc_destroy(reorder);
    return s;
}

static enum status make_pass(struct onednn *o,
                             struct pass *p,
                             enum conv_direction d,
                             const struct conv_shape *shape,
                             struct error *err) {
    struct geometry g;
    descriptor our_weight;
    dnnl_primitive_desc_t pd = NULL;
    memset(&g, 0, sizeof g);
    memset(&our_weight, 0, sizeof our_weight);
    enum status s = make_geometry(&g, &our_weight, d, shape, err);
    if (s == STATUS_OK && shape->add != 0) {
        s = make_adding(&g.how, err);
    }
    if (s == STATUS_OK) {
        s = check(make_primitive_desc(&pd, d, &g, o->engine), "describing a convolution", err);
    }
    if (s == STATUS_OK) {
        s = fill_pass(p, d, &g, &our_weight, pd, o->engine, err);
        (void)dnnl_primitive_desc_destroy(pd);
    }
    (void)dnnl_primitive_attr_destroy(g.how);
    forget(&g.src);
    forget(&g.weight);
    forget(&g.dweight);
    forget(&g.dst);
    forget(&our_weight);
    if (s != STATUS_OK) {
        pass_fini(p);
    }
    return s;
}

static enum status find_pass(struct onednn *o,
                             struct pass **out,
                             enum conv_direction d,
                             const struct conv_shape *shape,
                             struct error *err) {
    struct shape_entry *entry = NULL;
    for (int32_t i = 0; entry == NULL && i < o->count; i++) {
        if (memcmp(&o->entries[i]->shape, shape, sizeof *shape) == 0) {
            entry = o->entries[i];
        }
    }
    if (entry == NULL) {
        if (o->count == ONEDNN_MAX_CONVOLUTIONS) {
            return error_set(err, STATUS_LIMIT, "more than %d convolution shapes",
                             ONEDNN_MAX_CONVOLUTIONS);
        }
        entry = calloc(1, sizeof *entry);
        if (entry == NULL) {
            return error_set(err, STATUS_NOMEM, "no memory for a convolution");
        }
        entry->shape = *shape;
        o->entries[o->count++] = entry;
    }
    if (!entry->ready[d]) {
        TRY(make_pass(o, &entry->passes[d], d, shape, err));
        entry->ready[d] = true;
    }
    *out = &entry->passes[d];
    return STATUS_OK;
}

/* oneDNN takes all data as writable; what it only reads stays as it is. */
static void *writable(const void *data) {
    union {
        const void *in;
        void *out;
    } u = {.in = data};
    return u.out;
}

static enum status
run_reorder(struct onednn *o, const struct pass *p, bool to_ours, struct error *err) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, to_ours ? p->weight : p->our_weight},
                                    {DNNL_ARG_TO, to_ours ? p->our_weight : p->weight}};
    return check(dnnl_primitive_execute(p->reorder, o->stream, 2, args), "a reorder", err);
}

static enum status run(struct onednn *o,
                       const struct pass *p,
                       const int names[3],
                       const void *src,
                       const void *dst,
                       struct error *err) {
    TRY(check(dnnl_memory_set_data_handle(p->src, writable(src)), "setting memory", err));
    TRY(check(dnnl_memory_set_data_handle(p->dst, writable(dst)), "setting memory", err));
    const dnnl_exec_arg_t args[] = {{names[0], p->src}, {names[1], p->weight}, {names[2], p->dst}};
    TRY(check(dnnl_primitive_execute(p->primitive, o->stream, 3, args), "a convolution", err));
    return check(dnnl_stream_wait(o->stream), "waiting", err);
}

enum status convolve_forward(struct onednn *o,
                             const struct conv_shape *shape,
                             void *dst,
                             const void *src,
                             const void *weight,
                             struct error *err) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    struct pass *p;
    TRY(find_pass(o, &p, CONV_FORWARD, shape, err));
    TRY(check(dnnl_memory_set_data_handle(p->our_weight, writable(weight)), "setting memory", err));
    TRY(run_reorder(o, p, false, err));
    return run(o, p, names, src, dst, err);
}

enum status convolve_backward_data(struct onednn *o,
                                   const struct conv_shape *shape,
                                   void *dsrc,
                                   const void *ddst,
                                   const void *weight,
                                   struct error *err) {
    static const int names[] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST};
    struct pass *p;
    TRY(find_pass(o, &p, CONV_BACKWARD_DATA, shape, err));
    TRY(check(dnnl_memory_set_data_handle(p->our_weight, writable(weight)), "setting memory", err));
    TRY(run_reorder(o, p, false, err));
    return run(o, p, names, dsrc, ddst, err);
}

enum status convolve_backward_weight(struct onednn *o,
                                     const struct conv_shape *shape,
                                     float *dweight,
                                     const void *ddst,
                                     const void *src,
                                     struct error *err) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
    struct pass *p;
    TRY(find_pass(o, &p, CONV_BACKWARD_WEIGHT, shape, err));
    TRY(check(dnnl_memory_set_data_handle(p->our_weight, dweight), "setting memory", err));
    TRY(run(o, p, names, src, ddst, err));
    TRY(run_reorder(o, p, true, err));
    return check(dnnl_stream_wait(o->stream), "waiting", err);
}

enum status convolve_bare(struct onednn *o,
                          const struct conv_shape *shape,
                          enum conv_direction direction,
                          void *src,
                          void *dst,
                          struct error *err) {
    static const int names[CONV_DIRECTIONS][3] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    struct pass *p;
    TRY(find_pass(o, &p, direction, shape, err));
    return run(o, p, names[direction], src, dst, err);
}

enum status onednn_create(struct onednn **out, struct error *err) {
    *out = NULL;
    struct onednn *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for oneDNN");
    }
    enum status s = check(dnnl_engine_create(&o->engine, dnnl_cpu, 0), "opening the CPU", err);
    if (s == STATUS_OK) {
        s = check(dnnl_stream_create(&o->stream, o->engine, dnnl_stream_default_flags),
                  "opening a stream", err);
    }
    if (s != STATUS_OK) {
        onednn_destroy(o);
        return s;
    }
    *out = o;
    return STATUS_OK;
}

static void product_fini(struct product_entry *p) {
    (void)dnnl_primitive_destroy(p->primitive);
    const dnnl_memory_t memories[] = {p->a, p->b, p->bias, p->out};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        (void)dnnl_memory_destroy(memories[i]);
    }
    memset(p, 0, sizeof *p);
}

void onednn_destroy(struct onednn *o) {
    if (o == NULL) {
        return;
    }
    for (int32_t i = 0; i < o->count; i++) {
        for (int d = 0; d < CONV_DIRECTIONS; d++) {
            pass_fini(&o->entries[i]->passes[d]);
        }
        free(o->entries[i]);
    }
    for (int32_t i = 0; i < o->products_count; i++) {
        product_fini(&o->products[i]);
    }
    (void)dnnl_stream_destroy(o->stream);
    (void)dnnl_engine_destroy(o->engine);
    free(o);
}

/* ---- products ---- */

/* Descriptors with k as given, or open with DNNL_RUNTIME_DIM_VAL. */
static enum status
describe_matrices(struct matrices *m, const struct product_shape *p, int64_t k, struct error *err) {
    static const char what[] = "describing a matrix";
    const dnnl_data_type_t type = type_of(p->dtype);
    const dnnl_dims_t a = {p->m, k};
    const dnnl_dims_t b = {k, p->n};
    const dnnl_dims_t out = {p->m, p->n};
    const dnnl_dims_t bias = {1, p->n};
    const dnnl_dims_t a_strides = {p->transpose_a ? 1 : k, p->transpose_a ? p->m : 1};
    const dnnl_dims_t b_strides = {p->transpose_b ? 1 : p->n, p->transpose_b ? k : 1};
    const dnnl_dims_t out_strides = {p->n, 1};
    TRY(check(describe_matrix(&m->a, a, type, a_strides), what, err));
    TRY(check(describe_matrix(&m->b, b, type, b_strides), what, err));
    TRY(check(describe_matrix(&m->bias, bias, dnnl_f32, out_strides), what, err));
    return check(describe_matrix(&m->out, out, type_of(p->out_dtype), out_strides), what, err);
}

static void forget_matrices(struct matrices *m) {
    forget(&m->a);
    forget(&m->b);
    forget(&m->bias);
    forget(&m->out);
}

static enum status
fill_product(struct onednn *o, struct product_entry *e, bool open, struct error *err) {
    static const char what[] = "making a matrix product";
    const int64_t k = open ? DNNL_RUNTIME_DIM_VAL : e->shape.k;
    struct matrices m;
    memset(&m, 0, sizeof m);
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    enum status s = STATUS_OK;
    TRY_OR_FAIL(s, describe_matrices(&m, &e->shape, k, err));
    if (e->shape.add != 0) {
        TRY_OR_FAIL(s, make_adding(&attr, err));
    }
    TRY_OR_FAIL(
        s, check(make_product_desc(&pd, &m, e->shape.biased != 0, attr, o->engine), what, err));
    TRY_OR_FAIL(s, check(dnnl_primitive_create(&e->primitive, pd), what, err));
    TRY_OR_FAIL(s, make_memory(&e->bias, view_of(&m.bias), o->engine, NULL, err));
    TRY_OR_FAIL(s, make_memory(&e->out, view_of(&m.out), o->engine, NULL, err));
fail:
    (void)dnnl_primitive_desc_destroy(pd);
    (void)dnnl_primitive_attr_destroy(attr);
    forget_matrices(&m);
    return s;
}

/* Memory objects of a and b for this k; kept until another comes. */
static enum status
fit_inputs(struct onednn *o, struct product_entry *e, int64_t k, struct error *err) {
    if (e->inputs_k == k) {
        return STATUS_OK;
    }
    e->inputs_k = 0;
    (void)dnnl_memory_destroy(e->a);
    (void)dnnl_memory_destroy(e->b);
    e->a = e->b = NULL;
    struct matrices m;
    memset(&m, 0, sizeof m);
    enum status s = STATUS_OK;
    TRY_OR_FAIL(s, describe_matrices(&m, &e->shape, k, err));
    TRY_OR_FAIL(s, make_memory(&e->a, view_of(&m.a), o->engine, NULL, err));
    TRY_OR_FAIL(s, make_memory(&e->b, view_of(&m.b), o->engine, NULL, err));
    e->inputs_k = k;
fail:
    forget_matrices(&m);
    return s;
}

static enum status find_product(struct onednn *o,
                                struct product_entry **out,
                                const struct product_shape *shape,
                                bool open,
                                struct error *err) {
    struct product_entry *oldest = &o->products[0];
    for (int32_t i = 0; i < o->products_count; i++) {
        struct product_entry *e = &o->products[i];
        if (memcmp(&e->shape, shape, sizeof *shape) == 0) {
            e->used = ++o->calls;
            *out = e;
            return STATUS_OK;
        }
        oldest = e->used < oldest->used ? e : oldest;
    }
    struct product_entry *e = oldest;
    if (o->products_count < ONEDNN_MAX_PRODUCTS) {
        e = &o->products[o->products_count++];
    }
    product_fini(e);
    e->shape = *shape;
    e->used = ++o->calls;
    const enum status s = fill_product(o, e, open, err);
    if (s != STATUS_OK) {
        product_fini(e);
        return s;
    }
    *out = e;
    return STATUS_OK;
}

static enum status narrow_product(struct onednn *o,
                                  const struct product_shape *shape,
                                  void *out,
                                  const void *a,
                                  const void *b,
                                  const float *bias,
                                  struct error *err) {
    static const char what[] = "setting memory";
    const bool open = shape->out_dtype == DTYPE_F32;
    struct product_shape key = *shape;
    key.k = open ? 0 : shape->k;
    struct product_entry *e = NULL;
    TRY(find_product(o, &e, &key, open, err));
    TRY(fit_inputs(o, e, shape->k, err));
    TRY(check(dnnl_memory_set_data_handle(e->a, writable(a)), what, err));
    TRY(check(dnnl_memory_set_data_handle(e->b, writable(b)), what, err));
    TRY(check(dnnl_memory_set_data_handle(e->bias, writable(bias)), what, err));
    TRY(check(dnnl_memory_set_data_handle(e->out, out), what, err));
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, e->a},
                                    {DNNL_ARG_WEIGHTS, e->b},
                                    {DNNL_ARG_DST, e->out},
                                    {DNNL_ARG_BIAS, e->bias}};
    TRY(check(dnnl_primitive_execute(e->primitive, o->stream, bias != NULL ? 4 : 3, args),
              "a matrix product", err));
    return check(dnnl_stream_wait(o->stream), "waiting", err);
}

enum status matrix_product(struct onednn *o,
                           const struct product_shape *p,
                           void *out,
                           const void *a,
                           const void *b,
                           const float *bias,
                           struct error *err) {
    if (p->dtype == DTYPE_BF16) {
        return narrow_product(o, p, out, a, b, bias, err);
    }
    const dnnl_status_t s =
        dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, 1.0f,
                   a, p->transpose_a ? p->m : p->k, b, p->transpose_b ? p->k : p->n,
                   p->add != 0 ? 1.0f : 0.0f, out, p->n);
    return check(s, "a matrix product", err);
}
