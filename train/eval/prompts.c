/*
 * prompts: encodes lines of text, a batch of the model at a time.
 */
#include "train/eval/prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/utf8.h"
#include "formats/dataset/dataset.h"
#include "formats/tokenizer/tokenizer.h"
#include "loader/texts.h"

const char PROMPT_TEMPLATES[] = "{}\n"
                                "a photo of {}\n"
                                "a photo of a {}\n"
                                "an image of the {}\n"
                                "a close view of a {}\n"
                                "a {} seen from far away\n"
                                "there is a {} in this image\n"
                                "a drawing of a {}\n";

/* ---- lists ---- */

void text_list_fini(struct text_list *l) {
    free(l->lines);
    free(l->text);
    memset(l, 0, sizeof *l);
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Removes white space at both ends of a NUL-terminated line. */
static char *trim(char *line) {
    while (is_space(*line)) {
        line++;
    }
    size_t size_bytes = strlen(line);
    while (size_bytes > 0 && is_space(line[size_bytes - 1])) {
        line[--size_bytes] = '\0';
    }
    return line;
}

static enum status split(struct text_list *out,
                         const char *name,
                         const char *text,
                         size_t size_bytes,
                         bool every_line,
                         struct error *err) {
    memset(out, 0, sizeof *out);
    FAIL_IF(utf8_valid_prefix(text, size_bytes) != size_bytes || memchr(text, '\0', size_bytes),
            err, STATUS_CORRUPT, "%s: not UTF-8 text", name);
    size_t lines = 1;
    for (size_t i = 0; i < size_bytes; i++) {
        lines += text[i] == '\n' ? 1 : 0;
    }
    FAIL_IF(lines > TEXT_LIST_MAX_LINES, err, STATUS_LIMIT, "%s: more than %d lines", name,
            TEXT_LIST_MAX_LINES);
    out->text = malloc(size_bytes + 1);
    out->lines = calloc(lines, sizeof *out->lines);
    if (out->text == NULL || out->lines == NULL) {
        text_list_fini(out);
        return error_set(err, STATUS_NOMEM, "%s: out of memory", name);
    }
    memcpy(out->text, text, size_bytes);
    out->text[size_bytes] = '\0';
    for (char *at = out->text; at != NULL;) {
        char *end = strchr(at, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        char *line = every_line ? at : trim(at);
        if (every_line ? end != NULL || at[0] != '\0' : line[0] != '\0' && line[0] != '#') {
            out->lines[out->count++] = line;
        }
        at = end != NULL ? end + 1 : NULL;
    }
    if (out->count == 0) {
        text_list_fini(out);
        return error_set(err, STATUS_CORRUPT, "%s: holds no line of text", name);
    }
    return STATUS_OK;
}

enum status text_list_parse(struct text_list *out,
                            const char *name,
                            const char *text,
                            size_t size_bytes,
                            struct error *err) {
    return split(out, name, text, size_bytes, false, err);
}

enum status text_list_lines(struct text_list *out,
                            const char *name,
                            const char *text,
                            size_t size_bytes,
                            struct error *err) {
    return split(out, name, text, size_bytes, true, err);
}

enum status text_list_read(struct text_list *out,
                           const struct file_system *fs,
                           const char *path,
                           struct error *err) {
    struct byte_buffer file;
    memset(out, 0, sizeof *out);
    TRY(file_read_all(fs, &file, path, TEXT_LIST_MAX_BYTES, err));
    const enum status s = text_list_parse(out, path, (const char *)file.data, file.size_bytes, err);
    byte_buffer_fini(&file);
    return s;
}

/* ---- texts to embeddings ---- */

enum status prompts_encode(float *out,
                           struct dual_encoder *model,
                           struct device *dev,
                           const void *tokenizer,
                           size_t tokenizer_size_bytes,
                           char *const *texts,
                           size_t count,
                           struct error *err) {
    const struct dual_encoder_options *o = dual_encoder_get_options(model);
    const size_t most = (size_t)o->micro_batch;
    const size_t width = (size_t)o->text.max_tokens;
    struct tokenizer *pieces = NULL;
    FAIL_IF(tokenizer == NULL, err, STATUS_USAGE,
            "prompts need a tokenizer, and the model has none");
    int32_t *tokens = calloc(most, width * sizeof *tokens);
    int32_t *lengths = calloc(most, sizeof *lengths);
    enum status s = tokens != NULL && lengths != NULL
                        ? STATUS_OK
                        : error_set(err, STATUS_NOMEM, "no memory for %zu texts", most);
    THEN(s, tokenizer_open(&pieces, tokenizer, tokenizer_size_bytes, err));
    for (size_t done = 0; s == STATUS_OK && done < count; done += most) {
        const size_t n = count - done < most ? count - done : most;
        struct tensor text;
        for (size_t i = 0; i < n && s == STATUS_OK; i++) {
            const char *one = texts[done + i];
            s = texts_encode(pieces, tokens + i * width, &lengths[i], one, strlen(one),
                             (uint32_t)width, false, err);
        }
        THEN(s, dual_encoder_encode_texts(model, &text, tokens, lengths, (int32_t)n, err));
        THEN(s, dev->ops->download(dev, out + done * (size_t)o->embed_dim, text.data,
                                   tensor_size_bytes(&text), err));
    }
    tokenizer_close(pieces);
    free(tokens);
    free(lengths);
    return s;
}

/* A copy of the template with each {} replaced by the name. */
static enum status
fill_template(char **out, const char *pattern, const char *name, struct error *err) {
    char text[PROMPT_MAX_BYTES];
    size_t used = 0;
    bool filled = false;
    for (const char *at = pattern; *at != '\0';) {
        const bool place = at[0] == '{' && at[1] == '}';
        const char *piece = place ? name : at;
        const size_t size_bytes = place ? strlen(name) : 1;
        FAIL_IF(size_bytes >= sizeof text - used, err, STATUS_LIMIT,
                "prompt '%.60s...' has more than %d bytes", pattern, PROMPT_MAX_BYTES);
        memcpy(text + used, piece, size_bytes);
        used += size_bytes;
        at += place ? 2 : 1;
        filled = filled || place;
    }
    text[used] = '\0';
    FAIL_IF(!filled, err, STATUS_USAGE, "template '%.100s' has no {} for the class name", pattern);
    *out = strdup(text);
    return *out != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory for prompts");
}

/* The normalised mean of `count` rows. */
static void mean_row(float *out, const float *rows, size_t count, size_t dim) {
    memset(out, 0, dim * sizeof *out);
    for (size_t i = 0; i < count; i++) {
        for (size_t d = 0; d < dim; d++) {
            out[d] += rows[i * dim + d];
        }
    }
    classify_normalize(out, 1, (int64_t)dim);
}

enum status prompts_class_vectors(float *vectors,
                                  struct dual_encoder *model,
                                  struct device *dev,
                                  const void *tokenizer,
                                  size_t tokenizer_size_bytes,
                                  const struct text_list *names,
                                  const struct text_list *templates,
                                  struct error *err) {
    const size_t dim = (size_t)dual_encoder_get_options(model)->embed_dim;
    const size_t per_class = templates->count;
    char **prompts = calloc(names->count * per_class, sizeof *prompts);
    float *rows = calloc(names->count * per_class, dim * sizeof *rows);
    enum status s = prompts != NULL && rows != NULL
                        ? STATUS_OK
                        : error_set(err, STATUS_NOMEM, "out of memory for %zu prompts",
                                    names->count * per_class);
    for (size_t i = 0; s == STATUS_OK && i < names->count * per_class; i++) {
        s = fill_template(&prompts[i], templates->lines[i % per_class], names->lines[i / per_class],
                          err);
    }
    THEN(s, prompts_encode(rows, model, dev, tokenizer, tokenizer_size_bytes, prompts,
                           names->count * per_class, err));
    for (size_t c = 0; s == STATUS_OK && c < names->count; c++) {
        mean_row(vectors + c * dim, rows + c * per_class * dim, per_class, dim);
    }
    for (size_t i = 0; prompts != NULL && i < names->count * per_class; i++) {
        free(prompts[i]);
    }
    free(prompts);
    free(rows);
    return s;
}

/* ---- zero-shot classification: an image is assigned to the nearest class ---- */

enum status zeroshot_classes(struct text_list *out, const char *dataset_dir, struct error *err) {
    struct dataset *d = NULL;
    memset(out, 0, sizeof *out);
    TRY(dataset_open(&d, dataset_dir, NULL, err));
    const struct manifest *m = dataset_manifest(d);
    size_t size_bytes = 1;
    for (size_t i = 0; i < m->class_count; i++) {
        size_bytes += strlen(m->classes[i]) + 1;
    }
    out->text = calloc(size_bytes, 1);
    out->lines = calloc(m->class_count + 1, sizeof *out->lines);
    if (out->text == NULL || out->lines == NULL) {
        text_list_fini(out);
        dataset_close(d);
        return error_set(err, STATUS_NOMEM, "%s: out of memory", dataset_dir);
    }
    char *at = out->text;
    for (size_t i = 0; i < m->class_count; i++) {
        out->lines[out->count++] = strcpy(at, m->classes[i]);
        at += strlen(at) + 1;
    }
    dataset_close(d);
    return STATUS_OK;
}

/* Replaces the dataset's class names by the names in a file. */
static enum status take_names(struct text_list *classes,
                              const struct text_list *file,
                              const char *path,
                              struct error *err) {
    const bool by_class = strchr(file->lines[0], '\t') != NULL;
    if (!by_class) {
        FAIL_IF(classes->count > 0 && file->count != classes->count, err, STATUS_USAGE,
                "%s: %zu names for %zu classes", path, file->count, classes->count);
        for (size_t i = 0; i < classes->count; i++) {
            classes->lines[i] = file->lines[i];
        }
        return STATUS_OK;
    }
    for (size_t i = 0; i < classes->count; i++) {
        const size_t size_bytes = strlen(classes->lines[i]);
        char *name = NULL;
        for (size_t k = 0; k < file->count && name == NULL; k++) {
            char *line = file->lines[k];
            if (strncmp(line, classes->lines[i], size_bytes) == 0 && line[size_bytes] == '\t') {
                name = line + size_bytes + 1;
            } else if (strcmp(line, classes->lines[i]) == 0) {
                name = line;
            }
        }
        FAIL_IF(name == NULL, err, STATUS_USAGE, "%s: no name for class '%.80s'", path,
                classes->lines[i]);
        classes->lines[i] = name;
    }
    return STATUS_OK;
}

enum status zeroshot_name_classes(struct text_list *own,
                                  struct text_list *file,
                                  const char *path,
                                  const char *data,
                                  struct error *err) {
    if (path != NULL) {
        TRY(text_list_read(file, file_posix(), path, err));
        return take_names(own, file, path, err);
    }
    FAIL_IF(own->count == 0, err, STATUS_USAGE,
            "%s has no class names; pass them with --class-names FILE", data);
    for (size_t i = 0; i < own->count; i++) {
        for (char *c = own->lines[i]; *c != '\0'; c++) {
            *c = *c == '_' ? ' ' : *c;
        }
    }
    return STATUS_OK;
}

enum status zeroshot_read_templates(struct text_list *out, const char *path, struct error *err) {
    return path != NULL ? text_list_read(out, file_posix(), path, err)
                        : text_list_parse(out, "the prompts", PROMPT_TEMPLATES,
                                          strlen(PROMPT_TEMPLATES), err);
}

enum status zeroshot_evaluate(struct classify_result *out,
                              struct dual_encoder *model,
                              struct device *dev,
                              const char *dataset_dir,
                              const struct text_list *names,
                              const struct text_list *templates,
                              const struct embed_options *opt,
                              struct error *err) {
    REQUIRE(out != NULL && model != NULL && names != NULL && templates != NULL && opt != NULL);
    const struct embed_model encoder = {.pairs = model};
    const size_t dim = (size_t)dual_encoder_get_options(model)->embed_dim;
    struct embeddings images = {0};
    memset(out, 0, sizeof *out);
    float *vectors = calloc(names->count, dim * sizeof *vectors);
    enum status s;
    TRY_MEMORY(vectors != NULL, err, "no memory for %zu classes", names->count);
    TRY_OR_FAIL(s, prompts_class_vectors(vectors, model, dev, opt->tokenizer,
                                         opt->tokenizer_size_bytes, names, templates, err));
    TRY_OR_FAIL(s, embed_dataset(&images, &encoder, dev, dataset_dir, opt, err));
    const struct classify_set set = {.rows = images.images,
                                     .labels = images.labels,
                                     .count = images.images_count,
                                     .dim = images.embed_dim};
    s = classify_by_vectors(out, dev, &set, vectors, NULL, (int32_t)names->count, err);
fail:
    embeddings_fini(&images);
    free(vectors);
    return s;
}
