/*
 * Opening a source of any kind, with the options that its kind has. This is the one place that
 * refers to all kinds, and so to the library that reads archives.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/hash.h"
#include "pack/source/source.h"
#include "pack/source/source_internal.h"

const struct source_type *const source_types[SOURCE_KIND_COUNT] = {
#define X(name, type) [SOURCE_##name] = &source_type_##type,
    SOURCE_KIND_LIST(X)
#undef X
};

/* Refuses options that this kind does not have, and names that no column or member can have. */
static enum status check_options(const char *path,
                                 enum source_kind kind,
                                 const struct source_options *opt,
                                 struct error *err) {
    const struct {
        const char *name, *value;
        unsigned bit;
    } all[] = {
        {"split", opt->split, SOURCE_HAS_SPLIT},
        {"columns", opt->columns, SOURCE_HAS_COLUMNS},
        {"delimiter", opt->delimiter, SOURCE_HAS_DELIMITER},
        {"group-captions",
         opt->grouping == SOURCE_GROUP_AUTO ? NULL : source_grouping_names[opt->grouping],
         SOURCE_HAS_GROUPING},
        {"caption-column", opt->caption_column, SOURCE_HAS_CAPTION_COLUMN},
        {"image-column", opt->image_column, SOURCE_HAS_IMAGE_COLUMN},
    };
    FAIL_IF(opt->urls && (source_types[kind]->options & SOURCE_HAS_URLS) == 0, err, STATUS_USAGE,
            "%s: a source of kind %s is no list of URLs: it must be a TSV or a CSV", path,
            source_kind_names[kind]);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        FAIL_IF(all[i].value && (source_types[kind]->options & all[i].bit) == 0, err, STATUS_USAGE,
                "%s: --%s does not apply to sources of kind %s", path, all[i].name,
                source_kind_names[kind]);
        FAIL_IF(all[i].value && all[i].value[0] == '\0', err, STATUS_USAGE, "--%s is empty",
                all[i].name);
    }
    const char *const names[] = {opt->caption_column, opt->image_column};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        FAIL_IF(names[i] && strlen(names[i]) > SOURCE_MAX_NAME_BYTES, err, STATUS_USAGE,
                "'%.80s' is longer than %d bytes", names[i], SOURCE_MAX_NAME_BYTES);
    }
    return STATUS_OK;
}

/* Class folders in a tar or zip have a reader of their own. */
static const struct source_type *find_type(enum source_kind kind, const char *path) {
    const struct source_type *type = source_types[kind];
    struct stat info;
    bool is_file = strcmp(path, "-") == 0 || (stat(path, &info) == 0 && !S_ISDIR(info.st_mode));
    return type->of_file && is_file ? type->of_file : type;
}

static enum status open_source(struct source *s,
                               const char *path,
                               const struct source_options *opt,
                               struct error *err) {
    TRY(path_join(s->path, sizeof(s->path), "", path, err));
    s->urls = opt->urls;
    if (opt->images) {
        struct stat info;
        FAIL_IF(stat(opt->images, &info) != 0 || !S_ISDIR(info.st_mode), err, STATUS_NOTFOUND,
                "--images %.200s: there is no such folder", opt->images);
        TRY(path_join(s->images, sizeof(s->images), "", opt->images, err));
    } else {
        TRY(path_directory(s->images, sizeof(s->images), path, err));
    }
    return s->type->open(s, opt, err);
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
    REQUIRE(kind > SOURCE_AUTO && kind < SOURCE_KIND_COUNT);
    TRY(check_options(path, kind, opt, err));
    const struct source_type *type = find_type(kind, path);
    struct source *s = calloc(1, type->struct_bytes);
    TRY_MEMORY(s, err, "%s: out of memory", path);
    s->type = type;
    s->content = hash64(NULL, 0);
    enum status status = open_source(s, path, opt, err);
    if (status != STATUS_OK) {
        source_close(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}
