/*
 * ccdump info: the totals of a dataset, out of its manifest.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tools/ccdump_internal.h"

struct options {
    bool json;
};

static const struct cli_option rows[] = {
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json),
     .help = "one JSON object per dataset and line"},
};

static const struct cli_program program = {
    .name = "ccdump info",
    .purpose = "says what a dataset holds",
    .usage = (const char *const[]){"DIR... [--json]", NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = CLI_MAX_ARGUMENTS,
};

static void write_generations(struct json_writer *w, const struct manifest *m) {
    json_open_array(w, "generations");
    for (size_t i = 0; i < m->generation_count; i++) {
        const struct manifest_generation *g = &m->generations[i];
        json_open_object(w, NULL);
        json_u64(w, "samples", g->samples);
        json_u64(w, "texts", g->texts);
        json_u64(w, "id_space", g->id_space);
        json_hex64(w, "fingerprint", g->fingerprint);
        json_close_object(w);
    }
    json_close_array(w);
}

static void write_json(struct json_writer *w, const struct manifest *m) {
    json_open_object(w, NULL);
    json_u64(w, "samples", m->samples);
    json_u64(w, "id_space", m->id_space);
    json_u64(w, "texts", m->texts);
    json_u64(w, "shards", m->shard_count);
    json_u64(w, "image_bytes", m->image_bytes);
    json_u64(w, "bytes", m->bytes);
    json_hex64(w, "fingerprint", m->fingerprint);
    json_string(w, "container", shard_container_name(m->container));
    json_string(w, "created_by", m->created_by);
    write_generations(w, m);
    json_open_array(w, "sources");
    for (size_t i = 0; i < m->source_count; i++) {
        json_open_object(w, NULL);
        json_string(w, "name", m->sources[i].name);
        json_u64(w, "rows", m->sources[i].rows);
        json_close_object(w);
    }
    json_close_array(w);
    json_open_object(w, "options");
    for (size_t i = 0; i < m->option_count; i++) {
        json_string(w, m->options[i].name, m->options[i].value);
    }
    json_close_object(w);
    json_close_object(w);
}

static void print_text(const char *directory, const struct manifest *m) {
    char a[CLI_TEXT_BYTES];
    char b[CLI_TEXT_BYTES];
    printf("%s\n", directory);
    printf("  samples      %s\n", cli_format_count(a, m->samples));
    printf("  captions     %s\n", cli_format_count(a, m->texts));
    printf("  ids          below %s (%s without a sample)\n", cli_format_count(a, m->id_space),
           cli_format_count(b, m->id_space - m->samples));
    printf("  shards       %zu (%s), %s\n", m->shard_count, shard_container_name(m->container),
           cli_format_bytes(a, m->bytes));
    printf("  images       %s", cli_format_bytes(a, m->image_bytes));
    if (m->samples > 0) {
        printf(", %s each", cli_format_bytes(a, m->image_bytes / m->samples));
    }
    printf("\n  fingerprint  %016" PRIx64 "\n", m->fingerprint);
    printf("  made by      %s", m->created_by);
    for (size_t i = 0; i < m->option_count; i++) {
        printf("%s %s=%s", i == 0 ? " with" : "", m->options[i].name, m->options[i].value);
    }
    printf("\n");
    for (size_t i = 0; i + 1 < m->generation_count; i++) {
        printf("  before       %s samples, fingerprint %016" PRIx64 "\n",
               cli_format_count(a, m->generations[i].samples), m->generations[i].fingerprint);
    }
    enum { SHOWN_SOURCES = 10 };
    for (size_t i = 0; i < m->source_count && i < SHOWN_SOURCES; i++) {
        printf("  %-12s %s, %s rows\n", i == 0 ? "from" : "", m->sources[i].name,
               cli_format_count(a, m->sources[i].rows));
    }
    if (m->source_count > SHOWN_SOURCES) {
        printf("  %-12s and %zu more\n", "", m->source_count - SHOWN_SOURCES);
    }
}

static enum status info(const struct options *o, const char *directory, struct error *err) {
    struct manifest m;
    struct json_writer w;
    TRY(manifest_read(&m, file_posix(), directory, err));
    enum status s = STATUS_OK;
    if (o->json) {
        json_writer_init(&w, 0);
        write_json(&w, &m);
        s = ccdump_put_json(&w, err);
        json_writer_fini(&w);
    } else {
        print_text(directory, &m);
    }
    manifest_fini(&m);
    return s;
}

int ccdump_info(int argc, char **argv) {
    struct options o;
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &a, argc, argv, &err);
    if (s != STATUS_OK) {
        return cli_exit(&program, s, &err);
    }
    for (size_t i = 0; s == STATUS_OK && i < a.count; i++) {
        s = info(&o, a.items[i], &err);
    }
    if (s == STATUS_OK) {
        s = ccdump_flush(&err);
    }
    cli_arguments_fini(&a);
    return cli_exit(&program, s, &err);
}
