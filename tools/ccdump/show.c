/*
 * ccdump show: one sample for a person to look at: facts, captions, metadata; its image as a
 * file or on a page.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/file_io.h"
#include "formats/json/json_reader.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/cli/output.h"
#include "tools/inspect/page/page.h"

struct options {
    uint64_t id;
    uint64_t position;
    uint64_t count;
    bool json;
    const char *image, *html;
    struct remote_choice remote;
    bool force;
};

static const struct cli_option rows[] = {
    {"id", 0, CLI_U64, CLI_FIELD(struct options, id), .default_text = "0", .metavar = "ID",
     .help = "sample id; alternative to a second argument"},
    {"position", 0, CLI_U64, CLI_FIELD(struct options, position), .default_text = "0",
     .metavar = "N", .help = "position in the order of ids"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object"},
    {"html", 0, CLI_STRING, CLI_FIELD(struct options, html), .metavar = "FILE",
     .help = "write a page with image, captions, metadata and index fields, in one file"},
    {"count", 0, CLI_U64, CLI_FIELD(struct options, count), .min = "1", .max = "100",
     .default_text = "1", .metavar = "N",
     .help = "with --html: number of samples, starting with the chosen one"},
    {"image", 0, CLI_STRING, CLI_FIELD(struct options, image), .metavar = "FILE",
     .help = "write the image file's exact bytes to this file, or to standard output for '-'; with "
             "--json print the object too"},
    OUTPUT_FORCE_ROW(struct options, force),
    CLI_REMOTE_ROWS(struct options, remote),
};

static const struct cli_program program = {
    .name = "ccdump show",
    .purpose =
        "shows one sample: captions, metadata, index fields; its image as a file or on a page",
    .usage = CLI_TEXTS("DIR|SHARD|TAR [ID | --position N] [--json] [--image FILE]",
                       "DIR|SHARD|TAR [ID | --position N] --html FILE [--count N]"),
    CLI_OPTIONS(rows),
    .arguments = {1, 2},
    .examples = CLI_TEXTS("ccdump show cc3m 12",
                          "ccdump show cc3m 12 --image - | djpeg | pnmtopng >12.png",
                          "ccdump show 00000.tar 3 --json",
                          "ccdump show cc3m 12 --html samples.html --count 20"),
};

/* ---- on a page ---------------------------------------------------------------------------------
 */

static const char *image_text(const struct sample_facts *f) {
    return cli_format("%" PRIu32 " x %" PRIu32 " %s, %s%s%s", f->width_px, f->height_px,
                      image_format_name(f->format), cli_format_bytes(f->image_bytes),
                      (f->flags & SHARD_FLAG_REENCODED) != 0 ? ", re-encoded by the packer" : "",
                      (f->flags & SHARD_FLAG_UNCHECKED) != 0 ? ", not decoded by the packer" : "");
}

enum { IMAGE_PX = 320, IMAGES_UNTIL_BYTES = 920 << 10, TEXT_CHARACTERS = 4000 };

static void
put_facts(struct page *p, const struct sample_facts *f, const struct sample_content *content) {
    json_open_array(page_json(p), "facts");
    page_fact(p, "key", content->key);
    if (f->image_bytes > 0) {
        page_fact(p, "image", image_text(f));
    }
    if (f->label != SHARD_NO_LABEL) {
        const char *name = f->class_name != NULL ? f->class_name : "";
        page_fact(p, "label", cli_format("%" PRId32 " %.120s", f->label, name));
    }
    if (f->problem != NULL) {
        page_fact(p, "cannot be packed", f->problem);
    }
    page_fact(p, "file", f->file);
    page_fact(p, "byte", cli_format("%" PRIu64, f->offset));
    page_fact(p, "xxh64", cli_format("%016" PRIx64, f->image_hash));
    json_close_array(page_json(p));
}

/* Metadata that are not a JSON object are shown as they are. */
static void put_metadata(struct page *p, struct shard_text json) {
    struct json_document *d = NULL;
    if (json.data == NULL) {
        return;
    }
    page_item(p, "facts", "Metadata");
    if (json_document_parse(&d, "meta", json.data, json.size_bytes, NULL) == STATUS_OK &&
        json_value_is_object(json_document_root(d))) {
        page_value(p, "object", json_document_root(d));
    } else {
        json_open_object(page_json(p), "object");
        page_excerpt(p, "text", json, TEXT_CHARACTERS);
        json_close_object(page_json(p));
    }
    json_close_object(page_json(p));
    json_document_destroy(d);
}

static enum status
put_card(struct page *p, struct input *in, const struct sample_facts *f, struct error *err) {
    struct sample_content content;
    TRY(input_read(in, &content, err));
    page_section(p, cli_format("Sample %" PRIu64, f->id), false);
    page_images(p, NULL, "wide");
    page_card(p, NULL, content.image, f->image_bytes,
              f->caption_count > 0 ? content.captions[0] : (struct shard_text){"", 0});
    put_facts(p, f, &content);
    for (uint32_t k = 1; k < f->caption_count; k++) {
        page_line(p, NULL, "%.*s", page_excerpt_bytes(content.captions[k], TEXT_CHARACTERS),
                  content.captions[k].data);
    }
    page_card_end(p);
    page_images_end(p);
    put_metadata(p, content.json);
    return STATUS_OK;
}

/* Writes `path` for the current sample, with facts `first`, and up to count - 1 after it. Images
 * that the page has no room for are omitted. */
static enum status write_page(const char *path,
                              struct input *in,
                              const struct sample_facts *first,
                              uint64_t count,
                              struct error *err) {
    struct page p;
    struct sample_facts f = *first;
    enum status s = STATUS_OK;
    page_begin(&p, in->path);
    p.image_px = IMAGE_PX;
    p.images_until_bytes = IMAGES_UNTIL_BYTES;
    p.caption_characters = TEXT_CHARACTERS;
    for (uint64_t i = 0; i < count && s == STATUS_OK; i++) {
        s = i > 0 ? input_next(in, &f, err) : STATUS_OK;
        THEN(s, put_card(&p, in, &f, err));
    }
    if (s == STATUS_OK || s == STATUS_END) {
        s = page_end(&p, path, err);
    }
    page_fini(&p);
    return s;
}

/* ---- which sample, and how ------------------------------------------------------------------- */

static enum status choose(const struct options *o,
                          const struct cli_arguments *a,
                          struct input *in,
                          struct sample_facts *out,
                          struct error *err) {
    bool by_position = cli_given(&program, a, "position");
    bool by_id = cli_given(&program, a, "id");
    uint64_t id = o->id;
    FAIL_IF((by_position ? 1 : 0) + (by_id ? 1 : 0) + (a->count > 1 ? 1 : 0) > 1, err, STATUS_USAGE,
            "an id, --id and --position exclude each other");
    FAIL_IF(a->count > 1 && !cli_parse_u64(a->items[1], CLI_UNIT_NONE, &id), err, STATUS_USAGE,
            "'%s' is not an id: ids are whole numbers", a->items[1]);
    if (by_id || a->count > 1) {
        return input_find(in, out, id, err);
    }
    return input_at(in, out, o->position, err);
}

static enum status show_sample(const struct options *o,
                               struct input *in,
                               const struct sample_facts *f,
                               struct error *err) {
    struct sample_content content;
    TRY(input_read(in, &content, err));
    if (o->image) {
        TRY(sample_write_image(o->image, f, &content, err));
    }
    if (o->image && !o->json) {
        return STATUS_OK;
    }
    struct json_writer w;
    json_writer_init(&w, 0);
    enum status s = sample_write(&w, in, f, &content, err);
    THEN(s, put_result(&w, o->json, err));
    json_writer_fini(&w);
    return s;
}

/* Where results go. */
static enum status
check_outputs(const struct options *o, const struct cli_arguments *a, struct error *err) {
    FAIL_IF(o->html != NULL && (o->json || o->image != NULL), err, STATUS_USAGE,
            "--html excludes --json and --image");
    FAIL_IF(o->html == NULL && cli_given(&program, a, "count"), err, STATUS_USAGE,
            "--count needs --html");
    TRY(output_check_file(o->html, o->force, err));
    TRY(output_check_file(o->image, o->force, err));
    if (o->image == NULL || strcmp(o->image, "-") != 0) {
        return STATUS_OK;
    }
    FAIL_IF(o->json, err, STATUS_USAGE, "--json and --image - both write to standard output");
    return isatty(STDOUT_FILENO) == 1
               ? error_set(err, STATUS_USAGE,
                           "refusing to write an image to a terminal: redirect it to a file or a "
                           "pipe")
               : STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct input *in = NULL;
    struct sample_facts facts;
    TRY(check_outputs(o, a, err));
    TRY(remote_choice_use(&o->remote, err));
    TRY(input_open(&in, a->items[0], err));
    enum status s = choose(o, a, in, &facts, err);
    THEN(s, o->html != NULL ? write_page(o->html, in, &facts, o->count, err)
                            : show_sample(o, in, &facts, err));
    input_close(in);
    return s;
}

CLI_MAIN(ccdump_show, program, struct options, run)
