/*
 * ccdump state: the per-sample state of a checkpoint.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensors/safetensors.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/state_column.h"

#define SCALAR_PREFIX "loss.state."

enum { BINS = 16 };

struct options {
    bool json;
};

static const struct cli_option rows[] = {
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object"},
};

static const struct cli_program program = {
    .name = "ccdump state",
    .purpose = "shows a checkpoint's per-sample state: visited count, min, mean, max, standard "
               "deviation and histogram of each column",
    .usage = CLI_TEXTS("CHECKPOINT [--json]"),
    CLI_OPTIONS(rows),
    .arguments = {1, 1},
    .examples = CLI_TEXTS("ccdump state runs/a"),
    .notes =
        CLI_TEXTS("CHECKPOINT is a file, or a run directory (its newest checkpoint is used). A "
                  "sample counts as visited in a column once a step has written its entry. With "
                  "--text-state caption, text columns have one entry per caption. at_min and "
                  "at_max count the entries equal to the minimum and to the maximum; large counts "
                  "indicate that values are clipped at a bound. A checkpoint with a number that is "
                  "not finite, also in its weights, is refused (exit code 65)."),
};

/* One column and its histogram: bins of equal width from the smallest value to the largest. */
struct column {
    const char *name;
    struct sample_state_summary summary;
    uint64_t ids;
    uint64_t captions; /* 0: the column is by sample */
    uint64_t bins[BINS];
};

static void count_bins(struct column *c, const struct state_column *from) {
    sample_state_summarise(&c->summary, from->values, from->kind, from->count);
    const double width = c->summary.max - c->summary.min;
    c->name = from->name;
    c->ids = from->ids;
    c->captions = from->first != NULL ? from->count : 0;
    for (uint64_t i = 0; i < from->count; i++) {
        const double value = state_column_entry(from, i);
        if (!isnan(value)) {
            const double place = width > 0 ? (value - c->summary.min) / width * BINS : 0;
            c->bins[place < BINS ? (int)place : BINS - 1]++;
        }
    }
}

static void write_column(struct json_writer *w, const struct column *c) {
    json_open_object(w, c->name);
    json_u64(w, c->captions > 0 ? "captions" : "ids", c->captions > 0 ? c->captions : c->ids);
    json_u64(w, "visited", c->summary.visited_count);
    json_double(w, "min", c->summary.min);
    json_double(w, "mean", c->summary.mean);
    json_double(w, "max", c->summary.max);
    json_double(w, "std", c->summary.deviation);
    json_u64(w, "at_min", c->summary.at_min_count);
    json_u64(w, "at_max", c->summary.at_max_count);
    json_u64s(w, "histogram", c->bins, BINS);
    json_close_object(w);
}

/* The loss's scalars, which are not per sample. */
static void show_scalars(struct json_writer *w, const struct safetensors *file) {
    for (size_t i = 0; i < safetensors_metadata_count(file); i++) {
        const char *key = safetensors_metadata_key(file, i);
        if (strncmp(key, SCALAR_PREFIX, strlen(SCALAR_PREFIX)) == 0) {
            json_double(w, key + strlen(SCALAR_PREFIX),
                        strtod(safetensors_metadata(file, key), NULL));
        }
    }
}

static enum status
show_columns(struct json_writer *w, const struct checkpoint *checkpoint, struct error *err) {
    for (uint32_t i = 0;; i++) {
        struct state_column values;
        struct column c = {0};
        const enum status s = state_column_read(&values, checkpoint, i, err);
        if (s == STATUS_OK) {
            count_bins(&c, &values);
        }
        state_column_fini(&values);
        if (s != STATUS_OK) {
            return s == STATUS_END ? STATUS_OK : s;
        }
        write_column(w, &c);
    }
}

static enum status show(const struct checkpoint *c, bool json, struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    struct safetensors *file = NULL;
    TRY(safetensors_open(&file, file_posix(), checkpoint_path(c), err));
    struct json_writer w;
    cli_begin_json(&w);
    json_u64(&w, "step", p->step);
    json_string(&w, "loss", checkpoint_loss_name(c));
    json_hex64(&w, "fingerprint", p->fingerprint);
    json_u64(&w, "id_space", p->id_space_count);
    json_open_object(&w, "scalars");
    show_scalars(&w, file);
    json_close_object(&w);
    json_open_object(&w, "columns");
    const enum status s = show_columns(&w, c, err);
    json_close_object(&w);
    safetensors_close(file);
    if (s != STATUS_OK) {
        json_writer_fini(&w);
        return s;
    }
    return end_result(&w, json, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct checkpoint *c = NULL;
    samples_signals();
    TRY(path_check_checkpoint(a->items[0], err));
    TRY(checkpoint_open_state(&c, file_posix(), a->items[0], err));
    enum status s = checkpoint_check_finite(c, err);
    THEN(s, show(c, ((const struct options *)options)->json, err));
    checkpoint_close(c);
    return s;
}

CLI_MAIN(ccdump_state, program, struct options, run)
