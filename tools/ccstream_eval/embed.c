/*
 * ccstream-eval embed: a dataset's embeddings as .npy files; or several datasets' by one process
 * that answers requests.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json/json_reader.h"
#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/cli/npy.h"
#include "tools/cli/output.h"

struct options {
    struct eval_options common;
    const char *out, *attach, *prompts;
    bool texts, features, as_stored;
    bool force, requests;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    {"data", 'd', CLI_STRING, CLI_FIELD(struct eval_options, data), .metavar = "DIR",
     .help = "dataset made by ccpack"},
    {"out", 'o', CLI_STRING, FIELD(out), .metavar = "PREFIX",
     .help = "prefix of the output files: PREFIX.images.npy, PREFIX.ids.npy, PREFIX.labels.npy, "
             "and those of the options below"},
    {"attach", 0, CLI_STRING, FIELD(attach), .metavar = "NAME",
     .help = "attach the embeddings to the dataset as column NAME: for each sample with a caption "
             "two f16 vectors, of its image and its first caption, as ccstream-train --reference "
             "and --teacher-image expect"},
    OUTPUT_FORCE_ROW(struct options, force),
    {"texts", 0, CLI_FLAG, FIELD(texts),
     .help = "also write PREFIX.texts.npy, the embeddings of captions, and PREFIX.owners.npy, the "
             "row of each caption's image"},
    {"features", 0, CLI_FLAG, FIELD(features),
     .help = "also write PREFIX.features.npy, the output of the image tower before the projection"},
    {"prompts", 0, CLI_STRING, FIELD(prompts), .metavar = "FILE",
     .help = "write PREFIX.prompts.npy, the embedding of each line of FILE (without cleaning; "
             "empty lines count); without --data, only this"},
    {"as-stored", 0, CLI_FLAG, FIELD(as_stored),
     .help = "ignore EXIF orientation and drop transparency, as Pillow's convert('RGB') and "
             "therefore open_clip and clip-benchmark do; --json counts such images"},
    {"requests", 0, CLI_FLAG, FIELD(requests),
     .help = "load the model once and answer requests: each line of stdin is a JSON object with "
             "data, prompts, out and texts; each answer is the object of --json, or one with error "
             "and code. --transform own then means clip for models that are not open_clip's"},
    EVAL_TRANSFORM_ROW("squash"),
};

static const struct cli_program program = {
    .name = "ccstream-eval embed",
    .purpose = "writes the embeddings of a dataset as NumPy arrays",
    .usage = CLI_TEXTS("CHECKPOINT --data DIR -o PREFIX|--attach NAME [options]",
                       "CHECKPOINT --prompts FILE -o PREFIX [options]",
                       "CHECKPOINT --requests [options]"),
    .examples = CLI_TEXTS("ccstream-eval embed runs/a --data coco-test --texts -o coco",
                          "ccstream-eval embed runs/a --data cc3m --attach teacher",
                          "ccstream-eval embed runs/a --prompts prompts.txt -o classes"),
    .notes = CLI_TEXTS(
        "Rows are in the order of sample ids (captions: text ids). Embeddings are f32 and "
        "L2-normalised, features f32 and not normalised, ids u64, labels and owners i32."),
    CLI_OPTIONS(rows),
    .shared = eval_shared,
    .arguments = {1, 1},
};

static enum status
file_name(char out[PATH_MAX_BYTES], const char *prefix, const char *name, struct error *err) {
    const int n = snprintf(out, PATH_MAX_BYTES, "%s.%s.npy", prefix, name);
    FAIL_IF(n >= PATH_MAX_BYTES, err, STATUS_LIMIT, "%.80s...: the path is too long", prefix);
    return STATUS_OK;
}

static enum status check_outputs(const struct options *o, struct error *err) {
    const bool data = o->common.data != NULL;
    const struct {
        const char *name;
        bool written;
    } files[] = {{"images", data},
                 {"ids", data},
                 {"labels", data},
                 {"features", o->features},
                 {"texts", o->texts},
                 {"owners", o->texts},
                 {"prompts", o->prompts != NULL}};
    char path[PATH_MAX_BYTES];
    FAIL_IF(!o->out && (!o->attach || o->prompts || o->texts || o->features), err, STATUS_USAGE,
            "-o PREFIX or --attach NAME must be given");
    TRY(o->attach ? eval_check_column(o->common.data, o->attach, o->force, err) : STATUS_OK);
    FAIL_IF(!data && (o->prompts == NULL || o->texts || o->features), err, STATUS_USAGE,
            "--data names the dataset whose images are encoded; without it only --prompts");
    for (size_t i = 0; i < CLI_COUNT(files); i++) {
        if (files[i].written && o->out) {
            TRY(file_name(path, o->out, files[i].name, err));
            TRY(output_check_file(path, o->force, err));
        }
    }
    return STATUS_OK;
}

static enum status write_one(const char *prefix,
                             const char *name,
                             const char *dtype,
                             const void *data,
                             size_t item_bytes,
                             int64_t row_count,
                             int64_t columns,
                             struct error *err) {
    char path[PATH_MAX_BYTES];
    TRY(file_name(path, prefix, name, err));
    return npy_write(path, dtype, data, item_bytes, (uint64_t)row_count, (uint64_t)columns, err);
}

static enum status
write_all(const struct options *o, const struct embeddings *e, struct error *err) {
    const char *p = o->out;
    TRY(write_one(p, "images", "<f4", e->images, 4, e->images_count, e->embed_dim, err));
    TRY(write_one(p, "ids", "<u8", e->sample_ids, 8, e->images_count, 0, err));
    TRY(write_one(p, "labels", "<i4", e->labels, 4, e->images_count, 0, err));
    if (o->features) {
        TRY(write_one(p, "features", "<f4", e->features, 4, e->images_count, e->feature_dim, err));
    }
    if (o->texts) {
        TRY(write_one(p, "texts", "<f4", e->texts, 4, e->texts_count, e->embed_dim, err));
        TRY(write_one(p, "owners", "<i4", e->owner, 4, e->texts_count, 0, err));
    }
    return STATUS_OK;
}

/* |x| <= 1, to the nearest. */
static uint16_t half_of(float x) {
    int exponent = 0;
    const double a = fabs((double)x);
    const double fraction = frexp(a, &exponent);
    const double bits =
        exponent < -13 ? a * 0x1p24 : 1024.0 * (2.0 * fraction - 1.0 + (double)(exponent + 14));
    return (uint16_t)((x < 0.0f ? 0x8000 : 0) | (unsigned)nearbyint(bits));
}

/* The first caption of each image with captions. */
static enum status attach(const struct options *o, const struct embeddings *e, struct error *err) {
    const int64_t dim = e->embed_dim;
    struct column_info info = {
        .kind = SAFETENSORS_F16, .values = (uint32_t)(2 * dim), .vectors = 2};
    uint64_t *ids = calloc((size_t)e->images_count + 1, sizeof *ids);
    uint16_t *vectors = calloc((size_t)e->images_count * 2 * (size_t)dim + 1, sizeof *vectors);
    int64_t count = 0;
    enum status s = ids != NULL && vectors != NULL
                        ? STATUS_OK
                        : error_set(err, STATUS_NOMEM, "no memory for the column");
    for (int64_t t = 0; s == STATUS_OK && t < e->texts_count; t++) {
        const int64_t image = e->owner[t];
        const bool first = t == 0 || e->owner[t - 1] != e->owner[t];
        for (int64_t k = 0; k < dim && first; k++) {
            vectors[count * 2 * dim + k] = half_of(e->images[image * dim + k]);
            vectors[(count * 2 + 1) * dim + k] = half_of(e->texts[t * dim + k]);
        }
        ids[count] = e->sample_ids[image];
        count += first;
    }
    THEN(s, eval_attach(o->common.data, o->attach, &info, ids, vectors, count, err));
    free(ids);
    free(vectors);
    return s;
}

/* Every line of the file. */
static enum status embed_prompts(struct eval *e, const struct options *o, struct error *err) {
    struct byte_buffer file;
    struct text_list list = {0};
    const int64_t dim = dual_encoder_get_options(e->model)->embed_dim;
    TRY(file_read_all(file_posix(), &file, o->prompts, TEXT_LIST_MAX_BYTES, err));
    enum status s =
        text_list_lines(&list, o->prompts, (const char *)file.data, file.size_bytes, err);
    byte_buffer_fini(&file);
    TRY(s);
    float *vectors = calloc(list.count, (size_t)dim * sizeof *vectors);
    s = vectors != NULL ? STATUS_OK
                        : error_set(err, STATUS_NOMEM, "no memory for %zu prompts", list.count);
    THEN(s, prompts_encode(vectors, e->model, e->dev, e->tokenizer, e->tokenizer_size_bytes,
                           list.lines, list.count, err));
    THEN(s, write_one(o->out, "prompts", "<f4", vectors, 4, (int64_t)list.count, dim, err));
    free(vectors);
    text_list_fini(&list);
    return s;
}

static enum status write_answer(const struct embeddings *e, bool json, struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    json_i64(&w, "images", e->images_count);
    json_i64(&w, "texts", e->texts_count);
    json_i64(&w, "embed_dim", e->embed_dim);
    json_i64(&w, "feature_dim", e->feature_dim);
    json_u64(&w, "exif_ignored", e->unturned_count);
    json_u64(&w, "transparency_ignored", e->opaque_count);
    return end_result(&w, json, err);
}

static enum status
embed(struct embeddings *found, struct eval *e, const struct options *o, struct error *err) {
    struct embed_options how =
        eval_transformed(e, &o->common, o->requests ? AUGMENT_EVAL_CLIP : AUGMENT_EVAL_SQUASH);
    how.texts = o->texts || o->attach;
    how.features = o->features;
    how.as_stored = o->as_stored;
    TRY(o->prompts != NULL ? embed_prompts(e, o, err) : STATUS_OK);
    if (o->common.data != NULL) {
        TRY(embed_dataset(found, &e->encoder, e->dev, o->common.data, &how, err));
        TRY(o->out ? write_all(o, found, err) : STATUS_OK);
        TRY(o->attach ? attach(o, found, err) : STATUS_OK);
    }
    return STATUS_OK;
}

/* ---- requests ---- */

enum { REQUEST_MAX_BYTES = 3 * PATH_MAX_BYTES };

static enum status
answer(struct eval *e, const struct options *o, const char *line, struct error *err) {
    struct options one = *o;
    struct embeddings found = {0};
    struct json_document *request = NULL;
    TRY(json_document_parse(&request, "request", line, strlen(line), err));
    const struct json_value *root = json_document_root(request);
    one.common.data = json_value_string(json_value_get(root, "data"), NULL);
    one.prompts = json_value_string(json_value_get(root, "prompts"), NULL);
    one.out = json_value_string(json_value_get(root, "out"), NULL);
    (void)json_value_bool(json_value_get(root, "texts"), &one.texts);
    enum status s = check_outputs(&one, err);
    THEN(s, embed(&found, e, &one, err));
    THEN(s, write_answer(&found, true, err));
    embeddings_fini(&found);
    json_document_destroy(request);
    return s;
}

/* One after another, to the end of stdin. After a failed request the others continue. */
static enum status answer_all(struct eval *e, const struct options *o, struct error *err) {
    char line[REQUEST_MAX_BYTES];
    while (fgets(line, sizeof line, stdin) != NULL) {
        struct error why = {0};
        const enum status s = answer(e, o, line, &why);
        if (s == STATUS_INTERRUPTED) {
            *err = why;
            return s;
        }
        if (s != STATUS_OK) {
            struct json_writer w;
            cli_begin_json(&w);
            json_string(&w, "error", why.text);
            json_i64(&w, "code", status_exit_code(s));
            TRY(end_result(&w, true, err));
        }
        (void)fflush(stdout);
    }
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct eval e;
    struct embeddings found = {0};
    FAIL_IF(o->requests && (o->common.data || o->prompts || o->out || o->attach), err, STATUS_USAGE,
            "--requests names data, prompts and outputs in its lines, not as options");
    TRY(o->requests ? STATUS_OK : check_outputs(o, err));
    TRY(o->prompts == NULL && !o->attach && !o->requests
            ? eval_open_images(&e, a->items[0], &o->common, err)
            : eval_open(&e, a->items[0], &o->common, err));
    enum status s = o->requests ? answer_all(&e, o, err) : embed(&found, &e, o, err);
    eval_close(&e);
    if (!o->requests) {
        THEN(s, write_answer(&found, o->common.json, err));
    }
    embeddings_fini(&found);
    return s;
}

CLI_MAIN(ccstream_eval_embed, program, struct options, run)
