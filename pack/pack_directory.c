/*
 * The directory before the run. Whatever is in it belongs to somebody: without `overwrite` it must
 * be empty, and with it only names that the packer itself gives are removed:
 *
 *     dataset.json  rejects.jsonl  tokenizer.model  shard-NNNNNN.tar.zst  shard-NNNNNN.cci, each +
 * .tmp
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/manifest.h"
#include "pack/pack_internal.h"

enum { NUMBER_DIGITS = 6 };

static const char TEMPORARY[] = ".tmp";

/* shard-NNNNNN.tar.zst or its index. */
static bool is_shard_name(const char *name) {
    static const char prefix[] = PACK_SHARD_NAME "-";
    const char *digits = name + sizeof(prefix) - 1;
    char shard[SHARD_MAX_NAME_BYTES + 1];
    char index[SHARD_MAX_NAME_BYTES + 1];
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 ||
        strspn(digits, "0123456789") != NUMBER_DIGITS) {
        return false;
    }
    uint32_t number = (uint32_t)strtoul(digits, NULL, 10);
    if (shard_file_name(shard, sizeof(shard), PACK_SHARD_NAME, number, SHARD_CONTAINER_TAR_ZSTD,
                        NULL) != STATUS_OK ||
        shard_index_name(index, sizeof(index), shard, NULL) != STATUS_OK) {
        return false;
    }
    return strcmp(name, shard) == 0 || strcmp(name, index) == 0;
}

/* Whether the packer gives this name to a file, or to one that it has not finished. */
static bool is_own_name(const char *name) {
    char plain[SHARD_MAX_NAME_BYTES + sizeof(TEMPORARY)];
    size_t size_bytes = strlen(name);
    size_t ending_bytes = sizeof(TEMPORARY) - 1;
    if (size_bytes >= sizeof(plain)) {
        return false;
    }
    strcpy(plain, name);
    if (size_bytes > ending_bytes && strcmp(plain + size_bytes - ending_bytes, TEMPORARY) == 0) {
        plain[size_bytes - ending_bytes] = '\0';
    }
    return strcmp(plain, MANIFEST_NAME) == 0 || strcmp(plain, PACK_REJECTS_NAME) == 0 ||
           strcmp(plain, PACK_TOKENIZER_NAME) == 0 || is_shard_name(plain);
}

/* What is in the way, in words. */
struct contents {
    bool dataset, shards;
    const char *first; /* NULL: empty */
};

static struct contents look(const struct byte_buffer *names) {
    struct contents c = {0};
    const char *name = (const char *)names->data;
    for (size_t at = 0; at < names->size_bytes; at += strlen(name + at) + 1) {
        c.dataset = c.dataset || strcmp(name + at, MANIFEST_NAME) == 0;
        c.shards = c.shards || is_shard_name(name + at);
        c.first = c.first ? c.first : name + at;
    }
    return c;
}

static enum status refuse(const struct contents *c, const char *directory, struct error *err) {
    if (c->dataset || c->shards) {
        return error_set(err, STATUS_EXISTS, "%s: holds %s already; --overwrite replaces it",
                         directory, c->dataset ? "a dataset" : "shards of a run that did not end");
    }
    return error_set(err, STATUS_EXISTS,
                     "%s: is not empty, it holds '%.80s'; --overwrite packs into it, and removes "
                     "nothing that ccpack has not made",
                     directory, c->first);
}

/* Whether a source is a file that this run would remove. */
static bool is_own_file(const char *source, const char *directory) {
    char folder[PATH_MAX_BYTES];
    const char *slash = strrchr(source, '/');
    if (!is_own_name(slash ? slash + 1 : source) ||
        path_directory(folder, sizeof(folder), source, NULL) != STATUS_OK) {
        return false;
    }
    char *a = realpath(folder, NULL);
    char *b = realpath(directory, NULL);
    bool same = a && b && strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}

/* A dataset's own shards are tars, and so may be sources; not of the run that replaces them. */
static enum status check_sources_stay(const struct pack_options *opt, struct error *err) {
    for (size_t i = 0; i < opt->source_count; i++) {
        if (is_own_file(opt->sources[i], opt->directory)) {
            return error_set(err, STATUS_USAGE,
                             "%s: is part of the dataset that this run would replace; pack into "
                             "another directory",
                             opt->sources[i]);
        }
    }
    return STATUS_OK;
}

static enum status remove_named(const struct file_system *fs,
                                const char *directory,
                                const char *name,
                                struct error *err) {
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof(path), directory, name, err));
    return fs->remove(fs->context, path, err);
}

/* The manifest goes first: from then on the directory does not say that it is a dataset. */
static enum status remove_old(const struct file_system *fs,
                              const char *directory,
                              const struct byte_buffer *names,
                              bool dataset,
                              struct error *err) {
    if (dataset) {
        TRY(remove_named(fs, directory, MANIFEST_NAME, err));
        TRY(fs->sync_directory(fs->context, directory, err));
    }
    const char *name = (const char *)names->data;
    for (size_t at = 0; at < names->size_bytes; at += strlen(name + at) + 1) {
        if (is_own_name(name + at) && strcmp(name + at, MANIFEST_NAME) != 0) {
            TRY(remove_named(fs, directory, name + at, err));
        }
    }
    return STATUS_OK;
}

static enum status prepare(const struct file_system *fs,
                           const struct pack_options *opt,
                           struct byte_buffer *names,
                           struct error *err) {
    TRY(fs->make_directory(fs->context, opt->directory, err));
    TRY(fs->list(fs->context, opt->directory, names, err));
    struct contents c = look(names);
    if (c.first && !opt->overwrite) {
        return refuse(&c, opt->directory, err);
    }
    TRY(check_sources_stay(opt, err));
    return remove_old(fs, opt->directory, names, c.dataset, err);
}

enum status pack_directory_prepare(const struct pack_options *opt, struct error *err) {
    struct byte_buffer names = {0};
    byte_buffer_init(&names, 0);
    enum status s = prepare(opt->fs, opt, &names, err);
    byte_buffer_fini(&names);
    return s;
}
