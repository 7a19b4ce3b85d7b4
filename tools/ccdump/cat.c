/*
 * ccdump cat: exact bytes: a part of one sample, or samples as one plain tar in the form that
 * shards have, for tools that read no zstd.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/shard/shard_writer.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/ccdump/names.h"

struct options {
    struct ccdump_choice choice;
    bool image;
    bool caption;
    bool json_text;
    const char *out;
    bool quiet;
};

static const struct cli_option rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "FILE",
     .help = "write to this file instead of standard output; it appears when it is complete"},
    {"image", 0, CLI_FLAG, CLI_FIELD(struct options, image),
     .help = "the picture's bytes of the one sample named by --id", .group = "A part instead"},
    {"caption", 0, CLI_FLAG, CLI_FIELD(struct options, caption),
     .help = "the captions, each ended by a line feed"},
    {"json-text", 0, CLI_FLAG, CLI_FIELD(struct options, json_text),
     .help = "the samples' metadata, each ended by a line feed"},
    CCDUMP_ID_ROW(struct options, choice),
    CCDUMP_FROM_ROW(struct options, choice),
    CCDUMP_COUNT_ROW(struct options, choice),
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "no progress",
     .group = "Messages"},
};

static const struct cli_program program = {
    .name = "ccdump cat",
    .purpose = "writes samples as a plain tar, or a part of them",
    .usage = (const char *const[]){"DIR|SHARD|TAR [-o FILE] [--id N | --from ID --count N]",
                                   "DIR|SHARD|TAR --id N --image|--caption|--json-text", NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = 1,
    .examples = (const char *const[]){"ccdump cat cc3m | tar -tv | head",
                                      "ccdump cat cc3m --id 12 --image >12.jpg", NULL},
    .notes = (const char *const[]){
        "The tar has KEY.txt (further captions KEY.1.txt, ...), KEY.json and the picture of each "
        "sample in the order of ids. A key that came before gets the id behind it. Rows of a plain "
        "tar that have no picture are left out, and counted on stderr.",
        NULL}};

/* Where the bytes go: standard output, or a file that gets its name at the end. */
struct sink {
    struct file *file; /* NULL: standard output */
    char temporary[PATH_MAX_BYTES];
};

static enum status sink_open(struct sink *s, const char *path, struct error *err) {
    const struct file_system *fs = file_posix();
    s->file = NULL;
    if (!path || strcmp(path, "-") == 0) {
        return STATUS_OK;
    }
    int n = snprintf(s->temporary, sizeof(s->temporary), "%s.tmp", path);
    if (n < 0 || (size_t)n >= sizeof(s->temporary)) {
        return error_set(err, STATUS_LIMIT, "%.80s...: the path is too long", path);
    }
    return fs->open(fs->context, &s->file, s->temporary, FILE_REPLACE, err);
}

static enum status
sink_put(const struct sink *s, const void *data, size_t size_bytes, struct error *err) {
    return s->file ? file_posix()->write(s->file, data, size_bytes, err)
                   : ccdump_put(data, size_bytes, err);
}

/* Closes, and publishes what was written where all went well. */
static enum status
sink_close(struct sink *s, const char *path, enum status status, struct error *err) {
    const struct file_system *fs = file_posix();
    if (!s->file) {
        return status == STATUS_OK ? ccdump_flush(err) : status;
    }
    if (status == STATUS_OK) {
        status = fs->sync(s->file, err);
    }
    fs->close(s->file);
    if (status == STATUS_OK) {
        status = fs->rename(fs->context, s->temporary, path, err);
    }
    if (status != STATUS_OK) {
        fs->remove(fs->context, s->temporary, NULL);
    }
    return status;
}

struct cat {
    const struct options *options;
    struct ccdump_input *input;
    struct sink sink;
    struct names names;
    struct byte_buffer tar;
    uint64_t left_out; /* rows without a picture */
};

static enum status put_members(struct cat *c,
                               const struct ccdump_facts *f,
                               const struct ccdump_content *content,
                               struct error *err) {
    char name[SHARD_MAX_KEY_BYTES + 1];
    if (f->image_bytes == 0) {
        c->left_out++;
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
    return sink_put(&c->sink, c->tar.data, c->tar.size_bytes, err);
}

static enum status put_lines(struct cat *c,
                             const struct ccdump_facts *f,
                             const struct ccdump_content *content,
                             struct error *err) {
    uint32_t count = c->options->caption ? f->caption_count : content->json.data ? 1 : 0;
    const struct shard_text *texts = c->options->caption ? content->captions : &content->json;
    for (uint32_t k = 0; k < count; k++) {
        TRY(sink_put(&c->sink, texts[k].data, texts[k].size_bytes, err));
        TRY(sink_put(&c->sink, "\n", 1, err));
    }
    return STATUS_OK;
}

static enum status put_sample(struct cat *c, const struct ccdump_facts *f, struct error *err) {
    struct ccdump_content content;
    TRY(ccdump_input_read(c->input, &content, err));
    if (c->options->image) {
        return sink_put(&c->sink, content.image, f->image_bytes, err);
    }
    if (c->options->caption || c->options->json_text) {
        return put_lines(c, f, &content, err);
    }
    return put_members(c, f, &content, err);
}

static enum status put_samples(struct cat *c, struct error *err) {
    static const char end[1024];
    const struct options *o = c->options;
    struct ccdump_walk walk;
    struct ccdump_facts facts;
    struct cli_progress progress;
    uint64_t total = ccdump_input_sample_count(c->input);
    uint64_t done = 0;
    uint64_t bytes = 0;
    TRY(ccdump_walk_init(&walk, c->input, &o->choice, err));
    cli_progress_init(&progress, "samples", o->quiet || isatty(STDOUT_FILENO) == 1);
    enum status s = STATUS_OK;
    while (s == STATUS_OK) {
        s = cli_interrupted() ? error_set(err, STATUS_INTERRUPTED, "stopped on request")
                              : ccdump_walk_next(&walk, &facts, err);
        if (s == STATUS_OK) {
            s = put_sample(c, &facts, err);
            bytes += facts.image_bytes;
            cli_progress_update(&progress, ++done, total == CCDUMP_UNKNOWN ? 0 : total, bytes,
                                NULL);
        }
    }
    cli_progress_clear(&progress);
    ccdump_walk_fini(&walk);
    if (s == STATUS_END) {
        bool tar = !o->image && !o->caption && !o->json_text;
        s = tar ? sink_put(&c->sink, end, sizeof(end), err) : STATUS_OK;
    }
    return s;
}

static enum status check_options(const struct options *o, struct error *err) {
    int parts = (o->image ? 1 : 0) + (o->caption ? 1 : 0) + (o->json_text ? 1 : 0);
    bool one = o->choice.ids.count == 1 && strpbrk(o->choice.ids.items[0], ",-") == NULL;
    if (parts > 1) {
        return error_set(err, STATUS_USAGE, "--image, --caption and --json-text: one of them");
    }
    if (o->image && !one) {
        return error_set(err, STATUS_USAGE, "--image is of one sample: name it with --id");
    }
    if (!o->caption && !o->json_text && !o->out && isatty(STDOUT_FILENO) == 1) {
        return error_set(err, STATUS_USAGE,
                         "these bytes are not for a terminal: send them to a file or a pipe");
    }
    return STATUS_OK;
}

static enum status cat(const struct options *o, const char *path, struct error *err) {
    struct cat c = {.options = o};
    TRY(check_options(o, err));
    TRY(ccdump_input_open(&c.input, path, err));
    if (o->out) { /* so that nothing half-written stays; a pipe just ends */
        ccdump_signals();
    }
    enum status s = sink_open(&c.sink, o->out, err);
    if (s == STATUS_OK) {
        s = sink_close(&c.sink, o->out, put_samples(&c, err), err);
    }
    if (s == STATUS_OK && c.left_out > 0) {
        fprintf(stderr, "%s: %s: %" PRIu64 " row%s without a picture left out\n", program.name,
                path, c.left_out, c.left_out == 1 ? "" : "s");
    }
    names_fini(&c.names);
    byte_buffer_fini(&c.tar);
    ccdump_input_close(c.input);
    return s;
}

int ccdump_cat(int argc, char **argv) {
    struct options o;
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &a, argc, argv, &err);
    if (s == STATUS_OK) {
        s = cat(&o, a.items[0], &err);
        cli_arguments_fini(&a);
    }
    return cli_exit(&program, s, &err);
}
