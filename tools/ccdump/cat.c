/*
 * ccdump cat: exact bytes: a part of samples, or samples as one plain tar with the shards' members,
 * for tools that do not read zstd.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/shard/shard_writer.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/ccdump/names.h"
#include "tools/cli/output.h"
#include "tools/inspect/page/thumbnail.h"

struct options {
    struct sample_choice choice;
    bool image;
    bool caption;
    bool json_text;
    bool columns;
    uint64_t thumbnail;
    struct cli_list only;
    const char *out;
    bool quiet;
    bool force;
};

static const struct cli_option rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "FILE",
     .help = "write to this file instead of standard output; it appears once complete"},
    OUTPUT_FORCE_ROW(struct options, force),
    CLI_ONLY_DATA_ROW(struct options, only),
    {"image", 0, CLI_FLAG, CLI_FIELD(struct options, image),
     .help = "only the image of the sample given by --id", .group = "Parts"},
    {"caption", 0, CLI_FLAG, CLI_FIELD(struct options, caption),
     .help = "only the captions, each followed by a line feed"},
    {"json-text", 0, CLI_FLAG, CLI_FIELD(struct options, json_text),
     .help = "only the metadata, one line per sample"},
    {"columns", 0, CLI_FLAG, CLI_FIELD(struct options, columns),
     .help = "only the values of attached columns: one JSON object per line with id and columns; "
             "vectors in full"},
    {"thumbnail", 0, CLI_U64, CLI_FIELD(struct options, thumbnail), .max = "4096",
     .default_text = "0", .metavar = "N",
     .help = "one JSON object per line instead: id, captions, and the image as a data: URI, a JPEG "
             "of at most N x N pixels; 0: off"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "no progress",
     .group = "Messages"},
};

static const struct cli_program program = {
    .name = "ccdump cat",
    .purpose = "writes samples as a plain tar, or parts of samples",
    .usage =
        CLI_TEXTS("DIR|SHARD|TAR [-o FILE] [--id N | --from ID --count N]",
                  "DIR|SHARD|TAR --id N --image|--caption|--json-text|--columns|--thumbnail N"),
    CLI_OPTIONS(rows),
    .shared = sample_choice_rows,
    .arguments = {1, 1},
    .examples =
        CLI_TEXTS("ccdump cat cc3m | tar -tv | head", "ccdump cat cc3m --id 12 --image >12.jpg"),
    .notes = CLI_TEXTS(
        "For each sample, in id order, the tar contains KEY.txt (further captions: KEY.1.txt, "
        "...), KEY.json and the image. The id is appended to a repeated key. Rows of a plain tar "
        "without an image are omitted and counted on stderr.")};

struct cat {
    const struct options *options;
    struct input *input;
    struct file_draft out; /* file NULL: standard output */
    struct names names;
    struct byte_buffer tar;
    struct image_decoder *decoder; /* of thumbnails */
    struct json_writer line;
    uint64_t omitted; /* rows without an image */
};

/* Opens the file when there are bytes to write. */
static enum status put(struct cat *c, const void *data, size_t size_bytes, struct error *err) {
    const char *path = c->options->out;
    if (path != NULL && strcmp(path, "-") != 0 && c->out.file == NULL) {
        TRY(file_make_parents(file_posix(), path, err));
        TRY(file_draft_open(&c->out, file_posix(), path, err));
    }
    return c->out.file ? c->out.fs->write(c->out.file, data, size_bytes, err)
                       : cli_put(data, size_bytes, err);
}

static enum status put_members(struct cat *c,
                               const struct sample_facts *f,
                               const struct sample_content *content,
                               struct error *err) {
    char name[SHARD_MAX_KEY_BYTES + 1];
    if (f->image_bytes == 0) {
        c->omitted++;
        return STATUS_OK;
    }
    TRY(names_take(&c->names, name, content->key, f->id, err));
    struct shard_sample sample = {
        .sample_id = f->id,
        .key = name,
        .image = content->image,
        .image_bytes = f->image_bytes,
        .format = f->format,
        .label = SHARD_NO_LABEL,
        .captions = content->captions,
        .caption_count = f->caption_count,
        .json = content->json,
    };
    TRY(shard_sample_tar(&c->tar, &sample, err));
    return put(c, c->tar.data, c->tar.size_bytes, err);
}

static enum status put_lines(struct cat *c,
                             const struct sample_facts *f,
                             const struct sample_content *content,
                             struct error *err) {
    uint32_t count = c->options->caption ? f->caption_count : content->json.data ? 1 : 0;
    const struct shard_text *texts = c->options->caption ? content->captions : &content->json;
    for (uint32_t k = 0; k < count; k++) {
        TRY(put(c, texts[k].data, texts[k].size_bytes, err));
        TRY(put(c, "\n", 1, err));
    }
    return STATUS_OK;
}

static enum status end_line(struct cat *c, struct error *err) {
    json_newline(&c->line);
    TRY(json_writer_status(&c->line, err));
    TRY(put(c, c->line.out.data, c->line.out.size_bytes, err));
    json_writer_reset(&c->line);
    return STATUS_OK;
}

static enum status put_columns(struct cat *c, uint64_t id, struct error *err) {
    json_open_object(&c->line, NULL);
    json_u64(&c->line, "id", id);
    TRY(input_put_columns(c->input, &c->line, id, err));
    json_close_object(&c->line);
    return end_line(c, err);
}

static enum status put_sample(struct cat *c, const struct sample_facts *f, struct error *err) {
    struct sample_content content;
    if (c->options->columns) {
        return put_columns(c, f->id, err);
    }
    TRY(input_read(c->input, &content, err));
    if (c->options->thumbnail > 0) {
        thumbnail_write(&c->line, c->decoder, (int32_t)c->options->thumbnail, f, &content);
        return end_line(c, err);
    }
    if (c->options->image) {
        return put(c, content.image, f->image_bytes, err);
    }
    if (c->options->caption || c->options->json_text) {
        return put_lines(c, f, &content, err);
    }
    return put_members(c, f, &content, err);
}

static enum status put_samples(struct cat *c, struct error *err) {
    static const char end[1024];
    const struct options *o = c->options;
    struct sample_walk walk;
    struct sample_facts facts;
    enum status s;
    TRY(sample_walk_init(&walk, c->input, &o->choice, o->quiet || isatty(STDOUT_FILENO) == 1, err));
    while ((s = sample_walk_next(&walk, &facts, err)) == STATUS_OK) {
        TRY_OR_FAIL(s, put_sample(c, &facts, err));
        walk.bytes += facts.image_bytes;
    }
    if (s == STATUS_END) {
        bool tar = !o->image && !o->caption && !o->json_text && !o->columns && o->thumbnail == 0;
        s = tar ? put(c, end, sizeof(end), err) : STATUS_OK;
    }
fail:
    sample_walk_fini(&walk);
    return s;
}

static enum status check_options(const struct options *o, struct error *err) {
    const int parts =
        o->image + o->caption + o->json_text + o->columns + (o->thumbnail > 0 ? 1 : 0);
    bool one = o->choice.ids.count == 1 && strpbrk(o->choice.ids.items[0], ",-") == NULL;
    FAIL_IF(parts > 1, err, STATUS_USAGE,
            "--image, --caption, --json-text, --columns and --thumbnail exclude each other");
    FAIL_IF(o->image && !one, err, STATUS_USAGE, "--image writes one sample: name it with --id");
    FAIL_IF(!o->caption && !o->json_text && !o->columns && o->thumbnail == 0 && !o->out &&
                isatty(STDOUT_FILENO) == 1,
            err, STATUS_USAGE,
            "refusing to write a tar or an image to a terminal: redirect it to a file or a pipe");
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct cat c = {.options = o};
    struct remote_choice remote = o->choice.remote;
    TRY(check_options(o, err));
    TRY(output_check_file(o->out, o->force, err));
    remote.only = o->only.count > 0 ? &o->only : NULL;
    TRY(remote_choice_use(&remote, err));
    TRY(input_open(&c.input, a->items[0], err));
    c.input->all_numbers = o->columns;
    if (o->out) { /* so that no half-written file stays */
        samples_signals();
    }
    json_writer_init(&c.line, 0);
    enum status s = image_decoder_create(&c.decoder, NULL, err);
    THEN(s, put_samples(&c, err));
    THEN(s, put(&c, "", 0, err));
    if (c.out.file != NULL) {
        s = file_draft_close(&c.out, s, err);
    }
    if (s == STATUS_OK && c.omitted > 0) {
        cli_print(stderr, "%s: %s: %s without an image omitted\n", program.name, a->items[0],
                  cli_format_counted(c.omitted, "row"));
    }
    names_fini(&c.names);
    byte_buffer_fini(&c.tar);
    json_writer_fini(&c.line);
    image_decoder_destroy(c.decoder);
    input_close(c.input);
    return s;
}

CLI_MAIN(ccdump_cat, program, struct options, run)
