/*
 * onednn_product: f32 products use sgemm, which keeps nothing; bf16 products are primitives, cached
 * by shape. A bf16 product into f32 leaves k open until it runs, since k is then the number of rows
 * of a batch; in 2.6 the kernels that this selects are also faster for it.
 */
#include <string.h>

#include "kernels/cpu/onednn_internal.h"

static void product_fini(struct product_entry *p) {
    (void)dnnl_primitive_destroy(p->primitive);
    const dnnl_memory_t memories[] = {p->a, p->b, p->bias, p->out};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        (void)dnnl_memory_destroy(memories[i]);
    }
    memset(p, 0, sizeof *p);
}

void onednn_products_fini(struct onednn *o) {
    for (int32_t i = 0; i < o->products_count; i++) {
        product_fini(&o->products[i]);
    }
}

/* Descriptors with k as given, or open with DNNL_RUNTIME_DIM_VAL. */
static enum status
describe_matrices(struct matrices *m, const struct product_shape *p, int64_t k, struct error *err) {
    static const char what[] = "describing a matrix";
    const dnnl_data_type_t type = onednn_type(p->dtype);
    const dnnl_dims_t a = {p->m, k};
    const dnnl_dims_t b = {k, p->n};
    const dnnl_dims_t out = {p->m, p->n};
    const dnnl_dims_t bias = {1, p->n};
    const dnnl_dims_t a_strides = {p->transpose_a ? 1 : k, p->transpose_a ? p->m : 1};
    const dnnl_dims_t b_strides = {p->transpose_b ? 1 : p->n, p->transpose_b ? k : 1};
    const dnnl_dims_t out_strides = {p->n, 1};
    TRY(onednn_check(describe_matrix(&m->a, a, type, a_strides), what, err));
    TRY(onednn_check(describe_matrix(&m->b, b, type, b_strides), what, err));
    TRY(onednn_check(describe_matrix(&m->bias, bias, dnnl_f32, out_strides), what, err));
    return onednn_check(describe_matrix(&m->out, out, onednn_type(p->out_dtype), out_strides), what,
                        err);
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
        TRY_OR_FAIL(s, onednn_adding(&attr, err));
    }
    TRY_OR_FAIL(s, onednn_check(make_product_desc(&pd, &m, e->shape.biased != 0, attr, o->engine),
                                what, err));
    TRY_OR_FAIL(s, onednn_check(dnnl_primitive_create(&e->primitive, pd), what, err));
    TRY_OR_FAIL(s, onednn_memory(&e->bias, view_of(&m.bias), o->engine, NULL, err));
    TRY_OR_FAIL(s, onednn_memory(&e->out, view_of(&m.out), o->engine, NULL, err));
fail:
    (void)dnnl_primitive_desc_destroy(pd);
    (void)dnnl_primitive_attr_destroy(attr);
    forget_matrices(&m);
    return s;
}

/* Memory objects of a and b for this k; kept until k changes. */
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
    TRY_OR_FAIL(s, onednn_memory(&e->a, view_of(&m.a), o->engine, NULL, err));
    TRY_OR_FAIL(s, onednn_memory(&e->b, view_of(&m.b), o->engine, NULL, err));
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
    RETURN_CREATED(s, out, e, product_fini);
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
    TRY(onednn_check(dnnl_memory_set_data_handle(e->a, onednn_writable(a)), what, err));
    TRY(onednn_check(dnnl_memory_set_data_handle(e->b, onednn_writable(b)), what, err));
    TRY(onednn_check(dnnl_memory_set_data_handle(e->bias, onednn_writable(bias)), what, err));
    TRY(onednn_check(dnnl_memory_set_data_handle(e->out, out), what, err));
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, e->a},
                                    {DNNL_ARG_WEIGHTS, e->b},
                                    {DNNL_ARG_DST, e->out},
                                    {DNNL_ARG_BIAS, e->bias}};
    TRY(onednn_check(dnnl_primitive_execute(e->primitive, o->stream, bias != NULL ? 4 : 3, args),
                     "a matrix product", err));
    return onednn_check(dnnl_stream_wait(o->stream), "waiting", err);
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
    return onednn_check(s, "a matrix product", err);
}
