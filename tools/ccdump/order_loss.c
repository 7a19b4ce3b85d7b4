/*
 * order_loss: a trainer in a temporary folder, in which `last` is the checkpoint to resume.
 */
#include "tools/ccdump/order_loss.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/json/json_reader.h"
#include "tools/cli/cli.h"
#include "train/run/run_dir.h"

void order_loss_fini(struct order_loss *x) {
    free(x->rows.ids);
    free(x->rows.weights);
    free(x->rows.losses);
}

bool order_loss_agrees(const struct order_loss *x) {
    return fabs(x->mean - x->logged) <= 1e-6 * fmax(1.0, fabs(x->logged));
}

/* A number of the last line of RUN/FILE with it, and with this step if not 0. False: none.
 */
static bool
read_last(double *out, const char *run, const char *file, uint64_t step, const char *key) {
    enum { LINE_BYTES = 1 << 20 }; /* longer lines are not steps */
    char path[PATH_MAX_BYTES];
    bool found = false;
    char *line = malloc(LINE_BYTES);
    FILE *f = path_join(path, sizeof path, run, file, NULL) == STATUS_OK ? fopen(path, "r") : NULL;
    while (line != NULL && f != NULL && fgets(line, LINE_BYTES, f) != NULL) {
        struct json_document *d = NULL;
        uint64_t at = 0;
        (void)json_document_parse(&d, path, line, strlen(line), NULL);
        const struct json_value *v = json_document_root(d);
        if (step == 0 || (json_value_u64(json_value_get(v, "step"), &at) && at == step)) {
            found = json_value_double(json_value_get(v, key), out) || found;
        }
        json_document_destroy(d);
    }
    free(line);
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}

/* The part's newest checkpoint at or before the step; *path "": none. */
static enum status find_checkpoint(char path[PATH_MAX_BYTES],
                                   const struct run_part *p,
                                   const char *run,
                                   uint64_t step,
                                   struct error *err) {
    const struct file_system *fs = file_posix();
    bool exists = false;
    for (uint64_t at = step + 1; at-- > p->begin && !exists;) {
        TRY(run_dir_checkpoint_path(path, run, at, err));
        TRY(fs->exists(fs->context, path, &exists, err));
    }
    FAIL_IF(!exists && p->begin > 0, err, STATUS_UNSUPPORTED,
            "%s has no checkpoint of steps %" PRIu64 " to %" PRIu64
            ", from which the step could be computed again; --keep-checkpoints keeps more",
            run, p->begin, step);
    path[exists ? strlen(path) : 0] = '\0';
    return STATUS_OK;
}

/* Neither evaluates nor saves. */
static enum status train(struct order_loss *x,
                         const struct run_order *r,
                         const char *folder,
                         const char *run,
                         uint64_t step,
                         struct error *err) {
    struct trainer *t = NULL;
    struct trainer_options o = r->train;
    double ranks = 1.0; /* each has its own batch statistics */
    (void)read_last(&ranks, run, "sessions.jsonl", 0, "ranks");
    const uint32_t each = o.batch_count / (ranks > 1.0 ? (uint32_t)ranks : 1);
    o.run = folder;
    o.val = o.zeroshot = o.knn = NULL;
    o.probe = false;
    o.keep_best = TRAINER_BEST_NONE;
    o.patience = 0;
    o.state = TRAINER_STATE_HOST;
    if (o.micro_batch_count == 0 || o.micro_batch_count > each) {
        o.micro_batch_count = each;
    }
    o.should_stop = cli_interrupted_callback;
    o.rows = &x->rows;
    TRY(trainer_create(&t, &o, err));
    x->from = trainer_summary(t).step;
    cli_print(stderr, "ccdump order: %s is trained again from step %" PRIu64 " to %" PRIu64 "\n",
              run, x->from, step);
    const enum status s = trainer_run_steps(t, step + 1 - x->from, false, false, err);
    trainer_destroy(t);
    return s;
}

static void take_mean(struct order_loss *x) {
    double counted = 0.0;
    for (uint32_t i = 0; i < x->count; i++) {
        x->mean += isnan(x->rows.losses[i]) ? 0.0 : x->rows.losses[i];
        counted += isnan(x->rows.losses[i]) ? 0.0 : 1.0;
    }
    for (uint32_t i = 0; i < x->count; i++) {
        x->rows.losses[i] *= counted;
    }
}

/* Trains in a temporary folder, from this checkpoint; "": from the beginning. */
static enum status train_in_folder(struct order_loss *x,
                                   const struct run_order *r,
                                   const char *checkpoint,
                                   const char *run,
                                   uint64_t step,
                                   struct error *err) {
    const struct file_system *fs = file_posix();
    char folder[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    TRY(file_temporary_folder(folder, err));
    char *target = checkpoint[0] != '\0' ? realpath(checkpoint, NULL) : NULL;
    enum status s = path_join(path, sizeof path, folder, "last", err);
    THEN(s, target != NULL ? fs->link(fs->context, target, path, err) : STATUS_OK);
    THEN(s, train(x, r, folder, run, step, err));
    free(target);
    file_remove_folder(folder);
    return s;
}

enum status order_loss_compute(struct order_loss *out,
                               const struct run_order *r,
                               const struct run_part *p,
                               const char *run,
                               uint64_t step,
                               struct error *err) {
    FAIL_IF(r->train.task == TRAINER_BLOCKS, err, STATUS_UNSUPPORTED,
            "--loss: the block loss of %s compares whole blocks, which no row has a part of", run);
    FAIL_IF(!p->now, err, STATUS_UNSUPPORTED,
            "--loss: the data have changed since step %" PRIu64 " of %s", step, run);
    out->count = r->train.batch_count;
    out->rows.ids = calloc(out->count, sizeof *out->rows.ids);
    out->rows.weights = calloc(out->count, sizeof *out->rows.weights);
    out->rows.losses = calloc(out->count, sizeof *out->rows.losses);
    TRY_MEMORY(out->rows.ids != NULL && out->rows.weights != NULL && out->rows.losses != NULL, err,
               "out of memory for the rows of a step");
    char checkpoint[PATH_MAX_BYTES];
    FAIL_IF(!read_last(&out->logged, run, "metrics.jsonl", step + 1, "loss"), err, STATUS_USAGE,
            "%s: metrics.jsonl has no finite loss of step %" PRIu64, run, step);
    TRY(find_checkpoint(checkpoint, p, run, step, err));
    TRY(train_in_folder(out, r, checkpoint, run, step, err));
    take_mean(out);
    return STATUS_OK;
}
