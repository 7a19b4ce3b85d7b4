/*
 * trainer: one training run: data, model, loss, optimiser, checkpoints, evaluation, in a loop.
 *
 *   batch -> forward -> S = X T^T -> loss (state by sample id) -> G -> dX = G T, dT = G^T X
 *         -> backward -> AdamW -> metrics -> (checkpoint, evaluation)
 *
 * Everything random is a function of (seed, step or epoch, sample id), and the checkpoint holds all
 * that changes: a resumed run is bit-identical to an uninterrupted one on the same machine and
 * thread count.
 *
 * Threading : one owner; the loader's threads are its own.
 * Ownership : create/destroy. Options are copied; the strings in them are borrowed until destroy.
 */
#ifndef TRAIN_RUN_TRAINER_H
#define TRAIN_RUN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/log.h"
#include "formats/base/status.h"
#include "loader/loader.h"
#include "train/comm/comm.h"
#include "train/eval/classify.h"
#include "train/eval/features.h"
#include "train/eval/retrieval.h"
#include "train/loss/curl_block.h"
#include "train/loss/loss.h"
#include "train/model/open_clip.h"
#include "train/optim/optimizer.h"
#include "train/run/metrics.h"

enum trainer_task {
    TRAINER_PAIRS,  /* images with captions */
    TRAINER_VIEWS,  /* two views of every image; captions, if any, are not read */
    TRAINER_BLOCKS, /* blocks of images, or of captions, of one class, with the block loss of CURL
                       (loss/curl_block.h) on inner products of embeddings that are not normalised
                     */
};

/* Where per-sample state is stored, and with it where the loss runs: on a device that has loss
 * kernels, or on the host. Results agree up to rounding. */
enum trainer_state {
    TRAINER_STATE_AUTO,   /* on such a device: in its memory if it fits in a tenth of what is free
                             there, else pinned; on other devices: on the host */
    TRAINER_STATE_DEVICE, /* in the device's memory */
    TRAINER_STATE_PINNED, /* in host memory that its kernels read and write */
    TRAINER_STATE_HOST    /* on the host; the loss is computed there too */
};

/* The granularity of a loss's state of texts (u, zeta, tau). By sample in any case if the loss,
 * with its options, has no state that can be kept by caption (loss_keeps_texts). */
enum trainer_text_state {
    TRAINER_TEXT_SAMPLE,  /* one entry per sample, whichever caption is sampled */
    TRAINER_TEXT_CAPTION, /* one per caption of a sample, and one per column of caption_columns */
};

/* The validation metric by which RUN/best is chosen. */
enum trainer_best {
    TRAINER_BEST_NONE,
    TRAINER_BEST_MEAN_R1,
    TRAINER_BEST_MEAN_R5,
    TRAINER_BEST_MEAN_R10,
    TRAINER_BEST_I2T_R1,
    TRAINER_BEST_T2I_R1,
    TRAINER_BEST_ZEROSHOT,
    TRAINER_BEST_NN1,
    TRAINER_BEST_NN10,
    TRAINER_BEST_KNN,
    TRAINER_BEST_PROBE,
    TRAINER_BEST_COUNT
};

/* The rows of one step and their losses, see trainer_options.rows. */
struct trainer_rows {
    uint64_t *ids;
    float *weights;
    double *losses;
};

struct trainer_options {
    /* The ranks that train together, borrowed until destroy; NULL: one. Options are equal on all of
     * them, except `log` and the callbacks. */
    struct comm *comm;

    enum trainer_task task;
    /* (source_count) datasets; more than one are mixed */
    const struct loader_source *sources;
    uint32_t source_count;
    const char *val;      /* dataset for retrieval after epochs; NULL: none */
    const char *zeroshot; /* labelled dataset for zero-shot classification; NULL: none */
    const char *knn;      /* TRAIN:TEST, labelled datasets for nearest neighbours; NULL: none */
    bool probe;           /* with knn: a linear classifier too; default false */
    enum trainer_best keep_best; /* default TRAINER_BEST_NONE */
    uint64_t patience; /* stop after so many evaluations without a better value; default 0: never */
    const char *run;   /* directory, must exist; resumes from RUN/last if there is one */
    const char *run_id; /* written to every line of metrics.jsonl; NULL: none */

    /* (remap_count) the datasets that RUN/last (or `init`, with init_state) was trained on, in its
     * order, if this run has others: samples are matched by image hash; NULL, 0: none */
    const char *const *remap_state;
    uint32_t remap_count; /* [0, LOADER_MAX_SOURCES] */

    struct trainer_blocks_options {
        enum block_kind kind; /* default BLOCK_LOGISTIC */
        uint32_t size;        /* b: positives per anchor, [1, LOADER_MAX_BLOCK - 1]; default 2 */
        uint32_t negatives;   /* k: negative blocks per anchor, >= 1; default 4 */
        bool pairs;           /* QT, see loss/curl_block.h; default false */
        bool captions;        /* encode captions with the text tower; default false: images */
    } blocks; /* only TRAINER_BLOCKS: a batch is batch_count / (b + 1) blocks, more than k of them;
                 with images batch_count is even */
    struct loss_options loss; /* not with TRAINER_BLOCKS; views follows `task`; gamma_epochs 0: half
                                 of the epochs, beta_epochs 0: all of them */

    const char *image_tower, *text_tower; /* presets; default "resnet50", "distil" */
    /* An open_clip model instead of both (open_clip_config); NULL: none. Sets text_pool; embed_dim
     * must be its own. Without captions only its image tower is used. */
    const char *model;
    double patch_dropout; /* instead of the model's own, [0, 1); below 0, the default: its own */
    /* Checkpoint or run that initialises the whole model of a new run (towers, projections,
     * tokenizer), and its temperature if loss.tau is 0; NULL: none */
    const char *init;
    bool init_state; /* and its per-sample state: with the same loss, and data or remap_state */
    const char *init_image, *init_text; /* as init, of a tower alone; or safetensors files */
    /* See tokenizer_load; NULL: the one of `init`, else CLIP's with `model`, else the first
     * dataset's. A resumed run always uses the one in RUN/last. */
    const char *tokenizer;
    bool small_stem;              /* RESNET_STEM_SMALL; default false */
    enum resnet_norm norm_layers; /* default RESNET_NORM_BATCH; others on CPU devices only */
    uint32_t image_size_px;       /* input resolution; default 256 */
    uint32_t max_tokens;          /* per caption, with start and end tokens; default 30 */
    uint32_t embed_dim;           /* of the shared embedding space; default 256 */
    uint32_t hidden_dim; /* two views: width of the projection head's hidden layer; default 512 */
    double dropout;      /* of the text tower; default 0.1 */
    bool clean_captions; /* default true */
    enum image_norm_kind image_norm; /* default IMAGE_NORM_CLIP */
    enum open_clip_resize resize;    /* of evaluation; default OPEN_CLIP_RESIZE_AUTO */
    enum transformer_pool text_pool; /* default TRANSFORMER_POOL_FIRST */
    bool no_projection_bias;         /* see dual_encoder_options; default false */
    enum dtype dtype;          /* DTYPE_F32, the default, or DTYPE_BF16 if the device has it */
    bool padded_captions;      /* default false: packed, the same results for less work */
    enum augment_kind augment; /* of training images; default AUGMENT_PAPER */
    double crop_min, crop_max; /* as in loader_options; default 0, 0: by `augment` */
    bool fixed_views;          /* as in loader_options; default false */

    uint32_t batch_count; /* global batch size, a multiple of the rank count; default 512 */
    uint32_t loss_tile;   /* side of similarity tiles, if loss_has_tiles; default 0: LOSS_TILE above
                             LOSS_WHOLE samples (on a GPU LOSS_MAX_WHOLE), else the whole matrix */
    uint32_t micro_batch_count; /* pairs per forward pass of a rank's towers; 0, the default, or
                                   more than its part of the batch: that part */
    bool grad_checkpoint;       /* dual_encoder_options.recompute; default false */
    bool sync_bn;    /* batch statistics over the micro-batches that ranks compute at the same time;
                        default false: over each rank's own */
    uint64_t epochs; /* >= 1; default 30 */
    uint64_t max_steps; /* stop early, after so many; schedules span all epochs; default 0: off */
    double lr, min_lr;  /* peak and final; defaults 2e-4, 1e-6 */
    uint64_t warmup_steps; /* UINT64_MAX, the default: 500, or a tenth of the run if that is less */
    uint64_t warmup_epochs; /* epochs of the original run, if extended; default 0: `epochs` */
    bool warmup_plateau;    /* in five constant steps, see schedule_lr; default false: linear */
    struct optimizer_options optimizer;
    double ema; /* moving average of the weights per step, EMA = ema EMA + (1 - ema) weights, in
                   [0, 1); default 0: none */
    struct trainer_tuning {             /* only TRAINER_PAIRS; see struct tuning */
        uint64_t lock_image, lock_text; /* groups that are trained; UINT64_MAX: all, the default */
        double image_lr, text_lr;       /* peak rates instead of `lr`; < 0: `lr`, the default */
        double layer_decay;             /* (0, 1]; default 1 */
    } tuning;
    double pair_noise;           /* as in struct loader_options; only TRAINER_PAIRS, as the next */
    const char *caption_columns; /* NULL: none */
    /* Attached columns (formats/columns/columns.h) with a row of finite numbers for every sample;
     * NULL: none. Not with TRAINER_BLOCKS; the loss then runs on the host. */
    const char *weight;    /* one number per sample, >= 0: loss_input.weights */
    const char *reference; /* two vectors per sample, a reference model's of its image and its text:
                              the loss uses similarities minus that model's (loss_takes_reference).
                              Only TRAINER_PAIRS */
    /* A teacher's vectors, only TRAINER_PAIRS, both or neither: one per sample each, or columns of
     * two (image, text), which may be the same. See loss/distill.c; distill_tau 0: the loss's */
    const char *teacher_image, *teacher_text;
    double distill_weight, distill_tau, teacher_tau; /* W in [0, 1]; defaults 0.5, 0, 0.01 */
    uint64_t seed;                                   /* default 0 */
    /* As in struct loader_options; not with TRAINER_BLOCKS, whose order is by class. */
    enum loader_order order;                        /* default LOADER_ORDER_GLOBAL */
    uint32_t order_block_count, order_block_window; /* defaults 1024, 16 */

    const char *device;       /* a name of device_open; default "cpu" */
    enum trainer_state state; /* default TRAINER_STATE_AUTO */
    /* of a new run; a resumed one keeps its own; default TRAINER_TEXT_SAMPLE */
    enum trainer_text_state text_state;
    struct device_options device_options; /* how to open it; its threads_count is `threads` */
    bool cuda_graph;           /* cuda: capture repeated steps as CUDA graphs; default true */
    uint32_t threads;          /* of the device; default 0: all CPUs */
    uint32_t loader_threads;   /* default 0: one per CPU */
    enum loader_engine engine; /* default LOADER_ENGINE_AUTO */

    uint64_t checkpoint_steps;   /* also save every so many steps; default 0: only after epochs */
    uint64_t checkpoint_seconds; /* also save so long after the last save; default 0: off */
    bool go_on_unsaved;  /* a checkpoint that cannot be written is a warning, except the last one */
    uint32_t keep_count; /* newest checkpoints kept, >= 1; default 2 */
    uint32_t eval_epochs; /* evaluate every so many, and at the end; 0: only then; default 1 */

    /* NULL, the default; or the caller's storage for each step's rows, (batch_count) of each: ids,
     * weights (1 without `weight`), and loss_output.row_values. Requires TRAINER_STATE_HOST, so
     * that the host computes the loss; not with TRAINER_BLOCKS. */
    struct trainer_rows *rows;

    const struct log_sink *log;
    /* Called after every step and evaluation on every rank that sets them; may be NULL. */
    void (*on_step)(void *cookie, const struct step_report *r, uint64_t total_steps);
    void (*on_retrieval)(void *cookie, uint64_t step, const struct retrieval_result *r);
    void (*on_zeroshot)(void *cookie, uint64_t step, const struct classify_result *r);
    void (*on_features)(void *cookie, uint64_t step, const struct features_result *r);
    /* Once after each checkpoint and the evaluation that follows it, if any. */
    void (*on_saved)(void *cookie, uint64_t step);
    bool (*should_stop)(void *cookie); /* asked between steps; may be NULL */
    void *cookie;
};

struct trainer_summary {
    uint64_t step, total_steps; /* done, of the whole run */
    uint64_t steps_per_epoch;
    uint64_t samples_count, id_space_count, vocab_count;
    struct dual_encoder_memory memory;
    uint64_t resumed_step;   /* step the run was resumed from; 0: a new run */
    uint64_t data;           /* fingerprint of all datasets together, and */
    uint64_t resumed_data;   /* the one in the checkpoint that was resumed */
    uint64_t warmup_steps;   /* of the schedule */
    double next_lr;          /* learning rate of the next step */
    const char *engine;      /* of the loader */
    const char *device;      /* that computes: what "auto" chose */
    const char *device_note; /* why "auto" did not choose a GPU; "" otherwise */
    const char *loss;
    const char *state;        /* where per-sample state is: "host", "device" or "pinned" */
    struct metrics_best best; /* of keep_best, on rank 0 */
};

/* One dataset of the run. */
struct trainer_source {
    const char *directory;
    double weight;          /* as given; 0: by its size */
    uint64_t samples_count; /* live */
    uint64_t id_offset;     /* added to its sample ids in the per-sample state */
};

struct trainer;

/* Opens everything and restores RUN/last if there is one. Collective: a failure of one rank is
 * returned by all. Returns OK, USAGE (an option out of range, a batch that is not a multiple of the
 * rank count, a dataset too small or without tokenizer), MISMATCH (the checkpoint has another
 * dataset or model, or ranks have other data), or what the parts return. */
enum status
trainer_create(struct trainer **out, const struct trainer_options *opt, struct error *err);
void trainer_destroy(struct trainer *t); /* accepts NULL */

struct trainer_summary trainer_summary(const struct trainer *t);
/* Requires index < options.source_count. */
struct trainer_source trainer_source(const struct trainer *t, uint32_t index);

/* Trains to the end. If should_stop returns true it saves and returns INTERRUPTED. A loss or
 * gradient that is not finite ends the run with CORRUPT and writes RUN/nonfinite.json; the last
 * checkpoint stays. An evaluation missed when the run was stopped comes first. *result, valid on
 * rank 0 only: the last retrieval result, with `val` (images == 0: none was made). Collective. */
enum status trainer_run(struct trainer *t, struct retrieval_result *result, struct error *err);

/* Whether all ranks returned the failure of trainer_run; false: only this rank failed, and the
 * others wait for it (call comm_fail). */
bool trainer_failed_together(const struct trainer *t);

/* A trainer for measuring steps: ignores the options comm, run directory, checkpoints and
 * evaluations. Without sources the batch is the one of trainer_give_batch, with ids below
 * batch_count. vocab_count: tokens of the text tower, at least as many as the data's tokenizer has.
 * Returns as trainer_create. */
enum status trainer_open_steps(struct trainer **out,
                               const struct trainer_options *opt,
                               uint32_t vocab_count,
                               struct error *err);
struct device *trainer_device(const struct trainer *t);
/* Memory for the arrays of a batch, page-locked if the device has a stream. Returns OK or NOMEM. */
enum status
trainer_alloc_host(const struct trainer *t, size_t size_bytes, void **out, struct error *err);
/* The trainer takes over images, tokens, lengths and sample_ids, memory of trainer_alloc_host. */
void trainer_give_batch(struct trainer *t, const struct loader_batch *batch);
/* Runs `count` steps and waits for the last; each is reported to options.on_step. op_by_op: no CUDA
 * graph is captured or replayed. repeat: the loader's next batches are reused in this and all later
 * steps. Returns OK, INTERRUPTED or what the parts return. */
enum status
trainer_run_steps(struct trainer *t, uint64_t count, bool op_by_op, bool repeat, struct error *err);

/* Tokens in the captions of the given or reused batch; 0: there is none. */
uint64_t trainer_batch_tokens(const struct trainer *t);
/* Bytes of device memory of such a trainer's model, loss and per-sample state. */
size_t trainer_device_memory(const struct trainer *t);

/* Plans the memory of one rank's device, on a CPU of its process, without opening data or a run:
 * vocab_count of the tokenizer, id_space_count and text_count of all datasets together. On a GPU
 * per-sample state counts only if it is in device memory. Not included: the workspace of the loss
 * kernels (loss_device_planned_bytes), and what the GPU uses itself. Returns as open_clip_config or
 * dual_encoder_plan. */
enum status trainer_plan(struct dual_encoder_memory *out,
                         const struct trainer_options *opt,
                         uint32_t vocab_count,
                         uint64_t id_space_count,
                         uint64_t text_count,
                         struct error *err);

/* What a run without a checkpoint passes to tokenizer_load; NULL: its first dataset's.
 * */
const char *trainer_tokenizer(const struct trainer_options *o);

/* The parts of options.knn: TRAIN in first, TEST in *second, which points into `text`. TRAIN has no
 * colon except in a remote location's "scheme://host:port". Returns OK or USAGE. */
enum status trainer_split_knn(char first[PATH_MAX_BYTES],
                              const char **second,
                              const char *text,
                              struct error *err);

/* Rows per sample in a batch (loss_positives), which divide batch_count. */
uint32_t trainer_positives(const struct trainer_options *o);

/* Sets the loader options that determine the sample order; the others, and the number of epochs,
 * stay. */
void trainer_order_options(const struct trainer_options *o, struct loader_options *out);

void trainer_options_default(struct trainer_options *opt);

#endif
