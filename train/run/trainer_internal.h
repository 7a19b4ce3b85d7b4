/*
 * trainer_internal: the trainer's own struct and the parts that its files call of each other.
 */
#ifndef TRAIN_RUN_TRAINER_INTERNAL_H
#define TRAIN_RUN_TRAINER_INTERNAL_H

#include "train/loss/loss_device.h"
#include "train/optim/schedule.h"
#include "train/run/checkpoint.h"
#include "train/run/trainer.h"

/* In the order of enum loss_device_matrix_kind. */
enum pair_kind { PAIR_CROSS, PAIR_IMAGES, PAIR_TEXTS, PAIR_COUNT };

enum {
    TRAINER_FLIGHTS = DUAL_ENCODER_MAX_SLOTS, /* steps that are under way at a time */
    TRAINER_RECORDINGS = 64                   /* of different shapes, kept */
};

/* A step of trainer_overlap: from the loader to its report. */
struct step_flight {
    int32_t slot;  /* of dual_encoder_put or view_encoder_put */
    bool held;     /* the batch is the loader's and not yet given back */
    bool launched; /* the device has it, its report is not read */
    bool follows;  /* the step before was under way when it was launched */
    struct loader_batch batch;
    struct loader_state place; /* the loader's, before the batch was taken */
    double waited_s;           /* for the loader */
    int64_t start_ns;
    uint64_t step; /* done before it */
    struct step_report report;
    struct step_values *sent, *came_back; /* of alloc_host */
};

struct step_recording {
    uint64_t shape;          /* dual_encoder_shape or view_encoder_shape */
    uint64_t used;           /* steps done, with it; 0: empty */
    struct recording *steps; /* NULL: the shape was met once */
};

struct trainer {
    struct trainer_options options;
    struct model_config config;
    struct loader *loader;
    struct loader_info data;
    struct device *dev;
    struct dual_encoder *model; /* of pairs, or */
    struct view_encoder *views; /* of two views */
    struct sample_state *state;
    struct loss *loss;
    struct loss_device *loss_device; /* NULL: the host computes the loss */
    struct metrics *metrics;
    struct schedule schedule;

    /* Where the host computes the loss: S, of images and of texts with themselves where the loss
     * asks for it, and their gradients. */
    struct pair_matrix {
        float *similarity, *gradient; /* (B, B) or (2B, 2B), host */
    } pairs[PAIR_COUNT];
    struct tensor s;            /* one of them on the device */
    struct tensor dx, dt;       /* (B, E); with two views dx (2B, E) alone */
    struct step_values *values; /* of the step under way, on the device */

    struct step_flight flights[TRAINER_FLIGHTS]; /* see trainer_overlap.c */
    int flight;                                  /* the next one to be launched */
    struct step_recording recordings[TRAINER_RECORDINGS];
    bool records; /* steps are recorded */

    uint64_t step; /* done; with steps that overlap, launched */
    uint64_t resumed_step;
    uint64_t told_steps;   /* of this process */
    uint64_t device_bytes; /* the most of the device's memory seen in use */
    uint64_t saved_step;   /* of the newest checkpoint of this process; UINT64_MAX: none */
};

/* trainer_open.c: loader, model, state, loss and schedule. */
enum status trainer_open_loader(struct trainer *t, struct error *err);
enum status trainer_open_model(struct trainer *t, struct error *err);
void trainer_make_schedule(struct trainer *t);

/* trainer_checkpoint.c: goes on from RUN/last where it is there; saves unless this step is saved.
 */
enum status trainer_restore(struct trainer *t, struct error *err);
enum status trainer_save(struct trainer *t, struct error *err);

/* trainer_remap.c: how the data of the run are to those of its checkpoint; and the state of samples
 * where they are not the same (grown or remapped). */
enum trainer_data {
    TRAINER_DATA_SAME,
    TRAINER_DATA_GROWN,    /* the same datasets, with something appended to at least one */
    TRAINER_DATA_REMAPPED, /* others, as --remap-state allows */
    TRAINER_DATA_OTHER,
};
enum trainer_data trainer_compare_data(const struct trainer *t, const struct train_position *p);
enum status trainer_remap_state(struct trainer *t, const struct checkpoint *c, struct error *err);

/* trainer_eval.c: whether `val` can be evaluated on, before any work; and doing so. */
enum status trainer_check_val(const struct trainer *t, struct error *err);
enum status trainer_evaluate(struct trainer *t, struct retrieval_result *result, struct error *err);

/* trainer_step.c: one batch through everything; *epoch_ended: it was the epoch's last. */
enum status trainer_one_step(struct trainer *t, bool *epoch_ended, struct error *err);

/* The parts of a step: its rates (t->step is that of the step), what it is to know, that and the
 * sample ids to the device, everything that is computed (a function of device memory where the
 * device computes the loss), and what became of it: OK, or CORRUPT where it was not sound. */
void trainer_rates(const struct trainer *t,
                   struct step_report *r,
                   const struct loader_batch *batch);
struct step_values trainer_values(const struct trainer *t,
                                  const struct step_report *r,
                                  const struct loader_batch *batch);
enum status trainer_put_values(struct trainer *t,
                               const struct step_values *values,
                               const struct loader_batch *batch,
                               struct error *err);
struct dual_encoder_batch
trainer_encoder_batch(const struct trainer *t, const struct loader_batch *batch, int32_t slot);
enum status trainer_compute(struct trainer *t,
                            struct step_report *r,
                            const struct loader_batch *batch,
                            int32_t slot, /* 0, or where dual_encoder_put left the batch */
                            struct error *err);
enum status trainer_read_values(struct trainer *t,
                                struct step_report *r,
                                const struct step_values *values,
                                struct error *err);
/* Metrics and callback of a step; the dump of one that was not sound, and a line about it. */
enum status trainer_tell_step(struct trainer *t, const struct step_report *r, struct error *err);
void trainer_tell_unsound(struct trainer *t,
                          const struct step_report *r,
                          const struct loader_batch *batch,
                          const struct error *why);

/* trainer_overlap.c: steps on a device that computes while the host goes on. Open is after the
 * model's; close comes before loader and device are closed. */
bool trainer_overlaps(const struct trainer *t);
enum status trainer_overlap_open(struct trainer *t, struct error *err);
void trainer_overlap_close(struct trainer *t);
/* As trainer_one_step; the report may be that of the step before. */
enum status trainer_overlapped_step(struct trainer *t, bool *epoch_ended, struct error *err);
/* Waits for what is under way and reports it: before anything of the run is saved or evaluated. */
enum status trainer_drain(struct trainer *t, struct error *err);
/* Where the loader goes on after the last step that was launched. */
struct loader_state trainer_place(const struct trainer *t);

/* trainer_contrast.c: where loss and state are, and their memory there. */
enum status trainer_open_contrast(struct trainer *t, struct error *err);
/* Device memory of it and of the gradients of embeddings, planned; on_device: that computes the
 * loss. */
size_t trainer_loss_bytes(const struct trainer_options *o, const struct loss *l, bool on_device);

/* From embeddings to their gradients: x and text (B, E) to dx and dt; x (2B, E) to dx. */
enum status trainer_contrast_pairs(struct trainer *t,
                                   struct step_report *r,
                                   const struct tensor *x,
                                   const struct tensor *text,
                                   const struct loader_batch *batch,
                                   struct error *err);
enum status trainer_contrast_views(struct trainer *t,
                                   struct step_report *r,
                                   const struct tensor *x,
                                   const struct loader_batch *batch,
                                   struct error *err);

/* The last step's similarities, (B, B) or (2B, 2B), to the host. */
enum status trainer_read_similarity(const struct trainer *t, float *out, struct error *err);

/* trainer_views.c: forward, loss and backward of two views. */
enum status trainer_views_pass(struct trainer *t,
                               struct step_report *r,
                               const struct loader_batch *batch,
                               int32_t slot, /* 0, or where view_encoder_put left the batch */
                               struct error *err);
struct view_encoder_batch trainer_views_batch(const struct loader_batch *batch, int32_t slot);

/* trainer_dump.c: writes RUN/nonfinite.json about a step that failed. */
enum status trainer_dump(struct trainer *t,
                         const struct step_report *r,
                         const struct loader_batch *batch,
                         const char *why,
                         struct error *err);

static inline struct params *trainer_params(struct trainer *t) {
    return t->views != NULL ? view_encoder_params(t->views) : dual_encoder_params(t->model);
}

/* Steps of this run: the schedule's, or fewer when asked. */
uint64_t trainer_last_step(const struct trainer *t);

#endif
