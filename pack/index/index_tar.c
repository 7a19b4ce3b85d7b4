/*
 * Indexing tars in place: the threads, and the results in order. Each thread takes the next tar and
 * reads all of it. Ids by row depend on the rows of all tars before, so they are added when a
 * result is committed:
 *
 *     committed <= taken <= committed + 4 for each job
 *
 * Shutdown: `stop` is set and all threads woken; they leave at their next row and are joined.
 */
#include "pack/index/index_tar.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "pack/index/index_tar_internal.h"
#include "pack/options_internal.h"
#include "pack/run/rejects_internal.h"

enum { WAIT_MS = 100, AHEAD_PER_JOB = 4 };

struct thread {
    struct index_run *run;
    struct index_tar_worker worker;
    pthread_t id;
    bool started;
};

/* ---- threads ---- */

static bool must_stop(void *cookie) {
    struct index_run *r = cookie;
    return atomic_load_explicit(&r->stop, memory_order_relaxed) ||
           (r->opt.interrupted && r->opt.interrupted(r->opt.cookie));
}

/* The next tar; source_count when there is none or the run ends. */
static size_t take_tar(struct index_run *r) {
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
    struct index_run *r = t->run;
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

static enum status start_thread(struct index_run *r, struct thread *t, struct error *err) {
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

static void stop_threads(struct index_run *r, struct thread *threads, uint32_t count) {
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

static void show_progress(struct index_run *r) {
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

enum status index_account(struct index_run *r,
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

static enum status wait_for(struct index_run *r, size_t tar, struct error *err) {
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

/* Writes the index of a tar that has samples. */
static enum status commit_index(struct index_run *r,
                                size_t tar,
                                struct shard_summary *shard,
                                struct index_tar_result *result,
                                struct error *err) {
    struct byte_buffer index = {0};
    uint64_t add_to_ids = r->opt.ids == PACK_IDS_ROW ? r->summary->rows : 0;
    struct error why = {0};
    enum status s = shard_foreign_finish(result->index, &index, shard, result->file_bytes,
                                         result->file_hash, add_to_ids, &why);
    s = index_explain(s, &why, err);
    THEN(s, index_write(r, tar, &index, err));
    strcpy(shard->etag, result->etag);
    byte_buffer_fini(&index);
    return s;
}

static enum status
commit(struct index_run *r, size_t tar, struct index_tar_result *result, struct error *err) {
    const struct byte_buffer *lines = &result->rejects;
    struct shard_summary shard;
    FAIL_IF(result->status != STATUS_OK, err, result->status, "%s", result->error.text);
    const bool has_shard = shard_foreign_sample_count(result->index) > 0;
    if (has_shard) {
        TRY(commit_index(r, tar, &shard, result, err));
    }
    TRY(index_account(r, tar, result, has_shard ? &shard : NULL, err));
    if (lines->size_bytes > 0) {
        TRY(r->opt.fs->write(r->rejects.file, lines->data, lines->size_bytes, err));
        r->rejects.size_bytes += lines->size_bytes;
    }
    if (r->journal) {
        TRY(pack_rejects_sync(&r->rejects, err));
        TRY(index_journal_add(r, result, has_shard ? &shard : NULL, err));
    }
    bool last = tar + 1 == r->opt.source_count;
    bool early = r->opt.max_bad.percent >= 0 && r->summary->rows < PACK_PERCENT_AFTER_ROWS && !last;
    return early ? STATUS_OK : pack_judge(&r->opt, r->summary, err);
}

static enum status commit_tars(struct index_run *r, struct error *err) {
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

static enum status run_threads(struct index_run *r, struct error *err) {
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

static enum status run(struct index_run *r, struct error *err) {
    enum status s = index_prepare(r, err);
    if (s == STATUS_OK && !r->summary->was_finished) {
        s = run_threads(r, err);
        THEN(s, index_publish(r, err));
    }
    if (s != STATUS_OK) {
        index_withdraw(r, s);
    }
    return s;
}

enum status
index_tar_run(const struct pack_options *opt, struct pack_summary *out, struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->directory && opt->sources && opt->source_count > 0);
    REQUIRE(opt->jobs >= 1 && opt->jobs <= PACK_MAX_JOBS && opt->created_by);
    REQUIRE(opt->level >= SHARD_LEVEL_MIN && opt->level <= SHARD_LEVEL_MAX);
    memset(out, 0, sizeof(*out));
    struct index_run r = {.opt = *opt, .summary = out};
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
