/*
 * trainer_internal: the trainer's struct, and the functions that its files call of each other.
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
    TRAINER_FLIGHTS = DUAL_ENCODER_MAX_SLOTS, /* steps in progress at a time */
    TRAINER_GRAPHS = 64                       /* captured CUDA graphs kept, one per shape */
};

/* A step in progress, from the loader to its report. */
struct step_flight {
    int32_t slot;  /* of dual_encoder_put or view_encoder_put; 0: steps do not overlap */
    bool held;     /* `batch` is acquired and not yet released */
    bool launched; /* the device computes it or has computed it; the report is not read */
    bool follows;  /* this step was launched before the previous one was finished */
    struct loader_batch batch; /* this rank's part */
    const uint64_t *ids;       /* (B) of the whole batch, in its order */
    uint64_t *gathered_ids;    /* their memory; NULL with one rank */
    uint64_t *caption_ids;     /* (B) loss_input.caption_ids; NULL: none */
    uint64_t *dropout_keys;    /* of this rank's rows; NULL, with one positive: their sample ids */
    bool kept;                 /* `batch` is reused by later steps, see trainer_run_steps */
    bool stop, save;           /* after this step: a rank was asked to stop; a save is due */
    struct loader_state place; /* the loader's position before the batch was acquired */
    double waited_s;           /* waiting for the loader */
    double met_s;              /* in trainer_meet */
    int64_t rank_wait_ns;      /* comm_counters.wait_ns before the step */
    int64_t start_ns;
    uint64_t step; /* steps before this one */
    struct step_report report;
    struct step_values *sent, *received; /* to and from the device; alloc_host if they overlap */
};

struct shape_graph {
    uint64_t shape;              /* dual_encoder_shape or view_encoder_shape */
    uint64_t used;               /* step count when last used; 0: empty */
    struct captured_step *steps; /* NULL: the shape occurred once, or was refused */
    bool refused;                /* it cannot be captured */
};

/* Off-batch samples, for a loss that needs some (loss_carries), see trainer_offbatch.c. By side of
 * the loss: 0 images or views as anchors, 1 texts as anchors. */
struct trainer_offbatch {
    bool any;                      /* the current step has some */
    uint64_t *ids;                 /* (2, B) loss_input.carried_ids; NULL: the loss needs none */
    uint64_t *views;               /* (2, B) views of loss_carried */
    int64_t *columns;              /* (2, B) row of that sample in `samples` */
    float *similarity, *gradient;  /* (2, B) of loss_input and loss_output */
    int64_t rows;                  /* N: samples encoded per step, constant */
    enum status *statuses;         /* (N) by rank, then row */
    float *matrix;                 /* (R, N) on the host, R anchors of a side */
    struct tensor s;               /* the same on the device */
    struct tensor batch_gradients; /* of the parameters, from the batch without these */
    struct offbatch_side {
        struct fetcher *fetcher;
        struct feature_cache *cache; /* of what `batch` has; NULL: the loss uses none */
        struct offbatch_sample {
            uint64_t id, view;
        } * samples;   /* (2 B), N used: distinct ones, then fillers from the batch */
        int64_t count; /* of the distinct ones */
        uint64_t *own_ids, *own_views; /* (N / W) of this rank */
        struct loader_batch batch;     /* their texts if images are the anchors, or their images */
        struct tensor x, dx;           /* (N, E) */
        struct tensor own_dx;          /* (N / W, E) with two views and several ranks */
    } sides[2];
};

/* What a task loads, encodes and compares, see trainer_task.c. */
struct task_row {
    const char *name; /* of --task */
    uint32_t views;   /* loaded and encoded per image; 0: no image tower */
    bool captions;    /* loaded, for a text tower */
    bool head;        /* projection head on the image tower (view_encoder); else dual_encoder */
    bool raw;         /* embeddings are not normalised */
    int sides;        /* 2: S = X T^T; 1: S = X X^T */
    int64_t rows;     /* of X per row of the batch */
};

/* Rows to be encoded by the towers. */
struct tower_input {
    uint32_t count;         /* of images, or of captions */
    const uint8_t *images;  /* NULL: captions only */
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
    struct rank_notice *notices;      /* one per rank, with the ids of its batch */
    struct batch_norm_group bn_group; /* see trainer_bn_group */
    bool failed_together;
    /* Attached columns, see trainer_columns.c; all zero without. */
    float *column_rows; /* (B, loader_info.column_values) */
    float *weights;     /* (B) of loss_input */
    struct column_features {
        uint32_t size;      /* D; 0: none */
        uint32_t first[2];  /* positions in a row of column_rows: image's, text's */
        float *rows;        /* (B, D) of one side, normalised */
        struct tensor x[2]; /* (B, D) both sides, on the device */
        float *matrix;      /* (B, B) similarities; for the reference S minus these */
    } reference, teacher;
    bool stop, save;        /* of the step launched last */
    double work_s, wait_s;  /* this rank's last step: own work, and waiting for others */
    int64_t saved_ns;       /* when the last save ended, or the run began */
    struct trainer_stages { /* since the last stage report */
        int64_t begun_ns;
        struct stage_report report; /* the seconds of each */
        struct loader_stats loader; /* at that time */
    } stages;
    struct sample_state_summary *summaries; /* of the last checkpoint's columns */
    struct checkpoint *source; /* RUN/last, else `init`; only until trainer_create returns */
    bool resumes;              /* `source` is RUN/last */
    struct model_config config;
    struct loader *loader;     /* NULL: every batch is `given` */
    struct loader_batch given; /* by trainer_give_batch */
    bool repeats;              /* see trainer_run_steps */
    struct loader_info data;
    struct device *dev;
    struct dual_encoder *model; /* of pairs, or */
    struct view_encoder *views; /* of two views */
    struct sample_state *state;
    struct sample_state *captions; /* columns by caption, and */
    uint64_t *first_caption; /* (id space + 1) first entry of each id; NULL: texts are in `state` */
    char caption_columns[LOADER_CAPTION_NAMES_BYTES]; /* their entries follow a sample's own */
    uint32_t caption_column_count;
    struct loss *loss;               /* NULL: block loss, see `blocks` */
    struct loss_device *loss_device; /* NULL: the host computes the loss */
    struct loss_tiled *tiled;        /* NULL: the loss uses the whole similarity matrix */
    struct trainer_blocks { /* the part of S that the block loss reads; NULL: another loss */
        float *similarity, *gradient; /* (N, N b) */
        int32_t visits;               /* column of the state */
    } blocks;
    struct trainer_offbatch offbatch; /* all zero if the loss needs none */
    struct metrics *metrics;
    struct schedule schedule;

    /* If the host computes the loss: S, images with images and texts with texts if the loss uses
     * them, and their gradients. */
    struct pair_matrix {
        float *similarity, *gradient; /* (B, B) or (2B, 2B), host */
    } pairs[PAIR_COUNT];
    struct tensor s;     /* one of them on the device */
    struct tensor dx[2]; /* (R, E) by side: images or views (or captions alone); texts */
    /* With several ranks: embeddings of the whole batch, shaped as dx; with two views also this
     * rank's rows of dx. */
    struct tensor x[2], own_dx;
    struct step_values *values; /* of the current step, on the device */

    struct step_flight flights[TRAINER_FLIGHTS]; /* only the first, if steps do not overlap */
    int flight;                                  /* the next one to launch */
    struct shape_graph graphs[TRAINER_GRAPHS];
    bool captures; /* steps are captured as CUDA graphs */

    bool gives_up; /* the last options.patience evaluations were not better */
    uint64_t step; /* steps done; if steps overlap, launched */
    uint64_t resumed_step,
        resumed_data;        /* of the checkpoint: its step, and its data's fingerprint */
    uint64_t reported_steps; /* by this process */
    uint64_t device_bytes;   /* largest amount of device memory seen in use */
    uint64_t saved_step;     /* of the newest checkpoint of this process; UINT64_MAX: none */
};

/* trainer_open.c: loader, model, state, loss and schedule. */
enum status trainer_open_loader(struct trainer *t, struct error *err);
enum status trainer_open_model(struct trainer *t, struct error *err);
void trainer_make_schedule(struct trainer *t);

/* trainer_checkpoint.c: opens RUN/last or `init`, before everything else; then loads all of
 * RUN/last, or what the options request of `init`. Saves unless this step is saved.
 */
enum status trainer_open_source(struct trainer *t, struct error *err);
enum status trainer_restore(struct trainer *t, struct error *err);
enum status trainer_save(struct trainer *t, struct error *err);

/* trainer_captions.c: decides whether texts have state by caption, and if so creates it. */
enum status
trainer_open_captions(struct trainer *t, const struct loss_options *loss, struct error *err);
/* The caption entries of this rank's rows of a batch. */
void trainer_find_captions(const struct trainer *t,
                           uint64_t *out,
                           const struct loader_batch *batch);
/* Checks that the checkpoint has the captions of the run's data. Returns OK or CORRUPT. */
enum status
trainer_check_captions(const struct trainer *t, const struct checkpoint *c, struct error *err);
/* old_captions: for each entry its index in the checkpoint, or SAMPLE_STATE_NO_ID, computed from
 * old_ids, the same for samples. */
void trainer_remap_captions(uint64_t *old_captions,
                            const struct trainer *t,
                            const struct checkpoint *c,
                            const uint64_t *old_ids);

/* trainer_remap.c: compares the run's data with its checkpoint's; and carries over per-sample state
 * if they differ (grown or remapped). */
enum trainer_data {
    TRAINER_DATA_SAME,
    TRAINER_DATA_GROWN,    /* the same datasets, with samples added or removed */
    TRAINER_DATA_REMAPPED, /* others, permitted by --remap-state */
    TRAINER_DATA_OTHER,
};
enum trainer_data trainer_compare_data(const struct trainer *t, const struct train_position *p);
enum status trainer_remap_state(struct trainer *t, const struct checkpoint *c, struct error *err);

/* trainer_eval.c: checks before any work that `val`, `zeroshot` and `knn` can be used; and runs the
 * step's evaluations, except those already in metrics.jsonl (`owed`: after a resume). */
enum status trainer_check_val(const struct trainer *t, struct error *err);
enum status
trainer_evaluate(struct trainer *t, struct retrieval_result *result, bool owed, struct error *err);

/* Checks --knn, --probe, --keep-best and --patience. Returns OK or USAGE. */
enum status trainer_check_figures(const struct trainer_options *o, struct error *err);
/* The metric that decides about RUN/best; and after an evaluation: updates RUN/best, and decides
 * whether the run continues. */
struct metrics_watch trainer_watched(const struct trainer *t);
enum status trainer_keep_best(struct trainer *t, struct error *err);

/* trainer_task.c: the row of a run's task. */
const struct task_row *trainer_task(const struct trainer_options *o);
/* Copies to slot in->slot; and the number of the shape in a slot (see dual_encoder_shape). */
enum status trainer_put(struct trainer *t, const struct tower_input *in, struct error *err);
uint64_t trainer_shape(const struct trainer *t, int32_t slot);
/* This rank's embeddings, by side. */
enum status trainer_forward(struct trainer *t,
                            struct tensor x[2],
                            const struct tower_input *in,
                            struct error *err);
/* From the gradients of all ranks' embeddings to the gradients of parameters, summed over the
 * ranks. own_dx: memory for trainer_own_rows. */
enum status trainer_backward(struct trainer *t,
                             const struct tensor dx[2],
                             const struct tensor *own_dx,
                             const struct tower_input *in,
                             struct error *err);

/* trainer_step.c: runs one step; *epoch_ended: it was the epoch's last. If steps overlap, it
 * reports the previous one. Returns OK, CORRUPT (a number is not finite) or a part's failure.
 */
enum status trainer_one_step(struct trainer *t, bool *epoch_ended, struct error *err);
/* Waits for the launched step and reports it; called before the run is saved or evaluated. */
enum status trainer_drain(struct trainer *t, struct error *err);
/* The loader's position after the last launched step. */
struct loader_state trainer_place(const struct trainer *t);
struct tower_input trainer_input(const struct step_flight *f);
/* Towers, loss and optimizer: a function of device memory if the device computes the loss. */
enum status trainer_compute(struct trainer *t, struct step_flight *f, struct error *err);

/* trainer_steps.c: frees the batch of trainer_give_batch. */
void trainer_free_given(struct trainer *t);

/* trainer_ranks.c: what ranks do together. own: this rank's status of a part of its work. Returns
 * OK if it is OK on all; else one rank's failure, on all of them. */
enum status trainer_agree(struct trainer *t, enum status own, struct error *err);
/* Returns OK, or USAGE naming the nearest multiples of the rank count. */
enum status trainer_check_batch(const struct trainer_options *o, struct error *err);
enum status trainer_open_ranks(struct trainer *t, struct error *err);
/* After all is restored: MISMATCH if a rank has other data, weights or step than rank 0. */
enum status trainer_check_ranks(struct trainer *t, struct error *err);
/* Gathers from all ranks the ids of the acquired batch, and requests to stop or save, and times. */
enum status trainer_meet(struct trainer *t, struct step_flight *f, struct error *err);
/* *x becomes the rows of all ranks, in `all`; with one rank it stays. trainer_gather: both sides.
 */
enum status trainer_gather_rows(struct trainer *t,
                                struct tensor *x,
                                const struct tensor *all,
                                struct error *err);
enum status trainer_gather(struct trainer *t, struct tensor x[2], struct error *err);
/* This rank's rows of a matrix of all ranks: with two views copied to `memory`; otherwise, and with
 * one rank, a view of `whole`. */
enum status trainer_own_rows(struct trainer *t,
                             struct tensor *out,
                             const struct tensor *memory,
                             const struct tensor *whole,
                             struct error *err);
/* *out: all ranks with --sync-bn, else NULL. Requires the device. Returns OK or UNSUPPORTED. */
enum status
trainer_bn_group(struct trainer *t, const struct batch_norm_group **out, struct error *err);
/* A callback of struct gradient_ready (cookie: the trainer) that begins to sum a range over all
 * ranks; comm_device_finish follows the backward pass. */
enum status trainer_sum_range(void *cookie, const struct tensor *range, struct error *err);

/* trainer_overlap.c: runs steps, at once on a CPU, queued on a device with a stream. The memory of
 * flights is allocated after the model, and freed before loader and device are closed. */
enum status trainer_open_flights(struct trainer *t, struct error *err);
void trainer_close_flights(struct trainer *t);
/* Whether the device has a stream. */
bool trainer_overlaps(const struct trainer *t);
/* Starts to copy the batch to its slot, if it has one. */
enum status trainer_send_batch(struct trainer *t, const struct step_flight *f, struct error *err);
/* Runs trainer_compute, f->sent to f->received: at once, or queued, op by op or as a graph.
 */
enum status trainer_run_flight(struct trainer *t, struct step_flight *f, struct error *err);
/* Called after it: the flight to finish, if launched: the same one, or the previous step's. It is
 * then reused by the next step. */
struct step_flight *trainer_next_flight(struct trainer *t);
/* Waits for a launched step. */
enum status trainer_await(struct trainer *t, const struct step_flight *f, struct error *err);
/* For the dump, if the device already holds a later step's gradients: recomputes those of `f`,
 * whose inputs and parameters have not changed. */
void trainer_compute_again(struct trainer *t, struct step_flight *f);
/* If the device ran the previous step and this one back to back: how long it was idle between them,
 * and the time from the previous one's end to this one's. Else both stay. */
enum status trainer_device_times(struct trainer *t,
                                 const struct step_flight *f,
                                 double *idle_s,
                                 double *elapsed_s,
                                 struct error *err);
/* The largest amount of device memory seen in use; called once per step. */
uint64_t trainer_device_bytes(struct trainer *t);

/* trainer_loss.c: decides where loss and per-sample state are, and allocates their memory there. */
enum status trainer_open_loss(struct trainer *t, struct error *err);
/* Planned device memory of the loss and of the embeddings' gradients; on_device: the device
 * computes the loss. */
size_t trainer_loss_bytes(const struct trainer_options *o,
                          const struct loss *l,
                          bool on_device,
                          int64_t tile);
/* Side of a tile of similarities; 0: the whole matrix. l NULL: blocks. largest_whole: without
 * --loss-tile larger batches use tiles; 0: the device has no tiles. Returns OK or USAGE (options
 * that need a matrix which is too large). */
enum status trainer_tile(int64_t *out,
                         const struct trainer_options *o,
                         const struct loss *l,
                         uint32_t largest_whole,
                         struct error *err);
/* The similarity matrix on the device, and its gradient: one matrix if the host computes the loss.
 * Similarities are then downloaded before the loss, and the gradient is uploaded after it. */
const struct tensor *trainer_similarity(const struct trainer *t, enum pair_kind kind);
enum status trainer_hand_similarity(struct trainer *t, enum pair_kind kind, struct error *err);
/* x: X and T; by tiles this also computes their gradients. */
enum status trainer_step_loss(struct trainer *t,
                              struct step_flight *f,
                              const struct tensor x[2],
                              struct error *err);
enum status trainer_take_gradient(struct trainer *t, enum pair_kind kind, struct error *err);
const struct tensor *trainer_gradient(const struct trainer *t, enum pair_kind kind);

/* trainer_columns.c: the names for loader_options.columns; memory, allocated after the loss; and in
 * a step the rows of its columns, between similarities and loss. Each does nothing without columns.
 * Return OK, USAGE (a column, or a sample's value, that cannot be used), NOMEM or what comm or
 * device return. */
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

/* trainer_blocks.c: checks the options of the block loss; its memory and its column of the state.
 * Returns OK, USAGE, UNSUPPORTED or NOMEM. */
enum status trainer_check_blocks(const struct trainer_options *o, struct error *err);
enum status trainer_open_blocks(struct trainer *t, struct error *err);
void trainer_close_blocks(struct trainer *t);
/* From t->pairs[PAIR_CROSS].similarity (B, B), over all rows of the batch, to its gradient. */
enum status trainer_step_blocks(struct trainer *t, struct step_flight *f, struct error *err);

/* Rows of embeddings per batch and side of the loss. */
static inline int64_t trainer_rows(const struct trainer_options *o) {
    return trainer_task(o)->rows * (int64_t)o->batch_count;
}

/* trainer_offbatch.c: memory, if the loss needs off-batch samples. Returns OK, NOMEM or USAGE (not
 * on this device). Closed before loader and device. */
enum status trainer_open_offbatch(struct trainer *t, struct error *err);
void trainer_close_offbatch(struct trainer *t);
/* Planned device memory, without caches; and that of caches. */
size_t trainer_offbatch_bytes(const struct trainer_options *o, const struct loss *l);
size_t trainer_cache_bytes(const struct trainer_options *o, uint64_t id_space_count);
/* The image or text feature cache; NULL: none. */
struct feature_cache *trainer_cache(const struct trainer *t, bool images);
/* In the order of a step; each does nothing without such samples. Before the batch's forward pass,
 * `in`: samples, loads and encodes them. */
enum status trainer_offbatch_forward(struct trainer *t,
                                     const struct step_flight *f,
                                     const struct tower_input *in,
                                     struct error *err);
/* Before the loss: computes their similarities with the anchors x. */
enum status
trainer_offbatch_similarities(struct trainer *t, const struct tensor x[2], struct error *err);
/* After the loss: adds to the anchors' gradients, and keeps the gradients of the samples. */
enum status
trainer_offbatch_gradients(struct trainer *t, const struct tensor x[2], struct error *err);
/* After the batch's own backward pass: adds their gradients of parameters. */
enum status trainer_offbatch_backward(struct trainer *t, struct error *err);

/* trainer_open.c: f32 on the device. Freeing does nothing without a device. */
enum status trainer_alloc_matrix(struct trainer *t,
                                 struct tensor *out,
                                 int64_t rows,
                                 int64_t columns,
                                 struct error *err);
void trainer_free_matrix(struct trainer *t, struct tensor *m);

/* Copies the last step's similarities, (B, B) or (2B, 2B), to the host. */
enum status trainer_read_similarity(const struct trainer *t, float *out, struct error *err);

/* trainer_dump.c: writes RUN/nonfinite.json, which describes a failed step. */
enum status
trainer_dump(struct trainer *t, const struct step_flight *f, const char *why, struct error *err);

static inline struct params *trainer_params(struct trainer *t) {
    return t->views != NULL ? view_encoder_params(t->views) : dual_encoder_params(t->model);
}

/* Pairs of the batch per rank. */
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
