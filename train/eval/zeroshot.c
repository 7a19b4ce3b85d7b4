/*
 * zeroshot: prompts with the class names become vectors of the common space; an image is assigned
 * to the nearest.
 */
#include "train/eval/zeroshot.h"

#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"

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
            "%s has no class names; name them with --class-names FILE", data);
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
