/*
 * onednn: the engine, the stream, and what convolutions (onednn_convolution.c) and products
 * (onednn_product.c) share.
 */
#include <stdlib.h>

#include "kernels/cpu/onednn_internal.h"

dnnl_data_type_t onednn_type(int64_t dtype) {
    return dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

enum status onednn_check(dnnl_status_t s, const char *what, struct error *err) {
    if (s == dnnl_success) {
        return STATUS_OK;
    }
    return error_set(err, s == dnnl_out_of_memory ? STATUS_NOMEM : STATUS_DEVICE,
                     "oneDNN: %s failed (%d)", what, (int)s);
}

void *onednn_writable(const void *data) {
    union {
        const void *in;
        void *out;
    } u = {.in = data};
    return u.out;
}

enum status onednn_adding(dnnl_primitive_attr_t *out, struct error *err) {
    static const char what[] = "describing a sum";
    dnnl_post_ops_t ops = NULL;
    enum status s = STATUS_OK;
    TRY_OR_FAIL(s, onednn_check(dnnl_primitive_attr_create(out), what, err));
    TRY_OR_FAIL(s, onednn_check(dnnl_post_ops_create(&ops), what, err));
    TRY_OR_FAIL(s, onednn_check(append_sum(ops), what, err));
    TRY_OR_FAIL(s, onednn_check(dnnl_primitive_attr_set_post_ops(*out, ops), what, err));
fail:
    (void)dnnl_post_ops_destroy(ops);
    return s;
}

enum status onednn_memory(dnnl_memory_t *out,
                          descriptor_view d,
                          dnnl_engine_t engine,
                          void *data,
                          struct error *err) {
    return onednn_check(dnnl_memory_create(out, d, engine, data), "making a memory object", err);
}

enum status onednn_create(struct onednn **out, struct error *err) {
    *out = NULL;
    struct onednn *o = calloc(1, sizeof *o);
    TRY_MEMORY(o, err, "no memory for oneDNN");
    enum status s =
        onednn_check(dnnl_engine_create(&o->engine, dnnl_cpu, 0), "opening the CPU", err);
    THEN(s, onednn_check(dnnl_stream_create(&o->stream, o->engine, dnnl_stream_default_flags),
                         "opening a stream", err));
    RETURN_CREATED(s, out, o, onednn_destroy);
}

void onednn_destroy(struct onednn *o) {
    if (o == NULL) {
        return;
    }
    onednn_convolutions_fini(o);
    onednn_products_fini(o);
    (void)dnnl_stream_destroy(o->stream);
    (void)dnnl_engine_destroy(o->engine);
    free(o);
}
