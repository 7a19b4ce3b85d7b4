/*
 * checkpoint: the whole state of a run in one safetensors file: model, optimiser, per-sample state,
 * position in the data, tokenizer. File format: formats/CHECKPOINT_FORMAT.md, section 2.
 *
 * The file holds no path, host, time or restart count: the checkpoints of a resumed run are
 * byte-identical to those of an uninterrupted one.
 *
 * Threading : one owner.
 * Ownership : an open checkpoint owns its file and what its pointers lead to, until close.
 * Untrusted : every byte of the file.
 */
#ifndef TRAIN_RUN_CHECKPOINT_H
#define TRAIN_RUN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/base/status.h"
#include "loader/loader.h"
#include "train/loss/loss.h"
#include "train/model/open_clip.h"
#include "train/model/view_encoder.h"
#include "train/state/feature_cache.h"
#include "train/state/sample_state.h"

/* Version 2 is written, or 3 with columns by caption. Version 1 is read as well: columns missing in
 * such a file keep their initial values. */
enum { CHECKPOINT_VERSION = 3, CHECKPOINT_TOWER_BYTES = 32 };

/* Describes the model; enough to rebuild it. */
struct model_config {
    char image_tower[CHECKPOINT_TOWER_BYTES]; /* preset; "" with captions alone */
    char text_tower[CHECKPOINT_TOWER_BYTES];  /* preset; "" with two views */
    char open_clip[OPEN_CLIP_CONFIG_BYTES]; /* model_cfg as JSON; both towers are then "open_clip";
                                               "": the towers above */
    int32_t hidden_dim;                     /* two views: H of view_encoder.h; 0: pairs */
    bool raw;                               /* embeddings are not normalised (blocks) */
    bool small_stem;
    enum resnet_norm norm_layers;
    int32_t image_size_px; /* 0 with captions alone */
    int32_t max_tokens;
    int32_t vocab_count;
    int32_t embed_dim;
    bool clean_captions;
    enum image_norm_kind image_norm;
    enum transformer_pool text_pool;
    enum open_clip_resize resize; /* of evaluation */
};

/* The run's position in the schedule and in the data. */
struct train_position {
    uint64_t step;               /* optimiser steps done */
    uint64_t seed, epoch, batch; /* the loader's state: the next batch */
    uint64_t fingerprint;        /* of the dataset, or of all together */
    uint64_t samples_count;      /* live samples */
    uint64_t id_space_count;
    uint64_t mix;          /* hash of the datasets' weights; 0: one dataset, or weights by size */
    uint64_t columns;      /* hash of the attached columns that the run reads; 0: none */
    uint64_t source_count; /* datasets, [1, LOADER_MAX_SOURCES] */
    struct {
        uint64_t fingerprint;
        uint64_t id_offset; /* where its ids begin */
    } sources[LOADER_MAX_SOURCES];
};

/* The options of a dual encoder of this shape (hidden_dim == 0), or of a view encoder. Returns OK
 * or USAGE. */
enum status model_config_options(const struct model_config *c,
                                 struct dual_encoder_options *out,
                                 struct error *err);
enum status model_config_view_options(const struct model_config *c,
                                      struct view_encoder_options *out,
                                      struct error *err);

/* How images become the model's input in evaluation: by its `resize`, else for an open_clip model
 * as open_clip evaluates it, for others `usual`. */
enum augment_kind model_config_eval(const struct model_config *c, enum augment_kind usual);

/* model NULL: only the state of a loss. Of the position only step, fingerprint, samples_count and
 * id_space_count are then written; params and tokenizer are NULL. */
struct checkpoint_content {
    const struct model_config *model;
    const struct train_position *position;
    const char *loss_name;
    double tau; /* temperature of the loss */
    const struct params *params;
    const struct sample_state *state;
    /* Columns by caption, divided among the same ranks, and (id_space_count + 1) the first entry of
     * each id; NULL: none. */
    const struct sample_state *captions;
    const uint64_t *first_caption;
    const char *caption_columns; /* "long,short": with entries after an id's own; NULL: none */
    const struct feature_cache *image_cache, *text_cache; /* filled; NULL: not saved */
    const struct loss_scalar *scalars;
    int32_t scalar_count;
    const void *tokenizer; /* its model's bytes; NULL: none */
    size_t tokenizer_size_bytes;
};

/* Writes `path` atomically. If the state is divided among ranks: collective, with equal content on
 * all of them; rank 0 writes columns in pieces, so no rank holds a whole one. The bytes do not
 * depend on the number of ranks. summaries (may be NULL): of every column, on all ranks, those of
 * `captions` last. Returns OK, IO, NOMEM, LIMIT or what comm and device return; the same on all
 * ranks. */
enum status checkpoint_save(const struct file_system *fs,
                            const char *path,
                            const struct checkpoint_content *content,
                            struct sample_state_summary *summaries,
                            struct error *err);

struct checkpoint;
struct safetensors;

/* `path`: a checkpoint file or a run directory, or a model of another program (foreign.h), which
 * has no per-sample state and no position in data, and whose loss is clip, or siglip if it has a
 * bias. Returns OK, NOTFOUND, IO, NOMEM, CORRUPT, VERSION, LIMIT, MISMATCH (it holds no model), or
 * what foreign_open returns. */
enum status checkpoint_open(struct checkpoint **out,
                            const struct file_system *fs,
                            const char *path,
                            struct error *err);
/* For callers that need only per-sample state: also opens a file without a model. Model, tokenizer
 * and position in the data are then empty. A model of another program is UNSUPPORTED. */
enum status checkpoint_open_state(struct checkpoint **out,
                                  const struct file_system *fs,
                                  const char *path,
                                  struct error *err);
void checkpoint_close(struct checkpoint *c); /* accepts NULL */

/* From now on reads return the averaged weights (--ema) instead of the weights: of this checkpoint,
 * or of an open file. Returns OK or USAGE (no averages: --ema was off). */
enum status checkpoint_use_average(struct checkpoint *c, struct error *err);
enum status checkpoint_swap_average(struct safetensors *file, const char *path, struct error *err);

const char *checkpoint_path(const struct checkpoint *c); /* the file that was opened */
const struct model_config *checkpoint_model(const struct checkpoint *c);
const struct train_position *checkpoint_position(const struct checkpoint *c);
const char *checkpoint_loss_name(const struct checkpoint *c);
bool checkpoint_is_foreign(const struct checkpoint *c); /* of another program */
double checkpoint_bias(const struct checkpoint *c);     /* of siglip, learned; NaN: none */
/* A *tau above 0 stays; 0 becomes the run's temperature. Returns OK or USAGE (an old file without
 * it). */
enum status checkpoint_choose_tau(const struct checkpoint *c, double *tau, struct error *err);

/* (id_space_count + 1), borrowed: id i has entries [i] to [i + 1] - 1 in columns by caption, whose
 * names begin with "text.". NULL: texts have one entry per id, as images.
 */
const uint64_t *checkpoint_captions(const struct checkpoint *c);

/* The caption columns, "long,short", that have the last entries of each id, in this order;
 * borrowed. "": none. */
const char *checkpoint_caption_columns(const struct checkpoint *c);

/* The tokenizer's bytes, borrowed; NULL and 0 if there is none. */
const void *checkpoint_tokenizer(const struct checkpoint *c, size_t *size_bytes);

/* Fills the values of a table of the same model, with `moments` also the optimiser's state;
 * without, position embeddings of another image size are interpolated (pretrained.h). Returns OK,
 * IO, NOMEM, CORRUPT, or MISMATCH naming the first tensor that is missing or of another shape.
 */
enum status checkpoint_load_params(const struct checkpoint *c,
                                   struct params *p,
                                   bool moments,
                                   struct error *err);

/* Reads every f32 tensor. Returns OK, IO, NOMEM, or CORRUPT naming the first tensor that holds a
 * number that is not finite, or a weight too large to compute with. (The functions that fill tables
 * and columns check what they read in the same way.) */
enum status checkpoint_check_finite(const struct checkpoint *c, struct error *err);

/* Fills every column of `state`, of samples or of captions, and every scalar. Columns may be longer
 * than the stored ones (the dataset has grown): new ids keep their values. With several ranks each
 * reads the file and keeps its own ids. Returns OK, IO, NOMEM, CORRUPT or MISMATCH. */
enum status checkpoint_load_state(const struct checkpoint *c,
                                  struct sample_state *state,
                                  const struct loss_scalar *scalars,
                                  int32_t scalar_count,
                                  struct error *err);

/* Fills both caches (each may be NULL), or leaves one as it is if the file lacks it. Returns OK,
 * IO, CORRUPT or MISMATCH. */
enum status checkpoint_load_cache(const struct checkpoint *c,
                                  struct feature_cache *image_cache,
                                  struct feature_cache *text_cache,
                                  struct error *err);

/* A column of the file. */
struct checkpoint_column {
    const char *name; /* "image.log_u"; borrowed from the checkpoint */
    enum sample_state_kind kind;
    bool by_caption; /* its entries are those of checkpoint_captions */
    uint64_t ids;    /* entries */
};

/* Column `index` of the file, from 0. Returns OK, END (there are fewer) or CORRUPT. */
enum status checkpoint_column(const struct checkpoint *c,
                              uint32_t index,
                              struct checkpoint_column *out,
                              struct error *err);

/* Copies `count` entries, beginning with `first`, to values, f32 or u64 by the column's kind. Reads
 * the whole column and checks its hash. Requires first + count <= column->ids. Returns OK, IO,
 * NOMEM or CORRUPT. */
enum status checkpoint_read_column(const struct checkpoint *c,
                                   const struct checkpoint_column *column,
                                   void *values,
                                   uint64_t first,
                                   uint64_t count,
                                   struct error *err);

/* The scalars alone. Returns OK or CORRUPT. */
enum status checkpoint_load_scalars(const struct checkpoint *c,
                                    const struct loss_scalar *scalars,
                                    int32_t scalar_count,
                                    struct error *err);

#endif
