/*
 * ccdump why: one sample in a run. Its steps are computed by the inverse of the order, its state is
 * read from the checkpoint, and its neighbours are found by zeta and by the model.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tools/ccdump/why_internal.h"
#include "tools/cli/output.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/eval_common.h"
#include "tools/inspect/page/page_data.h"
#include "tools/inspect/run_order.h"
#include "tools/inspect/state_column.h"

struct options {
    uint64_t near, encode;
    const char *html, *image;
    bool json;
    struct remote_choice remote;
    struct cli_list data;
    bool force;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    {"near", 'n', CLI_U64, FIELD(near), .min = "0", .max = "100", .default_text = "5",
     .metavar = "N", .help = "number of neighbours of each kind"},
    {"encode", 0, CLI_U64, FIELD(encode), .min = "0", .max = "1000000000", .default_text = "5000",
     .metavar = "N",
     .help = "find neighbours by embedding if the dataset has at most N samples; the run's model "
             "encodes all of them on the CPU; 0: off"},
    {"image", 0, CLI_STRING, FIELD(image), .metavar = "FILE",
     .help = "also write the unchanged image file to this path"},
    {"html", 0, CLI_STRING, FIELD(html), .metavar = "FILE",
     .help = "also write a self-contained HTML page with the images"},
    OUTPUT_FORCE_ROW(struct options, force),
    {"json", 0, CLI_FLAG, FIELD(json), .help = "one JSON object"},
    CLI_REMOTE_ROWS(struct options, remote),
    CLI_RUN_DATA_ROW(struct options, data),
};

static const struct cli_program program = {
    .name = "ccdump why",
    .purpose = "shows one sample in a run: training history, per-sample state, nearest neighbours",
    .usage = CLI_TEXTS("RUN DIR ID [options]"),
    CLI_OPTIONS(rows),
    .arguments = {3, 3},
    .examples = CLI_TEXTS("ccdump why runs/a cc3m 12", "ccdump why runs/a cc3m 12 --html 12.html"),
    .notes = CLI_TEXTS(
        "Steps are 0-based and computed from the recorded options and the dataset; replacements of "
        "corrupt samples are not shown. With --pair-noise a sample may have been trained with "
        "another sample's captions.",
        "Neighbours by embedding are the images and captions most similar to the image (cosine)."),
};

/* ---- neighbours ------------------------------------------------------------------------------ */

/* Keeps the `capacity` closest, closest first; of equals the earlier one is first. */
static void list_add(struct why_list *l, struct why_near x) {
    size_t at = l->count;
    while (at > 0 && l->items[at - 1].closeness < x.closeness) {
        at--;
    }
    if (at == l->capacity) {
        return;
    }
    l->count += l->count < l->capacity;
    memmove(&l->items[at + 1], &l->items[at], (l->count - 1 - at) * sizeof l->items[0]);
    l->items[at] = x;
}

static double dot(const float *a, const float *b, int64_t dim) {
    double sum = 0;
    for (int64_t i = 0; i < dim; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

static void find_embedded(struct why *w, const struct embeddings *e) {
    const float *own = NULL;
    for (int64_t i = 0; i < e->images_count; i++) {
        own = e->sample_ids[i] == w->id ? e->images + i * e->embed_dim : own;
    }
    if (own == NULL) {
        return;
    }
    for (int64_t i = 0; i < e->images_count; i++) {
        const double cosine = dot(own, e->images + i * e->embed_dim, e->embed_dim);
        if (e->sample_ids[i] != w->id) {
            list_add(&w->images, (struct why_near){e->sample_ids[i], 0, cosine, cosine});
        }
    }
    for (int64_t t = 0; t < e->texts_count; t++) {
        const double cosine = dot(own, e->texts + t * e->embed_dim, e->embed_dim);
        uint32_t caption = 0;
        while (t > caption && e->owner[t - 1 - caption] == e->owner[t]) {
            caption++;
        }
        list_add(&w->texts, (struct why_near){e->sample_ids[e->owner[t]], caption, cosine, cosine});
    }
}

/* Encodes the dataset with the run's model. Two views of images have no texts. */
static enum status encode(struct why *w, struct error *err) {
    const struct eval_options how = {
        .data = w->dataset, .device = "cpu", .batch_size = 128, .quiet = true};
    struct eval e;
    struct embeddings found;
    TRY(eval_open_images(&e, w->run, &how, err));
    struct embed_options embed = eval_transformed(&e, &how, AUGMENT_EVAL_SQUASH);
    embed.texts = e.model != NULL && e.tokenizer != NULL;
    const bool texts = embed.texts;
    enum status s = embed_dataset(&found, &e.encoder, e.dev, w->dataset, &embed, err);
    eval_close(&e);
    TRY(s);
    find_embedded(w, &found);
    embeddings_fini(&found);
    if (!texts) {
        (void)snprintf(w->texts.none, sizeof w->texts.none, "the run's model has no texts");
    }
    return STATUS_OK;
}

static enum status find_by_embedding(struct why *w, const struct options *o, struct error *err) {
    char why[WHY_REASON_BYTES] = "";
    const uint64_t samples = w->input->manifest->samples;
    if (o->near == 0 || o->encode == 0) {
        (void)snprintf(why, sizeof why, "not asked for");
    } else if (samples > o->encode) {
        (void)snprintf(why, sizeof why,
                       "not searched: needs encoding %" PRIu64 " samples; pass --encode %" PRIu64,
                       samples, samples);
    } else if (checkpoint_model(w->checkpoint)->image_size_px == 0) {
        (void)snprintf(why, sizeof why, "the checkpoint has no image tower");
    } else {
        return encode(w, err);
    }
    memcpy(w->images.none, why, sizeof why);
    memcpy(w->texts.none, why, sizeof why);
    return STATUS_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */

/* The samples with the nearest zeta. */
static enum status find_by_zeta(struct why *w,
                                const struct state_column *column,
                                const struct state_ids *ids,
                                double own,
                                struct error *err) {
    struct sample_facts f;
    enum status s;
    TRY(input_from(w->input, 0, err));
    while ((s = input_next(w->input, &f, err)) == STATUS_OK) {
        const double value =
            f.id < ids->count ? state_column_value(column, ids->first + f.id) : (double)NAN;
        if (f.id != w->id && !isnan(value)) {
            list_add(&w->zeta, (struct why_near){f.id, 0, value, -fabs(value - own)});
        }
    }
    return s == STATUS_END ? STATUS_OK : s;
}

static enum status take_column(struct why *w,
                               const struct state_column *column,
                               const struct state_ids *ids,
                               struct error *err) {
    struct why_column *c = &w->columns[w->column_count++];
    const double own = w->id < ids->count ? state_column_value(column, w->run_id) : (double)NAN;
    *c = (struct why_column){.name = column->name, .visited = !isnan(own), .value = own};
    c->caption_count = w->id < ids->count ? state_column_captions(column, w->run_id) : 0;
    c->captions = calloc(c->caption_count + 1, sizeof *c->captions);
    TRY_MEMORY(c->captions != NULL, err, "out of memory for captions");
    for (uint32_t k = 0; k < c->caption_count; k++) {
        c->captions[k] = state_column_caption(column, w->run_id, k);
    }
    for (uint64_t i = ids->first; i < ids->first + ids->count; i++) {
        const double value = state_column_value(column, i);
        c->count += !isnan(value);
        c->below += value < own;
    }
    const size_t length = strlen(c->name);
    if (c->visited && w->zeta_name == NULL && length >= 5 &&
        strcmp(c->name + length - 5, ".zeta") == 0 && strncmp(c->name, "text", 4) == 0) {
        w->zeta_name = c->name;
        return find_by_zeta(w, column, ids, own, err);
    }
    return STATUS_OK;
}

static enum status read_columns(struct why *w, const struct state_ids *ids, struct error *err) {
    enum status s = STATUS_OK;
    for (uint32_t i = 0; s == STATUS_OK && i < WHY_MAX_COLUMNS; i++) {
        struct state_column column;
        s = state_column_read(&column, w->checkpoint, i, err);
        s = s == STATUS_OK ? take_column(w, &column, ids, err) : s;
        state_column_fini(&column);
    }
    if (w->zeta_name == NULL) {
        (void)snprintf(w->zeta.none, sizeof w->zeta.none, "loss %s keeps no zeta of this sample",
                       checkpoint_loss_name(w->checkpoint));
    }
    return s == STATUS_END ? STATUS_OK : s;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int by_step(const void *a, const void *b) {
    const struct sampler_visit *x = a;
    const struct sampler_visit *y = b;
    return (x->global_step > y->global_step) - (x->global_step < y->global_step);
}

/* A part's steps up to the checkpoint, and in the current data some after it. */
static enum status find_visits(struct why *w,
                               const struct run_part *part,
                               struct sampler_place place,
                               struct error *err) {
    struct sampler_visit *first = w->visits + w->visit_count;
    const bool last = part->end == UINT64_MAX;
    const bool done = part->data == checkpoint_position(w->checkpoint)->fingerprint;
    const uint64_t end = !last ? part->end : done ? w->steps_done : part->begin;
    for (uint64_t round = 0; w->next_count < WHY_NEXT; round++) {
        struct sampler_visit v;
        const enum status s = sampler_find(&part->sampler, place, round, &v);
        if (s == STATUS_END || (s == STATUS_OK && v.global_step >= end && !(last && part->now))) {
            break;
        }
        if (s != STATUS_OK || v.global_step < part->begin) {
            continue; /* dropped with the rest of its epoch, or in another part */
        }
        FAIL_IF(w->visit_count + w->next_count == WHY_MAX_VISITS, err, STATUS_LIMIT,
                "the run is in more than %d epochs", WHY_MAX_VISITS);
        w->visits[w->visit_count + w->next_count] = v;
        w->visit_count += v.global_step < end;
        w->next_count += v.global_step >= end;
    }
    qsort(first, (size_t)(w->visits + w->visit_count - first) + w->next_count, sizeof *first,
          by_step);
    return STATUS_OK;
}

/* The steps of all parts of the run with known order; the others are listed. */
static enum status
find_in_parts(struct why *w, const struct run_order *r, uint32_t source, struct error *err) {
    for (size_t i = 0; i < r->part_count; i++) {
        const struct run_part *p = &r->parts[i];
        struct sampler_place place = {.source = source};
        if (p->unknown.status != STATUS_OK) {
            const size_t used = strlen(w->no_visits);
            (void)snprintf(w->no_visits + used, sizeof w->no_visits - used,
                           "%sthose from step %" PRIu64 " to %" PRIu64 ": %s", used > 0 ? "; " : "",
                           p->begin, p->end < w->steps_done ? p->end : w->steps_done,
                           p->unknown.text);
            continue;
        }
        w->steps_per_epoch = p->sampler.steps_per_epoch;
        if (run_part_find(r, p, source, w->id, &place.ordinal)) {
            TRY(find_visits(w, p, place, err));
        }
    }
    return STATUS_OK;
}

/* Ids in the run, and the steps. */
static enum status place_sample(struct why *w, struct error *err) {
    const struct manifest *m = w->input->manifest;
    struct run_order *r;
    TRY(run_order_open(&r, w->run, w->dataset, err));
    const struct sources *all = r->order->sources;
    uint32_t source = 0;
    while (source < all->count &&
           dataset_fingerprint(all->items[source].dataset) != m->fingerprint) {
        source++;
    }
    w->steps_done = checkpoint_position(w->checkpoint)->step;
    const enum status s =
        source < all->count
            ? find_in_parts(w, r, source, err)
            : error_set(err, STATUS_MISMATCH, "%s is none of the datasets that %s was trained on",
                        w->dataset, w->run);
    run_order_close(r);
    return s;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum status collect(struct why *w, const struct options *o, struct error *err) {
    struct sample_facts f;
    struct sample_content content;
    struct state_ids ids;
    FAIL_IF(w->input->kind != INPUT_DATASET, err, STATUS_USAGE,
            "%s is not a dataset; name one of the run", w->dataset);
    TRY(input_find(w->input, &f, w->id, err));
    TRY(state_ids_find(&ids, w->checkpoint, w->input->manifest, w->dataset, err));
    w->run_id = ids.first + w->id;
    TRY(place_sample(w, err));
    TRY(read_columns(w, &ids, err));
    TRY(find_by_embedding(w, o, err));
    if (o->image != NULL) {
        TRY(input_find(w->input, &f, w->id, err));
        TRY(input_read(w->input, &content, err));
        TRY(sample_write_image(o->image, &f, &content, err));
    }
    TRY(why_print(w, o->json, err));
    return o->html != NULL ? why_write_page(w, o->html, err) : STATUS_OK;
}

static enum status open_and_collect(struct why *w, const struct options *o, struct error *err) {
    struct checkpoint *c = NULL;
    enum status s = input_open(&w->input, w->dataset, err);
    THEN(s, checkpoint_open_state(&c, file_posix(), w->run, err));
    if (s == STATUS_OK) {
        w->checkpoint = c;
        s = collect(w, o, err);
    }
    checkpoint_close(c);
    input_close(w->input);
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    uint64_t id;
    samples_signals();
    FAIL_IF(!cli_parse_u64(a->items[2], CLI_UNIT_NONE, &id), err, STATUS_USAGE,
            "'%s' is not an id: ids are integers", a->items[2]);
    TRY(page_check(o->html, o->force, err));
    TRY(output_check_file(o->image, o->force, err));
    struct remote_choice remote = o->remote;
    struct cli_list data = o->data; /* the run may have further ones */
    remote.only = &data;
    if (data.count < CLI_MAX_LIST) {
        data.items[data.count++] = a->items[1];
    }
    TRY(remote_choice_use(&remote, err));
    TRY(path_check_checkpoint(a->items[0], err));
    TRY(path_check_dataset(a->items[1], err));
    struct why *w = calloc(1, sizeof *w);
    struct sampler_visit *visits = calloc(WHY_MAX_VISITS, sizeof *visits);
    enum status s = STATUS_NOMEM;
    if (w == NULL || visits == NULL) {
        (void)error_set(err, s, "out of memory");
    } else {
        w->run = a->items[0];
        w->dataset = a->items[1];
        w->id = id;
        w->visits = visits;
        w->zeta.capacity = w->images.capacity = w->texts.capacity = (size_t)o->near;
        s = open_and_collect(w, o, err);
        for (size_t i = 0; i < w->column_count; i++) {
            free(w->columns[i].captions);
        }
    }
    free(visits);
    free(w);
    return s;
}

CLI_MAIN(ccdump_why, program, struct options, run)
