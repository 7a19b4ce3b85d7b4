/*
 * dual_encoder_pass: copies a batch to the device in parts, and runs each part through towers and
 * heads, forward and backward.
 */
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "train/model/carve.h"
#include "train/model/dual_encoder_internal.h"

/* Longest captions and rows of captions are rounded up to multiples, so that few different shapes
 * occur. */
enum { TOKEN_STEP = 4, ROW_STEP = 64 };

/* ---- parts ---- */

/* One micro-batch of a batch. */
struct part {
    struct encoder_part at;
    struct dual_encoder_batch batch; /* only this part */
};

static struct part part_of(const struct dual_encoder *m,
                           const struct dual_encoder_batch *whole,
                           const struct encoder_part *at) {
    struct part p = {.at = *at, .batch = *whole};
    const size_t start = (size_t)at->start;
    p.batch.count = at->count;
    /* in evaluation one side has no arrays of the other, and is never divided */
    if (start > 0) {
        const size_t px = (size_t)m->opt.image.image_px;
        p.batch.images += m->opt.texts_alone ? 0 : start * px * px * 3;
        p.batch.tokens += start * (size_t)m->opt.text.max_tokens;
        p.batch.lengths += start;
        p.batch.sample_ids += p.batch.sample_ids != NULL ? start : 0;
    }
    if (m->opt.text.whole) {
        p.batch.lengths = m->slots[whole->slot].host[HOST_LENGTHS] + start;
    }
    return p;
}

/* ---- sides ---- */

static struct input_slot *slot_of(struct dual_encoder *m, const struct part *p) {
    return &m->slots[p->batch.slot];
}

static struct layout *layout_of(struct dual_encoder *m, const struct part *p) {
    return &slot_of(m, p)->layouts[p->at.start / m->opt.micro_batch];
}

/* Where the part begins in its slot, in pairs. */
static int64_t place_of(const struct part *p) {
    return p->batch.slot > 0 ? p->at.start : 0;
}

static struct tensor images_of(struct dual_encoder *m, const struct part *p) {
    return rows_from(slot_of(m, p)->images, place_of(p), p->batch.count);
}

/* Whether the part drops patches. */
static bool drops_patches(const struct dual_encoder *m, const struct part *p) {
    return p->at.pass != RESNET_INFERENCE && m->opt.vit.training && m->opt.vit.patch_dropout > 0.0;
}

/* (count (1 + K)): the class token's row and K of the patches' rows, in order. */
static void draw_patches(const struct dual_encoder *m, int32_t *rows, const struct part *p) {
    const struct vit_options *o = &m->opt.vit;
    const int32_t patches = (o->image_px / o->patch_px) * (o->image_px / o->patch_px);
    for (int32_t n = 0; n < p->batch.count; n++) {
        struct rng rng;
        int32_t left = vit_kept_patches(o);
        rng_init(&rng, p->batch.seed, RNG_PATCHES, p->batch.step, p->batch.sample_ids[n]);
        *rows++ = n * (1 + patches);
        for (int32_t t = 0; t < patches; t++) {
            if (rng_below(&rng, (uint32_t)(patches - t)) < (uint32_t)left) {
                *rows++ = n * (1 + patches) + 1 + t;
                left--;
            }
        }
    }
}

static struct tensor kept_of(struct dual_encoder *m, const struct part *p) {
    const struct tensor t = rows_from(slot_of(m, p)->kept, place_of(p), p->batch.count);
    return tensor_1d(t.data, t.dtype, tensor_count(&t));
}

static enum status copy_images(struct dual_encoder *m, const struct part *p, struct error *err) {
    const struct tensor to = images_of(m, p);
    if (drops_patches(m, p)) {
        const struct tensor kept = kept_of(m, p);
        int32_t *rows =
            slot_of(m, p)->host[HOST_KEPT] + p->at.start * (1 + vit_kept_patches(&m->opt.vit));
        draw_patches(m, rows, p);
        TRY(encoder_copy(m->e.dev, p->batch.slot, &kept, rows, err));
    }
    return encoder_copy(m->e.dev, p->batch.slot, &to, p->batch.images, err);
}

static enum status image_forward(struct dual_encoder *m, const struct part *p, struct error *err) {
    const struct tensor in = images_of(m, p); /* (N, S, S, 3) */
    if (p->batch.slot == 0) {
        TRY(copy_images(m, p, err));
    }
    struct tensor *features = &m->image_head.features;
    const enum resnet_pass pass =
        tuning_is_frozen(&m->opt.tuning, TUNING_IMAGE) ? RESNET_INFERENCE : p->at.pass;
    const struct tensor kept = drops_patches(m, p) ? kept_of(m, p) : NOT_WANTED;
    TRY(image_tower_forward(&m->image, features, &in, kept, pass, err));
    return head_forward(&m->image_head, &m->e, &p->at, err);
}

static int64_t round_up(int64_t n, int64_t step, int64_t most) {
    n = (n + step - 1) / step * step;
    return n < most ? n : most;
}

/* Checks every token and length, and computes the layout. */
static enum status check_captions(const struct dual_encoder *m,
                                  struct layout *out,
                                  const struct part *p,
                                  struct error *err) {
    const struct dual_encoder_batch *b = &p->batch;
    int32_t max_tokens = m->opt.text.max_tokens;
    int32_t longest = 1;
    int64_t all = 0;
    for (int32_t n = 0; n < b->count; n++) {
        FAIL_IF(b->lengths[n] < 1 || b->lengths[n] > max_tokens, err, STATUS_INVALID,
                "caption %d of the batch has %d tokens, not 1-%d", (int)(p->at.start + n),
                (int)b->lengths[n], (int)max_tokens);
        longest = b->lengths[n] > longest ? b->lengths[n] : longest;
        all += b->lengths[n];
        for (int32_t t = 0; t < b->lengths[n]; t++) {
            int32_t token = b->tokens[(size_t)n * (size_t)max_tokens + (size_t)t];
            FAIL_IF(token < 0 || token >= m->opt.text.vocab_count, err, STATUS_INVALID,
                    "token %d of caption %d is %d, outside the vocabulary of %d", (int)t,
                    (int)(p->at.start + n), (int)token, (int)m->opt.text.vocab_count);
        }
    }
    out->longest = round_up(longest, TOKEN_STEP, max_tokens);
    out->rows = m->opt.padded ? b->count * out->longest
                              : round_up(all, ROW_STEP, (int64_t)b->count * max_tokens);
    return STATUS_OK;
}

/* The position of the first token equal to the caption's last one: its end token, even if it occurs
 * earlier. For whole captions the last position. */
static int32_t end_of(const int32_t *tokens, int32_t length, bool whole) {
    int32_t t = whole ? length - 1 : 0;
    while (tokens[t] != tokens[length - 1]) {
        t++;
    }
    return t;
}

/* Rows without a caption have token 0, even if the caller has others there. */
static void lay_captions(const struct dual_encoder *m,
                         int32_t *tokens,
                         int32_t *starts,
                         int32_t *ends,
                         const struct part *p,
                         const struct layout *l) {
    const struct dual_encoder_batch *b = &p->batch;
    int64_t at = 0;
    memset(tokens, 0, (size_t)l->rows * sizeof(*tokens));
    for (int32_t n = 0; n < b->count; n++) {
        starts[n] = (int32_t)at;
        memcpy(tokens + at, b->tokens + (size_t)n * (size_t)m->opt.text.max_tokens,
               (size_t)b->lengths[n] * sizeof(*tokens));
        ends[n] = starts[n] + end_of(tokens + at, b->lengths[n], m->opt.text.whole);
        at += m->opt.padded ? l->longest : b->lengths[n];
    }
}

static struct transformer_batch captions_of(struct dual_encoder *m, const struct part *p) {
    const struct input_slot *s = slot_of(m, p);
    const struct layout *l = layout_of(m, p);
    const int64_t at = place_of(p);
    const int64_t n = p->batch.count;
    return (struct transformer_batch){
        .tokens = rows_from(s->tokens, at * m->opt.text.max_tokens, l->rows),
        .starts = rows_from(s->starts, at, n),
        .lengths = rows_from(s->lengths, at, n),
        .ends = tensor_present(&s->ends) ? rows_from(s->ends, at, n) : NOT_WANTED,
        .longest = l->longest,
        .sample_ids = (uint64_t *)s->sample_ids.data + at,
        .values = p->batch.values,
        .seed = p->batch.seed,
    };
}

static enum status copy_captions(struct dual_encoder *m, const struct part *p, struct error *err) {
    const struct input_slot *s = slot_of(m, p);
    const int32_t slot = p->batch.slot;
    int32_t *tokens = s->host[HOST_TOKENS] + (size_t)p->at.start * (size_t)m->opt.text.max_tokens;
    int32_t *starts = s->host[HOST_STARTS] + p->at.start;
    int32_t *ends = s->host[HOST_ENDS] + p->at.start;
    if (p->at.pass != RESNET_REPLAY || p->batch.beside) {
        TRY(check_captions(m, layout_of(m, p), p, err));
        lay_captions(m, tokens, starts, ends, p, layout_of(m, p));
    }
    const struct transformer_batch to = captions_of(m, p);
    TRY(encoder_copy(m->e.dev, slot, &to.tokens, tokens, err));
    TRY(encoder_copy(m->e.dev, slot, &to.starts, starts, err));
    if (tensor_present(&to.ends)) {
        TRY(encoder_copy(m->e.dev, slot, &to.ends, ends, err));
    }
    if (p->batch.sample_ids != NULL) {
        const struct tensor ids = rows_from(s->sample_ids, place_of(p), p->batch.count);
        TRY(encoder_copy(m->e.dev, slot, &ids, p->batch.sample_ids, err));
    }
    return encoder_copy(m->e.dev, slot, &to.lengths, p->batch.lengths, err);
}

static enum status text_forward(struct dual_encoder *m, const struct part *p, struct error *err) {
    if (p->batch.slot == 0) {
        TRY(copy_captions(m, p, err));
    }
    const struct transformer_batch captions = captions_of(m, p);
    const bool training =
        p->at.pass != RESNET_INFERENCE && !tuning_is_frozen(&m->opt.tuning, TUNING_TEXT);
    TRY(transformer_forward(m->text, &m->text_head.features, &captions, training, err));
    return head_forward(&m->text_head, &m->e, &p->at, err);
}

/* ---- the public passes ---- */

static enum status
part_forward(void *model, const void *batch, const struct encoder_part *at, struct error *err) {
    struct dual_encoder *m = model;
    const struct part p = part_of(m, batch, at);
    TRY(text_forward(m, &p, err));
    return m->opt.texts_alone ? STATUS_OK : image_forward(m, &p, err);
}

/* Tensors in reverse order of the table, see params.h. */
static enum status part_backward(void *model,
                                 const void *batch,
                                 const struct tensor *const dout[2],
                                 const struct encoder_part *at,
                                 enum write_mode mode,
                                 struct error *err) {
    struct dual_encoder *m = model;
    struct gradients *sums = &m->e.sums;
    struct tensor df_image, df_text;
    const struct part p = part_of(m, batch, at);
    const struct transformer_batch captions = captions_of(m, &p);
    const struct tuning *tuning = &m->opt.tuning;
    const bool text = !tuning_is_frozen(tuning, TUNING_TEXT);
    TRY(tuning->lock[TUNING_TEXT] == 1
            ? STATUS_OK
            : head_backward(&m->text_head, &m->e, &df_text, dout[1], at, mode, err));
    if (m->opt.texts_alone) {
        TRY(gradients_final(sums, m->text_head.weight, err));
        return transformer_backward(m->text, &df_text, &captions, mode, sums, err);
    }
    TRY(tuning->lock[TUNING_IMAGE] == 1
            ? STATUS_OK
            : head_backward(&m->image_head, &m->e, &df_image, dout[0], at, mode, err));
    TRY(gradients_final(
        sums, m->image_head.weight >= 0 ? m->image_head.weight : m->text_head.weight, err));
    TRY(text ? transformer_backward(m->text, &df_text, &captions, mode, sums, err) : STATUS_OK);
    if (tuning_is_frozen(tuning, TUNING_IMAGE)) {
        return STATUS_OK;
    }
    return image_tower_backward(&m->image, &df_image, mode, sums, err);
}

static struct encoder_batch whole_of(struct dual_encoder *m,
                                     const struct dual_encoder_batch *batch) {
    return (struct encoder_batch){.model = m,
                                  .batch = batch,
                                  .count = batch->count,
                                  .beside = batch->beside,
                                  .forward = part_forward,
                                  .backward = part_backward};
}

enum status dual_encoder_put(struct dual_encoder *m,
                             const struct dual_encoder_batch *batch,
                             struct error *err) {
    REQUIRE(batch->slot >= 1 && batch->slot <= m->opt.slots && batch->sample_ids != NULL);
    REQUIRE(batch->count >= 1 && batch->count <= m->opt.max_batch);
    m->slots[batch->slot].count = batch->count;
    for (int32_t start = 0; start < batch->count; start += m->opt.micro_batch) {
        const struct encoder_part at = encoder_part(&m->e, batch->count, start, RESNET_TRAINING);
        const struct part p = part_of(m, batch, &at);
        TRY(copy_captions(m, &p, err));
        TRY(m->opt.texts_alone ? STATUS_OK : copy_images(m, &p, err));
    }
    return STATUS_OK;
}

uint64_t dual_encoder_shape(const struct dual_encoder *m, int32_t slot) {
    const struct input_slot *s = &m->slots[slot];
    const int32_t parts = encoder_part_count(&m->e, s->count);
    const uint64_t numbers[3] = {(uint64_t)slot, (uint64_t)s->count,
                                 hash64(s->layouts, (size_t)parts * sizeof *s->layouts)};
    return hash64(numbers, sizeof numbers);
}

enum status dual_encoder_forward(struct dual_encoder *m,
                                 struct tensor *image,
                                 struct tensor *text,
                                 const struct dual_encoder_batch *batch,
                                 bool training,
                                 struct error *err) {
    REQUIRE(batch->count >= 1 && batch->count <= m->opt.max_batch);
    REQUIRE(!training || m->opt.training);
    REQUIRE(!batch->beside || (training && batch->slot == 0));
    const enum resnet_pass pass = !training       ? RESNET_INFERENCE
                                  : batch->beside ? RESNET_REPLAY
                                                  : RESNET_TRAINING;
    const struct encoder_batch whole = whole_of(m, batch);
    TRY(encoder_forward(&m->e, &whole, pass, err));
    if (!m->opt.texts_alone) {
        *image = first_rows(m->image_head.out, batch->count);
    }
    *text = first_rows(m->text_head.out, batch->count);
    return STATUS_OK;
}

enum status dual_encoder_encode_images(struct dual_encoder *m,
                                       struct tensor *image,
                                       struct tensor *features,
                                       const uint8_t *images,
                                       int32_t count,
                                       struct error *err) {
    REQUIRE(count >= 1 && count <= m->opt.micro_batch && !m->opt.texts_alone);
    const struct dual_encoder_batch batch = {.count = count, .images = images};
    const struct encoder_part at = encoder_part(&m->e, count, 0, RESNET_INFERENCE);
    const struct part p = part_of(m, &batch, &at);
    TRY(image_forward(m, &p, err));
    *image = first_rows(m->image_head.out, count);
    if (features != NULL) {
        *features = m->image_head.features;
    }
    return STATUS_OK;
}

enum status dual_encoder_encode_texts(struct dual_encoder *m,
                                      struct tensor *text,
                                      const int32_t *tokens,
                                      const int32_t *lengths,
                                      int32_t count,
                                      struct error *err) {
    REQUIRE(count >= 1 && count <= m->opt.micro_batch);
    const struct dual_encoder_batch batch = {.count = count, .tokens = tokens, .lengths = lengths};
    const struct encoder_part at = encoder_part(&m->e, count, 0, RESNET_INFERENCE);
    const struct part p = part_of(m, &batch, &at);
    TRY(text_forward(m, &p, err));
    *text = first_rows(m->text_head.out, count);
    return STATUS_OK;
}

enum status dual_encoder_backward(struct dual_encoder *m,
                                  const struct tensor *dimage,
                                  const struct tensor *dtext,
                                  const struct dual_encoder_batch *batch,
                                  enum write_mode mode,
                                  const struct gradient_ready *ready,
                                  struct error *err) {
    REQUIRE(m->opt.training && batch->count >= 1 && batch->count <= m->opt.max_batch);
    REQUIRE((dimage == NULL) == m->opt.texts_alone && dtext->shape[0] == batch->count);
    REQUIRE(dimage == NULL || dimage->shape[0] == batch->count);
    const struct tensor *const dout[2] = {dimage, dtext};
    const struct encoder_batch whole = whole_of(m, batch);
    return encoder_backward(&m->e, &whole, dout, mode, ready, err);
}
