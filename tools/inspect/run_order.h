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

/* Too large for the stack. Read-only for users. */
struct run_order {
    struct run_config_words words; /* to which the options point */
    struct data_list data;
    struct trainer_options train;
    struct loader_options loader;
    struct order *order;
};

/* `dataset`: where the dataset of a run of one is now; NULL: where the run recorded it. Returns OK,
 * or what run_config_add_run, cli_parse and order_open return. */
enum status
run_order_open(struct run_order **out, const char *run, const char *dataset, struct error *err);
void run_order_close(struct run_order *r); /* accepts NULL */

/* *step: the first step since which RUN was trained on the data as it is now, by the fingerprints
 * of its launches (RUN/launches.jsonl); UINT64_MAX: none was. Steps before it had another order.
 * Returns OK, CORRUPT (a launch does not record its data), IO, NOMEM or LIMIT. */
enum status
run_order_since(uint64_t *step, const struct run_order *r, const char *run, struct error *err);

#endif
