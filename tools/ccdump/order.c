/*
 * ccdump order: the samples of one step, of a run or of options on the command line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/ccdump/order_loss.h"
#include "tools/cli/cli_text.h"
#include "tools/inspect/run_order.h"

struct options {
    uint64_t step, seed, batch, positives, world;
    const char *order;
    bool json, loss;
    struct remote_choice remote;
    struct cli_list data;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    {"step", 's', CLI_U64, FIELD(step), .default_text = "0", .metavar = "T",
     .help = "0-based step of the run"},
    {"world", 0, CLI_U64, FIELD(world), .default_text = "1", .min = "1", .max = "65536",
     .metavar = "W", .help = "also show each row's rank, if the run had W ranks"},
    {"loss", 0, CLI_FLAG, FIELD(loss),
     .help = "also show each row's loss (the mean is the logged loss) and weight; retrains from "
             "the checkpoint before the step"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "one JSON object per row"},
    {"seed", 0, CLI_U64, FIELD(seed), .default_text = "0", .metavar = "N",
     .help = "random seed of the order", .group = "For datasets (a run records these)"},
    {"batch-size", 'b', CLI_U64, FIELD(batch), .alias = "batch", .default_text = "512", .min = "1",
     .max = "1048576", .metavar = "N", .help = "rows per step, over all ranks"},
    {"order", 0, CLI_STRING, FIELD(order), .default_text = "global", .metavar = "KIND",
     .help = "global, sequential, block:SIZE or block:SIZE:WINDOW"},
    {"positives", 0, CLI_U64, FIELD(positives), .default_text = "1", .min = "1", .max = "8",
     .metavar = "M",
     .help = "number of consecutive rows that are the same sample; must divide --batch-size"},
    CLI_REMOTE_ROWS(struct options, remote),
    CLI_RUN_DATA_ROW(struct options, data),
};

static const struct cli_program program = {
    .name = "ccdump order",
    .purpose = "shows the samples of a training step",
    .usage = CLI_TEXTS("RUN --step T [--loss] [--world W] [--json]",
                       "DIR[:WEIGHT]... --step T [--seed N] [--batch-size N] [--order KIND]"),
    CLI_OPTIONS(rows),
    .arguments = {1, LOADER_MAX_SOURCES},
    .examples = CLI_TEXTS("ccdump order runs/a --step 1000",
                          "ccdump order runs/a --step 1000 --loss",
                          "ccdump order cc3m --seed 1 --batch-size 512 --step 1000 --json"),
    .notes = CLI_TEXTS(
        "The order is computed from seed, batch size and dataset, whether or not the run has "
        "reached the step. For a run, its recorded seed, batch size, datasets and order are used. "
        "If samples were appended or removed since the step, the dataset's state at that step is "
        "used, and removed samples are marked. If that state is not recorded, as for steps before "
        "a subset, the exit code is 65. If a restarted epoch has reused a step number, the later "
        "step is shown. Replacements of corrupt samples at load time are not shown, except with "
        "--loss.",
        "--loss retrains in memory from the newest checkpoint before the step, or from the start, "
        "which takes as long as those steps took. RUN is not modified. A row's loss is the sum of "
        "the terms whose anchor is its image or its text, times its weight. For losses with moving "
        "averages it is a term of the surrogate that is logged as loss, and may be negative. If "
        "the mean differs from the logged loss by more than 1e-6 (another machine, another number "
        "of threads, a loss computed on a GPU), the rows are shown and the exit code is 65."),
};

/* What is printed. */
struct step {
    const struct options *o;
    const struct run_order *run; /* of datasets without a run only the order */
    const struct run_part *part;
    struct sampler_batch batch;
    uint32_t positives;
    const struct order_loss *loss; /* NULL: not printed */
    struct caption_reader *captions[LOADER_MAX_SOURCES];
    struct json_writer line;
};

/* The first caption, for display; *removed: the sample was removed. */
static enum status first_caption(struct step *s,
                                 uint32_t source,
                                 uint64_t id,
                                 struct shard_text *out,
                                 bool *removed,
                                 struct error *err) {
    const struct dataset *d = s->run->order->sources->items[source].dataset;
    struct dataset_sample sample;
    *out = (struct shard_text){"", 0};
    const enum status found = dataset_find(d, id, &sample, err);
    *removed = found == STATUS_NOTFOUND;
    if (*removed || (found == STATUS_OK && sample.text_count == 0)) {
        return STATUS_OK;
    }
    TRY(found);
    if (s->captions[source] == NULL) {
        TRY(caption_reader_create(&s->captions[source], d, err));
    }
    return caption_reader_get(s->captions[source], &sample, 0, out, err);
}

static enum status show_row(struct step *s, uint32_t row, struct error *err) {
    static const struct shard_text gone = {"(removed since)", sizeof "(removed since)" - 1};
    const struct sources *all = s->run->order->sources;
    const bool several = all->count > 1;
    struct sampler_place x;
    struct shard_text caption;
    uint64_t id;
    bool removed;
    TRY(run_part_sample_at(s->run, s->part, &s->batch, row, &x, &id, err));
    TRY(first_caption(s, x.source, id, &caption, &removed, err));
    const uint32_t rank = sampler_rank_of(row, s->batch.count, (uint32_t)s->o->world);
    const char *dir = all->items[x.source].directory;
    if (s->o->json) {
        json_open_object(&s->line, NULL);
        json_u64(&s->line, "row", row);
        json_u64(&s->line, "rank", rank);
        json_location(&s->line, "dataset", dir);
        json_u64(&s->line, "id", id);
        json_u64(&s->line, "run_id", s->part->id_offsets[x.source] + id);
        if (removed) {
            json_bool(&s->line, "removed", true);
        }
        if (s->loss != NULL) {
            json_double(&s->line, "loss", s->loss->rows.losses[row]);
            json_double(&s->line, "weight", (double)s->loss->rows.weights[row]);
            if (s->loss->rows.ids[row] != s->part->id_offsets[x.source] + id) {
                json_u64(&s->line, "replaced_by_run_id", s->loss->rows.ids[row]);
            }
        }
        json_close_object(&s->line);
        return cli_put_json(&s->line, err);
    }
    caption = removed ? gone : caption;
    int used = printf("%7u", row);
    if (s->o->world > 1) {
        used += printf("  %5u", rank);
    }
    used += printf("  %10" PRIu64 "  ", id);
    if (s->loss != NULL) {
        const bool other = s->loss->rows.ids[row] != s->part->id_offsets[x.source] + id;
        used += printf("%12.6g  %8.4g  %s", s->loss->rows.losses[row],
                       (double)s->loss->rows.weights[row], other ? "(replaced) " : "");
    }
    if (several) {
        used += (int)cli_text_put(stdout, dir, strlen(dir), 0);
        used += printf("  ");
    }
    const size_t columns = cli_columns();
    cli_text_put(stdout, caption.data, caption.size_bytes,
                 columns > (size_t)used + 24 ? columns - (size_t)used : 0);
    putchar('\n');
    return STATUS_OK;
}

static enum status show_step(struct step *s, struct error *err) {
    const enum status found = sampler_batch_at(&s->part->sampler, s->o->step, &s->batch);
    FAIL_IF(found != STATUS_OK, err, STATUS_USAGE, "the run ends before step %" PRIu64, s->o->step);
    if (!s->o->json) {
        printf("step %" PRIu64 ": step %" PRIu64 " of %" PRIu64 " in epoch %" PRIu64
               " (both counted from 0)\n%7s%s  %10s  %s%scaption\n",
               s->o->step, s->batch.step, s->part->sampler.steps_per_epoch, s->batch.epoch, "row",
               s->o->world > 1 ? "   rank" : "", "id",
               s->loss != NULL ? "        loss    weight  " : "",
               s->run->order->sources->count > 1 ? "dataset, " : "");
    }
    for (uint32_t row = 0; row < s->batch.count; row++) {
        TRY(show_row(s, row, err));
    }
    return STATUS_OK;
}

/* Printed after the rows. Returns OK or MISMATCH. */
static enum status show_mean(struct step *s, struct error *err) {
    const struct order_loss *l = s->loss;
    if (s->o->json) {
        json_open_object(&s->line, NULL);
        json_double(&s->line, "mean_loss", l->mean);
        json_double(&s->line, "logged_loss", l->logged);
        json_u64(&s->line, "from_step", l->from);
        json_close_object(&s->line);
        TRY(cli_put_json(&s->line, err));
    } else {
        printf("mean %.9g, logged %.9g\n", l->mean, l->logged);
    }
    return order_loss_agrees(l)
               ? STATUS_OK
               : error_set(err, STATUS_MISMATCH,
                           "the mean differs from the logged loss by %g: the run was trained on "
                           "another machine, device or number of threads, or its options changed",
                           l->mean - l->logged);
}

static enum status show(const struct options *o,
                        const struct run_order *run,
                        const struct run_part *part,
                        const struct order_loss *loss,
                        struct error *err) {
    struct step s = {.o = o, .run = run, .part = part, .loss = loss};
    json_writer_init(&s.line, 0);
    enum status status = show_step(&s, err);
    THEN(status, loss != NULL ? show_mean(&s, err) : STATUS_OK);
    json_writer_fini(&s.line);
    for (uint32_t i = 0; i < run->order->sources->count; i++) {
        caption_reader_destroy(s.captions[i]);
    }
    return status;
}

/* The last part with the step. */
static enum status show_in_part(const struct options *o,
                                const struct run_order *r,
                                const char *run,
                                struct error *err) {
    const struct run_part *p = NULL;
    for (size_t i = 0; i < r->part_count; i++) {
        const struct run_part *one = &r->parts[i];
        p = o->step >= one->begin && o->step < one->end ? one : p;
    }
    FAIL_IF(p == NULL, err, STATUS_USAGE,
            "%s has no step %" PRIu64 ": the epoch began again with other data, in which it has "
            "another number",
            run, o->step);
    FAIL_IF(p->unknown.status != STATUS_OK, err, STATUS_MISMATCH,
            "%s: step %" PRIu64 " was trained on the data as it was before it changed, whose order "
            "is not known any more: %s",
            run, o->step, p->unknown.text);
    struct order_loss loss = {0};
    enum status s = o->loss ? order_loss_compute(&loss, r, p, run, o->step, err) : STATUS_OK;
    THEN(s, show(o, r, p, o->loss ? &loss : NULL, err));
    order_loss_fini(&loss);
    return s;
}

static enum status
of_run(const struct options *o, const struct cli_arguments *a, struct error *err) {
    static const char *const own[] = {"seed", "batch-size", "order", "positives"};
    for (size_t i = 0; i < CLI_COUNT(own); i++) {
        FAIL_IF(cli_given(&program, a, own[i]), err, STATUS_USAGE,
                "--%s does not apply to a run: %s records its own", own[i], a->items[0]);
    }
    struct run_order *r;
    TRY(run_order_open(&r, a->items[0], NULL, err));
    const enum status s = show_in_part(o, r, a->items[0], err);
    run_order_close(r);
    return s;
}

static enum status
of_data(const struct options *o, const struct cli_arguments *a, struct error *err) {
    struct loader_options how;
    loader_options_default(&how);
    how.seed = o->seed;
    how.batch_count = (uint32_t)o->batch;
    how.positives = (uint32_t)o->positives;
    TRY(loader_order_parse(&how, o->order, err));
    FAIL_IF(o->batch % o->positives != 0, err, STATUS_USAGE,
            "--batch-size %" PRIu64 " is not a multiple of --positives %" PRIu64, o->batch,
            o->positives);
    struct data_list *data = calloc(1, sizeof *data);
    struct run_order *r = calloc(1, sizeof *r);
    enum status s = data != NULL && r != NULL
                        ? data_list_add(data, a->items, a->count, err)
                        : error_set(err, STATUS_NOMEM, "out of memory for the datasets");
    if (s == STATUS_OK && o->loss) {
        s = error_set(err, STATUS_USAGE, "--loss is for a run, %s is a dataset", a->items[0]);
    }
    THEN(s, order_open(&r->order, data->items, data->count, &how, err));
    if (s == STATUS_OK) {
        struct run_part part = {.now = true, .sampler = r->order->sampler};
        for (uint32_t i = 0; i < r->order->sources->count; i++) {
            part.id_offsets[i] = r->order->sources->items[i].id_offset;
        }
        s = show(o, r, &part, NULL, err);
    }
    run_order_close(r);
    free(data);
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    char config[PATH_MAX_BYTES];
    bool is_run = false;
    const struct options *o = options;
    const struct file_system *fs = file_posix();
    struct remote_choice remote = o->remote;
    samples_signals();
    TRY(path_join(config, sizeof config, a->items[0], "config.json", err));
    if (a->count == 1) {
        TRY(fs->exists(fs->context, config, &is_run, err));
    }
    remote.only = is_run ? &o->data : NULL; /* its config.json has the datasets */
    TRY(remote_choice_use(&remote, err));
    return is_run ? of_run(options, a, err) : of_data(options, a, err);
}

CLI_MAIN(ccdump_order, program, struct options, run)
