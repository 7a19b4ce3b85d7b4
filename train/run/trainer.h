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
 * Ownership : create/destroy. Options are copied, strings in them are borrowed for the life.
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

/* Where the state of samples is kept, and with it what computes the loss: a device that has losses,
 * or the host. Results agree up to rounding. */
enum trainer_state {
    TRAINER_STATE_AUTO,   /* on such a device, in its memory if a tenth of what is free there holds
                             it, otherwise pinned; on other devices, on the host */
    TRAINER_STATE_DEVICE, /* in the device's memory */
    TRAINER_STATE_PINNED, /* in host memory that the device reads and writes */
    TRAINER_STATE_HOST    /* on the host; the loss is computed there too */
};

/* What has the numbers that a loss keeps of texts (u, zeta, tau). A loss with options that keep
 * none, or no such (loss_keeps_texts), reads them by sample. */
enum trainer_text_state {
    TRAINER_TEXT_SAMPLE,  /* each sample, whichever of its captions is drawn */
    TRAINER_TEXT_CAPTION, /* each of a sample's own captions, and each column of caption_columns */
};

/* The validation figure whose best checkpoint is kept as RUN/best. */
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

/* What each row of a step has of its loss, see trainer_options.rows. */
struct trainer_rows {
    uint64_t *ids;
    float *weights;
    double *losses;
};

struct trainer_options {
    /* The ranks that train together, borrowed for the life; NULL: one. Options are the same on all
     * of them, but for `log` and the callbacks. */
    struct comm *comm;

    enum trainer_task task;
    /* (source_count) datasets; more than one are mixed */
    const struct loader_source *sources;
    uint32_t source_count;
    const char *val;             /* dataset for retrieval after epochs; NULL: none */
    const char *zeroshot;        /* dataset with labels for zero-shot classification, likewise */
    const char *knn;             /* TRAIN:TEST, datasets with labels for neighbours, likewise */
    bool probe;                  /* with knn: a linear classifier too */
    enum trainer_best keep_best; /* TRAINER_BEST_NONE */
    uint64_t patience;  /* evaluations in a row without a better value that end the run; 0: any */
    const char *run;    /* directory, must exist; resumes from RUN/last if it exists */
    const char *run_id; /* in every line of metrics.jsonl; NULL: none */

    /* (remap_count) the datasets that RUN/last (or `init`, with init_state) was trained on, in its
     * order, if this run has others: samples are found by the hashes of their images; NULL and 0 */
    const char *const *remap_state;
    uint32_t remap_count; /* [0, LOADER_MAX_SOURCES] */

    struct trainer_blocks_options {
        enum block_kind kind; /* BLOCK_LOGISTIC */
        uint32_t size; /* b: similar images of every anchor, [1, LOADER_MAX_BLOCK - 1]; default 2 */
        uint32_t negatives; /* k: other blocks an anchor is compared with; default 4 */
        bool pairs;         /* QT; default false */
        bool captions;      /* of the samples, through the text tower; false: their images */
    } blocks; /* TRAINER_BLOCKS alone: batch_count samples are batch_count / (b + 1) blocks, more
                 than k; of images an even number */
    struct loss_options loss; /* not with TRAINER_BLOCKS; views follows `task`; gamma_epochs 0: half
                                 of the epochs, beta_epochs 0: all of them */

    const char *image_tower, *text_tower; /* presets */
    const char *model; /* a model of open_clip in place of both (open_clip_config); NULL: none. It
                          sets text_pool, and embed_dim must be its own. TRAINER_PAIRS alone */
    double patch_dropout; /* in place of the model's own, [0, 1); below 0, the default: that */
    const char *init; /* checkpoint or run whose model (towers, projections, tokenizer) a new run
                         begins with, and its temperature where loss.tau is 0; NULL: none */
    bool init_state;  /* and its state of samples: requires the same data and loss */
    const char *init_image, *init_text; /* safetensors files, or runs, that a new run's towers
                                           begin with; NULL: drawn from the seed */
    const char *tokenizer; /* file, see tokenizer_open; NULL: that of RUN/last or of `init`, or else
                              CLIP's with `model`, or that of the first dataset. A resumed run
                              always has that of RUN/last */
    bool small_stem;
    enum resnet_norm norm_layers; /* RESNET_NORM_BATCH; others on CPU devices */
    uint32_t image_size_px;
    uint32_t max_tokens;
    uint32_t embed_dim;
    uint32_t hidden_dim; /* two views: of the projection head; default 512 */
    double dropout;      /* of the text tower */
    bool clean_captions;
    enum image_norm_kind image_norm; /* IMAGE_NORM_CLIP */
    enum open_clip_resize resize;    /* of evaluation; OPEN_CLIP_RESIZE_AUTO */
    enum transformer_pool text_pool; /* TRANSFORMER_POOL_FIRST */
    bool no_projection_bias;         /* see dual_encoder_options; default false */
    enum dtype dtype;                /* DTYPE_F32, or DTYPE_BF16 where the device has it */
    bool padded_captions;            /* false: packed, the same numbers for less work */
    enum augment_kind augment;       /* of training images; AUGMENT_PAPER */
    double crop_min, crop_max;       /* struct loader_options; 0, 0: the augmentation's own */
    bool fixed_views;                /* struct loader_options; default false */

    uint32_t batch_count;       /* global batch: a multiple of the ranks */
    uint32_t loss_tile;         /* rows and columns of similarities at a time, of loss_has_tiles; 0:
                                   LOSS_TILE above LOSS_WHOLE samples, on a GPU LOSS_MAX_WHOLE, else the
                                   whole matrix */
    uint32_t micro_batch_count; /* pairs the towers of a rank hold at a time; 0, or more than its
                                   part of the batch: that part */
    bool grad_checkpoint;       /* dual_encoder_options.recompute; default false */
    bool sync_bn;               /* batch statistics over the micro-batches that the ranks compute at
                                   the same time; false: over each rank's own */
    uint64_t epochs;
    uint64_t max_steps; /* stop after so many steps of the whole schedule; 0 = all */
    double lr, min_lr;
    uint64_t warmup_steps;  /* UINT64_MAX: 500, or a tenth of the run where that is less */
    uint64_t warmup_epochs; /* epochs of the original run, if extended; default 0: `epochs` */
    bool warmup_plateau;    /* by stairs, see schedule_lr */
    struct optimizer_options optimizer;
    double ema; /* an average of the weights, EMA = ema EMA + (1 - ema) weights after every step,
                   [0, 1); 0: none, the default */
    struct trainer_tuning {             /* TRAINER_PAIRS alone; see struct tuning */
        uint64_t lock_image, lock_text; /* groups that train; UINT64_MAX: all, the default */
        double image_lr, text_lr;       /* peak rates in place of `lr`; < 0: `lr`, the default */
        double layer_decay;             /* (0, 1]; default 1 */
    } tuning;
    double pair_noise;           /* struct loader_options; not with TRAINER_VIEWS */
    const char *caption_columns; /* likewise */
    /* Attached columns (formats/columns/columns.h), of which every sample of the run has a row of
     * finite numbers; NULL: none. Not with TRAINER_BLOCKS. The loss is then computed on the host.
     */
    const char *weight;    /* one number a sample, >= 0: loss_input.weights */
    const char *reference; /* two vectors a sample, of its image and its text by a reference model:
                              the loss sees similarities less that model's (loss_takes_reference).
                              TRAINER_PAIRS alone, as the next */
    /* One vector a sample each, or of two vectors the first and the second: a teacher's. Both or
     * neither. See train/loss/distill.h; distill_tau 0: the loss's temperature */
    const char *teacher_image, *teacher_text;
    double distill_weight, distill_tau, teacher_tau; /* W in [0, 1]; 0.5, 0, 0.01 */
    uint64_t seed;
    /* As in struct loader_options; not with TRAINER_BLOCKS, which has an order of its own. */
    enum loader_order order; /* GLOBAL */
    uint32_t order_block_count, order_block_window;

    const char *device;       /* a name of device_open */
    enum trainer_state state; /* TRAINER_STATE_AUTO */
    /* of a new run; a resumed one keeps its own; TRAINER_TEXT_SAMPLE */
    enum trainer_text_state text_state;
    struct device_options device_options; /* how to open it; its threads_count is `threads` */
    bool record_steps;                    /* cuda: repeated steps as CUDA graphs; default true */
    uint32_t threads;                     /* of the device; 0 = all */
    uint32_t loader_threads;              /* 0 = one per CPU */
    enum loader_engine engine;

    uint64_t checkpoint_steps;   /* also save every so many steps; 0 = at the end of epochs only */
    uint64_t checkpoint_seconds; /* also save when so many have passed since the last time; 0: no */
    bool go_on_unsaved;   /* a checkpoint that cannot be written, but the last one, is a warning */
    uint32_t keep_count;  /* checkpoints that stay; >= 1 */
    uint32_t eval_epochs; /* evaluate every so many epochs and at the end; 0 = at the end */

    /* NULL, the default; or the caller's storage for each step's rows, (batch_count) of each: ids,
     * weights (1 without `weight`), and loss_output.row_values. Requires that the host computes
     * the loss (TRAINER_STATE_HOST), which TRAINER_BLOCKS has none of. */
    struct trainer_rows *rows;

    const struct log_sink *log;
    /* Called after every step and evaluation, on every rank that has them; may be NULL. */
    void (*on_step)(void *cookie, const struct step_report *r, uint64_t total_steps);
    void (*on_retrieval)(void *cookie, uint64_t step, const struct retrieval_result *r);
    void (*on_zeroshot)(void *cookie, uint64_t step, const struct classify_result *r);
    void (*on_features)(void *cookie, uint64_t step, const struct features_result *r);
    /* After a checkpoint and the evaluation that follows it, if one does. */
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
    uint64_t data;           /* fingerprint of all datasets together */
    uint64_t resumed_data;   /* the same of the checkpoint that was resumed */
    uint64_t warmup_steps;   /* of the schedule */
    double next_lr;          /* learning rate of the next step */
    const char *engine;      /* of the loader */
    const char *device;      /* that computes: what "auto" chose */
    const char *device_note; /* why auto did not take its first choice; "" otherwise */
    const char *loss;
    const char *state;        /* where it is: "host", "device" or "pinned" */
    struct metrics_best best; /* of keep_best, on rank 0 */
};

/* One dataset of the run. */
struct trainer_source {
    const char *directory;
    double weight;          /* as given; 0: by its size */
    uint64_t samples_count; /* live */
    uint64_t id_offset;     /* its sample ids in the state are its own and this */
};

struct trainer;

/* Opens everything and restores RUN/last where there is one. Collective: a failure of one rank is
 * returned by all. Returns OK, USAGE (an option out of range, a batch that the ranks do not divide,
 * a dataset too small or without tokenizer), MISMATCH (the checkpoint is of another dataset or
 * model, or ranks have different data, and what differs), or what the parts return. */
enum status
trainer_create(struct trainer **out, const struct trainer_options *opt, struct error *err);
void trainer_destroy(struct trainer *t); /* accepts NULL */

struct trainer_summary trainer_summary(const struct trainer *t);
/* Requires index < options.source_count. */
struct trainer_source trainer_source(const struct trainer *t, uint32_t index);

/* Trains to the end. When asked to stop it saves and returns INTERRUPTED. A loss or gradient that
 * is not finite ends the run with CORRUPT and leaves RUN/nonfinite.json; the last checkpoint stays
 * as it was. The last retrieval result is left in
 * *result when `val` is given (images == 0: none was made). An evaluation that was due when the run
 * was stopped comes first. Collective. *result is valid on rank 0 only. */
enum status trainer_run(struct trainer *t, struct retrieval_result *result, struct error *err);

/* Whether all ranks returned the failure of trainer_run; false: this rank failed alone, and the
 * others wait for it (comm_fail). */
bool trainer_failed_together(const struct trainer *t);

/* A trainer of steps alone, to be measured: of `opt` neither comm nor what concerns the run's
 * directory, checkpoints and evaluations is used. Without sources the batch is the one of
 * trainer_give_batch, whose ids are below batch_count. vocab_count: tokens of the text tower, at
 * least those of the data's tokenizer. Returns as trainer_create. */
enum status trainer_open_steps(struct trainer **out,
                               const struct trainer_options *opt,
                               uint32_t vocab_count,
                               struct error *err);
struct device *trainer_device(const struct trainer *t);
/* Memory for the arrays of a batch, from where the device copies fastest. Returns OK or NOMEM. */
enum status
trainer_alloc_host(const struct trainer *t, size_t size_bytes, void **out, struct error *err);
/* images, tokens, lengths and sample_ids, of trainer_alloc_host, are the trainer's from here on. */
void trainer_give_batch(struct trainer *t, const struct loader_batch *batch);
/* Does so many steps and waits for the last; each is reported by options.on_step. op_by_op: none is
 * recorded or replayed. repeat: the loader's next batches are kept for this and all further steps.
 * Also INTERRUPTED. */
enum status
trainer_run_steps(struct trainer *t, uint64_t count, bool op_by_op, bool repeat, struct error *err);

/* Tokens of the captions of a batch that is given or kept; 0: there is none. */
uint64_t trainer_batch_tokens(const struct trainer *t);
/* What model, loss and state of steps alone take of the device's memory. */
size_t trainer_device_memory(const struct trainer *t);

/* Memory of one rank's device alone, on a CPU of its process, without data or run: vocab_count as
 * the tokenizer would have it, id_space_count and text_count of the datasets together. The state of
 * samples is counted where it is not pinned or on the host. Not in it: the kernels' workspace of
 * the loss (loss_device_planned_bytes), and what the device takes for itself. */
enum status trainer_plan(struct dual_encoder_memory *out,
                         const struct trainer_options *opt,
                         uint32_t vocab_count,
                         uint64_t id_space_count,
                         uint64_t text_count,
                         struct error *err);

/* What a run that begins without a checkpoint loads by tokenizer_load; NULL: its first dataset's.
 */
const char *trainer_tokenizer(const struct trainer_options *o);

/* The parts of options.knn: TRAIN in first, TEST in *second, which points into `text`. TRAIN has no
 * colon but those of a remote location's "scheme://host:port". Returns OK or USAGE. */
enum status trainer_split_knn(char first[PATH_MAX_BYTES],
                              const char **second,
                              const char *text,
                              struct error *err);

/* Rows of a batch that are one sample (loss_positives): they divide batch_count. */
uint32_t trainer_positives(const struct trainer_options *o);

/* Sets the options of the loader from which the order of samples follows; the others, and the
 * number of epochs, stay. */
void trainer_order_options(const struct trainer_options *o, struct loader_options *out);

void trainer_options_default(struct trainer_options *opt);

#endif
