/*
 * run_order: parses the recorded options with ccstream-train's parser, as --resume does.
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
    struct train_options o = {0};
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

/* ---- parts ---- */

static void part_fini(struct run_part *p) {
    for (size_t i = 0; i < LOADER_MAX_SOURCES; i++) {
        free(p->ids[i]);
    }
}

/* The order of a part's data. Returns OK, or why it is unknown. */
static enum status fill_past(struct run_part *p, const struct run_order *r, struct error *why) {
    const struct sources *all = r->order->sources;
    uint64_t counts[LOADER_MAX_SOURCES];
    uint64_t offset = 0;
    FAIL_IF(r->loader.order == LOADER_ORDER_CLASSES, why, STATUS_UNSUPPORTED,
            "blocks of one class depended on the labels at that time");
    for (uint32_t i = 0; i < all->count; i++) {
        uint64_t id_space = 0;
        p->id_offsets[i] = offset;
        TRY(dataset_past_ids(all->items[i].dataset, p->fingerprints[i], &p->ids[i], &counts[i],
                             &id_space, why));
        offset += id_space;
    }
    return sampler_init(&p->sampler, counts, all->weights, all->count, &r->loader, why);
}

static void fill_part(struct run_part *p, const struct run_order *r) {
    const struct sources *all = r->order->sources;
    p->now = p->data == sources_fingerprint(all);
    if (!p->now) {
        (void)fill_past(p, r, &p->unknown);
        return;
    }
    p->sampler = r->order->sampler;
    for (uint32_t i = 0; i < all->count; i++) {
        p->id_offsets[i] = all->items[i].id_offset;
    }
}

/* Adds a session, which discards earlier steps after the checkpoint that it resumed. */
static enum status
add_launch(struct run_order *r, const struct json_value *launch, struct error *err) {
    const struct json_value *datasets = json_value_get(launch, "datasets");
    struct run_part now = {.end = UINT64_MAX};
    uint64_t resumed = 0;
    uint64_t resumed_data = 0;
    bool known = json_value_u64(json_value_get(launch, "step"), &now.begin) &&
                 json_value_hex64(json_value_get(launch, "data"), &now.data) &&
                 json_value_count(datasets) == r->order->sources->count;
    for (size_t i = 0; known && i < json_value_count(datasets); i++) {
        known = json_value_hex64(json_value_get(json_value_at(datasets, i), "fingerprint"),
                                 &now.fingerprints[i]);
    }
    FAIL_IF(!known, err, STATUS_CORRUPT, "a launch does not record the data it trained on");
    if (!json_value_u64(json_value_get(launch, "resumed_step"), &resumed) ||
        !json_value_hex64(json_value_get(launch, "resumed_data"), &resumed_data)) {
        resumed = now.begin;
        resumed_data = r->part_count > 0 ? r->parts[r->part_count - 1].data : 0;
    }
    while (r->part_count > 0 &&
           (resumed == 0 || r->parts[r->part_count - 1].data != resumed_data)) {
        r->part_count--;
    }
    struct run_part *last = r->part_count > 0 ? &r->parts[r->part_count - 1] : NULL;
    if (last != NULL) {
        last->end = last->data == now.data ? UINT64_MAX : resumed;
    }
    if (last == NULL || last->data != now.data) {
        struct run_part *parts = realloc(r->parts, (r->part_count + 1) * sizeof *parts);
        TRY_MEMORY(parts, err, "out of memory for the launches of a run");
        r->parts = parts;
        parts[r->part_count++] = now;
    }
    return STATUS_OK;
}

static enum status read_launches(struct run_order *r, const char *run, struct error *err) {
    struct byte_buffer text;
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof path, run, "sessions.jsonl", err));
    TRY(file_read_all(file_posix(), &text, path, MAX_LAUNCHES_BYTES, err));
    enum status s = STATUS_OK;
    const char *line = (const char *)text.data;
    const char *end = line != NULL ? line + text.size_bytes : NULL;
    for (const char *stop; s == STATUS_OK && line < end; line = stop + 1) {
        struct json_document *launch = NULL;
        stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop != NULL ? stop : end;
        s = json_document_parse(&launch, path, line, (size_t)(stop - line), err);
        THEN(s, add_launch(r, json_document_root(launch), err));
        json_document_destroy(launch);
    }
    byte_buffer_fini(&text);
    for (size_t i = 0; s == STATUS_OK && i < r->part_count; i++) {
        fill_part(&r->parts[i], r);
    }
    return s;
}

enum status
run_order_open(struct run_order **out, const char *run, const char *dataset, struct error *err) {
    *out = NULL;
    struct run_order *r = calloc(1, sizeof *r);
    TRY_MEMORY(r, err, "out of memory for the options of a run");
    enum status s = fill(r, run, dataset, err);
    THEN(s, read_launches(r, run, err));
    RETURN_CREATED(s, out, r, run_order_close);
}

void run_order_close(struct run_order *r) {
    if (r != NULL) {
        for (size_t i = 0; i < r->part_count; i++) {
            part_fini(&r->parts[i]);
        }
        free(r->parts);
        order_close(r->order);
        run_config_words_fini(&r->words);
        free(r);
    }
}

/* ---- samples ---- */

enum status run_part_sample_at(const struct run_order *r,
                               const struct run_part *p,
                               const struct sampler_batch *b,
                               uint32_t row,
                               struct sampler_place *place,
                               uint64_t *id,
                               struct error *err) {
    struct source_sample x;
    *place = sampler_place_at(&p->sampler, b, row);
    if (!p->now) {
        *id = p->ids[place->source][place->ordinal];
        return STATUS_OK;
    }
    TRY(sources_sample_at(r->order->sources, place->source, place->ordinal, &x, err));
    *id = x.sample.sample_id - p->id_offsets[place->source];
    return STATUS_OK;
}

bool run_part_find(const struct run_order *r,
                   const struct run_part *p,
                   uint32_t source,
                   uint64_t id,
                   uint64_t *ordinal) {
    struct dataset_sample sample;
    if (p->now) {
        const struct dataset *d = r->order->sources->items[source].dataset;
        const bool found = dataset_find(d, id, &sample, NULL) == STATUS_OK;
        *ordinal = found ? sample.position : 0;
        return found;
    }
    uint64_t low = 0;
    for (uint64_t high = p->sampler.sources[source].live_count; low < high;) {
        const uint64_t middle = low + (high - low) / 2;
        low = p->ids[source][middle] < id ? middle + 1 : low;
        high = p->ids[source][middle] < id ? high : middle;
    }
    *ordinal = low;
    return low < p->sampler.sources[source].live_count && p->ids[source][low] == id;
}
