#include "pack/run/identity_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/hash.h"
#include "net/http_stream.h"
#include "net/location.h"

/* A file of up to SAMPLES * SAMPLE_BYTES bytes is hashed whole. */
enum { SAMPLES = 8, SAMPLE_BYTES = 64 << 10, ROWS_AT_A_TIME = 4096 };

static bool is_file(const char *path, uint64_t *size_bytes) {
    struct stat info;
    bool file = strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode);
    *size_bytes = file ? (uint64_t)info.st_size : 0;
    return file;
}

/* Where sample `i` begins: the first at the file's start, the last up to its end. */
static uint64_t sample_offset(uint64_t size_bytes, uint64_t i) {
    if (size_bytes <= (uint64_t)SAMPLES * SAMPLE_BYTES) {
        return i * SAMPLE_BYTES;
    }
    uint64_t room = size_bytes - SAMPLE_BYTES;
    return room / (SAMPLES - 1) * i + room % (SAMPLES - 1) * i / (SAMPLES - 1);
}

static enum status hash_samples(uint64_t *out,
                                struct file *file,
                                uint8_t *buffer,
                                uint64_t size_bytes,
                                struct error *err) {
    uint8_t sums[8 * (SAMPLES + 1)] = {0};
    store_u64(sums, size_bytes);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        size_t got = 0;
        TRY(file_posix()->pread(file, buffer, &got, SAMPLE_BYTES, sample_offset(size_bytes, i),
                                err));
        store_u64(sums + 8 * (i + 1), hash64(buffer, got));
    }
    *out = hash64(sums, sizeof(sums));
    return STATUS_OK;
}

enum status pack_identity_sample(struct manifest_source *out, const char *path, struct error *err) {
    const struct file_system *fs = file_posix();
    struct file *file = NULL;
    out->bytes = 0;
    out->sample_hash = 0;
    if (location_is_remote(path)) {
        return http_stream_identity(&out->bytes, &out->sample_hash, path, err);
    }
    if (!is_file(path, &out->bytes)) {
        return STATUS_OK;
    }
    uint8_t *buffer = malloc(SAMPLE_BYTES);
    TRY_MEMORY(buffer, err, "%s: out of memory", path);
    enum status s = fs->open(fs->context, &file, path, FILE_READ, err);
    THEN(s, hash_samples(&out->sample_hash, file, buffer, out->bytes, err));
    fs->close(file);
    free(buffer);
    return s;
}

enum status pack_identity_scan(struct manifest_source *out,
                               struct pack_plan *p,
                               size_t index,
                               bool classes,
                               struct error *err) {
    struct source *s = NULL;
    struct source_options how;
    pack_plan_source_options(&how, p);
    TRY(pack_identity_sample(out, p->opt->sources[index], err));
    TRY(p->open_source(&s, p->opt->sources[index], &how, err));
    enum status status = classes ? pack_classes_open_source(&p->classes, s, err) : STATUS_OK;
    while (status == STATUS_OK) {
        uint64_t skipped = 0;
        status = source_skip(s, ROWS_AT_A_TIME, &skipped, err);
        if (status == STATUS_OK && pack_plan_must_stop(p)) {
            status = error_set(err, STATUS_INTERRUPTED, "stopped on request");
        }
    }
    out->rows = source_rows_read(s);
    out->content = out->rows > 0 ? source_content(s) : 0;
    status = status == STATUS_END ? pack_plan_note(p, index, source_note(s), err) : status;
    source_close(s);
    return status;
}

static bool same_file(const struct manifest_source *a, const struct manifest_source *b) {
    return a->bytes > 0 && a->bytes == b->bytes && a->sample_hash == b->sample_hash;
}

enum status pack_identity_matches(bool *out,
                                  struct pack_plan *p,
                                  size_t index,
                                  const struct manifest_source *was,
                                  struct error *err) {
    struct manifest_source is = {0};
    *out = true;
    TRY(pack_identity_sample(&is, p->opt->sources[index], err));
    if (was->bytes > 0) {
        *out = same_file(&is, was);
    } else if (was->content != 0) {
        TRY(pack_identity_scan(&is, p, index, false, err));
        *out = is.content == was->content;
    }
    return STATUS_OK;
}

static enum status refuse(const struct pack_plan *p,
                          size_t index,
                          const char *name,
                          const char *rest,
                          struct error *err) {
    return error_set(err, STATUS_MISMATCH,
                     "%.120s: the dataset already contains the rows of this source, from '%.60s'; "
                     "--allow-duplicates %s",
                     p->opt->sources[index], name, rest);
}

enum status pack_identity_check_names(const struct pack_plan *p, struct error *err) {
    const size_t count = p->opt->allow_repeat ? 0 : p->opt->source_count;
    const char *const *paths = p->opt->sources;
    struct stat *all = calloc(count + 1, sizeof(*all)); /* zero: not there */
    enum status s = STATUS_OK;
    TRY_MEMORY(all, err, "out of memory for sources");
    for (size_t i = 0; i < count && s == STATUS_OK; i++) {
        (void)stat(paths[i], &all[i]);
        for (size_t k = 0; k < i && s == STATUS_OK; k++) {
            if (strcmp(paths[i], paths[k]) == 0 ||
                (all[i].st_nlink > 0 && all[i].st_dev == all[k].st_dev &&
                 all[i].st_ino == all[k].st_ino)) {
                s = error_set(err, STATUS_MISMATCH,
                              "%.120s is the same source as %.120s; pass it once, or pack it twice "
                              "with --allow-duplicates",
                              paths[i], paths[k]);
            }
        }
    }
    free(all);
    return s;
}

enum status pack_identity_check_file(const struct pack_plan *p, size_t index, struct error *err) {
    for (size_t k = 0; !p->opt->allow_repeat && k < index; k++) {
        if (same_file(&p->sources[index], &p->sources[k])) {
            return refuse(p, index, p->opt->sources[k], "with --resume packs them again", err);
        }
    }
    return STATUS_OK;
}

/* The sources of the dataset before the append are those in the manifest. */
enum status pack_identity_check_new(struct pack_plan *p, struct error *err) {
    const struct manifest *m = &p->manifest;
    for (size_t i = 0; !p->opt->allow_repeat && i < p->opt->source_count; i++) {
        struct manifest_source is = {0};
        const char *path = p->opt->sources[i];
        TRY(pack_identity_sample(&is, path, err));
        if (is.bytes == 0 && strcmp(path, "-") != 0) {
            TRY(pack_identity_scan(&is, p, i, false, err));
        }
        for (size_t k = 0; k < m->source_count; k++) {
            const struct manifest_source *was = &m->sources[k];
            if (same_file(&is, was) || (is.content != 0 && is.content == was->content)) {
                return refuse(p, i, was->name, "appends them again", err);
            }
        }
    }
    return STATUS_OK;
}

enum status pack_identity_check_read(const struct pack_plan *p, struct error *err) {
    const struct manifest *m = &p->manifest;
    const struct manifest_source *read = p->totals ? p->totals : p->sources;
    for (size_t i = 0; !p->opt->allow_repeat && i < p->opt->source_count; i++) {
        for (size_t k = 0; k < m->source_count; k++) {
            uint64_t content = read[i].content;
            if (content != 0 && content == m->sources[k].content) {
                return refuse(p, i, m->sources[k].name, "with --resume keeps them", err);
            }
        }
        for (size_t k = 0; k < i; k++) {
            if (read[i].content != 0 && read[i].content == read[k].content) {
                return refuse(p, i, p->opt->sources[k], "with --resume keeps them", err);
            }
        }
    }
    return STATUS_OK;
}
