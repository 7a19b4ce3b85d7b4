/*
 * Two towers, two heads, one memory plan:
 *
 *   parameters   the table's blocks, and more of gradients (gradients.h)
 *   kept         image tower | text tower | heads      alive from forward to backward
 *   workspace      shared by both towers, which never run at the same time
 *   input        images | tokens | lengths
 *
 * all for one micro-batch, except the embeddings, which are the whole batch's. With B = 3 M
 *
 *   forward     part 0, part 1, part 2
 *   backward    part 2 (still there), then part 1 and part 0, each after its forward once more
 *
 * Captions are packed one after the other, or padded to the longest one of the part: rows without a
 * caption only cost time.
 */
#include <stdlib.h>

#include "kernels/device_stream.h"
#include "train/model/carve.h"
#include "train/model/dual_encoder_internal.h"

enum status dual_encoder_preset(struct dual_encoder_options *opt,
                                const char *image_tower,
                                const char *text_tower,
                                struct error *err) {
    *opt = (struct dual_encoder_options){
        .embed_dim = 256, .max_batch = 1, .training = true, .dtype = DTYPE_F32, .moments = 2};
    opt->texts_alone = image_tower == NULL;
    TRY(opt->texts_alone ? STATUS_OK : resnet_preset(&opt->image, image_tower, err));
    return transformer_preset(&opt->text, text_tower, err);
}

/* ---- description and plan ---- */

static void place_input(struct dual_encoder *m, struct carve *input) {
    const int64_t px = m->opt.image.image_px;
    for (int32_t i = 0; i <= m->opt.slots; i++) {
        struct input_slot *s = &m->slots[i];
        const int64_t n = i == 0 ? m->opt.micro_batch : m->opt.max_batch;
        if (!m->opt.texts_alone) {
            s->images = carve_take(input, tensor_4d(NULL, DTYPE_U8, n, px, px, 3));
        }
        if (m->opt.vit.patch_dropout > 0.0) {
            s->kept =
                carve_take(input, tensor_2d(NULL, DTYPE_I32, n, 1 + vit_kept_patches(&m->opt.vit)));
        }
        s->tokens = carve_take(input, tensor_1d(NULL, DTYPE_I32, n * m->opt.text.max_tokens));
        s->starts = carve_take(input, tensor_1d(NULL, DTYPE_I32, n));
        s->lengths = carve_take(input, tensor_1d(NULL, DTYPE_I32, n));
        if (m->opt.text.pool >= TRANSFORMER_POOL_END) {
            s->ends = carve_take(input, tensor_1d(NULL, DTYPE_I32, n));
        }
        s->sample_ids = carve_take(input, tensor_1d(NULL, DTYPE_U64, n));
    }
}

/* Towers, heads and their workspace, inputs. */
static void place(struct dual_encoder *m, struct encoder_carves *c) {
    const enum dtype dtype = m->opt.dtype;
    struct carve image = c->workspace;
    struct carve text = c->workspace;
    image_tower_place(&m->image, m->e.dev, dtype, &c->kept, &image);
    transformer_place(m->text, m->e.dev, dtype, &c->kept, &text);
    c->workspace = image.used_bytes > text.used_bytes ? image : text;
    if (!m->opt.texts_alone) {
        head_place(&m->image_head, &m->e, &c->kept);
    }
    head_place(&m->text_head, &m->e, &c->kept);
    m->e.z = carve_take(&c->kept, tensor_2d(NULL, dtype, m->e.held_rows, m->opt.embed_dim));
    place_input(m, &c->input);
}

/* With open_clip's names, in its order except inside the towers. */
static enum status add_clip_parameters(struct dual_encoder *m, struct error *err) {
    const bool resnet = m->opt.image.pool_heads > 0;
    const bool siglip = m->opt.text.whole;
    m->image_head.normal = resnet;
    m->text_head.normal = m->text_head.zero_bias = siglip;
    if (!m->opt.texts_alone) {
        TRY(params_set_prefix(m->e.params, siglip ? "visual.trunk." : "visual.", err));
        TRY(image_tower_create(&m->image, m->e.params, &m->opt.image, &m->opt.vit, err));
    }
    TRY(params_set_prefix(m->e.params, siglip ? "text." : "", err));
    TRY(transformer_create(&m->text, m->e.params, &m->opt.text, err));
    if (siglip) {
        head_add_none(&m->image_head, m->opt.vit.dim);
        return head_add(&m->text_head, &m->e, "text_projection", m->opt.text.dim, err);
    }
    TRY(m->opt.texts_alone ? STATUS_OK
        : resnet           ? head_add(&m->image_head, &m->e, "visual.attnpool.c_proj",
                                      image_tower_feature_count(&m->image), err)
                 : head_add_plain(&m->image_head, &m->e, "visual.proj", m->opt.vit.dim, err));
    return head_add_plain(&m->text_head, &m->e, "text_projection", m->opt.text.dim, err);
}

static enum status add_parameters(struct dual_encoder *m, struct error *err) {
    if (m->opt.text.kind == TRANSFORMER_CLIP) {
        return add_clip_parameters(m, err);
    }
    FAIL_IF(m->opt.vit.layers > 0, err, STATUS_USAGE,
            "a vision transformer goes with CLIP's text tower");
    if (!m->opt.texts_alone) {
        TRY(params_set_prefix(m->e.params, "image.", err));
        TRY(image_tower_create(&m->image, m->e.params, &m->opt.image, &m->opt.vit, err));
    }
    TRY(params_set_prefix(m->e.params, "text.", err));
    TRY(transformer_create(&m->text, m->e.params, &m->opt.text, err));
    TRY(params_set_prefix(m->e.params, "", err));
    if (!m->opt.texts_alone) {
        TRY(head_add(&m->image_head, &m->e, "image_proj", image_tower_feature_count(&m->image),
                     err));
    }
    return head_add(&m->text_head, &m->e, "text_proj", m->opt.text.dim, err);
}

/* The towers are given the first trained block; the table, which tensors are locked. */
static enum status apply_tuning(struct dual_encoder *m, bool host_memory, struct error *err) {
    const struct tuning *t = &m->opt.tuning;
    const enum blocks_keep keep = blocks_keep_of(m->opt.recompute, host_memory);
    int32_t frozen[TUNING_SIDES];
    FAIL_IF(m->image.resnet != NULL && t->lock[TUNING_IMAGE] > 2, err, STATUS_USAGE,
            "--lock-image %d: a resnet can only be frozen completely (0), or except for the "
            "projection (1)",
            (int)t->lock[TUNING_IMAGE] - 1);
    FAIL_IF(t->lock[TUNING_IMAGE] == 1 && t->lock[TUNING_TEXT] == 1, err, STATUS_USAGE,
            "--lock-image 0 and --lock-text 0 leave nothing to train");
    TRY(tuning_apply(m->e.params, frozen, t, err));
    if (m->image.vit != NULL) {
        vit_set_backward(m->image.vit, frozen[TUNING_IMAGE], keep);
    }
    transformer_set_backward(m->text, frozen[TUNING_TEXT], keep);
    return STATUS_OK;
}

/* Everything but device memory. */
static enum status describe(struct dual_encoder **out,
                            const struct dual_encoder_options *opt,
                            bool host_memory,
                            struct error *err) {
    enum status s = STATUS_OK;
    struct encoder_carves used = {0};
    struct dual_encoder *m = calloc(1, sizeof(*m));
    *out = NULL;
    TRY_MEMORY(m != NULL, err, "out of memory for the model");
    m->opt = *opt;
    m->e = (struct encoder){.dtype = opt->dtype,
                            .training = opt->training,
                            .raw = opt->raw,
                            .comm = opt->comm,
                            .embed_dim = opt->embed_dim,
                            .max_rows = opt->max_batch,
                            .views = 1};
    TRY_OR_FAIL(s, encoder_init(&m->e, opt->micro_batch, opt->moments, opt->slots, err));
    params_keep_average(m->e.params, opt->average);
    m->opt.micro_batch = m->e.held_rows;
    m->opt.image.max_batch = m->opt.micro_batch;
    const bool frozen[] = {tuning_is_frozen(&opt->tuning, TUNING_IMAGE),
                           tuning_is_frozen(&opt->tuning, TUNING_TEXT)};
    m->e.fixed_statistics = frozen[TUNING_IMAGE];
    m->opt.image.training = opt->training && !frozen[TUNING_IMAGE];
    m->opt.text.max_batch = m->opt.micro_batch;
    m->opt.text.training = opt->training && !frozen[TUNING_TEXT];
    m->image_head.fixed_bias = m->text_head.fixed_bias = opt->no_projection_bias;
    TRY_OR_FAIL(s, add_parameters(m, err));
    TRY_OR_FAIL(s, apply_tuning(m, host_memory, err));
    place(m, &used);
    encoder_plan(&m->e, &used, host_memory);
fail:
    RETURN_CREATED(s, out, m, dual_encoder_destroy);
}

enum status dual_encoder_plan(struct dual_encoder_memory *out,
                              const struct dual_encoder_options *opt,
                              struct error *err) {
    struct dual_encoder *m = NULL;
    TRY(describe(&m, opt, opt->slots == 0, err));
    *out = m->e.memory;
    dual_encoder_destroy(m);
    return STATUS_OK;
}

static enum status take_host(const struct dual_encoder *m,
                             int32_t slot,
                             size_t count,
                             int32_t **out,
                             struct error *err) {
    void *data = NULL;
    if (slot > 0) {
        TRY(m->e.dev->stream->alloc_host(m->e.dev, count * sizeof **out, &data, err));
    } else if ((data = calloc(count, sizeof **out)) == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for %zu tokens", count);
    }
    *out = data;
    return STATUS_OK;
}

/* Memory of the host. */
static enum status take_slots(struct dual_encoder *m, struct error *err) {
    const size_t rows = (size_t)m->opt.max_batch;
    const size_t parts = (size_t)m->e.parts;
    const size_t kept =
        m->opt.vit.patch_dropout > 0.0 ? 1 + (size_t)vit_kept_patches(&m->opt.vit) : 1;
    const size_t counts[HOST_ARRAYS] = {rows * (size_t)m->opt.text.max_tokens, rows, rows, rows,
                                        rows * kept};
    REQUIRE(m->opt.slots == 0 || m->e.dev->stream != NULL);
    for (int32_t i = 0; i <= m->opt.slots; i++) {
        struct input_slot *s = &m->slots[i];
        for (int k = 0; k < HOST_ARRAYS; k++) {
            TRY(take_host(m, i, counts[k], &s->host[k], err));
        }
        for (size_t k = 0; k < rows; k++) {
            s->host[HOST_LENGTHS][k] = m->opt.text.max_tokens;
        }
        s->layouts = calloc(parts, sizeof *s->layouts);
        FAIL_IF(s->layouts == NULL, err, STATUS_NOMEM, "out of memory for %zu parts of a batch",
                parts);
    }
    return STATUS_OK;
}

enum status dual_encoder_create(struct dual_encoder **out,
                                struct device *dev,
                                const struct dual_encoder_options *opt,
                                struct error *err) {
    enum status s = STATUS_OK;
    struct dual_encoder *m = NULL;
    struct encoder_carves carves;
    *out = NULL;
    TRY(dev->ops->supports(dev, opt->dtype, err));
    TRY(describe(&m, opt, dev->stream == NULL, err));
    TRY_OR_FAIL(s, encoder_take(&m->e, &carves, dev, err));
    place(m, &carves);
    TRY_OR_FAIL(s, take_slots(m, err));
    TRY_OR_FAIL(s, image_tower_ready(&m->image, err));
fail:
    RETURN_CREATED(s, out, m, dual_encoder_destroy);
}

void dual_encoder_destroy(struct dual_encoder *m) {
    if (m == NULL) {
        return;
    }
    for (int32_t i = 0; i <= DUAL_ENCODER_MAX_SLOTS; i++) {
        struct input_slot *s = &m->slots[i];
        for (int k = 0; k < HOST_ARRAYS; k++) {
            if (i == 0) {
                free(s->host[k]);
            } else if (s->host[k] != NULL) {
                m->e.dev->stream->free_host(m->e.dev, s->host[k]);
            }
        }
        free(s->layouts);
    }
    transformer_destroy(m->text);
    image_tower_destroy(&m->image);
    encoder_fini(&m->e);
    free(m);
}

struct params *dual_encoder_params(struct dual_encoder *m) {
    return m->e.params;
}

const struct dual_encoder_options *dual_encoder_get_options(const struct dual_encoder *m) {
    return &m->opt;
}

int32_t dual_encoder_feature_count(const struct dual_encoder *m) {
    return m->image_head.feature_count;
}

struct dual_encoder_memory dual_encoder_memory_used(const struct dual_encoder *m) {
    return m->e.memory;
}
