/*
 * trainer_blocks: --task blocks. The loader delivers blocks of b + 1 samples of one class, in a
 * row, whose images or captions have embeddings X:
 *
 *   samples  a_0 y_01 .. y_0b | a_1 y_11 .. y_1b | ...     N blocks, B = N (b + 1)
 *
 * S = X X^T has all inner products; the block loss reads the rows of anchors and the columns of
 * points, (N, N b) of it, and the rest of the gradient is zero. Per-sample state has only visits.
 */
#include "train/run/trainer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t block_count(const struct trainer_options *o) {
    return o->batch_count / (o->blocks.size + 1);
}

static enum status check_batch(const struct trainer_options *o, struct error *err) {
    const struct trainer_blocks_options *b = &o->blocks;
    FAIL_IF(o->batch_count % (b->size + 1) != 0 || (!b->captions && o->batch_count % 2 != 0), err,
            STATUS_USAGE,
            "--batch-size %u is not %s in blocks of %u (an anchor and --block-size %u)",
            o->batch_count, b->captions ? "a number of captions" : "an even number of images",
            b->size + 1, b->size);
    return block_count(o) > b->negatives
               ? STATUS_OK
               : error_set(err, STATUS_USAGE,
                           "--batch-size %u has %u blocks of %u %s, too few for --block-negatives "
                           "%u: it takes one more block than negatives",
                           o->batch_count, (unsigned)block_count(o), b->size + 1,
                           b->captions ? "captions" : "images", b->negatives);
}

enum status trainer_check_blocks(const struct trainer_options *o, struct error *err) {
    REQUIRE(o->blocks.size >= 1 && o->blocks.size < LOADER_MAX_BLOCK && o->blocks.negatives >= 1);
    const char *wrong = trainer_local_count(o) != o->batch_count  ? "several ranks"
                        : o->dtype == DTYPE_BF16                  ? "--precision bf16"
                        : o->source_count > 1                     ? "several datasets"
                        : o->remap_count > 0                      ? "--remap-state"
                        : o->init_state                           ? "--init-state"
                        : o->loss.parity == LOSS_PARITY_REFERENCE ? "--variant code"
                                                                  : NULL;
    FAIL_IF(wrong != NULL, err, STATUS_USAGE,
            "--task blocks does not work with %s: it trains on one dataset, with "
            "one rank on a CPU in f32",
            wrong);
    return check_batch(o, err);
}

enum status trainer_open_blocks(struct trainer *t, struct error *err) {
    struct trainer_blocks *b = &t->blocks;
    FAIL_IF(t->dev->stream != NULL, err, STATUS_UNSUPPORTED,
            "--task blocks: not tested on device %s; use --device cpu", t->dev->ops->name);
    const size_t n = (size_t)block_count(&t->options);
    b->similarity = calloc(n * n * t->options.blocks.size, sizeof *b->similarity);
    b->gradient = calloc(n * n * t->options.blocks.size, sizeof *b->gradient);
    FAIL_IF(b->similarity == NULL || b->gradient == NULL, err, STATUS_NOMEM,
            "no memory for %zu blocks; use a smaller --batch-size", n);
    TRY(sample_state_add(t->state, "visits", SAMPLE_STATE_COUNT, 0.0f, &b->visits, err));
    return sample_state_reserve(t->state, t->options.batch_count, err);
}

void trainer_close_blocks(struct trainer *t) {
    free(t->blocks.similarity);
    free(t->blocks.gradient);
}

/* The index in S of the product of anchor i with point l of block m. */
static size_t place_of(const struct trainer_options *o, int64_t i, int64_t m, int64_t l) {
    const int64_t each = o->blocks.size + 1;
    return (size_t)(i * each * o->batch_count + m * each + 1 + l);
}

static enum status count_visits(struct trainer *t, const struct step_flight *f, struct error *err) {
    TRY(sample_state_begin_batch(t->state, f->ids, t->options.batch_count, err));
    uint64_t *visits = sample_state_window_u64(t->state, t->blocks.visits);
    for (uint32_t i = 0; i < t->options.batch_count; i++) {
        visits[i]++;
    }
    return sample_state_end_batch(t->state, err);
}

enum status trainer_step_blocks(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct trainer_options *o = &t->options;
    const struct pair_matrix *s = &t->pairs[PAIR_CROSS];
    const struct block_options block = {.blocks = block_count(o),
                                        .size = o->blocks.size,
                                        .negatives = o->blocks.negatives,
                                        .kind = o->blocks.kind,
                                        .pairs = o->blocks.pairs};
    const int64_t points = block.blocks * block.size;
    for (int64_t e = 0; e < block.blocks * points; e++) {
        const int64_t at = e % points;
        t->blocks.similarity[e] =
            s->similarity[place_of(o, e / points, at / block.size, at % block.size)];
    }
    TRY(block_loss(&f->report.loss, t->blocks.gradient, t->blocks.similarity, &block, err));
    memset(s->gradient, 0, (size_t)o->batch_count * o->batch_count * sizeof *s->gradient);
    for (int64_t e = 0; e < block.blocks * points; e++) {
        const int64_t at = e % points;
        s->gradient[place_of(o, e / points, at / block.size, at % block.size)] =
            t->blocks.gradient[e];
    }
    f->report.tau = 1.0;
    f->report.batch = (struct loss_batch_state){{NAN, NAN}, {NAN, NAN}};
    return count_visits(t, f, err);
}
