/*
 * The directory before the run. Only files with the packer's own names are ever removed:
 *
 *     dataset.json  rejects.jsonl  tokenizer.model  tokens.cct  pack.journal
 *     shard-NNNNNN.tar.zst  shard-NNNNNN.cci             each also with .tmp
 *     shard-NNNNNN.tar      only if dataset.json or the journal says that the shards are .tar,
 *                           because tars of other programs have such names too
 */
#include "pack/run/directory_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/columns/columns.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "formats/tokenizer/token_cache.h"
#include "pack/run/rejects_internal.h"

enum { NUMBER_DIGITS = 6 };

bool pack_shard_number(uint32_t *out, const char *name, bool tars) {
    static const char prefix[] = PACK_SHARD_NAME "-";
    const char *digits = name + sizeof(prefix) - 1;
    const char *ending = digits + NUMBER_DIGITS;
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 ||
        strspn(digits, "0123456789") != NUMBER_DIGITS) {
        return false;
    }
    *out = (uint32_t)strtoul(digits, NULL, 10);
    return strcmp(ending, ".tar.zst") == 0 || strcmp(ending, SHARD_INDEX_EXTENSION) == 0 ||
           (tars && strcmp(ending, ".tar") == 0);
}

/* Copies the final name of a temporary file, or the name. Returns whether it is one. */
static bool strip_temporary(char *plain, size_t plain_bytes, const char *name) {
    const size_t kept = file_draft_name_bytes(name);
    snprintf(plain, plain_bytes, "%.*s", (int)(kept > 0 ? kept : strlen(name)), name);
    return kept > 0;
}

static bool is_own_name(const char *name, bool tars) {
    char plain[SHARD_MAX_NAME_BYTES + 1];
    uint32_t number = 0;
    bool temporary = strip_temporary(plain, sizeof(plain), name);
    return strcmp(plain, MANIFEST_NAME) == 0 || strcmp(plain, PACK_REJECTS_NAME) == 0 ||
           strcmp(plain, DATASET_TOKENIZER_NAME) == 0 || strcmp(plain, TOKEN_CACHE_NAME) == 0 ||
           (temporary && strcmp(plain, PACK_REJECTS_TEMPORARY) == 0) ||
           strcmp(plain, PACK_JOURNAL_NAME) == 0 ||
           pack_shard_number(&number, plain, tars || temporary);
}

void pack_directory_look(struct pack_contents *out, const struct byte_buffer *names, bool tars) {
    const char *name = (const char *)names->data;
    memset(out, 0, sizeof(*out));
    for (size_t at = 0; at < names->size_bytes; at += strlen(name + at) + 1) {
        const char *n = name + at;
        uint32_t number = 0;
        char plain[SHARD_MAX_NAME_BYTES + 1];
        bool temporary = strip_temporary(plain, sizeof(plain), n);
        if (strcmp(n, MANIFEST_NAME) == 0) {
            out->dataset = true;
        } else if (strcmp(n, PACK_JOURNAL_NAME) == 0) {
            out->journal = true;
        } else if (pack_shard_number(&number, n, tars)) {
            out->shards = true;
        } else if (strcmp(n, PACK_REJECTS_NAME) == 0) {
            out->rejects = true;
        } else if (!temporary || !is_own_name(n, tars)) {
            out->foreign = out->foreign ? out->foreign : n;
        }
        if (!tars && !temporary && pack_shard_number(&number, n, true) &&
            !pack_shard_number(&number, n, false)) {
            out->tar = n;
        }
    }
}

enum status pack_directory_list(struct byte_buffer *names,
                                const struct file_system *fs,
                                const char *directory,
                                struct error *err) {
    bool exists = false;
    names->size_bytes = 0;
    TRY(fs->exists(fs->context, directory, &exists, err));
    return exists ? fs->list(fs->context, directory, names, err) : STATUS_OK;
}

void pack_directory_forget(struct byte_buffer *names, const char *name) {
    char *list = (char *)names->data;
    for (size_t at = 0; at < names->size_bytes;) {
        const size_t n = strlen(list + at) + 1;
        if (strcmp(list + at, name) != 0) {
            at += n;
            continue;
        }
        names->size_bytes -= n;
        memmove(list + at, list + at + n, names->size_bytes - at);
    }
}

bool pack_directory_is_same(const char *a, const char *b) {
    char *real_a = realpath(a, NULL);
    char *real_b = realpath(b, NULL);
    bool same = strcmp(a, b) == 0 || (real_a && real_b && strcmp(real_a, real_b) == 0);
    free(real_a);
    free(real_b);
    return same;
}

/* Whether a source is a file that this run would remove or overwrite. */
static bool is_own_file(const char *source, const char *directory) {
    char folder[PATH_MAX_BYTES];
    const char *slash = strrchr(source, '/');
    if (!is_own_name(slash ? slash + 1 : source, true) ||
        path_directory(folder, sizeof(folder), source, NULL) != STATUS_OK) {
        return false;
    }
    return pack_directory_is_same(folder, directory);
}

/* Shards are tars and may be sources, but not of a run into their own directory. */
enum status pack_directory_check_sources(const struct pack_options *opt, struct error *err) {
    for (size_t i = 0; i < opt->source_count; i++) {
        FAIL_IF(is_own_file(opt->sources[i], opt->directory), err, STATUS_USAGE,
                "%s: is part of the dataset that this run would %s; pack into "
                "another directory",
                opt->sources[i], opt->append ? "append to" : "replace");
    }
    return STATUS_OK;
}

enum status pack_remove(const struct file_system *fs,
                        const char *directory,
                        const char *name,
                        struct error *err) {
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof(path), directory, name, err));
    return fs->remove(fs->context, path, err);
}

static bool is_listed(const struct byte_buffer *names, const char *wanted) {
    const char *name = (const char *)names->data;
    for (size_t at = 0; at < names->size_bytes; at += strlen(name + at) + 1) {
        if (strcmp(name + at, wanted) == 0) {
            return true;
        }
    }
    return false;
}

/* Removes a file, durably, if it is in the list. */
static enum status remove_listed(const struct file_system *fs,
                                 const char *directory,
                                 const struct byte_buffer *names,
                                 const char *name,
                                 struct error *err) {
    if (!is_listed(names, name)) {
        return STATUS_OK;
    }
    TRY(pack_remove(fs, directory, name, err));
    return fs->sync_directory(fs->context, directory, err);
}

/* The manifest goes first: without it the directory is no dataset. The journal, which identifies
 * the shards, goes last. */
enum status pack_directory_clear(const struct file_system *fs,
                                 const char *directory,
                                 const struct byte_buffer *names,
                                 bool tars,
                                 struct error *err) {
    TRY(remove_listed(fs, directory, names, MANIFEST_NAME, err));
    const char *name = (const char *)names->data;
    for (size_t at = 0; at < names->size_bytes; at += strlen(name + at) + 1) {
        if (is_own_name(name + at, tars) && strcmp(name + at, MANIFEST_NAME) != 0 &&
            strcmp(name + at, PACK_JOURNAL_NAME) != 0) {
            TRY(pack_remove(fs, directory, name + at, err));
        }
    }
    TRY(column_remove_all(fs, directory, err));
    return remove_listed(fs, directory, names, PACK_JOURNAL_NAME, err);
}

enum status pack_directory_remove_drafts(const struct file_system *fs,
                                         const char *directory,
                                         const struct byte_buffer *names,
                                         struct error *err) {
    const char *name = (const char *)names->data;
    for (size_t at = 0; at < names->size_bytes; at += strlen(name + at) + 1) {
        if (file_draft_name_bytes(name + at) > 0 && is_own_name(name + at, false) &&
            strcmp(name + at, PACK_REJECTS_TEMPORARY) != 0) {
            TRY(pack_remove(fs, directory, name + at, err));
        }
    }
    return STATUS_OK;
}

/* Removes what a run wrote after its journal's last line: shards and temporary files. The list of
 * rejects is truncated when it is opened. */
static enum status remove_uncommitted(const struct pack_plan *p, struct error *err) {
    const struct file_system *fs = p->opt->fs;
    const char *name = (const char *)p->names.data;
    for (size_t at = 0; at < p->names.size_bytes; at += strlen(name + at) + 1) {
        uint32_t number = 0;
        if (pack_shard_number(&number, name + at, p->tars) && number >= p->next_number) {
            TRY(pack_remove(fs, p->opt->directory, name + at, err));
        }
    }
    return pack_directory_remove_drafts(fs, p->opt->directory, &p->names, err);
}

/* Begins an append: removes what an earlier one left. */
static enum status prepare_append(struct pack_plan *p, struct error *err) {
    const struct pack_options *o = p->opt;
    TRY(remove_listed(o->fs, o->directory, &p->names, PACK_JOURNAL_NAME, err));
    if (is_listed(&p->names, PACK_REJECTS_TEMPORARY)) {
        TRY(pack_remove(o->fs, o->directory, PACK_REJECTS_TEMPORARY, err));
    }
    return remove_uncommitted(p, err);
}

enum status
pack_directory_make(const struct file_system *fs, const char *directory, struct error *err) {
    char above[PATH_MAX_BYTES];
    char plain[PATH_MAX_BYTES];
    bool exists = false;
    size_t end = strlen(directory);
    TRY(fs->exists(fs->context, directory, &exists, err));
    if (exists) {
        return fs->make_directory(fs->context, directory, err); /* fails when it is no directory */
    }
    while (end > 1 && directory[end - 1] == '/') {
        end--;
    }
    FAIL_IF(end >= sizeof(plain), err, STATUS_LIMIT, "%.80s...: the path is too long", directory);
    memcpy(plain, directory, end);
    plain[end] = '\0';
    TRY(path_directory(above, sizeof(above), plain, err));
    TRY(file_make_parents(fs, plain, err));
    TRY(fs->make_directory(fs->context, directory, err));
    return fs->sync_directory(fs->context, above, err);
}

enum status pack_directory_make_locked(struct file **lock,
                                       const struct file_system *fs,
                                       const char *directory,
                                       struct error *err) {
    struct byte_buffer names = {0};
    TRY(pack_directory_make(fs, directory, err));
    TRY(fs->lock_directory(fs->context, lock, directory, err));
    byte_buffer_init(&names, 0);
    enum status s = fs->list(fs->context, directory, &names, err);
    if (s == STATUS_OK && names.size_bytes > 0) {
        s = error_set(err, STATUS_EXISTS, "%s: another run has just started or finished in it",
                      directory);
    }
    byte_buffer_fini(&names);
    return s;
}

/* Whether the new dataset.json is in its place, even though that was not reported as done. */
static enum status is_published(bool *out, const struct pack_plan *p, struct error *err) {
    struct manifest now = {0};
    TRY(manifest_read(&now, p->opt->fs, p->opt->directory, err));
    *out = now.shard_count > p->old_shards;
    manifest_fini(&now);
    return STATUS_OK;
}

enum status pack_directory_undo(struct pack_plan *p, struct error *err) {
    const struct pack_options *o = p->opt;
    bool published = false;
    if (o->append) {
        TRY(is_published(&published, p, err));
    }
    if (published) {
        return STATUS_OK;
    }
    TRY(pack_directory_list(&p->names, o->fs, o->directory, err));
    return o->append ? prepare_append(p, err)
                     : pack_directory_clear(o->fs, o->directory, &p->names, p->tars, err);
}

enum status pack_directory_prepare(struct pack_plan *p, struct error *err) {
    const struct pack_options *o = p->opt;
    if (p->start == PACK_START_RESUME) {
        if (!o->append) { /* the manifest of a partial dataset */
            TRY(remove_listed(o->fs, o->directory, &p->names, MANIFEST_NAME, err));
        }
        return remove_uncommitted(p, err);
    }
    if (o->append) {
        return prepare_append(p, err);
    }
    if (!p->existed) {
        return pack_directory_make_locked(&p->lock, o->fs, o->directory, err);
    }
    return pack_directory_clear(o->fs, o->directory, &p->names, p->tars, err);
}
