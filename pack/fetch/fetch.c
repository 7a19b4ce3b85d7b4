/*
 * What stands around the fetch thread: which rows are selected, what the ledger knows of them, the
 * spool.
 *
 * The ledger is a sequence of rounds: the first fetch of the list, then each retry and each further
 * list, which begins with a line of its own. A retry selects rows by their last line before it, so
 * a resumed retry selects the same ones; an append skips URLs of the lines before it. Rows of a
 * further list are numbered from where all earlier ones end.
 */
#include "pack/fetch/fetch.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "pack/fetch/fetch_internal.h"
#include "pack/source/rows_stream_internal.h"

enum { FILES_BESIDE = 256 }; /* that are open beside two for each connection */

void fetch_options_default(struct fetch_options *opt) {
    *opt = (struct fetch_options){
        .fs = file_posix(),
        .attempts = 3,
        .max_bytes = FETCH_MAX_BYTES_DEFAULT,
        .robots = true,
    };
    http_options_default(&opt->http);
    opt->http.max_connections = 256;
    opt->http.requests_per_second_per_host = 5;
}

/* ---- what --retry selects ------------------------------------------------------------------- */

static bool matches_word(const struct ledger_line *l, const char *word, size_t size_bytes) {
    const struct {
        const char *word;
        bool yes;
    } groups[] = {
        {"failed", l->state == LEDGER_FAILED},
        {"excluded", l->state == LEDGER_EXCLUDED},
        {"4xx", strncmp(l->reason, "http-4", 6) == 0},
        {"5xx", strncmp(l->reason, "http-5", 6) == 0},
    };
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (strlen(groups[i].word) == size_bytes &&
            strncmp(groups[i].word, word, size_bytes) == 0) {
            return groups[i].yes;
        }
    }
    return strlen(l->reason) == size_bytes && strncmp(l->reason, word, size_bytes) == 0;
}

static bool matches(const struct ledger_line *l, const char *retry) {
    while (*retry != '\0') {
        const size_t n = strcspn(retry, ",");
        if (n > 0 && l->state != LEDGER_FETCHED && matches_word(l, retry, n)) {
            return true;
        }
        retry += n + (retry[n] == ',');
    }
    return false;
}

/* What --retry may name, besides http-NNN. */
static const char retry_words[] =
    "failed, excluded, 4xx, 5xx, dns, connect, tls, timeout, partial, refused, private, protocol, "
    "too_large, empty, bad-url, not-an-image, sha256, robots, robots-unreachable, noai, opt-out";

static bool is_retry_word(const char *word, size_t size) {
    for (const char *at = retry_words; *at != '\0'; at += strspn(at, ", ")) {
        const size_t n = strcspn(at, ",");
        if (n == size && strncmp(at, word, n) == 0) {
            return true;
        }
        at += n;
    }
    return size == 8 && strncmp(word, "http-", 5) == 0 && isdigit((unsigned char)word[5]) &&
           isdigit((unsigned char)word[6]) && isdigit((unsigned char)word[7]);
}

/* Words that no line can have are mistakes. */
static enum status check_retry(const char *retry, struct error *err) {
    FAIL_IF(strlen(retry) >= sizeof(((struct ledger_entry *)NULL)->retry), err, STATUS_USAGE,
            "--retry: '%.40s...' is too long", retry);
    for (const char *at = retry; *at != '\0' || at == retry;) {
        const size_t n = strcspn(at, ",");
        FAIL_IF(!is_retry_word(at, n), err, STATUS_USAGE, "--retry: '%.*s' is none of http-NNN, %s",
                (int)(n < 40 ? n : 40), at, retry_words);
        at += n + (at[n] == ',');
        if (*at == '\0') {
            break;
        }
    }
    return STATUS_OK;
}

/* ---- the ledger ----------------------------------------------------------------------------- */

static enum status set_bit(struct fetch *f, uint64_t row, bool on, struct error *err) {
    const uint64_t at = row / 8;
    if (at >= f->selected_bytes) {
        if (!on) {
            return STATUS_OK;
        }
        const uint64_t wanted = 2 * at + 4096;
        uint8_t *grown = realloc(f->selected, wanted);
        TRY_MEMORY(grown, err, "out of memory for the rows to retry");
        memset(grown + f->selected_bytes, 0, wanted - f->selected_bytes);
        f->selected = grown;
        f->selected_bytes = wanted;
    }
    const uint8_t bit = (uint8_t)(1u << row % 8);
    const bool was = (f->selected[at] & bit) != 0;
    f->selected[at] = (uint8_t)(on ? f->selected[at] | bit : f->selected[at] & ~bit);
    f->stats.selected += (uint64_t)on - (uint64_t)was;
    return STATUS_OK;
}

static const char *list_name(const struct fetch *f) {
    const char *slash = strrchr(f->opt->list, '/');
    return slash ? slash + 1 : f->opt->list;
}

/* Finds where the last round begins, and whether it is the one that is to be resumed. */
static enum status see_rounds(void *cookie, const struct ledger_entry *entry, struct error *err) {
    (void)err;
    struct fetch *f = cookie;
    const struct fetch_options *o = f->opt;
    if (!entry->is_retry && !entry->is_list) {
        const uint64_t end = entry->line.row + 1;
        f->last_round.rows = end > f->last_round.rows ? end : f->last_round.rows;
        return STATUS_OK;
    }
    const char *wanted = entry->is_list ? (o->append ? list_name(f) : NULL) : o->retry;
    const bool same = wanted && o->resume && strcmp(entry->retry, wanted) == 0;
    f->round_bytes = same || (!o->retry && !o->append) ? entry->end_bytes : UINT64_MAX;
    f->last_round.begin_bytes = entry->begin_bytes;
    f->last_round.rows_before = f->last_round.rows;
    f->last_round.is_list = entry->is_list;
    f->last_round.first_row = entry->first_row;
    if (entry->is_list && strcmp(entry->retry, list_name(f)) == 0) {
        f->first_row = entry->first_row;
    }
    return STATUS_OK;
}

static enum status
see_for_selection(void *cookie, const struct ledger_entry *entry, struct error *err) {
    struct fetch *f = cookie;
    if (entry->is_retry || entry->is_list || entry->end_bytes > f->round_bytes) {
        return STATUS_OK;
    }
    return set_bit(f, entry->line.row, matches(&entry->line, f->opt->retry), err);
}

/* A retry selects rows by the rounds before it, and begins a round unless it is resumed. */
static enum status select_rows(struct fetch *f, uint64_t good_bytes, struct error *err) {
    const struct fetch_options *o = f->opt;
    const bool begins = f->round_bytes == UINT64_MAX || f->round_bytes == 0;
    FAIL_IF(good_bytes == 0, err, STATUS_NOTFOUND,
            "%.200s: there is no ledger of an earlier fetch whose failed rows could be retried",
            o->directory);
    if (begins) {
        f->round_bytes = good_bytes;
    }
    TRY(set_bit(f, 0, true, err)); /* so that there is a selection, also of nothing */
    TRY(set_bit(f, 0, false, err));
    TRY(ledger_scan(o->fs, f->ledger_path, see_for_selection, f, &good_bytes, err));
    TRY(ledger_open(&f->ledger, o->fs, f->ledger_path, good_bytes, err));
    return begins && f->stats.selected > 0 ? ledger_add_retry(f->ledger, o->retry, err) : STATUS_OK;
}

static enum status see_urls(void *cookie, const struct ledger_entry *entry, struct error *err) {
    struct fetch *f = cookie;
    const uint64_t url = entry->line.url_hash;
    return url == 0 || entry->end_bytes > f->round_bytes
               ? STATUS_OK
               : hash_map_put(f->urls, url, entry->line.row, err);
}

/* An append numbers its rows after all others. It begins a round unless it is resumed. A round of
 * another append, of which the dataset has no sample, did not happen: it goes. */
static enum status begin_list(struct fetch *f, uint64_t good_bytes, struct error *err) {
    const struct fetch_options *o = f->opt;
    const bool begins = f->round_bytes == UINT64_MAX || f->round_bytes == 0;
    if (begins) {
        if (f->last_round.is_list && f->last_round.first_row >= o->first_row) {
            good_bytes = f->last_round.begin_bytes;
            f->last_round.rows = f->last_round.rows_before;
        }
        f->first_row = f->last_round.rows > o->first_row ? f->last_round.rows : o->first_row;
        f->round_bytes = good_bytes;
    }
    TRY(ledger_open(&f->ledger, o->fs, f->ledger_path, good_bytes, err));
    TRY(begins ? ledger_add_list(f->ledger, list_name(f), f->first_row, err) : STATUS_OK);
    TRY(hash_map_create(&f->urls, err));
    return ledger_scan(o->fs, f->ledger_path, see_urls, f, &good_bytes, err);
}

bool fetch_is_selected(const struct fetch *f, const struct source_row *row) {
    const uint64_t number = f->first_row + row->row;
    return (!f->selected ||
            (number / 8 < f->selected_bytes && (f->selected[number / 8] >> number % 8 & 1))) &&
           (!f->urls || row->reason != REASON_NONE ||
            hash_map_get(f->urls, hash64(row->path, strlen(row->path))) == HASH_MAP_NONE);
}

static enum status remove_all(const struct file_system *fs, const char *folder, struct error *err) {
    struct byte_buffer names = {0};
    bool exists = false;
    TRY(fs->exists(fs->context, folder, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    byte_buffer_init(&names, 0);
    enum status s = fs->list(fs->context, folder, &names, err);
    const char *name = (const char *)names.data;
    for (size_t at = 0; s == STATUS_OK && at < names.size_bytes; at += strlen(name + at) + 1) {
        char path[PATH_MAX_BYTES];
        s = path_join(path, sizeof(path), folder, name + at, err);
        THEN(s, fs->remove(fs->context, path, err));
    }
    byte_buffer_fini(&names);
    return s;
}

/* Opens the ledger at the beginning of a run. Called once the directory is locked. */
enum status fetch_open_ledger(struct fetch *f, struct error *err) {
    const struct fetch_options *o = f->opt;
    uint64_t good_bytes = 0;
    char folder[PATH_MAX_BYTES];
    TRY(path_join(folder, sizeof(folder), o->directory, FETCH_DIRECTORY, err));
    TRY(o->fs->make_directory(o->fs->context, folder, err));
    TRY(o->fs->make_directory(o->fs->context, f->spool, err));
    f->round_bytes = 0;
    f->first_row = 0;
    if (o->overwrite || (!o->resume && !o->retry && !o->append)) {
        TRY(ledger_open(&f->ledger, o->fs, f->ledger_path, 0, err));
    } else {
        TRY(ledger_scan(o->fs, f->ledger_path, see_rounds, f, &good_bytes, err));
        if (o->retry) {
            TRY(select_rows(f, good_bytes, err));
        } else if (o->append) {
            TRY(begin_list(f, good_bytes, err));
        } else {
            TRY(ledger_open(&f->ledger, o->fs, f->ledger_path, good_bytes, err));
        }
    }
    f->stats.opened = true;
    return o->resume ? STATUS_OK : remove_all(o->fs, f->spool, err);
}

struct knowing {
    struct fetch *f;
    uint64_t rows; /* of the list, before the first that is fetched */
};

/* Rows of this round that are not packed yet are known; images of all others are packed. */
static enum status see_known(void *cookie, const struct ledger_entry *entry, struct error *err) {
    const struct knowing *k = cookie;
    struct fetch *f = k->f;
    const struct ledger_line *line = &entry->line;
    if (entry->is_retry || entry->is_list) {
        return STATUS_OK;
    }
    const bool this_round = entry->end_bytes > f->round_bytes;
    if (this_round && line->row >= k->rows) {
        return f->known ? hash_map_put(f->known, line->row, entry->begin_bytes, err) : STATUS_OK;
    }
    if (f->images && line->state == LEDGER_FETCHED &&
        hash_map_get(f->images, line->hash) == HASH_MAP_NONE) {
        return hash_map_put(f->images, line->hash, line->row, err);
    }
    return STATUS_OK;
}

enum status fetch_read_known(struct fetch *f, uint64_t rows, struct error *err) {
    uint64_t good_bytes = 0;
    struct knowing k = {f, f->first_row + rows};
    if (f->opt->dedup) {
        TRY(hash_map_create(&f->images, err));
    }
    if (f->opt->resume) {
        TRY(hash_map_create(&f->known, err));
    }
    if (!f->opt->resume && !f->opt->retry && !f->opt->append) {
        return STATUS_OK;
    }
    return ledger_scan(f->opt->fs, f->ledger_path, see_known, &k, &good_bytes, err);
}

/* ---- the spool ------------------------------------------------------------------------------ */

enum status fetch_spool_path(const struct fetch *f,
                             char path[PATH_MAX_BYTES],
                             uint64_t sequence,
                             struct error *err) {
    char name[32];
    snprintf(name, sizeof(name), "%012" PRIu64, sequence);
    return path_join(path, PATH_MAX_BYTES, f->spool, name, err);
}

/* Files are reused, because ext4 looks at every file that was removed within the last minutes when
 * it makes a new one in the same place: a third of the time of a long run. */
static bool keep_spare(struct fetch *f, uint64_t sequence) {
    pthread_mutex_lock(&f->mutex);
    const bool room = f->spare_count < FETCH_WINDOW_ROWS;
    if (room) {
        f->spares[f->spare_count++] = sequence;
    }
    pthread_mutex_unlock(&f->mutex);
    return room;
}

void fetch_committed(struct fetch *f, uint64_t sequence) {
    const struct file_system *fs = f->opt->fs;
    for (; f->removed < sequence; f->removed++) {
        char path[PATH_MAX_BYTES];
        bool exists = false;
        if (fetch_spool_path(f, path, f->removed, NULL) == STATUS_OK &&
            fs->exists(fs->context, path, &exists, NULL) == STATUS_OK && exists &&
            !keep_spare(f, f->removed)) {
            (void)fs->remove(fs->context, path, NULL); /* fetch_finish removes what is left */
        }
    }
}

enum status fetch_finish(struct fetch *f, struct error *err) {
    TRY(remove_all(f->opt->fs, f->spool, err));
    return f->ledger ? ledger_sync(f->ledger, err) : STATUS_OK;
}

/* ---- the object ----------------------------------------------------------------------------- */

static enum status check_list(const char *path, struct error *err) {
    struct stat info;
    FAIL_ERRNO_IF(stat(path, &info) != 0, err, "%.300s", path);
    FAIL_IF(!S_ISREG(info.st_mode), err, STATUS_USAGE,
            "%.300s: the list must be a file, because it is read twice", path);
    return STATUS_OK;
}

/* Whether a list that is Parquet can be read, before anything is written. */
static enum status check_parquet(const char *path, struct error *err) {
    const struct source_options how = {0};
    struct rows_stream *rows = NULL;
    enum source_kind kind;
    if (source_kind_of(&kind, path, NULL) != STATUS_OK || kind != SOURCE_PARQUET) {
        return STATUS_OK;
    }
    const enum status s = rows_stream_open(&rows, path, &how, err);
    rows_stream_close(rows);
    return s;
}

/* A connection needs a socket and a file. */
static enum status allow_files(uint32_t connections, struct error *err) {
    struct rlimit limit;
    const rlim_t wanted = 2 * (rlim_t)connections + FILES_BESIDE;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return STATUS_OK;
    }
    FAIL_IF(limit.rlim_max != RLIM_INFINITY && limit.rlim_max < wanted, err, STATUS_LIMIT,
            "%" PRIu32
            " connections need %llu open files, but %llu are allowed (ulimit -Hn): use fewer",
            connections, (unsigned long long)wanted, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = wanted;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0
               ? STATUS_OK
               : error_set_errno(err, "cannot allow %llu open files", (unsigned long long)wanted);
}

static enum status open_fetch(struct fetch *f, struct error *err) {
    const struct fetch_options *o = f->opt;
    struct url probe;
    char folder[PATH_MAX_BYTES];
    TRY(check_list(o->list, err));
    TRY(o->retry ? check_retry(o->retry, err) : STATUS_OK);
    TRY(check_parquet(o->list, err));
    TRY(allow_files(o->http.max_connections, err));
    TRY(url_init(&probe, "http://localhost/", NULL, err)); /* is libcurl there? */
    url_fini(&probe);
    TRY(o->http.resolvers ? http_check_resolvers(o->http.resolvers, err) : STATUS_OK);
    TRY(path_join(folder, sizeof(folder), o->directory, FETCH_DIRECTORY, err));
    TRY(path_join(f->ledger_path, sizeof(f->ledger_path), folder, "ledger.jsonl", err));
    TRY(path_join(f->spool, sizeof(f->spool), folder, "spool", err));
    return o->opt_out ? opt_out_open(&f->opt_out, o->fs, o->opt_out, err) : STATUS_OK;
}

enum status fetch_create(struct fetch **out, const struct fetch_options *opt, struct error *err) {
    REQUIRE(out && opt && opt->fs && opt->directory && opt->list && opt->http.user_agent);
    REQUIRE(opt->attempts >= 1 && opt->attempts <= FETCH_MAX_ATTEMPTS && opt->max_bytes > 0);
    REQUIRE(opt->max_bytes <= SOURCE_MAX_IMAGE_BYTES);
    *out = NULL;
    struct fetch *f = calloc(1, sizeof(*f));
    TRY_MEMORY(f, err, "out of memory for a fetch");
    f->opt = opt;
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    byte_buffer_init(&f->host_counts, 0);
    const enum status s = open_fetch(f, err);
    RETURN_CREATED(s, out, f, fetch_destroy);
}

void fetch_destroy(struct fetch *f) {
    if (!f) {
        return;
    }
    fetch_stop(f);
    ledger_close(f->ledger);
    opt_out_close(f->opt_out);
    hash_map_destroy(f->known);
    hash_map_destroy(f->images);
    hash_map_destroy(f->urls);
    hash_map_destroy(f->hosts);
    byte_buffer_fini(&f->host_counts);
    free(f->selected);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

static int compare_reasons(const void *a, const void *b) {
    const struct fetch_reason *x = a;
    const struct fetch_reason *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count)
                                : strcmp(x->name, y->name);
}

void fetch_stats(struct fetch *f, struct fetch_stats *out) {
    pthread_mutex_lock(&f->mutex);
    *out = f->stats;
    pthread_mutex_unlock(&f->mutex);
    qsort(out->reasons, out->reason_count, sizeof(out->reasons[0]), compare_reasons);
}

static int compare_hosts(const void *a, const void *b) {
    const struct fetch_host *x = a;
    const struct fetch_host *y = b;
    return x->failed != y->failed ? (x->failed < y->failed) - (x->failed > y->failed)
                                  : strcmp(x->name, y->name);
}

size_t fetch_worst_hosts(struct fetch *f, struct fetch_host *out, size_t room) {
    pthread_mutex_lock(&f->mutex);
    const size_t all = f->host_counts.size_bytes / sizeof(*out);
    struct fetch_host *sorted = malloc((all + 1) * sizeof(*out));
    size_t count = 0;
    if (sorted && all > 0) {
        memcpy(sorted, f->host_counts.data, all * sizeof(*out));
        qsort(sorted, all, sizeof(*out), compare_hosts);
        while (count < room && count < all && sorted[count].failed > 0) {
            out[count] = sorted[count];
            count++;
        }
    }
    pthread_mutex_unlock(&f->mutex);
    free(sorted);
    return count;
}
