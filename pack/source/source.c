/*
 * The face of all kinds of sources: opening the right one, and counting its rows.
 */
#include "pack/source/source.h"

#include <stdlib.h>
#include <string.h>

#include "pack/source/source_internal.h"

const char *source_kind_name(enum source_kind k) {
    static const char *const names[SOURCE_KIND_COUNT] = {
        "auto", "wds", "tsv", "csv", "coco", "karpathy", "json", "folders", "cifar"};
    return k >= SOURCE_AUTO && k < SOURCE_KIND_COUNT ? names[k] : "unknown";
}

/* A name that no column or member can have, or an option that this kind of source does not know. */
static enum status check_options(const char *path,
                                 enum source_kind kind,
                                 const struct source_options *opt,
                                 struct error *err) {
    bool table = kind == SOURCE_TSV || kind == SOURCE_CSV;
    const struct {
        const char *name, *value;
        bool known;
    } all[] = {
        {"split", opt->split, kind == SOURCE_KARPATHY},
        {"columns", opt->columns, table},
        {"caption-column", opt->caption_column, table || kind == SOURCE_JSON || kind == SOURCE_WDS},
        {"image-column", opt->image_column, table || kind == SOURCE_JSON},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].value && !all[i].known) {
            return error_set(err, STATUS_USAGE, "%s: a source of kind %s has no --%s", path,
                             source_kind_name(kind), all[i].name);
        }
        if (all[i].value && all[i].value[0] == '\0') {
            return error_set(err, STATUS_USAGE, "--%s is empty", all[i].name);
        }
    }
    const char *const names[] = {opt->caption_column, opt->image_column};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i] && strlen(names[i]) > SOURCE_MAX_NAME_BYTES) {
            return error_set(err, STATUS_USAGE, "'%.80s' is longer than %d bytes", names[i],
                             SOURCE_MAX_NAME_BYTES);
        }
    }
    return STATUS_OK;
}

enum status source_open(struct source **out,
                        const char *path,
                        const struct source_options *opt,
                        struct error *err) {
    REQUIRE(out && path && opt);
    *out = NULL;
    enum source_kind kind = opt->kind;
    if (kind == SOURCE_AUTO) {
        TRY(source_kind_of(&kind, path, err));
    }
    TRY(check_options(path, kind, opt, err));
    switch (kind) {
    case SOURCE_AUTO:
    case SOURCE_WDS:
        return source_open_wds(out, path, opt, err);
    case SOURCE_TSV:
    case SOURCE_CSV:
        return source_open_table(out, path, kind == SOURCE_CSV, opt, err);
    case SOURCE_COCO:
        return source_open_coco(out, path, opt, err);
    case SOURCE_KARPATHY:
        return source_open_karpathy(out, path, opt, err);
    case SOURCE_JSON:
        return source_open_json(out, path, opt, err);
    case SOURCE_FOLDERS:
        return source_open_folders(out, path, opt, err);
    case SOURCE_CIFAR:
        return source_open_cifar(out, path, opt, err);
    case SOURCE_KIND_COUNT:
        break;
    }
    return STATUS_INVALID;
}

/* One row, by `step`: the kind's next or skip. */
static enum status
take_row(struct source *s,
         struct source_row *row,
         enum status (*step)(struct source *, struct source_row *, struct error *),
         struct error *err) {
    source_row_reset(row, s->rows);
    enum status status = step(s, row, err);
    s->rows += status == STATUS_OK;
    return status;
}

enum status source_next(struct source *s, struct source_row *row, struct error *err) {
    REQUIRE(s && row);
    enum status status = take_row(s, row, s->ops->next, err);
    bool wants_captions = !row->captions_optional && row->caption_member[0] == '\0';
    if (status == STATUS_OK && row->caption_count == 0 && wants_captions) {
        source_row_reject(row, REASON_CAPTION_EMPTY, "%s", "");
    }
    return status;
}

enum status source_skip(struct source *s, uint64_t count, uint64_t *skipped, struct error *err) {
    REQUIRE(s && skipped);
    *skipped = 0;
    if (!s->scratch) {
        s->scratch = malloc(sizeof(*s->scratch));
        if (!s->scratch) {
            return error_set(err, STATUS_NOMEM, "out of memory for a row");
        }
        source_row_init(s->scratch);
    }
    enum status status = STATUS_OK;
    while (status == STATUS_OK && *skipped < count) {
        status = take_row(s, s->scratch, s->ops->skip ? s->ops->skip : s->ops->next, err);
        *skipped += status == STATUS_OK;
    }
    return status;
}

uint64_t source_rows_read(const struct source *s) {
    return s->rows;
}

size_t source_class_count(const struct source *s) {
    return s->class_count;
}

const char *source_class_name(const struct source *s, size_t i) {
    return i < s->class_count ? s->class_names[i] : NULL;
}

uint64_t source_ignored(const struct source *s) {
    return s->ignored;
}

void source_position(const struct source *s, uint64_t *position_bytes, uint64_t *size_bytes) {
    *position_bytes = s->position_bytes < s->size_bytes ? s->position_bytes : s->size_bytes;
    *size_bytes = s->size_bytes;
}

bool source_is_plain_tar(const struct source *s) {
    return s->plain_tar;
}

void source_close(struct source *s) {
    if (s) {
        if (s->scratch) {
            source_row_fini(s->scratch);
            free(s->scratch);
        }
        s->ops->close(s);
    }
}
