/*
 * run_order: the order of samples of a run, from RUN/config.json and the datasets that it names.
 *
 * Threading : single-owner.
 * Ownership : owns everything until close.
 * Untrusted : the file, the datasets.
 */
#ifndef TOOLS_INSPECT_RUN_ORDER_H
#define TOOLS_INSPECT_RUN_ORDER_H

#include "loader/order.h"
#include "tools/inspect/train_options.h"

/* Steps [begin, end) of a run, trained on the same data. They are numbered by the epochs of that
 * data, so those of parts may overlap. */
struct run_part {
    uint64_t begin, end; /* end UINT64_MAX: of the last part */
    uint64_t data;       /* fingerprint of all datasets together */
    uint64_t fingerprints[LOADER_MAX_SOURCES];
    bool now;             /* it is the data as it is */
    struct error unknown; /* status not OK: why its order cannot be known; the rest is then empty */
    struct sampler sampler;
    uint64_t *ids[LOADER_MAX_SOURCES]; /* (live count) by ordinal, if not `now` */
    uint64_t id_offsets[LOADER_MAX_SOURCES];
};

/* Too large for the stack. Read-only for users. */
struct run_order {
    struct run_config_words words; /* to which the options point */
    struct data_list data;
    struct trainer_options train;
    struct loader_options loader;
    struct order *order; /* of the data as it is */
    struct run_part *parts;
    size_t part_count;
};

/* `dataset`: where the dataset of a run of one is now; NULL: where the run recorded it. Parts are
 * those of RUN/sessions.jsonl; the order of data that has changed since is computed from what the
 * datasets record of their generations. Returns OK, CORRUPT (a launch does not record its data),
 * IO, or what run_config_add_run, cli_parse and order_open return. */
enum status
run_order_open(struct run_order **out, const char *run, const char *dataset, struct error *err);
void run_order_close(struct run_order *r); /* accepts NULL */

/* The sample of a row, which may have been removed since: source, and its id there. Requires a
 * known part, and a batch of its sampler. Returns as sources_sample_at. */
enum status run_part_sample_at(const struct run_order *r,
                               const struct run_part *p,
                               const struct sampler_batch *b,
                               uint32_t row,
                               struct sampler_place *place,
                               uint64_t *id,
                               struct error *err);

/* The ordinal of a sample in a known part. False: the part had no such sample. */
bool run_part_find(const struct run_order *r,
                   const struct run_part *p,
                   uint32_t source,
                   uint64_t id,
                   uint64_t *ordinal);

#endif
