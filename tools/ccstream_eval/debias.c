/*
 * ccstream-eval debias: zero-shot classification with class vectors from which a spurious attribute
 * is removed. Prompts describe the attribute; accuracy is by groups, the dataset's folders
 * CLASS@GROUP.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "train/eval/debias.h"

struct options {
    struct eval_options common;
    const char *templates, *class_names, *spurious, *pairs;
    double lambda;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    EVAL_DATA_ROW("dataset packed from class folders named CLASS@GROUP"),
    {"spurious", 0, CLI_STRING, FIELD(spurious), .metavar = "FILE",
     .help =
         "prompts that describe only the spurious attribute, one per line: their directions are "
         "projected out"},
    {"pairs", 0, CLI_STRING, FIELD(pairs), .metavar = "FILE",
     .help =
         "on each line two or more prompts, separated by tabs, that differ only in the spurious "
         "attribute: every two of a line are a pair"},
    {"lambda", 0, CLI_DOUBLE, FIELD(lambda), .min = "0", .max = "1000000", .default_text = "1000",
     .metavar = "X", .help = "how strongly the prompts of a pair are equalised; 0: off"},
    {"templates", 0, CLI_STRING, FIELD(templates), .metavar = "FILE",
     .help = "prompts of the classes, one per line, with {} for the name; default: a few built-in "
             "ones"},
    {"class-names", 0, CLI_STRING, FIELD(class_names), .metavar = "FILE",
     .help = "lines 'class TAB name'; default: CLASS itself, with spaces for _"},
    EVAL_TRANSFORM_ROW("crop"),
};

static const struct cli_program program = {
    .name = "ccstream-eval debias",
    .purpose = "classifies by prompts from which a spurious attribute is removed",
    .usage = CLI_TEXTS("CHECKPOINT --data DIR --spurious FILE --pairs FILE [options]"),
    .examples = CLI_TEXTS("ccpack -o birds waterbirds   # waterbirds/landbird@land, "
                          "landbird@water, waterbird@land, ...",
                          "ccstream-eval debias runs/a --data birds --spurious "
                          "backgrounds.txt --pairs birds.tsv --json"),
    .notes = CLI_TEXTS(
        "Chuang et al., 'Debiasing vision-language models via biased prompts' (2023): class "
        "vectors z become P z of length 1, with P = P0 (I + lambda/pairs sum (zi - zj)(zi - "
        "zj)^T)^-1 and P0 the projection orthogonal to the spurious prompts. Prints the "
        "accuracy before and after, over all images and of the worst group."),
    CLI_OPTIONS(rows),
    .shared = eval_shared,
    .arguments = {1, 1},
};

enum { BEFORE, AFTER, SIDES }; /* the projection */

/* A folder CLASS@GROUP. */
struct group {
    int32_t class_index;
    uint64_t images;
    double percent[SIDES]; /* of the images, right */
};

struct accuracy { /* in percent */
    double average, worst;
    const char *worst_group;
};

struct job {
    const struct options *o;
    struct eval eval;
    struct embeddings images;
    struct text_list folders, classes; /* CLASS@GROUP by label; the distinct CLASSes */
    struct group *groups;              /* (folders.count) */
    struct text_list name_file, templates, spurious, pair_lines;
    char **pairs; /* (2 pair_count): the two of a pair are adjacent; borrowed from the lines */
    int64_t pair_count;
};

/* ---- files ---- */

/* The folders, and the classes: what stands before the @ of each. */
static enum status read_groups(struct job *j, struct error *err) {
    const char *dir = j->o->common.data;
    size_t classes = 0;
    bool any = false;
    TRY(zeroshot_classes(&j->folders, dir, err));
    TRY(zeroshot_classes(&j->classes, dir, err));
    j->groups = calloc(j->folders.count + 1, sizeof *j->groups);
    TRY_MEMORY(j->groups, err, "out of memory");
    for (size_t i = 0; i < j->folders.count; i++) {
        char *name = j->classes.lines[i];
        size_t c = 0;
        any = any || strchr(name, '@') != NULL;
        name[strcspn(name, "@")] = '\0';
        while (c < classes && strcmp(j->classes.lines[c], name) != 0) {
            c++;
        }
        j->classes.lines[c] = name;
        classes += c == classes;
        j->groups[i].class_index = (int32_t)c;
    }
    j->classes.count = classes;
    return any ? STATUS_OK
               : error_set(err, STATUS_USAGE,
                           "%s has no groups; pack class folders named CLASS@GROUP, such as "
                           "waterbird@land",
                           dir);
}

enum { MAX_PIECES = 91 }; /* of a line: they make at most DEBIAS_MAX_PROMPTS pairs */

/* Splits the lines at their tabs, in place; every two pieces of a line are a pair. */
static enum status split_pairs(struct job *j, struct error *err) {
    const char *path = j->o->pairs;
    char *pieces[MAX_PIECES];
    j->pairs = calloc(2 * (size_t)DEBIAS_MAX_PROMPTS, sizeof *j->pairs);
    TRY_MEMORY(j->pairs, err, "out of memory");
    for (size_t i = 0; i < j->pair_lines.count; i++) {
        size_t count = 0;
        char *rest = j->pair_lines.lines[i];
        for (char *piece; (piece = strtok_r(rest, "\t", &rest)) != NULL;) {
            FAIL_IF(count == MAX_PIECES || j->pair_count + (int64_t)count > DEBIAS_MAX_PROMPTS, err,
                    STATUS_LIMIT, "%s: more than %d prompts on a line, or %d pairs", path,
                    MAX_PIECES, DEBIAS_MAX_PROMPTS);
            for (size_t k = 0; k < count; k++) {
                j->pairs[2 * j->pair_count] = pieces[k];
                j->pairs[2 * j->pair_count++ + 1] = piece;
            }
            pieces[count++] = piece;
        }
        FAIL_IF(count < 2, err, STATUS_USAGE,
                "%s: '%.80s' is only one prompt; a pair is two with a tab between them", path,
                j->pair_lines.lines[i]);
    }
    return STATUS_OK;
}

static enum status read_files(struct job *j, struct error *err) {
    const struct options *o = j->o;
    FAIL_IF(o->spurious == NULL && o->pairs == NULL, err, STATUS_USAGE,
            "--spurious FILE, --pairs FILE or both are required");
    TRY(read_groups(j, err));
    TRY(zeroshot_name_classes(&j->classes, &j->name_file, o->class_names, o->common.data, err));
    TRY(zeroshot_read_templates(&j->templates, o->templates, err));
    if (o->spurious != NULL) {
        TRY(text_list_read(&j->spurious, file_posix(), o->spurious, err));
    }
    if (o->pairs != NULL) {
        TRY(text_list_read(&j->pair_lines, file_posix(), o->pairs, err));
    }
    return split_pairs(j, err);
}

/* ---- vectors ---- */

/* The embeddings of texts, allocated in *out. */
static enum status
encode(float **out, struct job *j, char *const *texts, size_t count, struct error *err) {
    struct eval *e = &j->eval;
    *out = calloc(count + 1, (size_t)j->images.embed_dim * sizeof **out);
    TRY_MEMORY(*out, err, "out of memory");
    return prompts_encode(*out, e->model, e->dev, e->tokenizer, e->tokenizer_size_bytes, texts,
                          count, err);
}

/* Projects the class vectors. */
static enum status project(float *vectors, struct job *j, struct error *err) {
    float *spurious = NULL;
    float *pairs = NULL;
    int64_t empty = -1;
    enum status s = encode(&spurious, j, j->spurious.lines, j->spurious.count, err);
    THEN(s, encode(&pairs, j, j->pairs, 2 * (size_t)j->pair_count, err));
    if (s == STATUS_OK) {
        const struct debias_prompts how = {spurious, (int64_t)j->spurious.count, pairs,
                                           j->pair_count, j->o->lambda};
        s = debias_vectors(vectors, (int64_t)j->classes.count, j->images.embed_dim, &how, &empty,
                           err);
    }
    if (empty >= 0) {
        s = error_set(err, STATUS_USAGE, "the spurious prompts leave nothing of '%.80s'; use fewer",
                      j->classes.lines[empty]);
    }
    free(spurious);
    free(pairs);
    return s;
}

/* ---- accuracy ---- */

/* Counts the images of each group. */
static enum status count_groups(struct job *j, struct error *err) {
    uint64_t any = 0;
    for (int64_t i = 0; i < j->images.images_count; i++) {
        const int32_t label = j->images.labels[i];
        if (label >= 0 && (size_t)label < j->folders.count) {
            j->groups[label].images++;
            any++;
        }
    }
    return any > 0 ? STATUS_OK : error_set(err, STATUS_USAGE, "no image belongs to a group");
}

/* Classifies the images of each group. */
static enum status judge(struct job *j, const float *vectors, int side, struct error *err) {
    const int64_t count = j->images.images_count;
    enum status s = STATUS_OK;
    int32_t *labels = calloc((size_t)count, sizeof *labels);
    const struct classify_set set = {j->images.images, labels, count, j->images.embed_dim};
    TRY_MEMORY(labels, err, "out of memory");
    for (size_t k = 0; k < j->folders.count && s == STATUS_OK; k++) {
        struct group *g = &j->groups[k];
        struct classify_result r = {0};
        for (int64_t i = 0; i < count; i++) {
            labels[i] = j->images.labels[i] == (int32_t)k ? g->class_index : -1;
        }
        if (g->images > 0) {
            s = classify_by_vectors(&r, j->eval.dev, &set, vectors, NULL, (int32_t)j->classes.count,
                                    err);
            g->percent[side] = r.top1;
        }
        classify_result_fini(&r);
    }
    free(labels);
    return s;
}

static struct accuracy sum_up(const struct job *j, int side) {
    struct accuracy a = {.worst = HUGE_VAL};
    double images = 0.0;
    for (size_t k = 0; k < j->folders.count; k++) {
        const struct group *g = &j->groups[k];
        if (g->images == 0) {
            continue;
        }
        const double percent = g->percent[side];
        a.average += (double)g->images * percent;
        images += (double)g->images;
        if (percent < a.worst) {
            a.worst = percent;
            a.worst_group = j->folders.lines[k];
        }
    }
    a.average /= images;
    return a;
}

static enum status judge_both(struct job *j, struct error *err) {
    const struct options *o = j->o;
    struct embed_options how = eval_transformed(&j->eval, &o->common, AUGMENT_EVAL_CROP);
    float *vectors = NULL;
    enum status s;
    TRY(embed_dataset(&j->images, &j->eval.encoder, j->eval.dev, o->common.data, &how, err));
    TRY(count_groups(j, err));
    TRY_OR_FAIL(s, eval_class_vectors(&vectors, &j->eval, &j->classes, &j->templates, err));
    TRY_OR_FAIL(s, judge(j, vectors, BEFORE, err));
    TRY_OR_FAIL(s, project(vectors, j, err));
    TRY_OR_FAIL(s, judge(j, vectors, AFTER, err));
fail:
    free(vectors);
    return s;
}

/* ---- the report ---- */

static void write_accuracy(struct json_writer *w, const char *key, const struct accuracy *a) {
    json_open_object(w, key);
    json_double(w, "average", a->average);
    json_double(w, "worst_group", a->worst);
    json_string(w, "worst", a->worst_group);
    json_close_object(w);
}

static enum status report(const struct job *j, const struct accuracy a[SIDES], struct error *err) {
    struct json_writer w;
    uint64_t images = 0;
    cli_begin_json(&w);
    write_accuracy(&w, "zeroshot", &a[BEFORE]);
    write_accuracy(&w, "debiased", &a[AFTER]);
    json_open_array(&w, "groups");
    for (size_t k = 0; k < j->folders.count; k++) {
        const struct group *g = &j->groups[k];
        json_open_object(&w, NULL);
        json_string(&w, "group", j->folders.lines[k]);
        json_string(&w, "class", j->classes.lines[g->class_index]);
        json_u64(&w, "images", g->images);
        if (g->images > 0) {
            json_double(&w, "zeroshot", g->percent[BEFORE]);
            json_double(&w, "debiased", g->percent[AFTER]);
        }
        json_close_object(&w);
        images += g->images;
    }
    json_close_array(&w);
    json_u64(&w, "images", images);
    json_u64(&w, "classes", j->classes.count);
    json_u64(&w, "spurious", j->spurious.count);
    json_u64(&w, "pairs", (uint64_t)j->pair_count);
    json_double(&w, "lambda", j->o->lambda);
    return end_result(&w, j->o->common.json, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct job j = {.o = options};
    enum status s;
    TRY_OR_FAIL(s, read_files(&j, err));
    TRY_OR_FAIL(s, eval_open(&j.eval, a->items[0], &j.o->common, err));
    TRY_OR_FAIL(s, judge_both(&j, err));
    const struct accuracy both[SIDES] = {sum_up(&j, BEFORE), sum_up(&j, AFTER)};
    s = report(&j, both, err);
fail:
    eval_close(&j.eval);
    embeddings_fini(&j.images);
    struct text_list *const lists[] = {&j.folders,   &j.classes,  &j.name_file,
                                       &j.templates, &j.spurious, &j.pair_lines};
    for (size_t i = 0; i < CLI_COUNT(lists); i++) {
        text_list_fini(lists[i]);
    }
    free(j.groups);
    free(j.pairs);
    return s;
}

CLI_MAIN(ccstream_eval_debias, program, struct options, run)
