/*
 * checks: rejects invalid inputs before a run has a folder or a model.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/columns/columns.h"
#include "formats/dataset/manifest.h"
#include "formats/tokenizer/tokenizer.h"
#include "tools/ccstream_train/ccstream_train_internal.h"
#include "tools/cli/output.h"
#include "tools/cli/path_kind.h"

/* The columns in a list such as "raw:0.3,long:0.7" or "w"; NULL: none. */
static enum status check_columns(const char *list,
                                 const char *directory,
                                 const struct manifest *m,
                                 struct error *err) {
    char name[COLUMN_MAX_NAME_BYTES + 2];
    for (; list != NULL && *list != '\0'; list += strcspn(list, ",+")) {
        struct column *c = NULL;
        list += strspn(list, ",+");
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(list, ":,+"), list);
        if (strcmp(name, "raw") != 0) {
            TRY(column_open(&c, file_system_of(directory), directory, name, m, err));
            column_close(c);
        }
    }
    return STATUS_OK;
}

/* Checks a dataset: columns, captions, and for a run that begins that it is not a part. */
static enum status check_source(const char *directory,
                                const struct trainer_options *t,
                                bool captions,
                                bool begins,
                                struct error *err) {
    const char *const columns[] = {t->caption_columns, t->weight, t->reference, t->teacher_image,
                                   t->teacher_text};
    struct manifest m;
    TRY(manifest_read(&m, file_system_of(directory), directory, err));
    enum status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < CLI_COUNT(columns); i++) {
        s = check_columns(columns[i], directory, &m, err);
    }
    for (size_t i = 0; begins && i < m.option_count; i++) {
        if (strcmp(m.options[i].name, "part") == 0) {
            s = error_set(err, STATUS_USAGE,
                          "%s is part %s of a dataset; join all parts with 'ccpack merge'",
                          directory, m.options[i].value);
        }
    }
    if (s == STATUS_OK && captions && m.texts == 0) {
        s = error_set(err, STATUS_USAGE,
                      "%s has no captions; --task two-views trains on images alone", directory);
    }
    manifest_fini(&m);
    return s;
}

enum status
check_inputs(const struct train_options *o, const struct trainer_options *t, struct error *err) {
    const char *const weights[] = {o->trainer.init_image, o->trainer.init_text};
    if (o->resume == NULL) { /* a run has all of these in its checkpoint */
        for (size_t i = 0; i < CLI_COUNT(weights); i++) {
            TRY(weights[i] != NULL ? path_check_weights(weights[i], err) : STATUS_OK);
        }
        if (o->trainer.tokenizer != NULL) {
            struct tokenizer *tokenizer;
            TRY(tokenizer_load(&tokenizer, o->trainer.tokenizer, err));
            tokenizer_close(tokenizer);
        }
    }
    TRY(o->trainer.zeroshot != NULL ? path_check_dataset(o->trainer.zeroshot, err) : STATUS_OK);
    if (o->trainer.knn != NULL) {
        char first[PATH_MAX_BYTES];
        const char *second;
        TRY(trainer_split_knn(first, &second, o->trainer.knn, err));
        TRY(path_check_dataset(first, err));
        TRY(path_check_dataset(second, err));
    }
    for (uint32_t i = 0; i < t->source_count; i++) {
        TRY(check_source(t->sources[i].directory, t, t->task == TRAINER_PAIRS || t->blocks.captions,
                         o->resume == NULL, err));
    }
    return o->trainer.val != NULL ? path_check_dataset(o->trainer.val, err) : STATUS_OK;
}

enum status check_start(const struct train_options *o,
                        const struct trainer_options *t,
                        bool is_new,
                        struct error *err) {
    TRY(check_inputs(o, t, err));
    return is_new && !o->trainer.init_state && o->remap_state.count > 0
               ? error_set(err, STATUS_USAGE,
                           "--remap-state requires a run whose state it maps: --resume RUN, or "
                           "--init RUN --init-state")
               : STATUS_OK;
}

enum status check_out(const char *out, struct error *err) {
    static const char *const names[] = {
        "config.json", "metrics.jsonl", "checkpoints", "last",
        "report.html"}; /* none is created before all ranks are here */
    char path[PATH_MAX_BYTES];
    bool there[CLI_COUNT(names)];
    for (size_t i = 0; i < CLI_COUNT(names); i++) {
        TRY(path_join(path, sizeof path, out, names[i], err));
        TRY(file_posix()->exists(file_posix()->context, path, &there[i], err));
    }
    FAIL_IF(there[0] && there[1], err, STATUS_EXISTS,
            "%s holds a run already; continue it with 'ccstream-train --resume %s', or choose "
            "another --out",
            out, out);
    TRY(output_check_folder(out, OUTPUT_FOLDER, err));
    for (size_t i = 0; i < CLI_COUNT(names); i++) {
        FAIL_IF(there[i], err, STATUS_EXISTS,
                "%s has a %s, which a run would replace; choose another --out", out, names[i]);
    }
    return STATUS_OK;
}

enum status check_data(const struct train_options *o, struct error *err) {
    struct data_list *data = calloc(1, sizeof *data);
    struct error why = {0};
    enum status s = data != NULL ? data_list_add(data, o->data.items, o->data.count, &why)
                                 : error_set(&why, STATUS_NOMEM, "out of memory");
    if (s != STATUS_OK) {
        s = error_set(err, s, "%s%s%s%s", why.text, s == STATUS_NOTFOUND ? "; " : "",
                      s == STATUS_NOTFOUND ? o->resume : "",
                      s == STATUS_NOTFOUND
                          ? " was trained on it, and --data DIR names its new place if it was moved"
                          : "");
    }
    free(data);
    return s;
}
