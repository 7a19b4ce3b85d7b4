/*
 * run_order: the recorded options through the parser of ccstream-train, as --resume reads them.
 */
#include "tools/inspect/run_order.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/json/json_reader.h"

enum { MAX_LAUNCHES_BYTES = 256 << 20 };

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

/* Whether a launch was trained on the data that the order is of. Returns OK or CORRUPT. */
static enum status is_of_this_data(bool *out,
                                   uint64_t *step,
                                   const struct run_order *r,
                                   const struct json_value *launch,
                                   struct error *err) {
    const struct sources *all = r->order->sources;
    const struct json_value *datasets = json_value_get(launch, "datasets");
    bool known = json_value_u64(json_value_get(launch, "step"), step);
    *out = json_value_count(datasets) == all->count;
    for (size_t i = 0; known && i < json_value_count(datasets); i++) {
        uint64_t fingerprint = 0;
        known = json_value_hex64(json_value_get(json_value_at(datasets, i), "fingerprint"),
                                 &fingerprint);
        *out = *out && fingerprint == dataset_fingerprint(all->items[i].dataset);
    }
    return known
               ? STATUS_OK
               : error_set(err, STATUS_CORRUPT, "a launch does not record the data it trained on");
}

enum status
run_order_since(uint64_t *step, const struct run_order *r, const char *run, struct error *err) {
    struct byte_buffer text;
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof path, run, "launches.jsonl", err));
    TRY(file_read_all(file_posix(), &text, path, MAX_LAUNCHES_BYTES, err));
    *step = UINT64_MAX;
    enum status s = STATUS_OK;
    const char *line = (const char *)text.data;
    const char *end = line != NULL ? line + text.size_bytes : NULL;
    for (const char *stop; s == STATUS_OK && line < end; line = stop + 1) {
        struct json_document *launch = NULL;
        bool same = false;
        uint64_t begun = 0;
        stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop != NULL ? stop : end;
        s = json_document_parse(&launch, path, line, (size_t)(stop - line), err);
        THEN(s, is_of_this_data(&same, &begun, r, json_document_root(launch), err));
        *step = !same ? UINT64_MAX : *step == UINT64_MAX ? begun : *step;
        json_document_destroy(launch);
    }
    byte_buffer_fini(&text);
    return s;
}

void run_order_close(struct run_order *r) {
    if (r != NULL) {
        order_close(r->order);
        run_config_words_fini(&r->words);
        free(r);
    }
}
