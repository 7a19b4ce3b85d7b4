/*
 * trainer_cache: features of all samples for a loss that draws its negatives from them (negcache),
 * beside trainer_carry, which encodes what was drawn. At the beginning of a step:
 *
 *   ids that are due -> loader_fetch -> forward -> rows of the cache     N samples at a time
 *   batch            -> forward      -> draw    -> ids of trainer_carry
 *
 * Of pairs there is a cache of texts, in which images are the anchors, and one of images; of two
 * views one of images. Every rank has the whole cache, and draws for all anchors. In a run that
 * begins, or has other data than its checkpoint, all samples are due at once.
 */
#include <inttypes.h>

#include "train/run/trainer_internal.h"

size_t trainer_cache_bytes(const struct trainer_options *o, uint64_t id_space_count) {
    return (size_t)trainer_carry_sides(o) * (size_t)id_space_count * o->embed_dim * sizeof(float);
}

enum status trainer_open_cache(struct trainer *t, struct error *err) {
    const struct feature_cache_options how = {.id_count = t->data.id_space,
                                              .dim = t->options.embed_dim,
                                              .share = loss_cache_refresh(t->loss),
                                              .max_anchors = t->options.batch_count};
    for (int side = 0; side < trainer_carry_sides(&t->options); side++) {
        TRY(feature_cache_create(&t->carry.sides[side].cache, t->dev, &how, err));
    }
    return STATUS_OK;
}

/* Of pairs, images are the contrasts of texts. */
struct feature_cache *trainer_cache(const struct trainer *t, bool images) {
    const bool views = t->options.task == TRAINER_VIEWS;
    return views && !images ? NULL : t->carry.sides[images && !views ? 1 : 0].cache;
}

/* Rows `first` to `first + count - 1` of what is due, and samples of the batch after them. */
static void
list_due(struct trainer *t, const struct step_flight *f, int side, uint64_t first, uint64_t count) {
    struct carried_contrasts *c = &t->carry.sides[side];
    c->count = count < (uint64_t)t->carry.rows ? (int64_t)count : t->carry.rows;
    for (int64_t i = 0; i < t->carry.rows; i++) {
        c->ids[i] = i < c->count ? (first + (uint64_t)i) % t->data.id_space
                                 : f->ids[(i - c->count) % t->options.batch_count];
    }
}

/* What cannot be read is not drawn until its turn comes again. Ids without a sample are usual. */
static void report_lost(struct trainer *t, int side, int64_t row, enum status why) {
    if (why != STATUS_NOTFOUND && trainer_is_first(t)) {
        log_write(t->options.log, LOG_LEVEL_WARN,
                  "sample %" PRIu64 " cannot be read (%s): it is no negative",
                  t->carry.sides[side].ids[row], status_text(why));
    }
}

/* Rows whose id is another one by now were lost. */
static void put_due(struct trainer *t, int side, uint64_t first) {
    const struct carried_contrasts *c = &t->carry.sides[side];
    for (int64_t i = 0; i < c->count; i++) {
        const uint64_t id = (first + (uint64_t)i) % t->data.id_space;
        const float *feature = (const float *)c->x.data + i * c->x.shape[1];
        feature_cache_put(c->cache, id, c->ids[i] == id ? feature : NULL);
    }
}

enum status
trainer_cache_refresh(struct trainer *t, const struct step_flight *f, struct error *err) {
    const uint64_t rows = (uint64_t)t->carry.rows;
    uint64_t first;
    uint64_t count;
    feature_cache_due(t->carry.sides[0].cache, f->step, &first, &count);
    for (uint64_t done = 0; done < count; done += rows) {
        for (int side = 0; side < trainer_carry_sides(&t->options); side++) {
            list_due(t, f, side, first + done, count - done);
            TRY(trainer_carry_fetch(t, f, side, report_lost, err));
        }
        TRY(trainer_carry_encode(t, err));
        for (int side = 0; side < trainer_carry_sides(&t->options); side++) {
            put_due(t, side, first + done);
        }
    }
    return STATUS_OK;
}

enum status trainer_cache_draw(struct trainer *t,
                               const struct step_flight *f,
                               const struct tensor *x,
                               const struct tensor *text,
                               struct error *err) {
    const int64_t b = t->options.batch_count;
    const double tau = loss_temperature_now(t->loss);
    for (int k = 0; k < 2; k++) { /* images and texts; first and second views */
        struct feature_cache *cache = t->carry.sides[text != NULL ? k : 0].cache;
        struct tensor anchors = text != NULL && k == 1 ? *text : *x;
        if (text == NULL) {
            anchors.data = (float *)x->data + k * b * x->shape[1];
            anchors.shape[0] = b;
        }
        TRY(feature_cache_draw(cache, t->carry.ids + k * b, &anchors, f->ids, tau,
                               t->options.loss.seed, f->step, k, err));
    }
    return STATUS_OK;
}
