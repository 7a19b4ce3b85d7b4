/*
 * trainer_internal: the trainer's own struct and the parts that its files call of each other.
 */
#ifndef TRAIN_RUN_TRAINER_INTERNAL_H
#define TRAIN_RUN_TRAINER_INTERNAL_H

#include "train/eval/examples.h"
#include "train/loss/loss_device.h"
#include "train/loss/loss_tiled.h"
#include "train/model/carve.h"
#include "train/optim/schedule.h"
#include "train/run/checkpoint.h"
#include "train/run/metrics.h"
#include "train/run/trainer.h"
#include "train/state/feature_cache.h"

/* In the order of enum loss_device_matrix_kind. */
enum pair_kind { PAIR_CROSS, PAIR_IMAGES, PAIR_TEXTS, PAIR_COUNT };

enum {
    TRAINER_FLIGHTS = DUAL_ENCODER_MAX_SLOTS, /* steps that are under way at a time */
    TRAINER_RECORDINGS = 64                   /* of different shapes, kept */
};

/* A step on its way, from the loader to its report. */
struct step_flight {
    int32_t slot;  /* of dual_encoder_put or view_encoder_put; 0: steps do not overlap */
    bool held;     /* `batch` is acquired and not yet released */
    bool launched; /* the device computes it or has computed it; the report is not read */
    bool follows;  /* the step before was still launched when this one was */
    struct loader_batch batch; /* this rank's part */
    const uint64_t *ids;       /* (B) of the whole batch, in its order */
    uint64_t *gathered_ids;    /* memory for them; NULL with one rank */
    uint64_t *caption_ids;     /* (B) of loss_input; NULL: it has none */
    uint64_t *dropout_keys;    /* of this rank's rows; NULL with one positive: their ids */
    bool kept;                 /* `batch` stays for further steps, see trainer_run_steps */
    bool stop, save;           /* after it: a rank was asked to stop; a save is due */
    struct loader_state place; /* the loader's, before the batch was acquired */
    double waited_s;           /* for the loader */
    double met_s;              /* in trainer_meet */
    int64_t rank_wait_ns;      /* comm_counters.wait_ns before the step */
    int64_t start_ns;
    uint64_t step; /* steps before this one */
    struct step_report report;
    struct step_values *sent, *received; /* to and from the device; of alloc_host if they overlap */
};

struct step_recording {
    uint64_t shape;          /* dual_encoder_shape or view_encoder_shape */
    uint64_t used;           /* steps done, with it; 0: empty */
    struct recording *steps; /* NULL: the shape was met once, or refused */
    bool refused;            /* it cannot be recorded */
};

/* Samples beyond the batch, for a loss that asks for some (loss_carries): see trainer_offbatch.c.
 * By side of the loss: 0 images or views as anchors, 1 texts as anchors. */
struct trainer_offbatch {
    bool any;                      /* the step in progress has some */
    uint64_t *ids;                 /* (2, B) of loss_input; NULL: the loss asks for none */
    uint64_t *views;               /* (2, B) of loss_carried */
    int64_t *columns;              /* (2, B) the row of that sample below */
    float *similarity, *gradient;  /* (2, B) of loss_input and loss_output */
    int64_t rows;                  /* N that are encoded, at all times */
    enum status *statuses;         /* (N) of each rank's rows in turn */
    float *matrix;                 /* (R, N) host, R anchors of a side */
    struct tensor s;               /* the same on the device */
    struct tensor batch_gradients; /* of the parameters, from the batch alone */
    struct offbatch_side {
        struct fetcher *fetcher;
        struct feature_cache *cache; /* of what `batch` has; NULL: the loss draws from none */
        struct offbatch_sample {
            uint64_t id, view;
        } * samples;                   /* (2 B) N of them: distinct ones, then some of the batch */
        int64_t count;                 /* of the former */
        uint64_t *own_ids, *own_views; /* (N / W) this rank's */
        struct loader_batch batch; /* their texts, where images are the anchors, or their images */
        struct tensor x, dx;       /* (N, E) */
        struct tensor own_dx;      /* (N / W, E) of two views with several ranks */
    } sides[2];
};

/* What the batches of a task have, see trainer_task.c. */
struct task_row {
    const char *name; /* of --task */
    uint32_t views;   /* of every image, that are loaded and encoded; 0: no image tower */
    bool captions;    /* loaded, for a text tower */
    bool head;        /* a projection head on the image tower (view_encoder); else dual_encoder */
    bool raw;         /* embeddings are not of length 1 */
    int sides;        /* 2: S = X T^T; 1: S = X X^T */
    int64_t rows;     /* of X for every row of the batch */
};

/* Rows on their way through the towers. */
struct tower_input {
    uint32_t count;         /* images of `images`, or captions */
    const uint8_t *images;  /* NULL: captions alone */
    const uint8_t *images2; /* second views; NULL: none */
    const int32_t *tokens, *lengths;
    const uint64_t *dropout_keys;
    uint64_t step; /* steps before this one */
    int32_t slot;  /* of trainer_put; 0: forward copies the arrays */
    bool beside;   /* see dual_encoder_batch */
};

struct trainer {
    struct trainer_options options;
    struct comm *comm; /* options.comm, or */
    struct comm *alone;
    struct rank_notice *notices;      /* of the ranks, with the ids of their batches */
    struct batch_norm_group bn_group; /* see trainer_bn_group */
    bool failed_together;
    /* Of attached columns, see trainer_columns.c; zeros without. */
    float *column_rows; /* (B, loader_info.column_values) */
    float *weights;     /* (B) of loss_input */
    struct column_features {
        uint32_t size;      /* D; 0: there are none */
        uint32_t first[2];  /* in a row of column_rows: of images, of texts */
        float *rows;        /* (B, D) of one side, of length 1 */
        struct tensor x[2]; /* (B, D) the same of both on the device */
        float *matrix;      /* (B, B) similarities; of the reference S less these */
    } reference, teacher;
    bool stop, save;        /* of the step launched last */
    double work_s, wait_s;  /* of this rank in its last step: its own, and for others */
    int64_t saved_ns;       /* when the last save ended, or the run began */
    struct trainer_stages { /* since the last report of stages */
        int64_t begun_ns;
        struct stage_report report; /* the seconds of each */
        struct loader_stats loader; /* as it was then */
    } stages;
    struct sample_state_summary *summaries; /* of the columns of the last checkpoint */
    struct checkpoint *source; /* RUN/last, or else `init`; only until trainer_create returns */
    bool resumes;              /* `source` is RUN/last */
    struct model_config config;
    struct loader *loader;     /* NULL: every batch is */
    struct loader_batch given; /* of trainer_give_batch */
    bool repeats;              /* see trainer_run_steps */
    struct loader_info data;
    struct device *dev;
    struct dual_encoder *model; /* of pairs, or */
    struct view_encoder *views; /* of two views */
    struct sample_state *state;
    struct sample_state *captions; /* of texts by caption, and */
    uint64_t *first_caption;       /* (id space + 1) their entries; NULL: `state` has them */
    char caption_columns[LOADER_CAPTION_NAMES_BYTES]; /* whose entries come after a sample's own */
    uint32_t caption_column_count;
    struct loss *loss;               /* NULL: the block loss, see `blocks` */
    struct loss_device *loss_device; /* NULL: the host computes the loss */
    struct loss_tiled *tiled;        /* NULL: from the whole matrix of similarities */
    struct trainer_blocks { /* the parts of S that the block loss reads; NULL: another loss */
        float *similarity, *gradient; /* (N, N b) */
        int32_t visits;               /* column of the state */
    } blocks;
    struct trainer_offbatch offbatch; /* zeros where the loss asks for none */
    struct metrics *metrics;
    struct schedule schedule;

    /* Where the host computes the loss: S, of images and of texts with themselves where the loss
     * asks for it, and their gradients. */
    struct pair_matrix {
        float *similarity, *gradient; /* (B, B) or (2B, 2B), host */
    } pairs[PAIR_COUNT];
    struct tensor s;     /* one of them on the device */
    struct tensor dx[2]; /* (R, E) by side: of images or views, or of captions alone; of texts */
    /* With several ranks: embeddings of the whole batch, of shapes as dx; and with two views this
     * rank's rows of dx. */
    struct tensor x[2], own_dx;
    struct step_values *values; /* of the step in progress, on the device */

    struct step_flight flights[TRAINER_FLIGHTS]; /* only the first, if steps do not overlap */
    int flight;                                  /* the next one to launch */
    struct step_recording recordings[TRAINER_RECORDINGS];
    bool records; /* steps are recorded */

    bool gives_up; /* of options.patience evaluations in a row none was better */
    uint64_t step; /* done; with steps that overlap, launched */
    uint64_t resumed_step,
        resumed_data;        /* of the checkpoint: its step, and its data's fingerprint */
    uint64_t reported_steps; /* by this process */
    uint64_t device_bytes;   /* the most of the device's memory seen in use */
    uint64_t saved_step;     /* of the newest checkpoint of this process; UINT64_MAX: none */
};

/* trainer_open.c: loader, model, state, loss and schedule. */
enum status trainer_open_loader(struct trainer *t, struct error *err);
enum status trainer_open_model(struct trainer *t, struct error *err);
void trainer_make_schedule(struct trainer *t);

/* trainer_checkpoint.c: opens what the run begins with, before everything else; then takes from it
 * what the options ask for: all of RUN/last, the model of `init`. Saves unless this step is saved.
 */
enum status trainer_open_source(struct trainer *t, struct error *err);
enum status trainer_restore(struct trainer *t, struct error *err);
enum status trainer_save(struct trainer *t, struct error *err);

/* trainer_captions.c: decides whether texts have numbers by caption, and makes the state of
 * captions where they have. */
enum status
trainer_open_captions(struct trainer *t, const struct loss_options *loss, struct error *err);
/* The entries of this rank's rows of a batch. */
void trainer_find_captions(const struct trainer *t,
                           uint64_t *out,
                           const struct loader_batch *batch);
/* Whether the checkpoint's captions are those of the run's data. Returns OK, or CORRUPT. */
enum status
trainer_check_captions(const struct trainer *t, const struct checkpoint *c, struct error *err);
/* old_captions: for each entry the one that it had in the checkpoint, or SAMPLE_STATE_NO_ID; from
 * old_ids, the same of samples. */
void trainer_remap_captions(uint64_t *old_captions,
                            const struct trainer *t,
                            const struct checkpoint *c,
                            const uint64_t *old_ids);

/* trainer_remap.c: how the data of the run are to those of its checkpoint; and the state of samples
 * where they are not the same (grown or remapped). */
enum trainer_data {
    TRAINER_DATA_SAME,
    TRAINER_DATA_GROWN,    /* the same datasets, something appended to or removed from one */
    TRAINER_DATA_REMAPPED, /* others, as --remap-state allows */
    TRAINER_DATA_OTHER,
};
enum trainer_data trainer_compare_data(const struct trainer *t, const struct train_position *p);
enum status trainer_remap_state(struct trainer *t, const struct checkpoint *c, struct error *err);

/* trainer_eval.c: whether `val` and `zeroshot` can be evaluated on, before any work; and the
 * evaluations of the step, but those that metrics.jsonl has (`owed`: after a resume). */
enum status trainer_check_val(const struct trainer *t, struct error *err);
enum status
trainer_evaluate(struct trainer *t, struct retrieval_result *result, bool owed, struct error *err);

/* --knn, --probe, --keep-best and --patience, by themselves. Returns OK or USAGE. */
enum status trainer_check_figures(const struct trainer_options *o, struct error *err);
/* What of metrics.jsonl decides about RUN/best; and after an evaluation: RUN/best, and whether the
 * run continues. */
struct metrics_watch trainer_watched(const struct trainer *t);
enum status trainer_keep_best(struct trainer *t, struct error *err);

/* trainer_task.c: the row of a run's task. */
const struct task_row *trainer_task(const struct trainer_options *o);
/* Copies to the slot in->slot; a number of the shape that is there (see dual_encoder_shape). */
enum status trainer_put(struct trainer *t, const struct tower_input *in, struct error *err);
uint64_t trainer_shape(const struct trainer *t, int32_t slot);
/* This rank's embeddings, by side. */
enum status trainer_forward(struct trainer *t,
                            struct tensor x[2],
                            const struct tower_input *in,
                            struct error *err);
/* From the gradients of all ranks' embeddings to those of parameters, summed over the ranks.
 * own_dx: of trainer_own_rows. */
enum status trainer_backward(struct trainer *t,
                             const struct tensor dx[2],
                             const struct tensor *own_dx,
                             const struct tower_input *in,
                             struct error *err);

/* trainer_step.c: one more step; *epoch_ended: it was the epoch's last. If steps overlap, the step
 * that is reported is the one before. Returns OK, CORRUPT (a number is not finite) or the failure
 * of a part. */
enum status trainer_one_step(struct trainer *t, bool *epoch_ended, struct error *err);
/* Waits for the step that is launched and reports it: before anything of the run is saved or
 * evaluated. */
enum status trainer_drain(struct trainer *t, struct error *err);
/* Where the loader continues after the last step that was launched. */
struct loader_state trainer_place(const struct trainer *t);
struct tower_input trainer_input(const struct step_flight *f);
/* Towers, loss and optimizer: a function of device memory if the device computes the loss. */
enum status trainer_compute(struct trainer *t, struct step_flight *f, struct error *err);

/* trainer_steps.c: frees what trainer_give_batch gave. */
void trainer_free_given(struct trainer *t);

/* trainer_ranks.c: what ranks do together. own: what this rank made of a part of its work. Returns
 * OK if all did; else the failure of one of them, on all. */
enum status trainer_agree(struct trainer *t, enum status own, struct error *err);
/* Returns OK; USAGE, naming the nearest batches that the ranks divide. */
enum status trainer_check_batch(const struct trainer_options *o, struct error *err);
enum status trainer_open_ranks(struct trainer *t, struct error *err);
/* After all is restored: MISMATCH if a rank has other data, weights or step than rank 0. */
enum status trainer_check_ranks(struct trainer *t, struct error *err);
/* The ids of the batch whose part is acquired, from all ranks; their wishes and times. */
enum status trainer_meet(struct trainer *t, struct step_flight *f, struct error *err);
/* *x becomes the rows of every rank, in `all`. With one rank it stays; so with trainer_gather, of
 * both sides. */
enum status trainer_gather_rows(struct trainer *t,
                                struct tensor *x,
                                const struct tensor *all,
                                struct error *err);
enum status trainer_gather(struct trainer *t, struct tensor x[2], struct error *err);
/* This rank's rows of a matrix of all ranks: of two views, copied to `memory`; otherwise, and with
 * one rank, a view of `whole`. */
enum status trainer_own_rows(struct trainer *t,
                             struct tensor *out,
                             const struct tensor *memory,
                             const struct tensor *whole,
                             struct error *err);
/* *out: all ranks, where their batch norm shares its statistics; else NULL. Requires the device.
 * Returns OK or UNSUPPORTED. */
enum status
trainer_bn_group(struct trainer *t, const struct batch_norm_group **out, struct error *err);
/* Of the cookie, a struct trainer: a callback of struct gradient_ready that begins to add a range
 * over all ranks; backward is followed by comm_device_finish. */
enum status trainer_sum_range(void *cookie, const struct tensor *range, struct error *err);

/* trainer_overlap.c: how steps run, at once on a CPU, queued on a device with a stream. Memory of
 * flights, opened after the model; closed before loader and device. */
enum status trainer_open_flights(struct trainer *t, struct error *err);
void trainer_close_flights(struct trainer *t);
/* Whether the device has a stream. */
bool trainer_overlaps(const struct trainer *t);
/* Starts to copy the batch to its slot, if it has one. */
enum status trainer_send_batch(struct trainer *t, const struct step_flight *f, struct error *err);
/* Runs trainer_compute, from f->sent to f->received: at once, or op by op or recorded in a queue.
 */
enum status trainer_run_flight(struct trainer *t, struct step_flight *f, struct error *err);
/* After it: the flight that is to be finished, if launched: the same one, or that of the step
 * before. Then its place is free for the next step. */
struct step_flight *trainer_next_flight(struct trainer *t);
/* Waits for a launched step. */
enum status trainer_await(struct trainer *t, const struct step_flight *f, struct error *err);
/* For the dump, where the gradients on the device are those of a later step by now: computes those
 * of `f` again. Its inputs are still in place, and parameters have not changed. */
void trainer_compute_again(struct trainer *t, struct step_flight *f);
/* If the device went from the step before straight to this one: the time for which it had nothing
 * to do between the two, and all from the end of the other to its own. Else both stay. */
enum status trainer_device_times(struct trainer *t,
                                 const struct step_flight *f,
                                 double *idle_s,
                                 double *elapsed_s,
                                 struct error *err);
/* The most of the device's memory seen in use; called once for each step. */
uint64_t trainer_device_bytes(struct trainer *t);

/* trainer_loss.c: where loss and state are, and their memory there. */
enum status trainer_open_loss(struct trainer *t, struct error *err);
/* Device memory of it and of the gradients of embeddings, planned; on_device: that computes the
 * loss. */
size_t trainer_loss_bytes(const struct trainer_options *o,
                          const struct loss *l,
                          bool on_device,
                          int64_t tile);
/* Rows and columns of a tile of similarities; 0: the whole matrix. l NULL: blocks. largest_whole:
 * batches above it are by tiles where --loss-tile does not say; 0: the device has none. Returns OK
 * or USAGE (options that need a matrix which is too large). */
enum status trainer_tile(int64_t *out,
                         const struct trainer_options *o,
                         const struct loss *l,
                         uint32_t largest_whole,
                         struct error *err);
/* The matrix of similarities on the device, and that of gradients: the same one where the host
 * computes the loss. There the first is handed to the host before it, and the second taken from the
 * host after it. */
const struct tensor *trainer_similarity(const struct trainer *t, enum pair_kind kind);
enum status trainer_hand_similarity(struct trainer *t, enum pair_kind kind, struct error *err);
/* x: X and T; by tiles this also is their gradient. */
enum status trainer_step_loss(struct trainer *t,
                              struct step_flight *f,
                              const struct tensor x[2],
                              struct error *err);
enum status trainer_take_gradient(struct trainer *t, enum pair_kind kind, struct error *err);
const struct tensor *trainer_gradient(const struct trainer *t, enum pair_kind kind);

/* trainer_columns.c: names for loader_options.columns, of the options; memory, after the loss; and
 * in a step what its columns are, after the similarities and before the loss. Each nothing where
 * there are none. Return OK, USAGE (a column, or a sample's value, that cannot be used), NOMEM or
 * what comm or device return. */
enum { TRAINER_COLUMN_NAMES_BYTES = 4 * 33 };
enum status
trainer_list_columns(const struct trainer_options *o, char *out, size_t size, struct error *err);
enum status trainer_open_columns(struct trainer *t, struct error *err);
void trainer_close_columns(struct trainer *t);
enum status trainer_take_columns(struct trainer *t, const struct step_flight *f, struct error *err);
static inline bool trainer_has_columns(const struct trainer_options *o) {
    return o->weight != NULL || o->reference != NULL || o->teacher_image != NULL ||
           o->teacher_text != NULL;
}

/* trainer_blocks.c: what the block loss excludes and requires; its memory and its column of the
 * state. Returns OK, USAGE, UNSUPPORTED or NOMEM. */
enum status trainer_check_blocks(const struct trainer_options *o, struct error *err);
enum status trainer_open_blocks(struct trainer *t, struct error *err);
void trainer_close_blocks(struct trainer *t);
/* From t->pairs[PAIR_CROSS].similarity (B, B) of all rows of the batch to its gradient. */
enum status trainer_step_blocks(struct trainer *t, struct step_flight *f, struct error *err);

/* Rows of embeddings of a batch, per side of the loss. */
static inline int64_t trainer_rows(const struct trainer_options *o) {
    return trainer_task(o)->rows * (int64_t)o->batch_count;
}

/* trainer_offbatch.c: memory; nothing where the loss asks for no such samples. Returns OK, NOMEM or
 * USAGE (a device that cannot). Closed before loader and device. */
enum status trainer_open_offbatch(struct trainer *t, struct error *err);
void trainer_close_offbatch(struct trainer *t);
/* Device memory, planned; of caches apart. */
size_t trainer_offbatch_bytes(const struct trainer_options *o, const struct loss *l);
size_t trainer_cache_bytes(const struct trainer_options *o, uint64_t id_space_count);
/* Features of images, or of texts; NULL: none. */
struct feature_cache *trainer_cache(const struct trainer *t, bool images);
/* In the order of a step, each nothing where it has no such samples. Before the forward of the
 * batch, `in`: draws, fetches and encodes them. */
enum status trainer_offbatch_forward(struct trainer *t,
                                     const struct step_flight *f,
                                     const struct tower_input *in,
                                     struct error *err);
/* Before the loss: their similarities with the anchors x. */
enum status
trainer_offbatch_similarities(struct trainer *t, const struct tensor x[2], struct error *err);
/* After it: adds to the anchors' gradients, and keeps those of the samples. */
enum status
trainer_offbatch_gradients(struct trainer *t, const struct tensor x[2], struct error *err);
/* After the batch's own backward: adds the gradients of parameters. */
enum status trainer_offbatch_backward(struct trainer *t, struct error *err);

/* trainer_open.c: f32 on the device; freed where there is one. */
enum status trainer_alloc_matrix(struct trainer *t,
                                 struct tensor *out,
                                 int64_t rows,
                                 int64_t columns,
                                 struct error *err);
void trainer_free_matrix(struct trainer *t, struct tensor *m);

/* The last step's similarities, (B, B) or (2B, 2B), to the host. */
enum status trainer_read_similarity(const struct trainer *t, float *out, struct error *err);

/* trainer_dump.c: writes RUN/nonfinite.json about a step that failed. */
enum status
trainer_dump(struct trainer *t, const struct step_flight *f, const char *why, struct error *err);

static inline struct params *trainer_params(struct trainer *t) {
    return t->views != NULL ? view_encoder_params(t->views) : dual_encoder_params(t->model);
}

/* Pairs of the batch on each rank. */
static inline uint32_t trainer_local_count(const struct trainer_options *o) {
    return o->batch_count / (uint32_t)(o->comm != NULL ? comm_world(o->comm) : 1);
}

static inline bool trainer_stop_asked(const struct trainer *t) {
    return t->options.should_stop != NULL && t->options.should_stop(t->options.cookie);
}

static inline bool trainer_is_first(const struct trainer *t) {
    return comm_rank(t->comm) == 0;
}

/* Steps of this run: those of the schedule, or fewer if requested. */
uint64_t trainer_last_step(const struct trainer *t);

#endif
