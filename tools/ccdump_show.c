/*
 * ccdump show: one sample, so that a person sees what it is.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json_reader.h"
#include "tools/ccdump_internal.h"

struct options {
    uint64_t id;
    uint64_t position;
    bool json;
};

static const struct cli_option rows[] = {
    {"id", 0, CLI_U64, CLI_FIELD(struct options, id), .default_text = "0", .metavar = "N",
     .help = "the sample with this id"},
    {"position", 0, CLI_U64, CLI_FIELD(struct options, position), .default_text = "0",
     .metavar = "N", .help = "the sample at this place in the order of ids"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object"},
};

static const struct cli_program program = {
    .name = "ccdump show",
    .purpose = "shows one sample: captions, metadata, image facts",
    .usage = (const char *const[]){"DIR [--id N | --position N] [--json]", NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = 1,
};

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* JSON text on one line: line feeds can only be between its tokens. */
static void write_line(struct json_writer *w, const struct shard_text *json) {
    char *line = malloc(json->size_bytes);
    for (size_t i = 0; line && i < json->size_bytes; i++) {
        char c = json->data[i];
        line[i] = c == '\n' || c == '\r' ? ' ' : c;
    }
    if (line) {
        json_raw(w, "meta", line, json->size_bytes);
    } else {
        json_null(w, "meta");
    }
    free(line);
}

/* The sample's metadata as JSON where it is JSON, as a string where it is not, null without. */
static void write_meta(struct json_writer *w, const struct shard_text *json) {
    struct json_document *document = NULL;
    if (!json->data) {
        json_null(w, "meta");
    } else if (json_document_parse(&document, "meta", json->data, json->size_bytes, NULL) ==
               STATUS_OK) {
        write_line(w, json);
    } else {
        json_string_n(w, "meta", json->data, json->size_bytes);
    }
    json_document_destroy(document);
}

static void write_json(struct json_writer *w, const struct ccdump_sample *s) {
    const struct dataset_sample *f = &s->facts;
    json_open_object(w, NULL);
    json_u64(w, "id", f->sample_id);
    json_string(w, "key", s->view.key);
    json_open_array(w, "captions");
    for (size_t k = 0; k < s->view.caption_count; k++) {
        json_string_n(w, NULL, s->view.captions[k].data, s->view.captions[k].size_bytes);
    }
    json_close_array(w);
    json_u64(w, "width", f->width_px);
    json_u64(w, "height", f->height_px);
    json_string(w, "format", image_format_name(f->format));
    json_u64(w, "image_bytes", f->image_bytes);
    write_meta(w, &s->view.json);
    json_u64(w, "position", s->position);
    json_u64(w, "first_text_id", f->first_text_id);
    if (f->label == SHARD_NO_LABEL) {
        json_null(w, "label");
    } else {
        json_i64(w, "label", f->label);
    }
    json_bool(w, "reencoded", (f->flags & SHARD_FLAG_REENCODED) != 0);
    json_bool(w, "checked", (f->flags & SHARD_FLAG_UNCHECKED) == 0);
    json_string(w, "shard", file_name(dataset_shard_path(s->dataset, f->shard)));
    json_u64(w, "image_offset", f->image_offset);
    json_hex64(w, "image_xxh64", f->image_hash);
    json_close_object(w);
}

/* Text from outside must not reach the terminal as commands to it. */
static void print_clean(const struct shard_text *text) {
    for (size_t i = 0; i < text->size_bytes; i++) {
        unsigned char c = (unsigned char)text->data[i];
        putchar(c < ' ' || c == 0x7F ? ' ' : c);
    }
    putchar('\n');
}

static void print_text(const struct ccdump_sample *s) {
    const struct dataset_sample *f = &s->facts;
    char bytes[CLI_TEXT_BYTES];
    printf("sample %" PRIu64 "  key %s  position %" PRIu64 "\n", f->sample_id, s->view.key,
           s->position);
    printf("  image    %" PRIu32 " x %" PRIu32 " %s, %s%s%s\n", f->width_px, f->height_px,
           image_format_name(f->format), cli_format_bytes(bytes, f->image_bytes),
           (f->flags & SHARD_FLAG_REENCODED) != 0 ? ", re-encoded by the packer" : "",
           (f->flags & SHARD_FLAG_UNCHECKED) != 0 ? ", not decoded by the packer" : "");
    if (f->label != SHARD_NO_LABEL) {
        printf("  label    %" PRId32 "\n", f->label);
    }
    for (size_t k = 0; k < s->view.caption_count; k++) {
        printf("  %-8s ", k == 0 ? "caption" : "");
        print_clean(&s->view.captions[k]);
    }
    if (s->view.json.data) {
        printf("  json     ");
        print_clean(&s->view.json);
    }
    printf("  stored   %s at byte %" PRIu64 ", xxh64 %016" PRIx64 "\n",
           file_name(dataset_shard_path(s->dataset, f->shard)), f->image_offset, f->image_hash);
}

static enum status show(const struct options *o, const struct cli_arguments *a, struct error *err) {
    bool by_id = cli_given(&program, a, "id");
    struct ccdump_sample sample;
    struct json_writer w;
    if (by_id && cli_given(&program, a, "position")) {
        return error_set(err, STATUS_USAGE, "--id and --position name two samples: give one");
    }
    TRY(ccdump_sample_open(&sample, a->items[0], by_id, by_id ? o->id : o->position, err));
    enum status s = STATUS_OK;
    if (o->json) {
        json_writer_init(&w, 0);
        write_json(&w, &sample);
        s = ccdump_put_json(&w, err);
        json_writer_fini(&w);
    } else {
        print_text(&sample);
    }
    ccdump_sample_close(&sample);
    return s == STATUS_OK ? ccdump_flush(err) : s;
}

int ccdump_show(int argc, char **argv) {
    struct options o;
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &a, argc, argv, &err);
    if (s == STATUS_OK) {
        s = show(&o, &a, &err);
        cli_arguments_fini(&a);
    }
    return cli_exit(&program, s, &err);
}
