/*
 * loader: batches of one or several datasets, in an order computed from the seed: the same seed
 * gives the same samples, crops and captions for any number of threads, ranks and restarts.
 *
 * Order     : with n samples, global batch t of an epoch is the positions [tB, (t+1)B) of the
 *             epoch's order, and rank r of W delivers [rb/W, (r+1)b/W) of its b positions (b = B,
 *             except in a last batch that is kept). See enum loader_order. Crops, flips and
 *             captions depend only on (seed, epoch, sample id).
 * Mixing    : an epoch of several datasets has n = the sum of their live samples; dataset d
 *             contributes round(n * weight_d / sum of weights) of them (largest remainders first),
 *             spread at random over the whole epoch. It delivers all of its samples once before any
 *             of them again, in a new order each time, across epochs of the mix: over a run, the
 *             uses of two samples of one dataset differ by at most one. Without weights, or with
 *             weights equal to its share of the samples, every sample is delivered once per epoch.
 *             A dataset whose weight is above that fraction repeats samples in an epoch, possibly
 *             in a batch.
 * Ids       : sample ids of dataset d are its own plus the sum of the id spaces before it in the
 *             list; text ids likewise. So the order of the list is part of a run, and so is the
 *             size of every dataset except the last.
 * Threading : one thread at a time calls acquire, seek and close; any thread may release, but not
 *             during seek and close; loader_stats, loader_corrupt_at and the getters may be called
 *             from any thread.
 * Ownership : the loader owns everything it returns. A batch is borrowed from acquire until its
 *             release; close invalidates all batches. Options are copied, except that the cookies
 *             of host_memory and log must outlive the loader.
 * Untrusted : every byte of the dataset. A sample whose image, caption or index record is damaged
 *             is replaced by another one of its dataset, chosen by (seed, epoch, sample id),
 *             counted and listed; more than max_corrupt_count of them stop the run. A shard that is
 *             still missing after a few tries, or was truncated or changed since open, and a disk
 *             that keeps failing stop it at once.
 * Waits     : every wait of the caller is bounded, and the message names the stage that is stuck.
 * Memory    : open allocates everything; afterwards only third-party decoders and SentencePiece
 *             allocate inside their own calls.
 * Shutdown  : the stop flag is set, all threads are woken and joined, reads that the kernel has
 *             already accepted are cancelled and reaped, and memory is freed: from any state,
 *             within wait_timeout_ms.
 */
#ifndef LOADER_LOADER_H
#define LOADER_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "augment/pipeline.h"
#include "formats/base/host_memory.h"
#include "formats/base/log.h"
#include "formats/base/status.h"

struct dataset;     /* formats/dataset/dataset.h */
struct tokenizer;   /* formats/tokenizer/tokenizer.h */
struct loader;      /* opaque */
struct json_writer; /* formats/base/json_writer.h */

enum {
    LOADER_MAX_BATCH = 1 << 20,
    LOADER_MAX_WORLD = 1 << 16,
    LOADER_MAX_THREADS = 1024,
    LOADER_MAX_PREFETCH = 64,
    LOADER_MAX_READ_DEPTH = 256,
    LOADER_MIN_IMAGE_SIDE_PX = 8,
    LOADER_MAX_IMAGE_SIDE_PX = 2048,
    LOADER_MAX_IMAGE_BYTES =
        256 * 1024 * 1024, /* of one stored image; larger ones are LIMIT at open */
    LOADER_MAX_CORRUPT_LIST = 4096,
    LOADER_MAX_SOURCES = 16,
    LOADER_MAX_BLOCK = 1 << 24,        /* samples of a block */
    LOADER_MAX_BLOCK_WINDOW = 1 << 16, /* blocks */
    LOADER_FILTER_MAX_ASPECT = 1000000,
    LOADER_MAX_WEIGHT = 1000000000,
    LOADER_MAX_POSITIVES = 8,
    LOADER_MAX_COLUMNS = 16,
};

#define LOADER_MAX_WAIT_MS ((int64_t)1000 * 60 * 60 * 24 * 365)

#define LOADER_NO_TEXT UINT64_MAX /* text id of a sample that has no caption */

enum loader_engine {
    LOADER_ENGINE_AUTO,  /* io_uring; pread, with one log line, if the kernel refuses it */
    LOADER_ENGINE_URING, /* io_uring or UNSUPPORTED */
    LOADER_ENGINE_PREAD,
};

/* The order of samples in an epoch. Each takes O(1) memory, and any position can be computed
 * without those before it. */
enum loader_order {
    /* One keyed permutation of all samples: every sample is equally likely at every position, and
     * neighbours in an epoch are unrelated in the dataset. */
    LOADER_ORDER_GLOBAL,
    /* By id, one dataset after another. */
    LOADER_ORDER_SEQUENTIAL,
    /* For storage that is slow at random access. The samples in id order, starting at a random
     * position per epoch and wrapping around, are divided into blocks of block_count; the blocks
     * are permuted; then the samples of each block_window consecutive blocks are permuted among
     * themselves. Every sample is equally likely at every position of the epoch, but samples of one
     * block stay within one window of block_count * block_window positions, so that a batch holds
     * samples from at most block_window neighbourhoods of the dataset. Sorted data (by class, by
     * source) needs a larger window. */
    LOADER_ORDER_BLOCK,
    /* block_count consecutive rows are different samples of one class. In every epoch the samples
     * of each class are permuted and divided into whole blocks, and the blocks of all classes are
     * permuted; the rest of a class, fewer than block_count samples, is omitted from that epoch.
     * Requires one dataset, a label for every sample, and no class of fewer than block_count
     * samples. Also requires positives 1, a batch_count that is a multiple of block_count, and
     * max_corrupt_count 0, because a damaged sample would be replaced by one of another class.
     * Takes 24 bytes per sample. */
    LOADER_ORDER_CLASSES,
};

enum loader_captions {
    LOADER_CAPTIONS_DRAWN, /* one of the sample's captions, at random by (seed, epoch, sample id) */
    LOADER_CAPTIONS_NONE,  /* images only; see loader/texts.h for all captions in order */
    LOADER_CAPTIONS_TEXTS, /* likewise, for hooks.sample only, not tokenized */
};

/* One dataset of a mix. */
struct loader_source {
    const char
        *directory; /* or a location, once remote_start was called (loader/remote/remote.h) */
    double weight;  /* above 0, at most LOADER_MAX_WEIGHT; 0 in all sources: the number of live
                       samples */
};

/* Parses "DIR" or "DIR:WEIGHT": the text after the last colon is the weight if it is a number and
 * not the port of a location, and the whole text is not the name of a folder. Copies the directory
 * to `directory`. Returns OK, or USAGE for an empty directory, a weight out of range, or a text
 * that is too long. */
enum status loader_source_parse(struct loader_source *out,
                                char *directory,
                                size_t directory_size_bytes,
                                const char *text,
                                struct error *err);

/* Selects samples by their index records. A filter changes the positions of samples, never their
 * ids: per-sample state stays valid. */
struct loader_filter {
    uint32_t min_side_px; /* of the shorter side; an unknown size counts as 0; default 0 */
    double max_aspect; /* longer side over shorter, [1, LOADER_FILTER_MAX_ASPECT], in thousandths;
                          an unknown size does not pass; default 0: any */
    uint32_t min_captions, max_captions; /* number of captions; default 0, UINT32_MAX */
    /* Size of each caption: a sample passes if all of its captions do; no captions count as one of
     * 0 bytes. Open then reads every caption. Default 0, UINT32_MAX */
    uint32_t min_caption_bytes, max_caption_bytes;
    int32_t min_label, max_label; /* SHARD_NO_LABEL is below 0; INT32_MIN, INT32_MAX */
    /* (id_count) ascending ids, as delivered: an epoch consists of these samples, if they also pass
     * the rest; a repeated id repeats the sample with the same crop and caption. Read by open only;
     * default NULL: all */
    const uint64_t *ids;
    uint64_t id_count;
    uint64_t ids_hash; /* set by open */
};

void loader_filter_default(struct loader_filter *f); /* everything passes */

/* Sets the fields listed in `text`: "min-side=64,max-aspect=3,captions=1..5,caption-bytes=5..,
 * label=0..9". A range may omit either end, or be a single number. Returns OK or USAGE. */
enum status loader_filter_parse(struct loader_filter *out, const char *text, struct error *err);

/* The position of a run: the next batch to deliver. Plain numbers, to be stored anywhere. They
 * count global batches, so they are valid for any world size, but only for the same batch_count. */
struct loader_state {
    uint64_t fingerprint; /* as in loader_info */
    uint64_t seed;
    uint64_t epoch;
    uint64_t step; /* global batches of this epoch already delivered */
    /* All 0 for the defaults: one dataset, no filter, the global order. */
    uint64_t filter; /* hash of the filter, of caption_columns and of columns */
    uint64_t order;  /* order, block_count, block_window and positives in one number */
    uint64_t mix;    /* hash of the weights */
    double pair_noise;
    /* For checks and their messages; 0: not stored. */
    uint32_t batch_count;
    uint32_t source_count;
    struct {
        uint64_t fingerprint;
        uint64_t id_offset;
    } sources[LOADER_MAX_SOURCES];
};

/* Callbacks on the decoding threads, for further processing of samples; NULL: none. Several threads
 * call both at once, and again for a row whose sample is replaced. */
struct loader_hooks {
    /* Writes an image as batches have it instead of its (S, S, 3) bytes: S * S * pixel_bytes. */
    void (*pixels)(void *cookie, void *out, const uint8_t *rgb);
    uint32_t pixel_bytes;
    /* Receives row `row` of the batch in slot `slot`: its stored image if `wants_image` (then
     * images are read even without views), else NULL; and its caption as stored, `text` NULL if
     * there is none. Both are borrowed for the call. Returns OK, or a failure that stops the
     * run. */
    enum status (*sample)(void *cookie,
                          uint32_t slot,
                          uint32_t row,
                          const uint8_t *image,
                          size_t image_bytes,
                          const char *text,
                          size_t text_bytes,
                          struct error *err);
    bool wants_image;
    void *cookie;
};

struct loader_options {
    uint32_t batch_count; /* global batch, all ranks together, [1, LOADER_MAX_BATCH]; default 512 */
    uint32_t rank;        /* [0, world); default 0 */
    uint32_t world;       /* [1, LOADER_MAX_WORLD]; default 1 */
    uint32_t image_size_px;    /* S; default 256 */
    enum augment_kind augment; /* default AUGMENT_TRAIN */
    double crop_min, crop_max; /* fraction of the area that a random crop covers, 0 < min <= max <=
                                  1; default 0, 0: as augment_options_default sets it */
    enum resize_filter interpolation; /* 0: the augmentation's own; default 0 */
    enum loader_captions captions;    /* default LOADER_CAPTIONS_DRAWN */
    int32_t caption; /* index of a sample's own caption, from 0, modulo their number; below 0: a
                        random one; default -1 */
    enum loader_order order; /* default LOADER_ORDER_GLOBAL */
    uint32_t
        block_count; /* BLOCK, CLASSES: samples of a block, [1, LOADER_MAX_BLOCK]; default 1024 */
    uint32_t block_window; /* blocks, [1, LOADER_MAX_BLOCK_WINDOW]; default 16 */
    uint32_t views; /* independent random views per image, [0, AUGMENT_MAX_VIEWS]; 0: images are not
                       read, batches have none; default 1 */
    bool as_stored; /* images are decoded as struct image_decode_options of
                       formats/image/image_codec.h describes; default false */
    bool fixed_views; /* the augmentation depends only on (seed, sample id, view), so that every
                         epoch has the pixels of epoch 0; captions are still sampled per epoch;
                         default false */
    /* m: consecutive rows of a batch that show one sample. Row l has its own crop and flip and one
     * of the captions l, l + m, ... of the sample (with fewer than m captions: caption l modulo
     * their number). An epoch has m times as many rows. Must divide batch_count, and be 1 with two
     * views; in [1, LOADER_MAX_POSITIVES]; default 1 */
    uint32_t positives;
    /* Noisy pairs, as RINCE studies them: the probability, in [0, 1], that a sample has the
     * captions of another live sample of its dataset. Random by (seed, sample id): the noisy
     * samples and their captions are the same in all epochs, and a higher rate only adds samples. A
     * dataset of one live sample has no noise; after a dataset has grown, noisy samples get other
     * captions. Default 0 */
    double pair_noise;
    /* Captions from attached columns (formats/columns/columns.h): "raw:0.3,long:0.7", names and
     * weights above 0, at most 8; "raw" are a sample's own captions. One of those that the sample
     * has is chosen at random by (seed, epoch, sample id), then a caption by the weights of its
     * row; a sample with none of them uses its own captions. "raw+long", with as many names as
     * `positives`: row k of a sample in a batch uses column k, or another one if the sample lacks
     * it. Every dataset must have the columns. Read by open only; default NULL: own captions */
    const char *caption_columns;
    /* Attached columns of numbers to deliver with the batch: names separated by commas, at most
     * LOADER_MAX_COLUMNS. Every dataset must have them, with rows of equal length.
     * columns_required: open returns USAGE if a live sample lacks a row, and a row with NaN or
     * infinity stops the run; otherwise such rows are delivered. Read by open only; default NULL
     * and false */
    const char *columns;
    bool columns_required;
    struct loader_filter filter; /* default: loader_filter_default() */
    bool drop_last;              /* omit a last batch of fewer than batch_count; default true */
    uint64_t seed;               /* default 0 */
    uint64_t epochs;             /* END when this epoch number is reached; 0: never; default 0 */

    const struct loader_state *start; /* NULL: epoch 0, step 0; read by open only */

    uint32_t max_tokens; /* row length of tokens, [2, TOKENIZER_MAX_TOKENS]; default 30 */
    bool clean_captions; /* the paper's caption cleaning before the tokenizer, unless it has its own
                            (tokenizer_cleans); default true */
    const void *tokenizer_model; /* NULL: the first dataset's; no tokens if it has none */
    size_t tokenizer_model_size_bytes;

    uint32_t threads;            /* decode threads; 0: one per CPU; default 0 */
    enum loader_engine engine;   /* default LOADER_ENGINE_AUTO */
    bool direct;                 /* O_DIRECT: bypass the page cache; UNSUPPORTED if the file system
                                    cannot; default false */
    uint32_t read_depth;         /* images in flight or waiting to be decoded; default 64 */
    uint32_t prefetch_batches;   /* prepared in advance, [1, LOADER_MAX_PREFETCH]; default 3 */
    bool verify_images;          /* compare each image with its stored hash; default true */
    uint64_t max_corrupt_count;  /* different damaged samples before CORRUPT; 0 for evaluation;
                                    default 1000 */
    const char *quarantine_path; /* damaged samples are appended here, one JSON object per line:
                                    dataset, sample, reason. A separate thread writes; END and close
                                    wait for it. Read by open only; default NULL */
    int64_t wait_timeout_ms;     /* longest wait of acquire, seek and close, in [0,
                                    LOADER_MAX_WAIT_MS]; default 60000 */

    struct host_memory host_memory; /* allocates the batches; default: host_memory_default() */
    struct loader_hooks hooks;      /* default: none */
    const struct log_sink *log;     /* NULL: silent */
};

void loader_options_default(struct loader_options *opt);

/* Sets order, block_count and block_window from "global", "sequential", "block:SIZE" or
 * "block:SIZE:WINDOW"; fields that `text` omits keep their values. Returns OK or USAGE.
 */
enum status loader_order_parse(struct loader_options *opt, const char *text, struct error *err);

/* Names of the columns of a list for caption_columns, without raw: "long,short". */
enum { LOADER_COLUMN_CAPTION = 1 << 16, LOADER_CAPTION_NAMES_BYTES = 320 };
void loader_caption_column_names(char out[LOADER_CAPTION_NAMES_BYTES], const char *text);

/* One batch, borrowed until loader_release. `count` is the number of rows of this rank. It differs
 * between batches only if world does not divide batch_count or a last batch is kept, and can then
 * be 0.
 */
struct loader_batch {
    const uint8_t *images;  /* (count, S, S, 3) RGB: the first view; NULL without views */
    const uint8_t *images2; /* the second view; NULL with one view */
    const int32_t
        *tokens; /* (count, max_tokens), each row padded at its end; all 0 without tokenizer */
    const int32_t *lengths;     /* (count) tokens before the padding; 0 without tokenizer */
    const uint64_t *sample_ids; /* (count) */
    const uint64_t *text_ids;   /* (count), LOADER_NO_TEXT without caption */
    const uint32_t *captions;   /* (count) index of the caption among its sample's captions, from 0;
                                   for one of caption_columns LOADER_COLUMN_CAPTION + the index of its
                                   column in the list, from 0, not counting raw */
    const int32_t *labels;      /* (count), -1 without label */
    const float *columns;       /* (count, loader_info.column_values) numbers of all columns of each
                                   sample, column after column; zeros if it has no row */
    const uint8_t *present;     /* (count, loader_info.column_count) 1 if it has a row, else 0 */
    uint32_t count;
    uint32_t replaced_count; /* samples of this batch that replace damaged ones */
    uint64_t epoch;
    uint64_t step;        /* global batch number in the epoch, from 0 */
    uint64_t global_step; /* epoch * steps per epoch + step */
    uint32_t slot;        /* for loader_release */
};

/* One of loader_options.columns. */
struct loader_column {
    char name[33];
    uint32_t values, vectors; /* numbers per row, and vectors of equal length that they form */
    uint32_t first;           /* its first number in a row of loader_batch.columns */
};

/* Constant while the loader is open. */
struct loader_info {
    uint64_t sample_count; /* per epoch: all live samples */
    uint64_t id_space;     /* of all datasets together: larger than every sample id */
    uint64_t text_count;   /* of all datasets together */
    uint64_t fingerprint;  /* of the dataset; of several: a hash of theirs and their id offsets */
    uint32_t source_count;
    uint32_t cached_count; /* sources whose token ids are read from tokens.cct */
    uint64_t steps_per_epoch;
    uint32_t max_local_count;             /* largest count of a batch of this rank */
    uint32_t vocab_count;                 /* 0 without tokenizer */
    uint32_t threads;                     /* in use */
    const char *engine;                   /* in use: "io_uring" or "pread" */
    const struct loader_column *columns;  /* (column_count), in the order of options.columns */
    uint32_t column_count, column_values; /* how many; numbers of all together */
};

/* Opens the dataset and starts to read. On failure *out is NULL and nothing leaks. Returns OK,
 * INVALID, NOMEM, NOTFOUND, IO, CORRUPT (also: the index is damaged and there is a filter),
 * VERSION, LIMIT, UNSUPPORTED (the requested engine or direct reads are not available), USAGE
 * (fewer live samples than a batch with drop_last, or what LOADER_ORDER_CLASSES refuses) or
 * MISMATCH (opt->start belongs to another run, or the tokenizer is not the one recorded in the
 * manifest; the message names the difference). */
enum status loader_open(struct loader **out,
                        const char *dataset_dir,
                        const struct loader_options *opt,
                        struct error *err);

/* The same for source_count datasets, in [1, LOADER_MAX_SOURCES]; directories are copied. Also
 * USAGE if only some sources have weights, or a dataset with a weight is empty. */
enum status loader_open_mix(struct loader **out,
                            const struct loader_source *sources,
                            uint32_t source_count,
                            const struct loader_options *opt,
                            struct error *err);

/* Accepts NULL. Reads and quarantine writes that the kernel does not finish within wait_timeout_ms,
 * for example on a network disk that is gone, are abandoned together with their memory, and logged.
 */
void loader_close(struct loader *l);

/* Waits for the next batch in order. At most prefetch_batches + 1 can be held at once. Returns OK,
 * END after the last epoch, TIMEOUT (may be repeated; the message names the stage), INVALID (too
 * many batches are held), or the failure that stopped the run, which every later call repeats. */
enum status loader_acquire(struct loader *l, struct loader_batch *out, struct error *err);

/* The same with its own timeout, in [0, LOADER_MAX_WAIT_MS]; 0 does not wait. */
enum status loader_acquire_for(struct loader *l,
                               struct loader_batch *out,
                               int64_t timeout_ms,
                               struct error *err);

/* Releases the batch; its pointers become invalid. */
void loader_release(struct loader *l, const struct loader_batch *batch);

/* The position after the last batch acquired: to be stored with a checkpoint made after its use. */
struct loader_state loader_state(const struct loader *l);

/* Continues at `state`; batches read ahead are discarded. No batch may be held. Returns OK,
 * MISMATCH (belongs to another run, see loader_open; nothing changes), INVALID, TIMEOUT (reads or
 * writes hang: the loader can only be closed) or what starting the threads returned. */
enum status loader_seek(struct loader *l, const struct loader_state *state, struct error *err);

void loader_info(const struct loader *l, struct loader_info *out);

/* Borrowed until close; NULL for an invalid source, or if there is not a tokenizer. Both may be
 * read while the loader runs. */
const struct dataset *loader_dataset(const struct loader *l, uint32_t source);
const struct tokenizer *loader_tokenizer(const struct loader *l);

/* --- counters --- */

struct loader_stage_stats {
    uint64_t items_count; /* samples (read, decode) or batches (deliver) */
    uint64_t bytes;       /* read: as requested from the file system; decode: compressed images;
                             deliver: pixels and tokens */
    int64_t busy_ns;      /* summed over the stage's threads */
    int64_t wait_ns;      /* waiting for the neighbouring stages, summed */
    uint32_t threads;     /* of this stage */
    uint32_t queue_depth; /* now in the queue of this stage */
    uint32_t queue_capacity;
};

struct loader_stats {
    struct loader_stage_stats read;    /* queue: free read buffers */
    struct loader_stage_stats decode;  /* queue: images read, not yet decoded */
    struct loader_stage_stats deliver; /* queue: whole batches ready */
    int64_t elapsed_ns;                /* since open or seek */
    int64_t consumer_stall_ns;         /* time inside acquire; the first batch is not counted */
    int64_t first_batch_ns;            /* from open or seek to the first batch, 0 before it */
    uint64_t samples_count;            /* delivered */
    uint64_t replaced_count;           /* delivered instead of damaged ones */
    uint64_t corrupt_count;            /* different damaged samples seen */
    uint64_t retried_reads_count;
    uint64_t unturned_count; /* decoded as_stored: images whose EXIF orientation was ignored, */
    uint64_t opaque_count;   /* and those whose transparency was */
    uint64_t requests_count; /* reads; fewer than images where neighbours were read together */
};

void loader_stats(struct loader *l, struct loader_stats *out);

/* Writes the stages as a JSON object under `key` (NULL: at the top). */
void loader_stages_json(struct json_writer *w, const char *key, const struct loader_stats *s);

#define LOADER_NO_SAMPLE UINT64_MAX /* id of a sample whose index record is damaged */

/* A damaged sample, listed in the order of discovery. */
struct loader_corrupt {
    uint64_t sample_id; /* as delivered: with the source's offset */
    uint64_t position;  /* in its dataset */
    uint32_t source;
    char reason[200];
};

/* Returns OK, or END when index is at least the number listed (at most LOADER_MAX_CORRUPT_LIST). */
enum status loader_corrupt_at(struct loader *l, uint64_t index, struct loader_corrupt *out);

#endif
