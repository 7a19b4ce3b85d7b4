/*
 * trainer_task: what pairs, views and blocks load, encode and compare, as one table; and one
 * interface to the towers of both models (dual_encoder, view_encoder).
 */
#include "train/comm/comm_device.h"
#include "train/run/trainer_internal.h"

const struct task_row *trainer_task(const struct trainer_options *o) {
    static const struct task_row rows[] = {
        [TRAINER_PAIRS] = {.name = "pairs", .views = 1, .captions = true, .sides = 2, .rows = 1},
        [TRAINER_VIEWS] = {.name = "two-views", .views = 2, .head = true, .sides = 1, .rows = 2},
        [TRAINER_BLOCKS] =
            {.name = "blocks", .views = 1, .head = true, .raw = true, .sides = 1, .rows = 1},
    };
    static const struct task_row blocks_of_captions = {
        .name = "blocks", .captions = true, .raw = true, .sides = 1, .rows = 1};
    return o->task == TRAINER_BLOCKS && o->blocks.captions ? &blocks_of_captions : &rows[o->task];
}

static struct dual_encoder_batch pairs_of(const struct trainer *t, const struct tower_input *in) {
    return (struct dual_encoder_batch){.count = (int32_t)in->count,
                                       .images = in->images,
                                       .tokens = in->tokens,
                                       .lengths = in->lengths,
                                       .sample_ids = in->dropout_keys,
                                       .seed = t->options.seed,
                                       .step = in->step,
                                       .values = t->values,
                                       .slot = in->slot,
                                       .beside = in->beside};
}

/* The model encodes two images per sample. If each has one view, the first half of them is passed
 * as first views and the rest as second views: embeddings are in the order of the images. */
static struct view_encoder_batch views_of(const struct trainer *t, const struct tower_input *in) {
    const size_t image_bytes = (size_t)3 * t->options.image_size_px * t->options.image_size_px;
    struct view_encoder_batch views = {.count = (int32_t)in->count,
                                       .first = in->images,
                                       .second = in->images2,
                                       .slot = in->slot,
                                       .beside = in->beside};
    if (in->images2 == NULL) {
        views.count /= 2;
        views.second = in->images + (size_t)views.count * image_bytes;
    }
    return views;
}

enum status trainer_put(struct trainer *t, const struct tower_input *in, struct error *err) {
    if (t->views != NULL) {
        const struct view_encoder_batch views = views_of(t, in);
        return view_encoder_put(t->views, &views, err);
    }
    const struct dual_encoder_batch pairs = pairs_of(t, in);
    return dual_encoder_put(t->model, &pairs, err);
}

uint64_t trainer_shape(const struct trainer *t, int32_t slot) {
    return t->views != NULL ? view_encoder_shape(t->views, slot)
                            : dual_encoder_shape(t->model, slot);
}

enum status trainer_forward(struct trainer *t,
                            struct tensor x[2],
                            const struct tower_input *in,
                            struct error *err) {
    if (t->views != NULL) {
        const struct view_encoder_batch views = views_of(t, in);
        return view_encoder_forward(t->views, &x[0], &views, err);
    }
    const struct dual_encoder_batch pairs = pairs_of(t, in);
    const bool both = trainer_task(&t->options)->sides == 2;
    return dual_encoder_forward(t->model, &x[0], &x[both ? 1 : 0], &pairs, true, err);
}

enum status trainer_backward(struct trainer *t,
                             const struct tensor dx[2],
                             const struct tensor *own_dx,
                             const struct tower_input *in,
                             struct error *err) {
    const struct gradient_ready ready = {trainer_sum_range, t};
    const int sides = trainer_task(&t->options)->sides;
    struct tensor own[2];
    for (int side = 0; side < sides; side++) {
        TRY(trainer_own_rows(t, &own[side], own_dx, &dx[side], err));
    }
    if (t->views != NULL) {
        const struct view_encoder_batch views = views_of(t, in);
        TRY(view_encoder_backward(t->views, &own[0], &views, WRITE_SET, &ready, err));
    } else {
        const struct dual_encoder_batch pairs = pairs_of(t, in);
        const struct tensor *images = sides == 2 ? &own[0] : NULL;
        TRY(dual_encoder_backward(t->model, images, &own[sides - 1], &pairs, WRITE_SET, &ready,
                                  err));
    }
    return comm_device_finish(t->comm, t->dev, err);
}
