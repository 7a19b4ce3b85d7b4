/*
 * ccdump cat: exact bytes to stdout: a part of one sample, one sample as tar members, or the whole
 * dataset as one plain tar for tools that read no zstd.
 */
#include <stdio.h>
#include <unistd.h>

#include "tools/ccdump_internal.h"

struct options {
    uint64_t id;
    bool image;
    bool caption;
    bool json_text;
};

static const struct cli_option rows[] = {
    {"id", 0, CLI_U64, CLI_FIELD(struct options, id), .default_text = "0", .metavar = "N",
     .help = "only the sample with this id; without it all samples, by id"},
    {"image", 0, CLI_FLAG, CLI_FIELD(struct options, image), .help = "the image's bytes"},
    {"caption", 0, CLI_FLAG, CLI_FIELD(struct options, caption),
     .help = "the captions, each ended by a line feed"},
    {"json-text", 0, CLI_FLAG, CLI_FIELD(struct options, json_text),
     .help = "the sample's metadata, ended by a line feed"},
};

static const struct cli_program program = {
    .name = "ccdump cat",
    .purpose = "writes a sample's bytes, or the whole dataset as a plain tar",
    .usage =
        (const char *const[]){"DIR --id N --image|--caption|--json-text", "DIR [--id N]", NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = 1,
};

static enum status put_end(struct error *err) {
    static const char zeros[1024];
    return ccdump_put(zeros, sizeof(zeros), err);
}

static enum status cat_part(const struct options *o, const char *directory, struct error *err) {
    struct ccdump_sample sample;
    TRY(ccdump_sample_open(&sample, directory, true, o->id, err));
    const struct sample_view *v = &sample.view;
    enum status s = STATUS_OK;
    if (o->image) {
        s = ccdump_put(v->image, v->image_bytes, err);
    } else if (o->caption) {
        for (size_t k = 0; s == STATUS_OK && k < v->caption_count; k++) {
            s = ccdump_put(v->captions[k].data, v->captions[k].size_bytes, err);
            if (s == STATUS_OK) {
                s = ccdump_put("\n", 1, err);
            }
        }
    } else if (o->json_text && v->json.data) {
        s = ccdump_put(v->json.data, v->json.size_bytes, err);
        if (s == STATUS_OK) {
            s = ccdump_put("\n", 1, err);
        }
    } else if (!o->json_text) {
        s = ccdump_put(v->tar, v->tar_bytes, err);
        if (s == STATUS_OK) {
            s = put_end(err);
        }
    }
    ccdump_sample_close(&sample);
    return s;
}

/* Samples by id; readers are opened as the ids need them, and ids mostly stay in one shard. */
static enum status cat_samples(const struct dataset *d, struct error *err) {
    struct shard_reader *r = NULL;
    uint32_t opened = 0;
    enum status s = STATUS_OK;
    for (uint64_t position = 0; s == STATUS_OK && position < dataset_sample_count(d); position++) {
        struct dataset_sample sample;
        struct sample_view view;
        s = dataset_sample_at(d, position, &sample, err);
        if (s == STATUS_OK && (!r || opened != sample.shard)) {
            shard_reader_close(r);
            opened = sample.shard;
            s = shard_reader_open(&r, file_posix(), dataset_shard_path(d, sample.shard), err);
        }
        if (s == STATUS_OK) {
            s = shard_reader_get(r, sample.index_in_shard, &view, err);
        }
        if (s == STATUS_OK) {
            s = ccdump_put(view.tar, view.tar_bytes, err);
        }
    }
    shard_reader_close(r);
    return s == STATUS_OK ? put_end(err) : s;
}

static enum status cat(const struct options *o, const struct cli_arguments *a, struct error *err) {
    int parts = (o->image ? 1 : 0) + (o->caption ? 1 : 0) + (o->json_text ? 1 : 0);
    bool by_id = cli_given(&program, a, "id");
    if (parts > 1 || (parts == 1 && !by_id)) {
        return error_set(err, STATUS_USAGE,
                         "--image, --caption and --json-text: one of them, with --id");
    }
    if (!o->caption && !o->json_text && isatty(STDOUT_FILENO)) {
        return error_set(err, STATUS_USAGE,
                         "these bytes are not for a terminal: send them to a file or a pipe");
    }
    if (by_id) {
        TRY(cat_part(o, a->items[0], err));
    } else {
        struct dataset *d = NULL;
        TRY(dataset_open(&d, a->items[0], NULL, err));
        enum status s = cat_samples(d, err);
        dataset_close(d);
        TRY(s);
    }
    return ccdump_flush(err);
}

int ccdump_cat(int argc, char **argv) {
    struct options o;
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &a, argc, argv, &err);
    if (s == STATUS_OK) {
        s = cat(&o, &a, &err);
        cli_arguments_fini(&a);
    }
    return cli_exit(&program, s, &err);
}
