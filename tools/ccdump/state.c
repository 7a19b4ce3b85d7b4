/*
 * ccdump state: the numbers that a checkpoint keeps for every sample.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensors/safetensors.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/state_column.h"

#define SCALAR_PREFIX "loss.state."

enum { BINS = 16, BAR_COLUMNS = 40 };

struct options {
    bool json;
};

static const struct cli_option rows[] = {
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object"},
};

static const struct cli_program program = {
    .name = "ccdump state",
    .purpose = "shows a checkpoint's per-sample state: visited count, min, mean, max and a "
               "histogram of each column",
    .usage = CLI_TEXTS("CHECKPOINT [--json]"),
    CLI_OPTIONS(rows),
    .arguments = {1, 1},
    .examples = CLI_TEXTS("ccdump state runs/a"),
    .notes = CLI_TEXTS(
        "CHECKPOINT is a file, or a run directory (its newest checkpoint is used). A sample is "
        "visited in a column once a step has written its entry."),
};

/* One column and its histogram: bin i counts the values in [edge(i), edge(i + 1)). */
struct column {
    const char *name;
    struct sample_state_summary summary;
    uint64_t ids;
    uint64_t bins[BINS];
};

static double edge(const struct column *c, int i) {
    return c->summary.min + (c->summary.max - c->summary.min) * i / BINS;
}

static void count_bins(struct column *c, const struct state_column *from) {
    sample_state_summarise(&c->summary, from->values, from->kind, from->ids);
    const double width = c->summary.max - c->summary.min;
    c->name = from->name;
    c->ids = from->ids;
    for (uint64_t i = 0; i < c->ids; i++) {
        const double value = state_column_value(from, i);
        if (!isnan(value)) {
            const double place = width > 0 ? (value - c->summary.min) / width * BINS : 0;
            c->bins[place < BINS ? (int)place : BINS - 1]++;
        }
    }
}

static void print_column(const struct column *c) {
    uint64_t most = 0;
    printf("\n%s: %s of %s ids visited", c->name, cli_format_count(c->summary.visited_count),
           cli_format_count(c->ids));
    if (c->summary.visited_count == 0) {
        printf("\n");
        return;
    }
    printf("; min %.6g, mean %.6g, max %.6g\n", c->summary.min, c->summary.mean, c->summary.max);
    for (int i = 0; i < BINS; i++) {
        most = c->bins[i] > most ? c->bins[i] : most;
    }
    for (int i = 0; i < BINS && c->summary.max > c->summary.min; i++) {
        printf("  %12.5g  %11s  ", edge(c, i), cli_format_count(c->bins[i]));
        print_bar((double)c->bins[i] / (double)most, BAR_COLUMNS);
    }
}

static void write_column(struct json_writer *w, const struct column *c) {
    json_open_object(w, c->name);
    json_u64(w, "ids", c->ids);
    json_u64(w, "visited", c->summary.visited_count);
    json_double(w, "min", c->summary.min);
    json_double(w, "mean", c->summary.mean);
    json_double(w, "max", c->summary.max);
    json_open_array(w, "histogram");
    for (int i = 0; i < BINS; i++) {
        json_u64(w, NULL, c->bins[i]);
    }
    json_close_array(w);
    json_close_object(w);
}

/* The loss's scalars, which belong to no single sample. */
static void show_scalars(struct json_writer *w, const struct safetensors *file) {
    for (size_t i = 0; i < safetensors_metadata_count(file); i++) {
        const char *key = safetensors_metadata_key(file, i);
        if (strncmp(key, SCALAR_PREFIX, strlen(SCALAR_PREFIX)) != 0) {
            continue;
        }
        const char *name = key + strlen(SCALAR_PREFIX);
        if (w != NULL) {
            json_double(w, name, strtod(safetensors_metadata(file, key), NULL));
        } else {
            printf("%s: %s\n", name, safetensors_metadata(file, key));
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
        if (w != NULL) {
            write_column(w, &c);
        } else {
            print_column(&c);
        }
    }
}

static enum status show(const struct checkpoint *c, bool json, struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    const char *path = checkpoint_path(c);
    struct safetensors *file = NULL;
    TRY(safetensors_open(&file, file_posix(), path, err));
    enum status s;
    if (json) {
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
        s = show_columns(&w, c, err);
        json_close_object(&w);
        if (s == STATUS_OK) {
            s = cli_end_json(&w, err);
        } else {
            json_writer_fini(&w);
        }
    } else {
        printf("%s: step %" PRIu64 ", loss %s, dataset %016" PRIx64 "\n", path, p->step,
               checkpoint_loss_name(c), p->fingerprint);
        show_scalars(NULL, file);
        s = show_columns(NULL, c, err);
    }
    safetensors_close(file);
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct checkpoint *c = NULL;
    samples_signals();
    TRY(path_check_checkpoint(a->items[0], err));
    TRY(checkpoint_open_state(&c, file_posix(), a->items[0], err));
    const enum status s = show(c, ((const struct options *)options)->json, err);
    checkpoint_close(c);
    return s;
}

CLI_MAIN(ccdump_state, program, struct options, run)
