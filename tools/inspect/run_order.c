/*
 * run_order: the recorded options through the parser of ccstream-train, as --resume reads them.
 */
#include "tools/inspect/run_order.h"

#include <stdlib.h>
#include <string.h>

static enum status
fill(struct run_order *r, const char *run, const char *dataset, struct error *err) {
    static const char *const program[] = {"ccstream-train"};
    struct cli_arguments none = {0};
    struct train_options o;
    TRY(run_config_add_words(&r->words, 1, program, err));
    TRY(run_config_add_run(&r->words, run, err));
    TRY(cli_parse_words(train_program(), &o, &none, r->words.count, r->words.words, true, err));
    cli_arguments_fini(&none);
    if (dataset != NULL && o.data.count == 1) {
        o.data.items[0] = dataset;
    }
    TRY(train_options_apply(&r->train, &r->data, &o, run, err));
    loader_options_default(&r->loader);
    trainer_order_options(&r->train, &r->loader);
    r->loader.epochs = r->train.epochs;
    return order_open(&r->order, r->data.items, r->data.count, &r->loader, err);
}

enum status
run_order_open(struct run_order **out, const char *run, const char *dataset, struct error *err) {
    *out = NULL;
    struct run_order *r = calloc(1, sizeof *r);
    TRY_MEMORY(r, err, "out of memory for the options of a run");
    const enum status s = fill(r, run, dataset, err);
    RETURN_CREATED(s, out, r, run_order_close);
}

void run_order_close(struct run_order *r) {
    if (r != NULL) {
        order_close(r->order);
        run_config_words_fini(&r->words);
        free(r);
    }
}
