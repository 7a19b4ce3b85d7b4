/*
 * Indexing tars in place: the files. What may be there before a run, and what is there after it:
 * indexes are written under temporary names, and renamed when all of them are on the disk. Tars at
 * a server are indexed in a folder of their own, whose index.journal says which of them are done.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/hash.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "pack/index/index_tar_internal.h"
#include "pack/options_internal.h"
#include "pack/run/rejects_internal.h"

enum status index_tar_folder(char *out,
                             size_t out_size_bytes,
                             const char *const *tars,
                             size_t tar_count,
                             struct error *err) {
    REQUIRE(out && tars && tar_count > 0);
    struct stat first, other;
    char folder[PATH_MAX_BYTES];
    TRY(path_directory(out, out_size_bytes, tars[0], err));
    const bool remote = path_is_remote(tars[0]);
    FAIL_ERRNO_IF(!remote && stat(out, &first) != 0, err, "%s: cannot read it", out);
    for (size_t i = 1; i < tar_count; i++) {
        TRY(path_directory(folder, sizeof(folder), tars[i], err));
        if (strcmp(folder, out) == 0) {
            continue;
        }
        const bool far = remote || path_is_remote(folder);
        FAIL_ERRNO_IF(!far && stat(folder, &other) != 0, err, "%s: cannot read it", folder);
        FAIL_IF(far || other.st_dev != first.st_dev || other.st_ino != first.st_ino, err,
                STATUS_USAGE,
                "%s is in another folder than %s: the tars of a dataset must all be in "
                "one folder",
                tars[i], tars[0]);
    }
    return STATUS_OK;
}

/* Two tars whose indexes would have one name: the same tar twice, or a and a.tar. */
static enum status check_names(const struct pack_options *o, struct error *err) {
    char name[SHARD_MAX_NAME_BYTES + sizeof(SHARD_INDEX_EXTENSION)];
    struct hash_map *seen = NULL; /* by 64-bit hash of the name */
    enum status s = hash_map_create(&seen, err);
    for (size_t i = 0; s == STATUS_OK && i < o->source_count; i++) {
        s = shard_index_name(name, sizeof(name), index_tar_name(o->sources[i]), err);
        uint64_t hash = s == STATUS_OK ? hash64(name, strlen(name)) : 0;
        if (s == STATUS_OK && hash_map_get(seen, hash) != HASH_MAP_NONE) {
            s = error_set(err, STATUS_USAGE, "two tars would have the index %s", name);
        }
        THEN(s, hash_map_put(seen, hash, i, err));
    }
    hash_map_destroy(seen);
    return s;
}

/* DIRECTORY/NAME.cci, with `ending` appended. */
static enum status index_path(char out[PATH_MAX_BYTES],
                              const struct pack_options *o,
                              size_t tar,
                              const char *ending,
                              struct error *err) {
    char name[SHARD_MAX_NAME_BYTES + 8 + FILE_TEMPORARY_BYTES];
    TRY(shard_index_name(name, sizeof(name), index_tar_name(o->sources[tar]), err));
    strcat(name, ending);
    return path_join(out, PATH_MAX_BYTES, o->directory, name, err);
}

static enum status check_tar(struct index_run *r, size_t i, struct error *err) {
    const struct pack_options *o = &r->opt;
    char path[PATH_MAX_BYTES];
    bool exists = false;
    bool is_shard = false;
    TRY(r->remote ? index_tar_check_name(o->sources[i], err)
                  : index_tar_look(&r->manifest, o, o->sources[i], err));
    TRY(index_path(path, o, i, "", err));
    TRY(o->fs->exists(o->fs->context, path, &exists, err));
    FAIL_IF(exists && !o->overwrite, err, STATUS_EXISTS, "%s: exists; --overwrite replaces it",
            path);
    if (exists && !r->remote) {
        TRY(shard_reader_recognise(&is_shard, file_posix(), o->sources[i], err));
    }
    return !is_shard ? STATUS_OK
                     : error_set(err, STATUS_EXISTS,
                                 "%s: is a shard that ccpack made, and has an index", path);
}

/* Never replaces a packed dataset: its shards would be left without one. */
static enum status check_directory(struct index_run *r, struct error *err) {
    const struct pack_options *o = &r->opt;
    char path[PATH_MAX_BYTES];
    struct manifest m;
    struct error why = {0};
    bool exists = false;
    TRY(path_join(path, sizeof(path), o->directory, MANIFEST_NAME, err));
    TRY(o->fs->exists(o->fs->context, path, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    enum status s = manifest_read(&m, o->fs, o->directory, &why);
    bool foreign = s == STATUS_OK && m.container == SHARD_CONTAINER_TAR_FOREIGN;
    const bool removed = s == STATUS_OK && m.removed.count > 0;
    const bool same = foreign && m.base && r->manifest.base && !o->overwrite && o->resume &&
                      strcmp(m.base, r->manifest.base) == 0 && m.source_count == o->source_count;
    if (same) {
        pack_summary_of(r->summary, &m);
        r->summary->was_finished = true;
    }
    if (s == STATUS_OK) {
        manifest_fini(&m);
    }
    RETURN_IF(same, STATUS_OK);
    FAIL_IF(foreign && removed, err, STATUS_EXISTS,
            "%s: a new index would restore removed samples; remove them from the tars, and move "
            "this file away",
            path);
    FAIL_IF(!foreign, err, STATUS_EXISTS,
            "%s: belongs to another dataset, which an index of tars does not replace%s%s", path,
            why.text[0] != '\0' ? ": " : "", why.text);
    return o->overwrite
               ? STATUS_OK
               : error_set(err, STATUS_EXISTS, "%s: exists; --overwrite replaces it", path);
}

/* Of remote tars. */
static enum status prepare_remote(struct index_run *r, struct error *err) {
    const struct pack_options *o = &r->opt;
    char folder[PATH_MAX_BYTES];
    char journal[PATH_MAX_BYTES];
    bool begun = false;
    TRY(index_tar_folder(folder, sizeof(folder), o->sources, o->source_count, err));
    TRY(manifest_set_base(&r->manifest, folder, err));
    TRY(path_join(journal, sizeof(journal), o->directory, INDEX_JOURNAL_NAME, err));
    TRY(o->fs->exists(o->fs->context, journal, &begun, err));
    FAIL_IF(begun && !o->resume && !o->overwrite, err, STATUS_EXISTS,
            "%s: an indexing run was interrupted; --resume continues it, --overwrite restarts it",
            journal);
    if (o->resume && begun) {
        r->opt.overwrite = true; /* what that pass was to replace */
        return index_journal_take(r, err);
    }
    return STATUS_OK;
}

enum status index_prepare(struct index_run *r, struct error *err) {
    const struct pack_options *o = &r->opt;
    TRY(manifest_init(&r->manifest, SHARD_CONTAINER_TAR_FOREIGN, o->created_by, err));
    TRY(r->remote ? o->fs->make_directory(o->fs->context, o->directory, err) : STATUS_OK);
    TRY(o->fs->lock_directory(o->fs->context, &r->lock, o->directory, err));
    pack_rejects_init(&r->rejects, o->fs, o->directory, 0);
    TRY(r->remote ? prepare_remote(r, err) : STATUS_OK);
    TRY(r->remote || r->opt.resume ? check_directory(r, err) : STATUS_OK);
    if (r->summary->was_finished) {
        return STATUS_OK;
    }
    for (size_t i = 0; i < o->source_count; i++) {
        struct stat info;
        TRY(check_tar(r, i, err));
        r->total_bytes += stat(o->sources[i], &info) == 0 ? (uint64_t)info.st_size : 0;
    }
    TRY(check_names(o, err));
    TRY(r->remote || r->opt.resume ? STATUS_OK : check_directory(r, err));
    TRY(r->remote ? index_journal_open(r, err) : STATUS_OK);
    r->results = calloc(o->source_count, sizeof(*r->results));
    TRY_MEMORY(r->results, err, "out of memory for %zu tars", o->source_count);
    return pack_rejects_open(&r->rejects, true, err);
}

enum status
index_write(struct index_run *r, size_t tar, const struct byte_buffer *index, struct error *err) {
    const struct file_system *fs = r->opt.fs;
    char path[PATH_MAX_BYTES];
    struct file *f = NULL;
    TRY(index_path(path, &r->opt, tar, r->temporary, err));
    r->written = tar + 1;
    TRY(fs->open(fs->context, &f, path, FILE_REPLACE, err));
    enum status s = fs->write(f, index->data, index->size_bytes, err);
    THEN(s, fs->sync(f, err));
    fs->close(f);
    return s;
}

enum status index_explain(enum status s, const struct error *why, struct error *err) {
    FAIL_IF(s == STATUS_EXISTS, err, STATUS_CORRUPT, "%.300s; --ids row numbers rows instead",
            why->text);
    FAIL_IF(s != STATUS_OK, err, s, "%s", why->text);
    return STATUS_OK;
}

static enum status describe(struct index_run *r, struct error *err) {
    const struct pack_options *o = &r->opt;
    struct manifest *m = &r->manifest;
    TRY(manifest_add_option(m, "ids", o->ids == PACK_IDS_KEY ? "key" : "row", err));
    TRY(manifest_add_option(m, "resize", "none", err));
    if (o->caption_column) {
        TRY(manifest_add_option(m, "caption-column", o->caption_column, err));
    }
    if (o->lines != SOURCE_LINES_AUTO) {
        TRY(manifest_add_option(m, "caption-lines", source_lines_names[o->lines], err));
    }
    if (o->split_names != SOURCE_SPLIT_FIRST_DOT) {
        TRY(manifest_add_option(m, "split-names", source_name_split_names[o->split_names], err));
    }
    return o->check ? STATUS_OK : manifest_add_option(m, "check", "no", err);
}

static void remove_indexes(struct index_run *r, const char *ending) {
    char path[PATH_MAX_BYTES];
    for (size_t i = 0; i < r->written; i++) { /* a tar without samples has none */
        if (index_path(path, &r->opt, i, ending, NULL) == STATUS_OK) {
            (void)r->opt.fs->remove(r->opt.fs->context, path, NULL);
        }
    }
}

/* *was: there was one. */
static enum status remove_manifest(struct index_run *r, bool *was, struct error *err) {
    const struct file_system *fs = r->opt.fs;
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof(path), r->opt.directory, MANIFEST_NAME, err));
    TRY(fs->exists(fs->context, path, was, err));
    return *was ? fs->remove(fs->context, path, err) : STATUS_OK;
}

/* Removes an earlier dataset.json first, so that it never refers to new indexes. */
static enum status name_indexes(struct index_run *r, struct error *err) {
    const struct file_system *fs = r->opt.fs;
    char temporary[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    bool exists = false;
    TRY(remove_manifest(r, &exists, err));
    if (exists) {
        TRY(fs->sync_directory(fs->context, r->opt.directory, err));
    }
    for (size_t i = 0; i < r->written; i++) {
        TRY(index_path(temporary, &r->opt, i, r->temporary, err));
        TRY(index_path(path, &r->opt, i, "", err));
        TRY(fs->exists(fs->context, temporary, &exists, err));
        if (exists) { /* else the tar has no sample */
            TRY(fs->rename(fs->context, temporary, path, err));
        }
    }
    return fs->sync_directory(fs->context, r->opt.directory, err);
}

static enum status write_dataset(struct index_run *r, struct error *err) {
    struct pack_summary *sum = r->summary;
    struct error why = {0};
    TRY(describe(r, err));
    TRY(name_indexes(r, err));
    enum status s =
        dataset_fingerprint_of(&sum->fingerprint, &r->manifest, r->opt.directory, r->opt.fs, &why);
    TRY(index_explain(s, &why, err));
    TRY(manifest_seal(&r->manifest, sum->fingerprint, err));
    TRY(pack_rejects_publish(&r->rejects, err));
    TRY(manifest_write(&r->manifest, r->opt.fs, r->opt.directory, err));
    sum->is_dataset = true;
    return STATUS_OK;
}

enum status index_publish(struct index_run *r, struct error *err) {
    bool was;
    enum status s = write_dataset(r, err);
    THEN(s, r->remote ? index_journal_remove(r, err) : STATUS_OK);
    /* dataset.json may exist if only its last fsync failed; where it cannot be removed the indexes
     * must stay. */
    if (s != STATUS_OK && !r->remote && remove_manifest(r, &was, NULL) == STATUS_OK) {
        remove_indexes(r, "");
    }
    return s;
}

void index_withdraw(struct index_run *r, enum status s) {
    const struct file_system *fs = r->opt.fs;
    char path[PATH_MAX_BYTES];
    if (!r->remote) {
        remove_indexes(r, r->temporary);
    }
    if (!r->rejects.file) {
        return;
    }
    bool named = s == STATUS_CORRUPT && r->summary->rejected > 0;
    r->summary->has_journal = r->remote;
    if (r->remote && !named) {
        return; /* --resume continues */
    }
    if ((!named || pack_rejects_publish(&r->rejects, NULL) != STATUS_OK) &&
        path_join(path, sizeof(path), r->opt.directory, PACK_REJECTS_TEMPORARY, NULL) ==
            STATUS_OK) {
        fs->close(r->rejects.file);
        r->rejects.file = NULL;
        fs->remove(fs->context, path, NULL);
    }
}
