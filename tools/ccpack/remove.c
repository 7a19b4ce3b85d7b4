/*
 * ccpack remove: removes samples from a dataset by id or key. ccpack compact: reclaims their space.
 */
#include "pack/remove/remove.h"
#include "formats/base/sort.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/input.h"

struct remove_cli {
    const char *ids, *keys; /* not of compact */
    bool dry_run, json, quiet;
};

static const struct cli_option remove_rows[] = {
    {"ids", 0, CLI_STRING, CLI_FIELD(struct remove_cli, ids), .metavar = "FILE",
     .help = "file of ids to remove, one per line; empty lines and those that begin with # are "
             "skipped"},
    {"keys", 0, CLI_STRING, CLI_FIELD(struct remove_cli, keys), .metavar = "FILE",
     .help =
         "file of keys to remove, likewise; also compared with the original key in the metadata "
         "field 'key'. Reads every sample. Keys without a sample are counted and skipped"},
    {"dry-run", 0, CLI_FLAG, CLI_FIELD(struct remove_cli, dry_run),
     .help = "only report what would be removed"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct remove_cli, json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct remove_cli, quiet), .help = "errors only"},
};

static const struct cli_program remove_program = {
    .name = "ccpack remove",
    .purpose = "removes samples from a dataset, for example after opt-out requests",
    .usage = CLI_TEXTS("DIR --ids FILE|--keys FILE [--dry-run] [--json]"),
    .examples = CLI_TEXTS("ccpack remove cc3m --ids optout.txt && ccpack compact cc3m"),
    .notes = CLI_TEXTS(
        "The dataset gets a new generation without these samples; from then on no program delivers "
        "or shows them. Their ids are never reused, and no other id changes. Images and "
        "captions stay in the shards until 'ccpack compact DIR'.",
        "The fingerprint changes. 'ccstream-train --resume RUN' continues a run with the "
        "per-sample state of the other samples, by id. 'ccpack tokenizer DIR --cache' rewrites "
        "tokens.cct.",
        "dataset.json is replaced atomically: a killed command leaves the old or the new dataset. "
        "An id that the dataset never had is an error, and nothing changes; ids that are already "
        "removed are skipped."),
    CLI_OPTIONS(remove_rows),
    .arguments = {1, 1},
};

static const struct cli_option compact_rows[] = {
    {"dry-run", 0, CLI_FLAG, CLI_FIELD(struct remove_cli, dry_run),
     .help = "only report what would be rewritten"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct remove_cli, json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct remove_cli, quiet), .help = "errors only"},
};

static const struct cli_program compact_program = {
    .name = "ccpack compact",
    .purpose = "rewrites shards to reclaim the space of removed samples",
    .usage = CLI_TEXTS("DIR [--dry-run] [--json]"),
    .examples = CLI_TEXTS("ccpack compact cc3m"),
    .notes = CLI_TEXTS(
        "Shards with removed samples are rewritten without them under new names, and the old "
        "ones deleted; other shards are not touched. Ids and fingerprint stay. A tokens.cct that "
        "still contains removed captions is deleted.",
        "If the command is interrupted or killed, the dataset is intact, in its old or in its new "
        "state; run the same command again to finish. No run may read the dataset meanwhile.",
        "Copies, backups, hard links made by 'ccpack merge' and the trained vocabulary do not "
        "change. Tars that were indexed in place are never written to."),
    CLI_OPTIONS(compact_rows),
    .arguments = {1, 1},
};

/* ---- the ids --------------------------------------------------------------------------------- */

/* The ids of all samples with one of the keys. *found: number of distinct keys found. */
static enum status find_keys(struct byte_buffer *ids,
                             size_t *found,
                             const struct id_list *l,
                             const char *directory,
                             struct cli_progress *progress,
                             struct error *err) {
    struct input *in = NULL;
    struct sample_facts f;
    struct sample_content content;
    char original[INPUT_MAX_KEY_BYTES];
    bool *seen = calloc(l->count, sizeof(*seen));
    TRY_MEMORY(seen, err, "out of memory for %zu keys", l->count);
    qsort(l->lines, l->count, sizeof(*l->lines), compare_text);
    enum status s = input_open(&in, directory, err);
    while (s == STATUS_OK && (s = input_next(in, &f, err)) == STATUS_OK) {
        if (cli_interrupted()) {
            s = error_set(err, STATUS_INTERRUPTED, "interrupted; nothing was removed");
            break;
        }
        s = input_read(in, &content, err);
        if (s != STATUS_OK) {
            break;
        }
        const char *key = content.key;
        const char **at = bsearch(&key, l->lines, l->count, sizeof(key), compare_text);
        if (!at && sample_original_key(original, &content.json)) {
            key = original;
            at = bsearch(&key, l->lines, l->count, sizeof(key), compare_text);
        }
        if (at) {
            *found += !seen[at - l->lines];
            seen[at - l->lines] = true;
            s = byte_buffer_append(ids, &f.id, sizeof(f.id), err);
        }
        cli_progress_update(progress, f.position + 1, in->sample_count, 0, NULL);
    }
    cli_progress_clear(progress);
    input_close(in);
    free(seen);
    return s == STATUS_END ? STATUS_OK : s;
}

/* The ids to remove: (size_bytes / 8) numbers. */
static enum status find_ids(struct byte_buffer *ids,
                            uint64_t *unknown_keys,
                            const struct remove_cli *o,
                            const char *directory,
                            struct cli_progress *progress,
                            struct error *err) {
    struct id_list l;
    size_t found = 0;
    if (o->ids) {
        return id_list_numbers(ids, o->ids, err);
    }
    enum status s = id_list_read(&l, o->keys, err);
    if (s == STATUS_OK) {
        s = find_keys(ids, &found, &l, directory, progress, err);
        *unknown_keys = l.count - found;
    }
    if (s == STATUS_OK && found == 0) {
        s = error_set(err, STATUS_NOTFOUND, "%s: no sample has one of the %zu keys of %s",
                      directory, l.count, o->keys);
    }
    id_list_fini(&l);
    return s;
}

/* ---- results --------------------------------------------------------------------------------- */

static enum status report_json(const struct pack_remove_summary *r,
                               bool dry_run,
                               bool compact,
                               uint64_t unknown_keys,
                               struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    json_u64(&w, "removed", r->removed);
    if (compact) {
        json_u64(&w, "shards_rewritten", r->shards);
        json_u64(&w, "files_deleted", r->deleted);
    } else {
        json_u64(&w, "removed_before", r->before);
        json_u64(&w, "unknown_keys", unknown_keys);
    }
    json_u64(&w, "image_bytes", r->image_bytes);
    json_u64(&w, "samples", r->samples);
    json_hex64(&w, "fingerprint", r->fingerprint);
    json_hex64(&w, "old_fingerprint", r->old_fingerprint);
    json_bool(&w, "dry_run", dry_run);
    return cli_end_json(&w, err);
}

static void report_removed(const struct remove_cli *o,
                           const char *directory,
                           const struct pack_remove_summary *r,
                           uint64_t unknown_keys) {
    cli_print(stderr,
              "%s: %s sample%s %s, %s left, fingerprint %016" PRIx64 ", before %016" PRIx64 "\n",
              directory, cli_format_count(r->removed), r->removed == 1 ? "" : "s",
              o->dry_run ? "would be removed" : "removed", cli_format_count(r->samples),
              r->fingerprint, r->old_fingerprint);
    if (r->before > 0) {
        cli_print(stderr, "%s of the ids had been removed before\n", cli_format_count(r->before));
    }
    if (unknown_keys > 0) {
        cli_print(stderr, "%s of the keys are of no sample\n", cli_format_count(unknown_keys));
    }
    if (r->removed > 0 && !o->dry_run) {
        cli_print(
            stderr,
            "their images and captions (%s of images) are in the shards until 'ccpack compact "
            "%s'\n'ccstream-train --resume' keeps the state of the other samples; 'ccpack "
            "tokenizer %s --cache' makes a token cache again\n",
            cli_format_bytes(r->image_bytes), directory, directory);
    }
}

static enum status
run_remove(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct remove_cli *o = options;
    const char *directory = a->items[0];
    struct byte_buffer ids = {0};
    struct pack_remove_summary result;
    struct ccpack_run r;
    uint64_t unknown_keys = 0;
    FAIL_IF(!o->ids == !o->keys, err, STATUS_USAGE, "one of --ids and --keys must name the list");
    TRY(path_check_local(directory, err));
    TRY(path_check_dataset(directory, err));
    ccpack_begin(&r, "samples", o->quiet);
    byte_buffer_init(&ids, 0);
    enum status s = find_ids(&ids, &unknown_keys, o, directory, &r.progress, err);
    if (s == STATUS_OK) {
        const struct pack_remove_options opt = {
            .fs = file_posix(),
            .directory = directory,
            .ids = (const uint64_t *)(const void *)ids.data,
            .id_count = ids.size_bytes / sizeof(uint64_t),
            .dry_run = o->dry_run,
            .created_by = "ccpack " CCSTREAM_VERSION,
        };
        s = pack_remove_samples(&opt, &result, err);
    }
    byte_buffer_fini(&ids);
    if (s == STATUS_OK && !o->quiet) {
        report_removed(o, directory, &result, unknown_keys);
    }
    return s == STATUS_OK && o->json ? report_json(&result, o->dry_run, false, unknown_keys, err)
                                     : s;
}

static void show_shards(void *cookie, uint64_t shards, uint64_t total_shards) {
    struct ccpack_run *r = cookie;
    cli_progress_update(&r->progress, shards, total_shards, 0, NULL);
}

static enum status
run_compact(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct remove_cli *o = options;
    struct pack_remove_summary result;
    struct ccpack_run r;
    TRY(path_check_local(a->items[0], err));
    TRY(path_check_dataset(a->items[0], err));
    ccpack_begin(&r, "shards", o->quiet);
    const struct pack_remove_options opt = {
        .fs = file_posix(),
        .directory = a->items[0],
        .dry_run = o->dry_run,
        .created_by = "ccpack " CCSTREAM_VERSION,
        .interrupted = cli_interrupted_callback,
        .progress = show_shards,
        .cookie = &r,
    };
    enum status s = pack_compact(&opt, &result, err);
    cli_progress_clear(&r.progress);
    FAIL_IF(s == STATUS_INTERRUPTED, err, s,
            "interrupted: %s is as it was; run it again to compact it", opt.directory);
    if (s == STATUS_OK && !o->quiet) {
        cli_print(stderr, "%s: %s removed sample%s (%s of images) %s out of %s shard%s\n",
                  opt.directory, cli_format_count(result.removed), result.removed == 1 ? "" : "s",
                  cli_format_bytes(result.image_bytes), o->dry_run ? "would be taken" : "taken",
                  cli_format_count(result.shards), result.shards == 1 ? "" : "s");
    }
    return s == STATUS_OK && o->json ? report_json(&result, o->dry_run, true, 0, err) : s;
}

CLI_MAIN(ccpack_remove_main, remove_program, struct remove_cli, run_remove)

CLI_MAIN(ccpack_compact_main, compact_program, struct remove_cli, run_compact)
