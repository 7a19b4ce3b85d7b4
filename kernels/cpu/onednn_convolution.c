/*
 * onednn_convolution: three directions for each convolution shape. Each is a primitive that reads
 * or writes weights in the layout that oneDNN chose, and a reorder between that layout and ours.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/onednn_internal.h"

static void pass_fini(struct pass *p) {
    (void)dnnl_primitive_destroy(p->primitive);
    (void)dnnl_primitive_destroy(p->reorder);
    const dnnl_memory_t memories[] = {p->src, p->dst, p->weight, p->our_weight};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        (void)dnnl_memory_destroy(memories[i]);
    }
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
    const dnnl_data_type_t type = onednn_type(c->dtype);
    static const char what[] = "describing the weights";
    TRY(onednn_check(describe(&g->src, 4, src, type, dnnl_nhwc), "describing the input", err));
    TRY(onednn_check(describe(&g->dst, 4, dst, type, dnnl_nhwc), "describing the output", err));
    TRY(onednn_check(describe(&g->weight, 4, weight, type, dnnl_format_tag_any), what, err));
    TRY(onednn_check(describe(&g->dweight, 4, weight, dnnl_f32, dnnl_format_tag_any), what, err));
    TRY(onednn_check(describe(our_weight, 4, weight, d == CONV_BACKWARD_WEIGHT ? dnnl_f32 : type,
                              c->transpose ? dnnl_bcda : dnnl_acdb),
                     what, err));
    return c->add ? onednn_adding(&g->how, err) : STATUS_OK;
}

/* Weights are reordered at every call, so all convolutions share one buffer. */
static enum status fit_weights(struct onednn *o, descriptor_view blocked, struct error *err) {
    const size_t size = (dnnl_memory_desc_get_size(blocked) + 63) / 64 * 64;
    if (size > o->weights_bytes) {
        free(o->weights);
        o->weights_bytes = 0;
        o->weights = aligned_alloc(64, size);
        TRY_MEMORY(o->weights, err, "oneDNN: no memory for %zu bytes of weights", size);
        o->weights_bytes = size;
    }
    return STATUS_OK;
}

static enum status fill_pass(struct onednn *o,
                             struct pass *p,
                             enum conv_direction d,
                             const struct geometry *g,
                             const descriptor *our_weight,
                             dnnl_primitive_desc_t pd,
                             struct error *err) {
    dnnl_engine_t engine = o->engine;
    const dnnl_query_t query =
        d == CONV_BACKWARD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    descriptor_view blocked = dnnl_primitive_desc_query_md(pd, query, 0);
    TRY(fit_weights(o, blocked, err));
    TRY(onednn_check(dnnl_primitive_create(&p->primitive, pd), "making a convolution", err));
    TRY(onednn_memory(&p->src, view_of(&g->src), engine, NULL, err));
    TRY(onednn_memory(&p->dst, view_of(&g->dst), engine, NULL, err));
    TRY(onednn_memory(&p->weight, blocked, engine, NULL, err));
    TRY(onednn_memory(&p->our_weight, view_of(our_weight), engine, NULL, err));
    descriptor_view from = d == CONV_BACKWARD_WEIGHT ? blocked : view_of(our_weight);
    descriptor_view to = d == CONV_BACKWARD_WEIGHT ? view_of(our_weight) : blocked;
    dnnl_primitive_desc_t reorder = NULL;
    TRY(onednn_check(dnnl_reorder_primitive_desc_create(&reorder, from, engine, to, engine, NULL),
                     "describing a reorder", err));
    const enum status s =
        onednn_check(dnnl_primitive_create(&p->reorder, reorder), "making a reorder", err);
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
    THEN(s,
         onednn_check(make_primitive_desc(&pd, d, &g, o->engine), "describing a convolution", err));
    if (s == STATUS_OK) {
        s = fill_pass(o, p, d, &g, &our_weight, pd, err);
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
        FAIL_IF(o->count == ONEDNN_MAX_CONVOLUTIONS, err, STATUS_LIMIT,
                "more than %d convolution shapes", ONEDNN_MAX_CONVOLUTIONS);
        entry = calloc(1, sizeof *entry);
        TRY_MEMORY(entry, err, "no memory for a convolution");
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

static enum status
run_reorder(struct onednn *o, const struct pass *p, bool to_ours, struct error *err) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, to_ours ? p->weight : p->our_weight},
                                    {DNNL_ARG_TO, to_ours ? p->our_weight : p->weight}};
    return onednn_check(dnnl_primitive_execute(p->reorder, o->stream, 2, args), "a reorder", err);
}

static enum status run(struct onednn *o,
                       const struct pass *p,
                       const int names[3],
                       void *src,
                       void *dst,
                       struct error *err) {
    TRY(onednn_check(dnnl_memory_set_data_handle(p->src, src), "setting memory", err));
    TRY(onednn_check(dnnl_memory_set_data_handle(p->dst, dst), "setting memory", err));
    const dnnl_exec_arg_t args[] = {{names[0], p->src}, {names[1], p->weight}, {names[2], p->dst}};
    TRY(onednn_check(dnnl_primitive_execute(p->primitive, o->stream, 3, args), "a convolution",
                     err));
    return onednn_check(dnnl_stream_wait(o->stream), "waiting", err);
}

static const int argument_names[CONV_DIRECTIONS][3] = {
    {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};

enum status convolve(struct onednn *o, const struct convolution *c, struct error *err) {
    const bool to_ours = c->direction == CONV_BACKWARD_WEIGHT;
    struct pass *p = NULL;
    TRY(find_pass(o, &p, c->direction, &c->shape, err));
    TRY(onednn_check(dnnl_memory_set_data_handle(p->our_weight, c->weight), "setting memory", err));
    TRY(onednn_check(dnnl_memory_set_data_handle(p->weight, o->weights), "setting memory", err));
    TRY(to_ours ? STATUS_OK : run_reorder(o, p, false, err));
    TRY(run(o, p, argument_names[c->direction], c->src, c->dst, err));
    TRY(to_ours ? run_reorder(o, p, true, err) : STATUS_OK);
    return onednn_check(dnnl_stream_wait(o->stream), "waiting", err);
}

void onednn_convolutions_fini(struct onednn *o) {
    free(o->weights);
    for (int32_t i = 0; i < o->count; i++) {
        for (int d = 0; d < CONV_DIRECTIONS; d++) {
            pass_fini(&o->entries[i]->passes[d]);
        }
        free(o->entries[i]);
    }
}
