/*
 * ccdump verify: every byte of every shard, then the fingerprint of the whole. Faults go to stdout,
 * one line each, and do not stop the check.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tools/ccdump_internal.h"

struct options {
    bool json;
    bool quiet;
};

static const struct cli_option rows[] = {
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json),
     .help = "one JSON object per fault, and one with the result"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "no progress"},
};

static const struct cli_program program = {
    .name = "ccdump verify",
    .purpose = "reads and checks everything in a dataset",
    .usage = (const char *const[]){"DIR... [--json]", NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = CLI_MAX_ARGUMENTS,
};

struct check {
    const struct options *options;
    struct cli_progress progress;
    struct json_writer json;
    const char *directory;
    const char *shard; /* file name, or NULL while the whole is looked at */
    uint64_t faults;
    uint64_t done_bytes, total_bytes;
    struct error output; /* stdout's failure, which ends the check */
};

static void print_fault(const struct check *c, uint64_t id, uint64_t offset, const char *text) {
    if (c->shard) {
        printf("%s/%s: ", c->directory, c->shard);
    } else {
        printf("%s: ", c->directory);
    }
    if (id != SHARD_NO_SAMPLE) {
        printf("sample %" PRIu64 ": ", id);
    }
    if (c->shard) {
        printf("byte %" PRIu64 ": ", offset);
    }
    printf("%s\n", text);
}

static void on_fault(void *cookie, uint64_t id, uint64_t offset, const char *text) {
    struct check *c = cookie;
    c->faults++;
    cli_progress_clear(&c->progress);
    if (!c->options->json) {
        print_fault(c, id, offset, text);
        return;
    }
    json_open_object(&c->json, NULL);
    json_string(&c->json, "fault", text);
    if (c->shard) {
        json_string(&c->json, "shard", c->shard);
        json_u64(&c->json, "offset", offset);
    }
    if (id != SHARD_NO_SAMPLE) {
        json_u64(&c->json, "id", id);
    }
    json_close_object(&c->json);
    ccdump_put_json(&c->json, &c->output);
}

static bool on_progress(void *cookie, uint64_t bytes) {
    struct check *c = cookie;
    c->done_bytes += bytes;
    cli_progress_update(&c->progress, c->done_bytes >> 20, c->total_bytes >> 20, c->done_bytes,
                        c->shard);
    return !cli_interrupted() && c->output.status == STATUS_OK;
}

/* A file that is missing or refuses to be read is a fault of the dataset as well. */
static bool is_fault(enum status s) {
    return s != STATUS_NOMEM && s != STATUS_INTERRUPTED && s != STATUS_INVALID;
}

static enum status verify_shards(struct check *c, const struct manifest *m, struct error *err) {
    char path[PATH_MAX_BYTES];
    for (size_t i = 0; i < m->shard_count; i++) {
        struct shard_verify how = {
            .expected = &m->shards[i],
            .fault = on_fault,
            .progress = on_progress,
            .cookie = c,
        };
        struct error why = {0};
        uint64_t before = c->faults;
        c->shard = m->shards[i].name;
        TRY(path_join(path, sizeof(path), c->directory, c->shard, err));
        enum status s = shard_verify(file_posix(), path, &how, &why);
        if (s != STATUS_OK && !is_fault(s)) {
            *err = why;
            return s;
        }
        if (s != STATUS_OK && c->faults == before) {
            on_fault(c, SHARD_NO_SAMPLE, 0, why.text);
        }
    }
    c->shard = NULL;
    return STATUS_OK;
}

/* What only the dataset as a whole can have wrong: ids in two shards, another fingerprint. */
static enum status verify_whole(struct check *c, const struct manifest *m, struct error *err) {
    struct dataset *d = NULL;
    struct error why = {0};
    uint64_t fingerprint = 0;
    enum status s = dataset_open(&d, c->directory, NULL, &why);
    if (s == STATUS_OK) {
        s = dataset_compute_fingerprint(d, &fingerprint, &why);
    }
    dataset_close(d);
    if (s != STATUS_OK && !is_fault(s)) {
        *err = why;
        return s;
    }
    if (s == STATUS_OK && fingerprint != m->fingerprint) {
        s = error_set(&why, STATUS_CORRUPT,
                      "the samples have the fingerprint %016" PRIx64 ", " MANIFEST_NAME
                      " says %016" PRIx64,
                      fingerprint, m->fingerprint);
    }
    if (s != STATUS_OK) {
        on_fault(c, SHARD_NO_SAMPLE, 0, why.text);
    }
    return STATUS_OK;
}

static enum status report(struct check *c, const struct manifest *m, struct error *err) {
    char samples[CLI_TEXT_BYTES];
    char bytes[CLI_TEXT_BYTES];
    cli_progress_clear(&c->progress);
    if (c->options->json) {
        json_open_object(&c->json, NULL);
        json_string(&c->json, "dataset", c->directory);
        json_bool(&c->json, "ok", c->faults == 0);
        json_u64(&c->json, "faults", c->faults);
        json_u64(&c->json, "samples", m->samples);
        json_u64(&c->json, "shards", m->shard_count);
        json_u64(&c->json, "bytes", m->bytes);
        json_hex64(&c->json, "fingerprint", m->fingerprint);
        json_close_object(&c->json);
        TRY(ccdump_put_json(&c->json, err));
    } else if (c->faults == 0) {
        printf("%s: ok: %s samples in %zu shard%s, %s, fingerprint %016" PRIx64 "\n", c->directory,
               cli_format_count(samples, m->samples), m->shard_count,
               m->shard_count == 1 ? "" : "s", cli_format_bytes(bytes, m->bytes), m->fingerprint);
    }
    if (c->faults > 0) {
        return error_set(err, STATUS_CORRUPT, "%s: %" PRIu64 " fault%s found: pack it again",
                         c->directory, c->faults, c->faults == 1 ? "" : "s");
    }
    return STATUS_OK;
}

static enum status verify(const struct options *o, const char *directory, struct error *err) {
    struct manifest m;
    struct check c = {.options = o, .directory = directory};
    TRY(manifest_read(&m, file_posix(), directory, err));
    json_writer_init(&c.json, 0);
    cli_progress_init(&c.progress, "MiB", o->quiet);
    c.total_bytes = 2 * m.bytes; /* once for the hash of the file, once for what is in it */
    enum status s = verify_shards(&c, &m, err);
    if (s == STATUS_OK && c.faults == 0) {
        s = verify_whole(&c, &m, err);
    }
    if (s == STATUS_OK && c.output.status != STATUS_OK) {
        *err = c.output;
        s = c.output.status;
    }
    if (s == STATUS_OK) {
        s = report(&c, &m, err);
    }
    cli_progress_clear(&c.progress);
    json_writer_fini(&c.json);
    manifest_fini(&m);
    return s;
}

int ccdump_verify(int argc, char **argv) {
    struct options o;
    struct cli_arguments a;
    struct error err = {0};
    enum status worst = cli_parse(&program, &o, &a, argc, argv, &err);
    if (worst != STATUS_OK) {
        return cli_exit(&program, worst, &err);
    }
    cli_signals_install();
    int code = 0;
    for (size_t i = 0; i < a.count && !cli_interrupted(); i++) {
        err = (struct error){0};
        enum status s = verify(&o, a.items[i], &err);
        if (s == STATUS_OK) {
            s = ccdump_flush(&err);
        }
        int one = cli_exit(&program, s, &err);
        code = one != 0 ? one : code;
    }
    cli_arguments_fini(&a);
    return code;
}
