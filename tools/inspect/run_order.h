/*
 * run_order: a run's sample order, from RUN/config.json and its datasets.
 *
 * Threading : single-owner.
 * Ownership : owns everything until close.
 * Untrusted : the file, the datasets.
 */
#ifndef TOOLS_INSPECT_RUN_ORDER_H
#define TOOLS_INSPECT_RUN_ORDER_H

#include "loader/order.h"
#include "tools/inspect/train_options.h"

/* Steps [begin, end) of a run, trained on the same data. Steps are counted by that data's epochs,
 * so parts may overlap. */
struct run_part {
    uint64_t begin, end; /* end UINT64_MAX: the last part */
    uint64_t data;       /* fingerprint of all datasets together */
    uint64_t fingerprints[LOADER_MAX_SOURCES];
    bool now;             /* the current data */
    struct error unknown; /* status not OK: why its order is unknown; the rest is then empty */
    struct sampler sampler;
    uint64_t *ids[LOADER_MAX_SOURCES]; /* (live count) by ordinal, if not `now` */
    uint64_t id_offsets[LOADER_MAX_SOURCES];
};

/* Too large for the stack. Read-only for users. */
struct run_order {
    struct run_config_words words; /* memory of the options */
    struct data_list data;
    struct trainer_options train;
    struct loader_options loader;
    struct order *order; /* of the current data */
    struct run_part *parts;
    size_t part_count;
};

/* `dataset`: the current path of the dataset of a run with one; NULL: the recorded path. Parts are
 * computed from RUN/sessions.jsonl; the order of data that has changed since from the generations
 * that datasets record. Returns OK, CORRUPT (a session does not record its data), IO, or what
 * run_config_add_run, cli_parse and order_open return. */
enum status
run_order_open(struct run_order **out, const char *run, const char *dataset, struct error *err);
void run_order_close(struct run_order *r); /* accepts NULL */

/* A row's source and sample id in that source; the sample may have been removed since. Requires a
 * known part, and a batch of its sampler. Returns as sources_sample_at. */
enum status run_part_sample_at(const struct run_order *r,
                               const struct run_part *p,
                               const struct sampler_batch *b,
                               uint32_t row,
                               struct sampler_place *place,
                               uint64_t *id,
                               struct error *err);

/* A sample's ordinal in a known part. False: the part had no such sample. */
bool run_part_find(const struct run_order *r,
                   const struct run_part *p,
                   uint32_t source,
                   uint64_t id,
                   uint64_t *ordinal);

#endif
