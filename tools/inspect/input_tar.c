/*
 * Samples of a plain WebDataset tar. It has no index, so a row is reached by skipping all rows
 * before it. Going back restarts at the beginning, which a pipe cannot do.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/image/image_codec.h"
#include "pack/source/source.h"
#include "tools/cli/cli.h"
#include "tools/inspect/input_internal.h"

struct tar_input {
    struct input base;
    struct source *source; /* NULL: at the end, or not opened */
    struct source_row row; /* the current one if rows_read > 0 */
    uint64_t rows_read;
    struct shard_text captions[SOURCE_MAX_CAPTIONS];
    char problem[320];
};

static void tar_close(struct input *in) {
    struct tar_input *t = (struct tar_input *)in;
    source_close(t->source);
    source_row_fini(&t->row);
    free(t);
}

static enum status begin(struct tar_input *t, struct error *err) {
    FAIL_IF(t->rows_read > 0 && strcmp(t->base.path, "-") == 0, err, STATUS_UNSUPPORTED,
            "standard input cannot be read twice: name the tar as a file");
    struct source_options how = {.kind = SOURCE_WDS, .stop = cli_interrupted_callback};
    source_close(t->source);
    t->source = NULL;
    t->rows_read = 0;
    return source_open(&t->source, t->base.path, &how, err);
}

/* Reads the row at this position, which is not read yet. After a status other than OK there is no
 * current row, and the source is closed. */
static enum status read_row(struct tar_input *t, uint64_t position, struct error *err) {
    uint64_t skipped = 0;
    enum status s = source_skip(t->source, position - t->rows_read, &skipped, err);
    t->rows_read += skipped;
    THEN(s, source_next(t->source, &t->row, err));
    if (s == STATUS_OK) {
        t->rows_read++;
        s = source_row_load(&t->row, err);
    }
    if (s == STATUS_OK) {
        return s;
    }
    if (s == STATUS_END) {
        t->base.sample_count = t->rows_read;
    }
    source_close(t->source);
    t->source = NULL;
    return s;
}

static const char *problem_of(struct tar_input *t) {
    const struct source_row *r = &t->row;
    if (r->reason == REASON_NONE) {
        return NULL;
    }
    snprintf(t->problem, sizeof(t->problem), "%s%s%s", source_reason_name(r->reason),
             r->detail[0] != '\0' ? ": " : "", r->detail);
    return t->problem;
}

static enum status take_facts(struct tar_input *t, struct sample_facts *out, struct error *err) {
    const struct source_row *r = &t->row;
    const char *text = (const char *)r->text.data;
    for (uint32_t k = 0; k < r->caption_count; k++) {
        t->captions[k] = (struct shard_text){text, r->caption_size_bytes[k]};
        text += r->caption_size_bytes[k];
    }
    *out = (struct sample_facts){
        .position = r->row,
        .id = r->row,
        .first_text_id = INPUT_UNKNOWN,
        .offset = r->offset_bytes,
        .file = input_file_name(t->base.path),
        .caption_count = r->caption_count,
        .image_bytes = (uint32_t)r->image.size_bytes,
        .image_hash = hash64(r->image.data, r->image.size_bytes),
        .label = SHARD_NO_LABEL,
        .problem = problem_of(t),
    };
    if (r->image.size_bytes > 0) {
        struct image_info info;
        image_probe(&info, r->image.data, r->image.size_bytes, NULL, NULL);
        out->width_px = (uint32_t)info.width_px;
        out->height_px = (uint32_t)info.height_px;
        out->format = image_format_of(r->image.data, r->image.size_bytes);
    }
    return shard_caption_hash(&out->caption_hash, t->captions, r->caption_count, err);
}

static enum status
tar_choose(struct input *in, struct sample_facts *out, uint64_t position, struct error *err) {
    struct tar_input *t = (struct tar_input *)in;
    if (position >= in->sample_count) {
        return STATUS_END;
    }
    if (!t->source || position + 1 < t->rows_read) {
        TRY(begin(t, err));
    }
    if (t->rows_read <= position) {
        enum status s = read_row(t, position, err);
        if (s != STATUS_OK) {
            return s;
        }
    }
    return take_facts(t, out, err);
}

static enum status
tar_caption(struct input *in, struct shard_text *out, uint32_t k, struct error *err) {
    struct tar_input *t = (struct tar_input *)in;
    (void)err;
    *out = t->captions[k];
    return STATUS_OK;
}

static enum status tar_read(struct input *in, struct sample_content *out, struct error *err) {
    struct tar_input *t = (struct tar_input *)in;
    (void)err;
    *out = (struct sample_content){
        .key = t->row.key, .captions = t->captions, .image = t->row.image.data};
    if (t->row.json.size_bytes > 0) {
        out->json = (struct shard_text){(const char *)t->row.json.data, t->row.json.size_bytes};
    }
    return STATUS_OK;
}

enum status input_open_tar(struct input **out, const char *path, struct error *err) {
    static const struct input_ops ops = {tar_close, tar_choose, tar_caption, tar_read};
    struct tar_input *t = calloc(1, sizeof(*t));
    TRY_MEMORY(t, err, "%s: out of memory", path);
    t->base = (struct input){.kind = INPUT_TAR,
                             .ops = &ops,
                             .container = "webdataset",
                             .path = path,
                             .sample_count = INPUT_UNKNOWN};
    source_row_init(&t->row);
    const enum status s = begin(t, err);
    if (s != STATUS_OK) {
        tar_close(&t->base);
        return s;
    }
    *out = &t->base;
    return STATUS_OK;
}
