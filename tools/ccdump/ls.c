/*
 * ccdump ls: one line per sample or shard, from the indexes.
 */
#include <inttypes.h>
#include <stdio.h>

#include "formats/shard/shard_reader.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/cli/cli_text.h"

struct options {
    struct sample_choice choice;
    bool keys;
    bool shards;
    bool removed;
    bool json;
};

static const struct cli_option rows[] = {
    {"keys", 'k', CLI_FLAG, CLI_FIELD(struct options, keys),
     .help = "show keys too, with --json columns; the index has none, so this reads every listed "
             "sample (keys of a plain tar are always shown)",
     .group = "Output"},
    {"shards", 0, CLI_FLAG, CLI_FIELD(struct options, shards),
     .help = "list shards instead: file, samples, captions, bytes, first and last id"},
    {"removed", 0, CLI_FLAG, CLI_FIELD(struct options, removed),
     .help = "list the ids of removed samples instead (ccpack remove)"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object per line"},
};

static const struct cli_program program = {
    .name = "ccdump ls",
    .purpose = "lists samples: id, key, size, bytes, format, number of captions, first caption",
    .usage = CLI_TEXTS("DIR|SHARD|TAR [--id N | --from ID --count N] [--keys] [--json]",
                       "DIR|SHARD --shards [--json]",
                       "DIR --removed [--json]"),
    CLI_OPTIONS(rows),
    .shared = sample_choice_rows,
    .arguments = {1, 1},
    .examples = CLI_TEXTS("ccdump ls cc3m --from 1000 --count 20",
                          "ccdump ls cc3m --json | jq -r '.captions[0]'",
                          "ccdump ls 00000.tar",
                          "ccdump ls hf://datasets/OWNER/NAME/00000.tar --count 20"),
    .notes = CLI_TEXTS("Lines are truncated to the width of the terminal (or COLUMNS); output to a "
                       "file or pipe is not truncated."),
};

static enum status list_samples(const struct options *o, struct input *in, struct error *err) {
    struct sample_list_how how = {o->json, o->keys, cli_columns()};
    struct sample_walk walk;
    struct sample_facts facts;
    struct json_writer w;
    enum status s;
    TRY(sample_walk_init(&walk, in, &o->choice, true, err));
    json_writer_init(&w, 0);
    while ((s = sample_walk_next(&walk, &facts, err)) == STATUS_OK) {
        TRY_OR_FAIL(s, sample_list(in, &facts, &how, &w, err));
    }
fail:
    json_writer_fini(&w);
    sample_walk_fini(&walk);
    return s == STATUS_END ? STATUS_OK : s;
}

static enum status
list_shard(const struct shard_summary *m, bool json, struct json_writer *w, struct error *err) {
    if (!json) {
        cli_print(stdout, "%s  %9s %-7s  %9s %-8s  %10s  ids %" PRIu64 " to %" PRIu64 "\n", m->name,
                  cli_format_count(m->sample_count), m->sample_count == 1 ? "sample" : "samples",
                  cli_format_count(m->text_count), m->text_count == 1 ? "caption" : "captions",
                  cli_format_bytes(m->size_bytes), m->first_id, m->last_id);
        return STATUS_OK;
    }
    json_open_object(w, NULL);
    json_string(w, "shard", m->name);
    json_u64(w, "samples", m->sample_count);
    json_u64(w, "texts", m->text_count);
    json_u64(w, "image_bytes", m->image_bytes);
    json_u64(w, "bytes", m->size_bytes);
    json_u64(w, "first_id", m->first_id);
    json_u64(w, "last_id", m->last_id);
    json_hex64(w, "xxh64", m->hash);
    json_close_object(w);
    return cli_put_json(w, err);
}

static enum status read_summary(struct shard_summary *out, const char *path, struct error *err) {
    struct shard_reader *r = NULL;
    TRY(shard_reader_open(&r, file_system_of(path), path, err));
    enum status s = shard_reader_summary(r, out, err);
    shard_reader_close(r);
    return s;
}

static enum status list_shards(const struct options *o, const char *path, struct error *err) {
    enum input_kind kind = INPUT_TAR;
    struct manifest m = {0};
    struct shard_summary one;
    struct json_writer w;
    TRY(input_kind_of(&kind, path, err));
    FAIL_IF(kind == INPUT_TAR, err, STATUS_USAGE, "%s is a plain tar and has no shards", path);
    if (kind == INPUT_SHARD) {
        TRY(read_summary(&one, path, err));
    } else {
        TRY(manifest_read(&m, file_system_of(path), path, err));
    }
    json_writer_init(&w, 0);
    enum status s = kind == INPUT_SHARD ? list_shard(&one, o->json, &w, err) : STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < m.shard_count; i++) {
        s = list_shard(&m.shards[i], o->json, &w, err);
    }
    json_writer_fini(&w);
    manifest_fini(&m);
    return s;
}

static enum status list_removed(const struct options *o, const char *path, struct error *err) {
    struct manifest m;
    struct json_writer w;
    TRY(manifest_read(&m, file_system_of(path), path, err));
    json_writer_init(&w, 0);
    enum status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < m.removed.count; i++) {
        if (!o->json) {
            printf("%" PRIu64 "\n", m.removed.ids[i]);
            continue;
        }
        json_open_object(&w, NULL);
        json_u64(&w, "id", m.removed.ids[i]);
        json_bool(&w, "removed", true);
        json_close_object(&w);
        s = cli_put_json(&w, err);
    }
    json_writer_fini(&w);
    manifest_fini(&m);
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    FAIL_IF(o->shards && o->removed, err, STATUS_USAGE,
            "--shards and --removed exclude each other");
    TRY(remote_choice_use(&o->choice.remote, err));
    if (o->removed) {
        return list_removed(o, a->items[0], err);
    }
    if (o->shards) {
        return list_shards(o, a->items[0], err);
    }
    struct input *in = NULL;
    TRY(input_open(&in, a->items[0], err));
    enum status s = list_samples(o, in, err);
    input_close(in);
    return s;
}

CLI_MAIN(ccdump_ls, program, struct options, run)
