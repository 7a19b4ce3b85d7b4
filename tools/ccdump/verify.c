/*
 * ccdump verify: checks every byte of every shard, then the fingerprint of the whole; in a plain
 * tar every row and every image. Each fault is a line on stdout; the check continues.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/redact.h"
#include "formats/base/sort.h"
#include "formats/columns/columns.h"
#include "formats/dataset/dataset.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "formats/image/image_codec.h"
#include "formats/tokenizer/token_cache.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/ccdump/verify.h"
#include "tools/inspect/seal.h"

static const struct cli_option rows[] = {
    {"decode", 0, CLI_FLAG, CLI_FIELD(struct verify_options, decode),
     .help = "also decode every image and compare its format and size with the index (images of a "
             "plain tar are always decoded)"},
    {"sha256", 0, CLI_FLAG, CLI_FIELD(struct verify_options, sha256),
     .help =
         "print the dataset's SHA-256, as 'ccpack seal' does, for comparison with a published one"},
    {"seal", 0, CLI_STRING, CLI_FIELD(struct verify_options, seal), .metavar = "FILE",
     .help = "compare each file of the dataset with its SHA-256 in FILE, written by 'ccpack seal'"},
    {"jobs", 'j', CLI_U64, CLI_FIELD(struct verify_options, jobs), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N",
     .help = "worker threads; each checks its own shards; 0: one per CPU"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct verify_options, json),
     .help = "one JSON object per fault, and one for the result"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct verify_options, quiet), .help = "no progress"},
    CLI_REMOTE_ROWS(struct verify_options, remote),
};

static const struct cli_program program = {
    .name = "ccdump verify",
    .purpose = "reads and checks everything in a dataset, a shard or a plain tar",
    .usage = CLI_TEXTS("DIR|SHARD|TAR... [--decode] [--jobs N] [--json]",
                       "DIR [--sha256] [--seal FILE] [--json]"),
    CLI_OPTIONS(rows),
    .arguments = {1, CLI_MAX_ARGUMENTS},
    .examples = CLI_TEXTS("ccdump verify cc3m", "ccdump verify cc3m --decode --json"),
    .notes = CLI_TEXTS(
        "Each fault is printed on one line with shard, sample id, byte position and description, "
        "in shard order. The exit code is 0 without faults and 65 with faults.",
        "In a dataset, shards are checked against the manifest; a single shard is checked only "
        "against its own index and checksums.",
        "The checksums are XXH64, which detect damage but not forgery; use --sha256 or --seal for "
        "that.",
        "A shard that dataset.json does not list is reported, but is not a fault.",
        "In a dataset, the tokenizer is checked against the manifest, and every row of tokens.cct "
        "and of attached columns against its checksum.")};

enum status verify_fault_line(struct byte_buffer *out,
                              const struct verify_options *o,
                              const char *path,
                              const struct verify_fault *f,
                              struct error *err) {
    char shown[PATH_MAX_BYTES];
    (void)snprintf(shown, sizeof shown, "%s", path);
    (void)redact_locations(shown);
    path = shown;
    char told[1024];
    (void)snprintf(told, sizeof told, "%s", f->text);
    (void)redact_locations(told);
    size_t path_bytes = strlen(path);
    const char *text = told;
    if (strncmp(text, path, path_bytes) == 0 && strncmp(text + path_bytes, ": ", 2) == 0) {
        text += path_bytes + 2; /* the line already begins with the path */
    }
    if (o->json) {
        struct json_writer w;
        json_writer_init(&w, 0);
        json_open_object(&w, NULL);
        json_string(&w, "fault", text);
        json_location(&w, "path", path);
        if (f->shard) {
            json_string(&w, "shard", f->shard);
            json_u64(&w, "offset", f->offset);
        }
        if (f->id != SHARD_NO_SAMPLE) {
            json_u64(&w, "id", f->id);
        }
        json_close_object(&w);
        json_newline(&w);
        enum status s = json_writer_status(&w, err);
        THEN(s, byte_buffer_append(out, w.out.data, w.out.size_bytes, err));
        json_writer_fini(&w);
        return s;
    }
    char place[96] = "";
    int n = 0;
    if (f->id != SHARD_NO_SAMPLE) {
        n = snprintf(place, sizeof(place), "sample %" PRIu64 ": ", f->id);
    }
    if (f->shard) {
        snprintf(place + n, sizeof(place) - (size_t)n, "byte %" PRIu64 ": ", f->offset);
    }
    TRY(byte_buffer_append(out, path, path_bytes, err));
    TRY(byte_buffer_append(out, ": ", 2, err));
    TRY(byte_buffer_append(out, place, strlen(place), err));
    TRY(byte_buffer_append(out, text, strlen(text), err));
    return byte_buffer_append(out, "\n", 1, err);
}

static enum status print_fault(const struct verify_options *o,
                               const char *path,
                               const struct verify_fault *f,
                               struct error *err) {
    struct byte_buffer line = {0};
    enum status s = verify_fault_line(&line, o, path, f, err);
    THEN(s, cli_put(line.data, line.size_bytes, err));
    byte_buffer_fini(&line);
    return s;
}

/* The cheapest safe repair of each kind of damage. */
static void advise(char *out, size_t out_bytes, const char *path, unsigned damage) {
    size_t n = 0;
    const struct {
        unsigned damage;
        const char *before, *path, *after;
    } ways[] = {
        {VERIFY_DAMAGE_SHARD, "copy the damaged shards back, or pack them again", "", ""},
        {VERIFY_DAMAGE_FOREIGN, "'ccpack index --overwrite' indexes the tars again", "", ""},
        {VERIFY_DAMAGE_REBUILT, "'ccpack repair ", path, "' rebuilds what shards prove"},
    };
    out[0] = '\0';
    for (size_t i = 0; i < CLI_COUNT(ways) && n < out_bytes; i++) {
        if ((damage & ways[i].damage) != 0) {
            n += (size_t)snprintf(out + n, out_bytes - n, "%s%s%.80s%s", n == 0 ? ": " : "; ",
                                  ways[i].before, ways[i].path, ways[i].after);
        }
    }
}

static enum status report(const struct verify_options *o,
                          const char *path,
                          const struct verify_result *r,
                          struct error *err) {
    if (o->json) {
        struct json_writer w;
        cli_begin_json(&w);
        json_location(&w, "path", path);
        json_bool(&w, "ok", r->faults == 0);
        json_u64(&w, "faults", r->faults);
        json_u64(&w, "samples", r->samples);
        json_u64(&w, "shards", r->shards);
        json_u64(&w, "bytes", r->bytes);
        json_u64(&w, "unlisted_shards", r->unlisted);
        if (r->has_fingerprint) {
            json_hex64(&w, "fingerprint", r->fingerprint);
        } else {
            json_null(&w, "fingerprint");
        }
        TRY(cli_end_json(&w, err));
    } else if (r->faults == 0) {
        const char *fingerprint =
            r->has_fingerprint ? cli_format(", fingerprint %016" PRIx64, r->fingerprint) : "";
        cli_print(
            stdout, "%s: ok: %s in %s, %s%s\n", path, cli_format_counted(r->samples, "sample"),
            cli_format_counted(r->shards, r->files_are), cli_format_bytes(r->bytes), fingerprint);
    }
    if (r->faults > 0) {
        char advice[240] = "";
        if (r->has_fingerprint) {
            advise(advice, sizeof(advice), path, r->damage);
        }
        return error_set(err, STATUS_CORRUPT, "%s: %s found%s", path,
                         cli_format_counted(r->faults, "fault"), advice);
    }
    return STATUS_OK;
}

/* ---- a dataset or a shard -------------------------------------------------------------------- */

static enum status interrupted(const char *path, struct error *err) {
    return error_set(err, STATUS_INTERRUPTED, "interrupted in %s", path);
}

/* If the manifest counts no removed sample in a shard, there must be none. */
static enum status
check_removed(const struct dataset *d, const struct manifest *m, struct error *why) {
    for (size_t i = 0; i < m->removed.count; i++) {
        struct dataset_sample sample;
        enum status s = dataset_find(d, m->removed.ids[i], &sample, why);
        if (s != STATUS_NOTFOUND) {
            return s != STATUS_OK ? s
                                  : error_set(why, STATUS_CORRUPT,
                                              "sample %" PRIu64 " was removed, but is in a shard",
                                              m->removed.ids[i]);
        }
    }
    return STATUS_OK;
}

/* Faults of the whole dataset: an id in two shards, another fingerprint. */
static enum status
check_whole(const char *path, const struct manifest *m, unsigned *damage, struct error *why) {
    struct dataset *d = NULL;
    uint64_t fingerprint = 0;
    *damage = VERIFY_DAMAGE_SHARD;
    enum status s = dataset_open(&d, path, NULL, why);
    THEN(s, dataset_compute_fingerprint(d, &fingerprint, why));
    if (s == STATUS_OK && m->removed.samples == 0) {
        s = check_removed(d, m, why);
    }
    dataset_close(d);
    if (s == STATUS_OK && fingerprint != m->fingerprint) {
        *damage = VERIFY_DAMAGE_REBUILT;
        s = error_set(why, STATUS_CORRUPT,
                      "the samples have the fingerprint %016" PRIx64 ", " MANIFEST_NAME
                      " records %016" PRIx64,
                      fingerprint, m->fingerprint);
    }
    return s;
}

static enum status
check_tokenizer(const char *path, const struct manifest *m, unsigned *damage, struct error *why) {
    struct tokenizer *t = NULL;
    *damage = VERIFY_DAMAGE_TOKENIZER;
    TRY(dataset_tokenizer_open(&t, path, m, file_system_of(path), why));
    tokenizer_close(t);
    return STATUS_OK;
}

/* Checks every row of the token cache made with the tokenizer. A cache of another tokenizer or
 * another state of the dataset is not a fault, because nothing uses it. */
static enum status
check_tokens(const char *path, const struct manifest *m, unsigned *damage, struct error *why) {
    struct dataset *d = NULL;
    struct error cache_why = {0};
    *damage = VERIFY_DAMAGE_REBUILT;
    TRY(dataset_open(&d, path, NULL, why));
    enum status s = STATUS_OK;
    const struct token_cache *c = dataset_token_cache(d, &cache_why);
    if (!c && cache_why.status != STATUS_NOTFOUND) {
        s = error_set(why, cache_why.status, "%s", cache_why.text);
    } else if (c && damage_cache_is_of(c, m)) {
        s = damage_cache_rows(c, why);
    }
    dataset_close(d);
    return s;
}

/* Checks every row of every column, and that columns belong to this dataset. */
static enum status
check_columns(const char *path, const struct manifest *m, unsigned *damage, struct error *why) {
    struct column_names names;
    *damage = VERIFY_DAMAGE_COLUMN;
    enum status s = column_names_read(&names, file_system_of(path), path, why);
    for (size_t i = 0; s == STATUS_OK && i < names.count; i++) {
        struct column *c = NULL;
        s = column_open(&c, file_system_of(path), path, names.items[i], m, why);
        THEN(s, column_verify(c, why));
        column_close(c);
    }
    RETURN_IF(s != STATUS_OK, s);
    s = column_list_mend(file_system_of(path), path, NULL, false, why);
    return s == STATUS_NOTFOUND ? STATUS_OK : s; /* of an older program */
}

/* Counts and lists shards in the directory that are not in the manifest; they are harmless. */
static enum status find_unlisted(const struct verify_options *o,
                                 const char *path,
                                 const struct manifest *m,
                                 struct verify_result *r,
                                 struct error *err) {
    const struct file_system *fs = file_system_of(path);
    struct byte_buffer names;
    const char *first = NULL;
    const char **listed = malloc((m->shard_count + 1) * sizeof(*listed));
    TRY_MEMORY(listed, err, "%s: out of memory", path);
    for (size_t i = 0; i < m->shard_count; i++) {
        listed[i] = m->shards[i].name;
    }
    if (m->shard_count > 0) {
        qsort(listed, m->shard_count, sizeof(*listed), compare_text);
    }
    byte_buffer_init(&names, 0);
    const enum status s = fs->list(fs->context, path, &names, err);
    for (size_t at = 0; s == STATUS_OK && at < names.size_bytes;) {
        const char *name = (const char *)names.data + at;
        at += strlen(name) + 1;
        if (bsearch(&name, listed, m->shard_count, sizeof(name), compare_text) ||
            !input_is_shard(path, name)) {
            continue;
        }
        r->unlisted++;
        first = first && strcmp(first, name) < 0 ? first : name;
    }
    if (first && !o->json) {
        cli_print(stderr,
                  "%s: warning: %s contains %" PRIu64 " shard%s that " MANIFEST_NAME
                  " does not list (unused): %s%s%s\n",
                  program.name, path, r->unlisted, r->unlisted == 1 ? "" : "s", first,
                  r->unlisted == 1 ? "" : ", ...",
                  m->removed.count > 0 ? "; 'ccpack compact' deletes what it left over" : "");
    }
    byte_buffer_fini(&names);
    free(listed);
    return s;
}

static enum status
verify_dataset(const struct verify_options *o, const char *path, struct error *err) {
    static enum status (*const checks[])(const char *path, const struct manifest *m,
                                         unsigned *damage, struct error *why) = {
        check_whole, check_tokenizer, check_tokens, check_columns};
    struct manifest m;
    struct error bad = {0};
    enum status s = manifest_read(&m, file_system_of(path), path, &bad);
    FAIL_IF(s != STATUS_OK, err, s, "%s%s", bad.text,
            s == STATUS_CORRUPT ? "; 'ccpack repair' rebuilds it from the shards" : "");
    struct verify_result r = {.has_fingerprint = true,
                              .fingerprint = m.fingerprint,
                              .shards = m.shard_count,
                              .bytes = m.bytes,
                              .files_are = "shard"};
    s = verify_shards(o, path, &m, &r, err);
    const bool whole = r.faults == 0; /* the checks below require the manifest's shards */
    for (size_t i = 0; s == STATUS_OK && whole && i < CLI_COUNT(checks); i++) {
        struct error why = {0};
        unsigned damage = 0;
        s = cli_interrupted() ? interrupted(path, &why) : checks[i](path, &m, &damage, &why);
        if (damage_is(s)) {
            r.faults++;
            r.damage |= damage;
            s = print_fault(o, path, &(struct verify_fault){SHARD_NO_SAMPLE, .text = why.text},
                            err);
        } else if (s != STATUS_OK) {
            *err = why;
        }
    }
    THEN(s, find_unlisted(o, path, &m, &r, err));
    manifest_fini(&m);
    return s == STATUS_OK ? report(o, path, &r, err) : s;
}

static uint64_t file_bytes(const char *path) {
    struct stat info;
    return strcmp(path, "-") != 0 && stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static enum status
verify_shard(const struct verify_options *o, const char *path, struct error *err) {
    struct verify_result r = {.shards = 1, .bytes = file_bytes(path), .files_are = "shard"};
    TRY(verify_shards(o, path, NULL, &r, err));
    return report(o, path, &r, err);
}

/* ---- a plain tar ----------------------------------------------------------------------------- */

static enum status check_row(struct image_decoder *d,
                             struct input *in,
                             const struct sample_facts *f,
                             struct error *why) {
    struct sample_content content;
    struct image_view view;
    struct image_decode_options check = {.check_only = true};
    FAIL_IF(f->problem, why, STATUS_CORRUPT, "%s", f->problem);
    TRY(input_read(in, &content, why));
    return image_decode(d, &view, NULL, content.image, f->image_bytes, &check, why);
}

static enum status verify_rows(const struct verify_options *o,
                               const char *path,
                               struct input *in,
                               struct image_decoder *d,
                               struct verify_result *r,
                               struct error *err) {
    struct cli_progress progress;
    struct sample_facts f;
    enum status s = STATUS_OK;
    cli_progress_init(&progress, "rows", o->quiet);
    while (s == STATUS_OK && !cli_interrupted()) {
        struct error why = {0};
        struct verify_fault fault = {.id = SHARD_NO_SAMPLE, .text = why.text};
        s = input_next(in, &f, &why);
        bool damaged = s == STATUS_CORRUPT; /* the tar itself: nothing can be read after it */
        if (s == STATUS_OK) {
            fault = (struct verify_fault){f.id, f.offset, f.file, why.text};
            s = check_row(d, in, &f, &why);
            r->samples += s == STATUS_OK;
        }
        if (damage_is(s) && s != STATUS_END) {
            cli_progress_clear(&progress);
            r->faults++;
            s = print_fault(o, path, &fault, err);
            s = damaged && s == STATUS_OK ? STATUS_END : s;
        } else if (s < STATUS_OK && err) {
            *err = why;
        }
        cli_progress_update(&progress, f.position + 1, 0, 0, NULL);
    }
    cli_progress_clear(&progress);
    if (s == STATUS_OK) {
        return interrupted(path, err);
    }
    return s == STATUS_END ? STATUS_OK : s;
}

static enum status verify_tar(const struct verify_options *o, const char *path, struct error *err) {
    struct verify_result r = {.shards = 1, .bytes = file_bytes(path), .files_are = "tar"};
    struct input *in = NULL;
    struct image_decoder *d = NULL;
    TRY(input_open(&in, path, err));
    enum status s = image_decoder_create(&d, NULL, err);
    THEN(s, verify_rows(o, path, in, d, &r, err));
    image_decoder_destroy(d);
    input_close(in);
    return s == STATUS_OK ? report(o, path, &r, err) : s;
}

/* ---- SHA-256 --------------------------------------------------------------------------------- */

/* The next line of a seal, with the name after 64 digits and two spaces; NULL: none. */
static char *next_line(char **text) {
    char *line = *text;
    char *end = strchr(line, '\n');
    if (end) {
        *end = '\0';
    }
    *text = end ? end + 1 : line + strlen(line);
    return strlen(line) > SHA256_HEX_BYTES + 1 ? line : NULL;
}

/* Prints a fault for each file that is only in one of the lists, or differs. */
static enum status compare_seals(const struct verify_options *o,
                                 const char *path,
                                 char *want,
                                 char *have,
                                 uint64_t *faults,
                                 struct error *err) {
    enum { NAME = SHA256_HEX_BYTES + 1 };
    char *w = next_line(&want);
    char *h = next_line(&have);
    while (w || h) {
        const int order = !w ? 1 : !h ? -1 : strcmp(w + NAME, h + NAME);
        if (order != 0 || strcmp(w, h) != 0) {
            struct error why = {0};
            error_set(&why, STATUS_CORRUPT, "%.200s: %s", (order > 0 ? h : w) + NAME,
                      order > 0   ? "is not in the seal"
                      : order < 0 ? "is in the seal, but not in the dataset"
                                  : "differs from the seal");
            ++*faults;
            TRY(print_fault(o, path, &(struct verify_fault){SHARD_NO_SAMPLE, .text = why.text},
                            err));
        }
        w = order <= 0 ? next_line(&want) : w;
        h = order >= 0 ? next_line(&have) : h;
    }
    return STATUS_OK;
}

static enum status
verify_sha256(const struct verify_options *o, const char *path, struct error *err) {
    struct byte_buffer lines = {0};
    struct byte_buffer seal = {0};
    char root[SHA256_HEX_BYTES];
    uint64_t faults = 0;
    enum status s =
        o->seal ? file_read_all(file_posix(), &seal, o->seal, SEAL_MAX_BYTES, err) : STATUS_OK;
    THEN(s, seal_make(&lines, root, path, err));
    if (s == STATUS_OK && o->sha256) {
        struct json_writer w;
        json_writer_init(&w, 0);
        json_open_object(&w, NULL);
        json_string(&w, "path", path);
        json_string(&w, "sha256", root);
        json_close_object(&w);
        s = o->json ? cli_put_json(&w, err) : STATUS_OK;
        json_writer_fini(&w);
        if (!o->json) {
            cli_print(stdout, "%s: sha256 %s\n", path, root);
        }
    }
    if (s == STATUS_OK && o->seal) {
        s = byte_buffer_append(&lines, "", 1, err);
        THEN(s, compare_seals(o, path, (char *)seal.data, (char *)lines.data, &faults, err));
    }
    byte_buffer_fini(&lines);
    byte_buffer_fini(&seal);
    FAIL_IF(s == STATUS_OK && faults > 0, err, STATUS_CORRUPT,
            "%s: %" PRIu64 " file%s not as in %s", path, faults, faults == 1 ? " is" : "s are",
            o->seal);
    return s;
}

/* ---- each argument --------------------------------------------------------------------------- */

static enum status verify(const struct verify_options *o, const char *path, struct error *err) {
    enum input_kind kind = INPUT_TAR;
    TRY(input_kind_of(&kind, path, err));
    if (o->sha256 || o->seal) {
        FAIL_IF(kind != INPUT_DATASET, err, STATUS_USAGE,
                "%s: --sha256 and --seal apply to datasets", path);
        TRY(verify_sha256(o, path, err));
    }
    return kind == INPUT_DATASET ? verify_dataset(o, path, err)
           : kind == INPUT_SHARD ? verify_shard(o, path, err)
                                 : verify_tar(o, path, err);
}

/* Checks every argument, even after one with faults. */
static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct verify_options *o = options;
    enum status worst = STATUS_OK;
    samples_signals();
    TRY(remote_choice_use(&o->remote, err));
    for (size_t i = 0; i < a->count && worst != STATUS_INTERRUPTED; i++) {
        struct error why = {0};
        const enum status s =
            cli_interrupted() ? interrupted(a->items[i], &why) : verify(o, a->items[i], &why);
        if (s == STATUS_OK) {
            continue;
        }
        if (worst != STATUS_OK) {
            cli_exit(&program, worst, err);
        }
        worst = s;
        *err = why;
    }
    return worst;
}

CLI_MAIN(ccdump_verify, program, struct verify_options, run)
