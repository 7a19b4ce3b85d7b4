/*
 * ccpack repair: rebuilds what can be derived from a dataset's shards.
 *
 *     shard, whole --index--> sidecar             the same bytes
 *     all indexes --> dataset.json, if a fingerprint proves that no shard is missing
 *     captions, tokenizer --> tokens.cct          the same bytes
 *     columns --> columns/names.txt               the same bytes
 *
 * Nothing is written before all shards are read. Files are replaced atomically: sidecars first,
 * then the manifest, then the token cache.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "formats/columns/columns.h"
#include "formats/dataset/dataset.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "formats/shard/shard_reader.h"
#include "formats/tokenizer/token_cache.h"
#include "pack/pack.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/inspect/damage.h"
#include "tools/inspect/input.h"

struct options {
    const char *fingerprint;
    bool dry_run;
    bool json;
    bool quiet;
};

static const struct cli_option rows[] = {
    {"fingerprint", 0, CLI_STRING, CLI_FIELD(struct options, fingerprint), .metavar = "HEX",
     .help = "the dataset fingerprint, as printed by ccpack and recorded in checkpoints; proves "
             "that no shard is missing if dataset.json is lost"},
    {"dry-run", 0, CLI_FLAG, CLI_FIELD(struct options, dry_run),
     .help = "only report what would be rebuilt"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json),
     .help = "one JSON object per file, and one for the result"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "no progress"},
};

static const struct cli_program program = {
    .name = "ccpack repair",
    .purpose =
        "rebuilds the manifest, the sidecars and the token cache of a dataset from its shards",
    .usage = CLI_TEXTS("DIR [--fingerprint HEX] [--dry-run] [--json]"),
    CLI_OPTIONS(rows),
    .arguments = {1, 1},
    .examples = CLI_TEXTS("ccdump verify cc3m || ccpack repair cc3m"),
    .notes = CLI_TEXTS(
        "Sidecars, tokens.cct and columns/names.txt are restored byte-identically. dataset.json is "
        "rebuilt with the same meaning: readable parts are kept; unreadable sources, options and "
        "class names (not needed for reading) and earlier generations are lost.",
        "These are not repaired, and the reason is reported: shards (the only copy of their "
        "samples), tokenizers, indexes of tars in place ('ccpack index --overwrite' rewrites "
        "them), a manifest without proof that no shard is missing, and directories with an "
        "unfinished run.",
        "Proof is the fingerprint in the damaged dataset.json, in tokens.cct or in --fingerprint.",
        "The exit code is 0 if the dataset is intact afterwards, and 65 if something could not be "
        "repaired.")};

struct repair {
    const struct options *o;
    const struct file_system *fs;
    const char *directory;
    struct manifest old; /* its readable part */
    struct manifest_salvaged read;
    bool whole;               /* `old` is consistent */
    bool entries_right;       /* `old` lists every shard as it is */
    struct byte_buffer names; /* of the shards, NUL-terminated, in the order of the manifest */
    struct manifest now;
    struct manifest_removed present; /* counts of removed samples that are in shards */
    uint64_t *sidecars;              /* (now.shard_count) bits: the sidecar is wrong */
    uint64_t rebuilt, refused;
    struct json_writer w;
    struct cli_progress progress;
};

/* ---- reports --------------------------------------------------------------------------------- */

static enum status say(struct repair *r,
                       const char *file,
                       const char *problem,
                       const char *action,
                       struct error *err) {
    cli_progress_clear(&r->progress);
    if (r->o->json) {
        json_open_object(&r->w, NULL);
        json_string(&r->w, "file", file);
        json_string(&r->w, "problem", problem);
        json_string(&r->w, "action", action);
        json_close_object(&r->w);
        return cli_put_json(&r->w, err);
    }
    cli_print(stdout, "%s/%s: %s: %s\n", r->directory, file, action, problem);
    return STATUS_OK;
}

static enum status
say_rebuilt(struct repair *r, const char *file, const char *problem, struct error *err) {
    r->rebuilt++;
    return say(r, file, problem, r->o->dry_run ? "would be rebuilt" : "rebuilt", err);
}

static enum status
say_refused(struct repair *r, const char *file, const char *why, struct error *err) {
    r->refused++;
    return say(r, file, why, "refused", err);
}

/* ---- which files ----------------------------------------------------------------------------- */

/* Without a list: the names of the directory's shards, sorted. */
static enum status list_shards(struct repair *r, struct error *err) {
    struct byte_buffer all = {0};
    const char **sorted = NULL;
    size_t count = 0;
    byte_buffer_init(&all, 0);
    enum status s = r->fs->list(r->fs->context, r->directory, &all, err);
    for (size_t at = 0; s == STATUS_OK && at < all.size_bytes; count++) {
        at += strlen((const char *)all.data + at) + 1;
    }
    sorted = malloc((count + 1) * sizeof(*sorted));
    if (s == STATUS_OK && !sorted) {
        s = error_set(err, STATUS_NOMEM, "%s: out of memory for %zu names", r->directory, count);
    }
    count = 0;
    for (size_t at = 0; s == STATUS_OK && at < all.size_bytes;) {
        const char *name = (const char *)all.data + at;
        at += strlen(name) + 1;
        if (input_is_shard(r->directory, name)) {
            sorted[count++] = name;
        }
    }
    if (s == STATUS_OK && count > 1) {
        qsort(sorted, count, sizeof(*sorted), compare_text);
    }
    for (size_t i = 0; s == STATUS_OK && i < count; i++) {
        s = byte_buffer_append(&r->names, sorted[i], strlen(sorted[i]) + 1, err);
    }
    free(sorted);
    byte_buffer_fini(&all);
    return s;
}

static enum status find_shards(struct repair *r, struct error *err) {
    if (!r->read.shards) {
        return list_shards(r, err);
    }
    for (size_t i = 0; i < r->old.shard_count; i++) {
        const char *name = r->old.shards[i].name;
        TRY(byte_buffer_append(&r->names, name, strlen(name) + 1, err));
    }
    return STATUS_OK;
}

static enum status read_old(struct repair *r, struct error *why, struct error *err) {
    enum status s = manifest_read(&r->old, r->fs, r->directory, why);
    r->whole = s == STATUS_OK;
    if (r->whole) {
        r->read = (struct manifest_salvaged){true, true, true, true, true, true};
        return STATUS_OK;
    }
    FAIL_IF(s != STATUS_CORRUPT && s != STATUS_NOTFOUND, err, s, "%s", why->text);
    s = manifest_salvage(&r->old, &r->read, r->fs, r->directory, err);
    return s == STATUS_CORRUPT || s == STATUS_NOTFOUND ? STATUS_OK : s;
}

/* ---- one shard ------------------------------------------------------------------------------- */

struct shard_check {
    struct error first; /* fault of the shard itself */
};

static void on_fault(void *cookie,
                     enum shard_part part,
                     uint64_t sample_id,
                     uint64_t offset,
                     const char *text) {
    struct shard_check *c = cookie;
    (void)sample_id;
    (void)offset;
    if (part == SHARD_PART_SHARD && c->first.status == STATUS_OK) {
        (void)error_set(&c->first, STATUS_CORRUPT, "%s", text);
    }
}

static bool on_progress(void *cookie, uint64_t bytes) {
    (void)cookie;
    (void)bytes;
    return !cli_interrupted();
}

static bool same_shard(const struct shard_summary *a, const struct shard_summary *b) {
    return strcmp(a->name, b->name) == 0 && a->size_bytes == b->size_bytes && a->hash == b->hash &&
           a->index_hash == b->index_hash && a->sample_count == b->sample_count &&
           a->text_count == b->text_count && a->image_bytes == b->image_bytes &&
           a->first_id == b->first_id && a->last_id == b->last_id;
}

/* A shard that the manifest does not describe must pass the check of every byte. */
static enum status prove_shard(const char *path, struct error *err) {
    struct shard_check c = {.first = {0}};
    struct shard_verify how = {.fault = on_fault, .progress = on_progress, .cookie = &c};
    enum status s = shard_verify(file_posix(), path, &how, err);
    if (s != STATUS_OK && s != STATUS_CORRUPT) {
        return s;
    }
    return c.first.status == STATUS_OK ? STATUS_OK
                                       : error_set(err, STATUS_CORRUPT, "%s", c.first.text);
}

static enum status
check_sidecar(bool *right, struct repair *r, const struct shard_reader *reader, const char *path) {
    struct byte_buffer bytes = {0};
    char sidecar[PATH_MAX_BYTES];
    size_t size = 0;
    const void *index = shard_reader_index(reader, &size);
    *right = false;
    if (shard_index_name(sidecar, sizeof(sidecar), path, NULL) == STATUS_OK &&
        file_read_all(r->fs, &bytes, sidecar, size, NULL) == STATUS_OK) {
        *right = bytes.size_bytes == size && memcmp(bytes.data, index, size) == 0;
        byte_buffer_fini(&bytes);
    }
    return STATUS_OK;
}

static enum status count_removed(struct repair *r, struct shard_reader *reader, struct error *err) {
    for (uint32_t i = 0; r->old.removed.count > 0 && i < shard_reader_sample_count(reader); i++) {
        struct shard_record record;
        TRY(shard_reader_record(reader, i, &record, err));
        if (manifest_is_removed(&r->old, record.sample_id)) {
            r->present.samples++;
            r->present.texts += record.text_count;
            r->present.image_bytes += record.image_bytes;
        }
    }
    return STATUS_OK;
}

/* Adds the shard to the new manifest. CORRUPT: it is damaged. */
static enum status
take_shard(struct repair *r, const char *name, bool *sidecar_right, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct shard_reader *reader = NULL;
    struct shard_summary summary;
    const size_t number = r->now.shard_count;
    TRY(path_join(path, sizeof(path), r->directory, name, err));
    TRY(shard_reader_open(&reader, r->fs, path, err));
    enum status s = shard_reader_summary(reader, &summary, err);
    THEN(s, check_sidecar(sidecar_right, r, reader, path));
    THEN(s, count_removed(r, reader, err));
    const enum shard_container container = shard_reader_container(reader);
    shard_reader_close(reader);
    TRY(s);
    if (number == 0) {
        r->now.container = container;
    } else if (container != r->now.container) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: is of another container than the shards before it", path);
    }
    if (!r->read.shards || !same_shard(&summary, &r->old.shards[number])) {
        r->entries_right = false;
        TRY(prove_shard(path, err));
    }
    return manifest_add_shard(&r->now, &summary, err);
}

static enum status take_shards(struct repair *r, struct error *err) {
    const char *names = (const char *)r->names.data;
    size_t count = 0;
    for (size_t at = 0; at < r->names.size_bytes; at += strlen(names + at) + 1) {
        count++;
    }
    r->sidecars = calloc(count / 64 + 1, sizeof(*r->sidecars));
    TRY_MEMORY(r->sidecars, err, "%s: out of memory", r->directory);
    r->entries_right = r->read.shards;
    for (size_t at = 0; at < r->names.size_bytes; at += strlen(names + at) + 1) {
        struct error why = {0};
        bool right = false;
        const size_t i = r->now.shard_count;
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "interrupted; nothing was changed");
        enum status s = take_shard(r, names + at, &right, &why);
        if (damage_is(s)) {
            TRY(say_refused(r, names + at, why.text, err));
            return error_set(err, STATUS_CORRUPT, "%s/%s: %s; nothing was changed", r->directory,
                             names + at,
                             r->old.container == SHARD_CONTAINER_TAR_FOREIGN
                                 ? "'ccpack index --overwrite' indexes the tars again"
                                 : "no other file has its samples: copy it back or pack again");
        }
        if (s != STATUS_OK) {
            *err = why;
            return s;
        }
        r->sidecars[i / 64] |= (uint64_t)!right << i % 64;
        cli_progress_update(&r->progress, i + 1, count, 0, NULL);
    }
    return STATUS_OK;
}

/* ---- the manifest ---------------------------------------------------------------------------- */

/* Moves what could be read of the old manifest to the new one. */
static void keep_old(struct repair *r) {
    struct manifest *from = &r->old;
    struct manifest *to = &r->now;
    to->id_space = from->id_space; /* at least; sealing raises it to the largest id + 1 */
    to->sources = from->sources;
    to->source_count = from->source_count;
    to->options = from->options;
    to->option_count = from->option_count;
    to->classes = from->classes;
    to->class_count = from->class_count;
    to->tokenizer = from->tokenizer;
    to->removed = r->present;
    to->removed.ids = from->removed.ids;
    to->removed.at = from->removed.at;
    to->removed.count = from->removed.count;
    to->generations = from->generations;
    to->generation_count = from->generation_count;
    from->sources = NULL;
    from->options = NULL;
    from->classes = NULL;
    from->generations = NULL;
    from->source_count = from->option_count = from->class_count = from->generation_count = 0;
    memset(&from->tokenizer, 0, sizeof(from->tokenizer));
    memset(&from->removed, 0, sizeof(from->removed));
}

/* The tokenizer in the directory, if the manifest that recorded it is lost. */
static enum status find_tokenizer(struct repair *r, struct error *err) {
    struct tokenizer *t = NULL;
    if (r->now.tokenizer.file ||
        dataset_tokenizer_open(&t, r->directory, &r->now, r->fs, NULL) != STATUS_OK || !t) {
        return STATUS_OK;
    }
    enum status s =
        manifest_set_tokenizer(&r->now, DATASET_TOKENIZER_NAME,
                               tokenizer_kind_name(tokenizer_kind(t)), tokenizer_hash(t), err);
    tokenizer_close(t);
    return s;
}

static struct token_cache *open_cache(const struct repair *r, struct error *why) {
    char path[PATH_MAX_BYTES];
    struct token_cache *c = NULL;
    if (path_join(path, sizeof(path), r->directory, TOKEN_CACHE_NAME, why) == STATUS_OK) {
        (void)token_cache_open(&c, path, r->fs, why);
    }
    return c;
}

/* Whether something records that these samples, and no others, are the dataset. */
static enum status
is_proved(bool *out, const struct repair *r, uint64_t fingerprint, struct error *err) {
    const size_t last = r->now.generation_count;
    const bool listed = r->entries_right && r->read.removed && r->now.removed.count == 0;
    *out = listed || (r->read.fingerprint && r->old.fingerprint == fingerprint) ||
           (r->now.generations && r->now.generations[last].fingerprint == fingerprint);
    if (r->o->fingerprint) {
        const uint64_t given = strtoull(r->o->fingerprint, NULL, 16);
        FAIL_IF(given != fingerprint, err, STATUS_MISMATCH,
                "%s: its samples have the fingerprint %016" PRIx64 ", not %016" PRIx64
                ": a shard is missing or does not belong to it",
                r->directory, fingerprint, given);
        *out = true;
    }
    struct token_cache *c = *out ? NULL : open_cache(r, NULL);
    if (c) {
        *out = token_cache_key(c)->fingerprint == fingerprint;
        token_cache_close(c);
    }
    return STATUS_OK;
}

/* Makes the new manifest. *problem: the fault of the old one; "": none. */
static enum status
make_manifest(struct repair *r, const struct error *why, char problem[480], struct error *err) {
    uint64_t fingerprint = 0;
    bool proved = false;
    keep_old(r);
    if (!r->whole) {
        TRY(find_tokenizer(r, err));
    }
    TRY(dataset_fingerprint_of(&fingerprint, &r->now, r->directory, r->fs, err));
    problem[0] = '\0';
    if (!r->whole) {
        const char *text = strstr(why->text, MANIFEST_NAME ": "); /* the line has the file's name */
        snprintf(problem, 480, "%s",
                 why->status == STATUS_NOTFOUND ? "it is missing"
                 : text                         ? text + strlen(MANIFEST_NAME ": ")
                                                : why->text);
    } else if (!r->entries_right) {
        snprintf(problem, 480, "its entry of a shard does not fit the shard");
    } else if (fingerprint != r->old.fingerprint) {
        snprintf(problem, 480, "its fingerprint is not that of the samples");
    } else {
        return STATUS_OK;
    }
    if (r->now.generation_count > 0) {
        r->now.generation_count--; /* the last one is rebuilt */
    }
    TRY(is_proved(&proved, r, fingerprint, err));
    if (!proved) {
        TRY(say_refused(r, MANIFEST_NAME, problem, err));
        return error_set(
            err, STATUS_CORRUPT,
            "%s: nothing proves that no shard is missing: if ccpack or a checkpoint recorded the "
            "fingerprint %016" PRIx64 ", pass it with --fingerprint; nothing was changed",
            r->directory, fingerprint);
    }
    return manifest_seal(&r->now, fingerprint, err);
}

/* ---- writing --------------------------------------------------------------------------------- */

static enum status write_sidecar(struct repair *r, size_t i, struct error *err) {
    char path[PATH_MAX_BYTES];
    char sidecar[PATH_MAX_BYTES];
    struct shard_reader *reader = NULL;
    size_t size = 0;
    bool exists = false;
    TRY(path_join(path, sizeof(path), r->directory, r->now.shards[i].name, err));
    TRY(shard_index_name(sidecar, sizeof(sidecar), path, err));
    TRY(r->fs->exists(r->fs->context, sidecar, &exists, err));
    if (!r->o->dry_run) {
        TRY(shard_reader_open(&reader, r->fs, path, err));
        const void *index = shard_reader_index(reader, &size);
        enum status s = file_write_atomic(r->fs, sidecar, index, size, err);
        shard_reader_close(reader);
        TRY(s);
    }
    return say_rebuilt(r, strrchr(sidecar, '/') + 1,
                       exists ? "it is not the index of its shard" : "it is missing", err);
}

static enum status write_sidecars(struct repair *r, struct error *err) {
    for (size_t i = 0; i < r->now.shard_count; i++) {
        if ((r->sidecars[i / 64] >> i % 64 & 1u) != 0) {
            TRY(write_sidecar(r, i, err));
        }
    }
    return STATUS_OK;
}

/* Columns record a generation, which may be lost: they belong to this dataset. */
static enum status mark_columns(struct repair *r, struct error *err) {
    const struct column_copy how = {.from_fs = r->fs,
                                    .fs = r->fs,
                                    .from = &r->directory,
                                    .from_count = 1,
                                    .to = r->directory,
                                    .fingerprint = r->now.fingerprint};
    return column_copy_all(&how, err);
}

static enum status write_manifest(struct repair *r, const char *problem, struct error *err) {
    if (!r->o->dry_run) {
        TRY(manifest_write(&r->now, r->fs, r->directory, err));
        TRY(r->now.generation_count == 1 ? mark_columns(r, err) : STATUS_OK);
    }
    TRY(say_rebuilt(r, MANIFEST_NAME, problem, err));
    if (!r->o->quiet && !(r->read.sources && r->read.options)) {
        cli_print(
            stderr,
            "%s: %s: the names of sources and classes and the options were lost with " MANIFEST_NAME
            "; readers do not need them, but ccpack --append does\n",
            program.name, r->directory);
    }
    return STATUS_OK;
}

/* The cache was made with or without cleaning of captions; if that is unreadable, with cleaning,
 * ccpack's default. */
static enum status write_cache(struct repair *r,
                               const struct token_cache *old,
                               const char *problem,
                               struct error *err) {
    struct ccpack_cache_result result;
    struct tokenizer *t = NULL;
    struct dataset *d = NULL;
    struct error why = {0};
    if (dataset_tokenizer_open(&t, r->directory, &r->now, r->fs, &why) != STATUS_OK || !t) {
        return say_refused(r, TOKEN_CACHE_NAME,
                           t ? problem : "the tokenizer is not there to make it", err);
    }
    enum status s = STATUS_OK;
    if (!r->o->dry_run) {
        const bool clean = old ? token_cache_key(old)->clean : true;
        s = dataset_open(&d, r->directory, r->fs, err);
        THEN(s, ccpack_write_cache(&result, r->directory, d, t, clean, r->o->quiet, err));
        dataset_close(d);
    }
    tokenizer_close(t);
    return s == STATUS_OK ? say_rebuilt(r, TOKEN_CACHE_NAME, problem, err) : s;
}

static enum status check_cache(struct repair *r, struct error *err) {
    struct error why = {0};
    struct token_cache *c = open_cache(r, &why);
    enum status s = STATUS_OK;
    if (!c && why.status != STATUS_NOTFOUND) {
        return write_cache(r, NULL, why.text, err);
    }
    if (c && damage_cache_is_of(c, &r->now)) {
        s = damage_cache_rows(c, &why);
        if (s == STATUS_CORRUPT) {
            s = write_cache(r, c, why.text, err);
        } else if (s != STATUS_OK) {
            *err = why;
        }
    }
    token_cache_close(c);
    return s;
}

static enum status check_tokenizer(struct repair *r, struct error *err) {
    struct tokenizer *t = NULL;
    struct error why = {0};
    if (dataset_tokenizer_open(&t, r->directory, &r->now, r->fs, &why) != STATUS_OK) {
        return say_refused(r,
                           r->now.tokenizer.file ? r->now.tokenizer.file : DATASET_TOKENIZER_NAME,
                           why.text, err);
    }
    tokenizer_close(t);
    return STATUS_OK;
}

static enum status check_columns(struct repair *r, struct error *err) {
    struct error why = {0};
    if (column_list_mend(r->fs, r->directory, NULL, false, &why) == STATUS_OK) {
        return STATUS_OK;
    }
    TRY(r->o->dry_run ? STATUS_OK : column_list_mend(r->fs, r->directory, NULL, true, err));
    return say_rebuilt(r, COLUMN_LIST_NAME, why.text, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum status refuse_unfinished(const struct repair *r, struct error *err) {
    char path[PATH_MAX_BYTES];
    bool exists = false;
    TRY(path_join(path, sizeof(path), r->directory, PACK_JOURNAL_NAME, err));
    TRY(r->fs->exists(r->fs->context, path, &exists, err));
    return exists
               ? error_set(err, STATUS_EXISTS,
                           "%s: holds an unfinished run: complete it with its command and --resume",
                           r->directory)
               : STATUS_OK;
}

static enum status repair_all(struct repair *r, struct error *err) {
    struct error why = {0};
    char problem[480];
    TRY(refuse_unfinished(r, err));
    TRY(read_old(r, &why, err));
    TRY(find_shards(r, err));
    FAIL_IF(!r->whole && r->names.size_bytes == 0, err, STATUS_NOTFOUND,
            "%s: holds no shard to rebuild a dataset from", r->directory);
    TRY(manifest_init(&r->now, r->old.container,
                      r->old.created_by ? r->old.created_by : "ccpack " CCSTREAM_VERSION, err));
    TRY(take_shards(r, err));
    TRY(make_manifest(r, &why, problem, err));
    TRY(write_sidecars(r, err));
    if (problem[0] != '\0') {
        TRY(write_manifest(r, problem, err));
    } else { /* of the old one, which is kept */
        r->now.samples = r->old.samples;
        r->now.texts = r->old.texts;
        r->now.fingerprint = r->old.fingerprint;
    }
    TRY(check_tokenizer(r, err));
    TRY(check_cache(r, err));
    return check_columns(r, err);
}

static enum status report(struct repair *r, struct error *err) {
    if (r->o->json) {
        json_open_object(&r->w, NULL);
        json_string(&r->w, "path", r->directory);
        json_bool(&r->w, "ok", r->refused == 0);
        json_u64(&r->w, "rebuilt", r->rebuilt);
        json_u64(&r->w, "refused", r->refused);
        json_bool(&r->w, "dry_run", r->o->dry_run);
        json_close_object(&r->w);
        TRY(cli_put_json(&r->w, err));
    } else if (r->rebuilt + r->refused == 0) {
        cli_print(stdout, "%s: nothing to rebuild; ccdump verify checks the samples\n",
                  r->directory);
    }
    return r->refused == 0 ? STATUS_OK
                           : error_set(err, STATUS_CORRUPT, "%s: %" PRIu64 " file%s not rebuilt",
                                       r->directory, r->refused, r->refused == 1 ? "" : "s");
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct repair r = {.o = options, .fs = file_posix(), .directory = a->items[0]};
    struct file *lock = NULL;
    const char *hex = r.o->fingerprint;
    FAIL_IF(hex && (strlen(hex) != 16 || strspn(hex, "0123456789abcdefABCDEF") != 16), err,
            STATUS_USAGE, "--fingerprint requires 16 hexadecimal digits, not '%s'", hex);
    cli_signals_install();
    TRY(r.fs->lock_directory(r.fs->context, &lock, r.directory, err));
    byte_buffer_init(&r.names, 0);
    json_writer_init(&r.w, 0);
    cli_progress_init(&r.progress, "shards", r.o->quiet);
    enum status s = repair_all(&r, err);
    cli_progress_clear(&r.progress);
    THEN(s, report(&r, err));
    json_writer_fini(&r.w);
    byte_buffer_fini(&r.names);
    manifest_fini(&r.old);
    manifest_fini(&r.now);
    free(r.sidecars);
    r.fs->close(lock);
    return s;
}

CLI_MAIN(ccpack_repair_main, program, struct options, run)
