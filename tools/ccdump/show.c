/*
 * ccdump show: one sample in readable form: fields, captions, metadata; its image as a file or on a
 * page.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/ccdump/ccdump_internal.h"
#include "tools/cli/output.h"
#include "tools/inspect/page/page_data.h"

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
     .help = "sample id, instead of a second argument"},
    {"position", 0, CLI_U64, CLI_FIELD(struct options, position), .default_text = "0",
     .metavar = "N", .help = "position in the order of ids"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object"},
    {"html", 0, CLI_STRING, CLI_FIELD(struct options, html), .metavar = "FILE",
     .help = "write a self-contained HTML page with image, captions, metadata and index fields"},
    {"count", 0, CLI_U64, CLI_FIELD(struct options, count), .min = "1", .max = "100",
     .default_text = "1", .metavar = "N",
     .help = "with --html: number of samples, starting with the chosen one"},
    {"image", 0, CLI_STRING, CLI_FIELD(struct options, image), .metavar = "FILE",
     .help = "write the unchanged image file to this path, or with '-' to standard output; with "
             "--json also print the object"},
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

/* ---- on a page ------------------------------------------------------------------------------- */

/* For the current sample, with fields `first`, and up to count - 1 after it. */
static enum status put_samples(struct page_data *d,
                               struct input *in,
                               const struct sample_facts *first,
                               uint64_t count,
                               struct error *err) {
    struct sample_facts f = *first;
    struct sample_content content;
    enum status s = STATUS_OK;
    json_location(&d->json, "input", in->path);
    json_open_array(&d->json, "samples");
    for (uint64_t i = 1; i <= count && s == STATUS_OK; i++) {
        TRY(input_read(in, &content, err));
        json_open_array(&d->json, NULL);
        TRY(sample_write(&d->json, in, &f, &content, err));
        TRY(page_data_sample(d, in, &f, err));
        json_close_array(&d->json);
        s = i < count ? input_next(in, &f, err) : STATUS_OK;
    }
    json_close_array(&d->json);
    return s == STATUS_END ? STATUS_OK : s;
}

static enum status write_page(const char *path,
                              struct input *in,
                              const struct sample_facts *first,
                              uint64_t count,
                              struct error *err) {
    enum { IMAGE_PX = 320 };
    struct page_data d;
    TRY(page_data_begin(&d, path, err));
    d.image_px = IMAGE_PX;
    enum status s = put_samples(&d, in, first, count, err);
    THEN(s, page_data_write(&d, err));
    page_data_fini(&d);
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
            "'%s' is not an id: ids are integers", a->items[1]);
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
    TRY(page_check(o->html, o->force, err));
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
