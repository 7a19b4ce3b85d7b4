/*
 * Indexing tars in place: the threads, and the results in order. Each thread takes the next tar and
 * reads all of it. Ids by row depend on the rows of all tars before, so they are added when a
 * result is committed:
 *
 *     committed <= taken <= committed + 4 for each job
 *
 * All files are written under temporary names, and renamed when all of them are on the disk. Tars
 * at a server are indexed in a folder of their own, whose index.journal says which of them are
 * done.
 *
 * Shutdown: `stop` is set and all threads woken; they leave at their next row and are joined.
 */
#include "pack/index/index_tar.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "pack/index/index_tar_internal.h"
#include "pack/options_internal.h"
#include "pack/run/rejects_internal.h"

enum { WAIT_MS = 100, AHEAD_PER_JOB = 4 };

struct run {
    struct pack_options opt; /* the caller's, with container tar */
    struct pack_summary *summary;
    struct manifest manifest;
    struct pack_rejects rejects;
    struct file *lock;                    /* of the tars' folder; NULL: it cannot be locked */
    bool remote;                          /* the tars are at a server */
    struct file *journal;                 /* then index.journal */
    uint64_t journal_bytes;               /* of it, from an earlier process */
    size_t written;                       /* tars that may have a temporary index */
    char temporary[FILE_TEMPORARY_BYTES]; /* its ending; ".tmp" if remote: it is found again */
    uint64_t total_bytes;
    struct pack_budget budget;
    struct index_tar_counts counts;
    atomic_bool stop; /* no other data depends on it, so relaxed */

    pthread_mutex_t mutex;
    pthread_cond_t done, room;        /* what the caller and the threads wait for */
    struct index_tar_result *results; /* (source_count), each owned by its thread until done */
    size_t taken, committed;          /* guarded by mutex */
};

struct thread {
    struct run *run;
    struct index_tar_worker worker;
    pthread_t id;
    bool started;
};

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

/* ---- checks before the run ---- */

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

static enum status check_tar(struct run *r, size_t i, struct error *err) {
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
static enum status check_directory(struct run *r, struct error *err) {
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
            "%s: a new index would bring removed samples back; take them out of the "
            "tars, and move this file away",
            path);
    FAIL_IF(!foreign, err, STATUS_EXISTS,
            "%s: is of another dataset, which an index of tars does not replace%s%s", path,
            why.text[0] != '\0' ? ": " : "", why.text);
    return o->overwrite
               ? STATUS_OK
               : error_set(err, STATUS_EXISTS, "%s: exists; --overwrite replaces it", path);
}

/* Adds a tar to the manifest and the summary. `shard` NULL: it has no sample. */
static enum status account(struct run *r,
                           size_t tar,
                           const struct index_tar_result *result,
                           const struct shard_summary *shard,
                           struct error *err) {
    struct pack_summary *sum = r->summary;
    if (shard) {
        TRY(manifest_add_shard(&r->manifest, shard, err));
        sum->shards++;
        sum->samples += shard->sample_count;
        sum->texts += shard->text_count;
        sum->bytes += shard->size_bytes;
    }
    TRY(manifest_add_source(&r->manifest, index_tar_name(r->opt.sources[tar]), result->rows, err));
    sum->rows += result->rows;
    source_ignored_add(&sum->ignored, &result->ignored);
    if (result->note[0] != '\0' && sum->notes++ == 0) {
        memcpy(sum->note, result->note, sizeof(sum->note));
    }
    for (int i = 0; i < REASON_COUNT; i++) {
        sum->rejected_by[i] += result->rejected_by[i];
        sum->rejected += result->rejected_by[i];
    }
    return STATUS_OK;
}

/* Takes over what the journal has. OK and no tar if it is missing. */
static enum status take_journal(struct run *r, struct error *err) {
    const struct pack_options *o = &r->opt;
    struct index_journal_line line;
    struct byte_buffer text = {0};
    struct error why = {0};
    size_t at = 0;
    enum status s = index_journal_read(&text, &at, o, &why);
    if (s == STATUS_NOTFOUND) {
        return STATUS_OK;
    }
    s = s == STATUS_OK ? s : error_pass(err, s, &why);
    while (s == STATUS_OK && r->committed < o->source_count &&
           index_journal_next(&text, &at, &line)) {
        r->rejects.size_bytes = line.rejects_bytes;
        s = account(r, r->committed++, &line.result, line.has_shard ? &line.shard : NULL, err);
    }
    byte_buffer_fini(&text);
    r->journal_bytes = at;
    r->taken = r->written = r->committed;
    r->summary->resumed = r->summary->samples;
    r->summary->resumed_bytes = r->summary->bytes;
    return s;
}

/* Of tars at a server. */
static enum status prepare_remote(struct run *r, struct error *err) {
    const struct pack_options *o = &r->opt;
    char folder[PATH_MAX_BYTES];
    char journal[PATH_MAX_BYTES];
    bool begun = false;
    TRY(index_tar_folder(folder, sizeof(folder), o->sources, o->source_count, err));
    TRY(manifest_set_base(&r->manifest, folder, err));
    TRY(path_join(journal, sizeof(journal), o->directory, INDEX_JOURNAL_NAME, err));
    TRY(o->fs->exists(o->fs->context, journal, &begun, err));
    FAIL_IF(begun && !o->resume && !o->overwrite, err, STATUS_EXISTS,
            "%s: a pass was interrupted; --resume continues it, --overwrite starts again", journal);
    if (o->resume && begun) {
        r->opt.overwrite = true; /* what that pass was to replace */
        return take_journal(r, err);
    }
    return STATUS_OK;
}

static enum status prepare(struct run *r, struct error *err) {
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
    TRY(r->remote ? index_journal_open(&r->journal, o, r->journal_bytes, err) : STATUS_OK);
    r->results = calloc(o->source_count, sizeof(*r->results));
    TRY_MEMORY(r->results, err, "out of memory for %zu tars", o->source_count);
    return pack_rejects_open(&r->rejects, true, err);
}

/* ---- threads ---- */

static bool must_stop(void *cookie) {
    struct run *r = cookie;
    return atomic_load_explicit(&r->stop, memory_order_relaxed) ||
           (r->opt.interrupted && r->opt.interrupted(r->opt.cookie));
}

/* The next tar; source_count when there is none or the run ends. */
static size_t take_tar(struct run *r) {
    size_t count = r->opt.source_count;
    pthread_mutex_lock(&r->mutex);
    while (!must_stop(r) && r->taken < count &&
           r->taken - r->committed >= (size_t)AHEAD_PER_JOB * r->opt.jobs) {
        pthread_cond_wait(&r->room, &r->mutex);
    }
    size_t tar = must_stop(r) || r->taken == count ? count : r->taken++;
    pthread_mutex_unlock(&r->mutex);
    return tar;
}

static void *thread_main(void *cookie) {
    struct thread *t = cookie;
    struct run *r = t->run;
    for (;;) {
        size_t tar = take_tar(r);
        if (tar == r->opt.source_count) {
            return NULL;
        }
        struct index_tar_result *result = &r->results[tar];
        result->status = index_tar_one(&t->worker, result, r->opt.sources[tar], &result->error);
        pthread_mutex_lock(&r->mutex);
        result->done = true;
        pthread_cond_signal(&r->done);
        pthread_mutex_unlock(&r->mutex);
    }
}

static enum status start_thread(struct run *r, struct thread *t, struct error *err) {
    t->run = r;
    TRY(index_tar_worker_init(&t->worker, &r->opt, &r->budget, err));
    t->worker.counts = &r->counts;
    t->worker.stop = must_stop;
    t->worker.stop_cookie = r;
    FAIL_IF(pthread_create(&t->id, NULL, thread_main, t) != 0, err, STATUS_NOMEM,
            "cannot start a thread");
    t->started = true;
    return STATUS_OK;
}

static void stop_threads(struct run *r, struct thread *threads, uint32_t count) {
    atomic_store_explicit(&r->stop, true, memory_order_relaxed);
    pthread_mutex_lock(&r->mutex);
    pthread_cond_broadcast(&r->room);
    pthread_mutex_unlock(&r->mutex);
    for (uint32_t i = 0; i < count; i++) {
        if (threads[i].started) {
            pthread_join(threads[i].id, NULL);
        }
        if (threads[i].run) {
            index_tar_worker_fini(&threads[i].worker);
        }
    }
}

/* ---- the ordered end ---- */

static void show_progress(struct run *r) {
    if (r->opt.progress) {
        uint64_t bytes = atomic_load_explicit(&r->counts.bytes, memory_order_relaxed);
        const uint64_t resumed = r->summary->resumed;
        const struct pack_progress p = {
            .rows = atomic_load_explicit(&r->counts.rows, memory_order_relaxed),
            .samples = resumed + atomic_load_explicit(&r->counts.samples, memory_order_relaxed),
            .resumed = resumed,
            .rejected = atomic_load_explicit(&r->counts.rejected, memory_order_relaxed),
            .bytes = bytes,
            .done = r->total_bytes > 0 ? (double)bytes / (double)r->total_bytes
                                       : (double)r->committed / (double)r->opt.source_count,
        };
        r->opt.progress(r->opt.cookie, &p);
    }
}

static enum status wait_for(struct run *r, size_t tar, struct error *err) {
    bool done = false;
    while (!done) {
        pthread_mutex_lock(&r->mutex);
        if (!r->results[tar].done) {
            clock_wait_ms(&r->done, &r->mutex, WAIT_MS);
        }
        done = r->results[tar].done;
        pthread_mutex_unlock(&r->mutex);
        show_progress(r);
        FAIL_IF(!done && must_stop(r), err, STATUS_INTERRUPTED, "stopped on request");
    }
    return STATUS_OK;
}

static enum status
write_index(struct run *r, size_t tar, const struct byte_buffer *index, struct error *err) {
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

/* Returns `s`, but CORRUPT for EXISTS: the same id twice. */
static enum status explain(enum status s, const struct error *why, struct error *err) {
    FAIL_IF(s == STATUS_EXISTS, err, STATUS_CORRUPT, "%.300s; --ids row numbers rows instead",
            why->text);
    FAIL_IF(s != STATUS_OK, err, s, "%s", why->text);
    return STATUS_OK;
}

/* Writes the index of a tar that has samples. */
static enum status commit_index(struct run *r,
                                size_t tar,
                                struct shard_summary *shard,
                                struct index_tar_result *result,
                                struct error *err) {
    struct byte_buffer index = {0};
    uint64_t add_to_ids = r->opt.ids == PACK_IDS_ROW ? r->summary->rows : 0;
    struct error why = {0};
    enum status s = shard_foreign_finish(result->index, &index, shard, result->file_bytes,
                                         result->file_hash, add_to_ids, &why);
    s = explain(s, &why, err);
    THEN(s, write_index(r, tar, &index, err));
    strcpy(shard->etag, result->etag);
    byte_buffer_fini(&index);
    return s;
}

static enum status
commit(struct run *r, size_t tar, struct index_tar_result *result, struct error *err) {
    const struct byte_buffer *lines = &result->rejects;
    struct shard_summary shard;
    FAIL_IF(result->status != STATUS_OK, err, result->status, "%s", result->error.text);
    const bool has_shard = shard_foreign_sample_count(result->index) > 0;
    if (has_shard) {
        TRY(commit_index(r, tar, &shard, result, err));
    }
    TRY(account(r, tar, result, has_shard ? &shard : NULL, err));
    if (lines->size_bytes > 0) {
        TRY(r->opt.fs->write(r->rejects.file, lines->data, lines->size_bytes, err));
        r->rejects.size_bytes += lines->size_bytes;
    }
    if (r->journal) {
        TRY(pack_rejects_sync(&r->rejects, err));
        TRY(index_journal_add(r->journal, &r->opt, result, has_shard ? &shard : NULL,
                              r->rejects.size_bytes, err));
    }
    bool last = tar + 1 == r->opt.source_count;
    bool early = r->opt.max_bad.percent >= 0 && r->summary->rows < PACK_PERCENT_AFTER_ROWS && !last;
    return early ? STATUS_OK : pack_judge(&r->opt, r->summary, err);
}

static enum status commit_tars(struct run *r, struct error *err) {
    for (size_t i = r->committed; i < r->opt.source_count; i++) {
        TRY(wait_for(r, i, err));
        TRY(commit(r, i, &r->results[i], err));
        index_tar_result_fini(&r->results[i]);
        pthread_mutex_lock(&r->mutex);
        r->committed = i + 1;
        pthread_cond_broadcast(&r->room);
        pthread_mutex_unlock(&r->mutex);
    }
    FAIL_IF(r->summary->samples == 0, err, STATUS_CORRUPT,
            "none of the %" PRIu64 " rows is usable; %s/%s lists them with reasons",
            r->summary->rows, r->opt.directory, PACK_REJECTS_NAME);
    return STATUS_OK;
}

static enum status run_threads(struct run *r, struct error *err) {
    uint32_t count =
        r->opt.source_count < r->opt.jobs ? (uint32_t)r->opt.source_count : r->opt.jobs;
    struct thread *threads = calloc(count, sizeof(*threads));
    TRY_MEMORY(threads, err, "out of memory for threads");
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < count && s == STATUS_OK; i++) {
        s = start_thread(r, &threads[i], err);
    }
    THEN(s, commit_tars(r, err));
    stop_threads(r, threads, count);
    free(threads);
    return s;
}

/* ---- publishing ---- */

static enum status describe(struct run *r, struct error *err) {
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

/* *was: there was such a file. */
static enum status
remove_file(const struct run *r, const char *path, bool *was, struct error *err) {
    const struct file_system *fs = r->opt.fs;
    TRY(fs->exists(fs->context, path, was, err));
    return *was ? fs->remove(fs->context, path, err) : STATUS_OK;
}

static void remove_indexes(struct run *r, const char *ending) {
    for (size_t i = 0; i < r->written; i++) {
        char path[PATH_MAX_BYTES];
        bool was;
        if (index_path(path, &r->opt, i, ending, NULL) == STATUS_OK) {
            (void)remove_file(r, path, &was, NULL);
        }
    }
}

static enum status remove_manifest(struct run *r, bool *was, struct error *err) {
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof(path), r->opt.directory, MANIFEST_NAME, err));
    return remove_file(r, path, was, err);
}

/* Removes an earlier dataset.json first, so that it never refers to new indexes. */
static enum status name_indexes(struct run *r, struct error *err) {
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

static enum status publish(struct run *r, struct error *err) {
    struct pack_summary *sum = r->summary;
    struct error why = {0};
    TRY(describe(r, err));
    TRY(name_indexes(r, err));
    enum status s =
        dataset_fingerprint_of(&sum->fingerprint, &r->manifest, r->opt.directory, r->opt.fs, &why);
    TRY(explain(s, &why, err));
    TRY(manifest_seal(&r->manifest, sum->fingerprint, err));
    TRY(pack_rejects_publish(&r->rejects, err));
    TRY(manifest_write(&r->manifest, r->opt.fs, r->opt.directory, err));
    sum->is_dataset = true;
    return STATUS_OK;
}

/* After a failure only the list that the message names is kept. */
static void withdraw(struct run *r, enum status s) {
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

static enum status remove_journal(struct run *r, struct error *err) {
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof(path), r->opt.directory, INDEX_JOURNAL_NAME, err));
    return r->opt.fs->remove(r->opt.fs->context, path, err);
}

static enum status run(struct run *r, struct error *err) {
    enum status s = prepare(r, err);
    if (s == STATUS_OK && r->summary->was_finished) {
        return STATUS_OK;
    }
    THEN(s, run_threads(r, err));
    if (s == STATUS_OK) {
        bool was;
        s = publish(r, err);
        THEN(s, r->remote ? remove_journal(r, err) : STATUS_OK);
        /* dataset.json may exist if only its last fsync failed; where it cannot be removed the
         * indexes must stay. */
        if (s != STATUS_OK && !r->remote && remove_manifest(r, &was, NULL) == STATUS_OK) {
            remove_indexes(r, "");
        }
    }
    if (s != STATUS_OK) {
        withdraw(r, s);
    }
    return s;
}

enum status
index_tar_run(const struct pack_options *opt, struct pack_summary *out, struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->directory && opt->sources && opt->source_count > 0);
    REQUIRE(opt->jobs >= 1 && opt->jobs <= PACK_MAX_JOBS && opt->created_by);
    REQUIRE(opt->level >= SHARD_LEVEL_MIN && opt->level <= SHARD_LEVEL_MAX);
    memset(out, 0, sizeof(*out));
    struct run r = {.opt = *opt, .summary = out};
    r.opt.container = SHARD_CONTAINER_TAR; /* frames are only compared with the tar */
    r.remote = path_is_remote(opt->sources[0]);
    strcpy(r.temporary, ".tmp");
    pthread_mutex_init(&r.mutex, NULL);
    pthread_cond_init(&r.done, NULL);
    pthread_cond_init(&r.room, NULL);
    pack_budget_limit_malloc();
    pack_budget_init(&r.budget, opt->jobs);
    enum status s = r.remote ? STATUS_OK : file_temporary_ending(r.temporary, err);
    THEN(s, run(&r, err));
    for (size_t i = 0; r.results && i < opt->source_count; i++) {
        index_tar_result_fini(&r.results[i]);
    }
    free(r.results);
    manifest_fini(&r.manifest);
    pack_rejects_close(&r.rejects);
    opt->fs->close(r.journal);
    opt->fs->close(r.lock);
    pack_budget_fini(&r.budget);
    pthread_cond_destroy(&r.done);
    pthread_cond_destroy(&r.room);
    pthread_mutex_destroy(&r.mutex);
    return s;
}
