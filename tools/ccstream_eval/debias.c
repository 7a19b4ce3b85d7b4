/*
 * ccstream-eval debias: zero-shot classification with class vectors from which a spurious attribute
 * is removed. Prompts describe the attribute; accuracy is by groups, the dataset's folders
 * CLASS@GROUP.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "train/eval/debias.h"
#include "train/eval/max_skew.h"
#include "train/eval/scores.h"

struct options {
    struct eval_options common;
    const char *templates, *class_names, *spurious, *pairs, *train, *queries;
    double lambda;
    uint64_t top;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    EVAL_DATA_ROW("dataset that ccpack made of class folders named CLASS@GROUP"),
    {"spurious", 0, CLI_STRING, FIELD(spurious), .metavar = "FILE",
     .help =
         "prompts that describe only the spurious attribute, one per line: their directions are "
         "projected out"},
    {"pairs", 0, CLI_STRING, FIELD(pairs), .metavar = "FILE",
     .help =
         "on each line two or more prompts, separated by tabs, that differ only in the spurious "
         "attribute: every two of a line are a pair"},
    {"lambda", 0, CLI_DOUBLE, FIELD(lambda), .min = "0", .max = "1000000", .default_text = "1000",
     .metavar = "X", .help = "how strongly the prompts of a pair are made equal; 0: not at all"},
    {"templates", 0, CLI_STRING, FIELD(templates), .metavar = "FILE",
     .help = "prompts of the classes, one per line, with {} in place of the name; default: a few "
             "built-in ones"},
    {"class-names", 0, CLI_STRING, FIELD(class_names), .metavar = "FILE",
     .help = "lines 'class TAB name'; default: CLASS itself, with spaces for _"},
    {"train", 0, CLI_STRING, FIELD(train), .metavar = "DIR",
     .help = "also print the average with groups weighted as in this dataset, which has the same "
             "folders"},
    {"queries", 0, CLI_STRING, FIELD(queries), .metavar = "FILE",
     .help = "texts that should find every GROUP equally often, one per line: also print their "
             "MaxSkew"},
    {"top", 0, CLI_U64, FIELD(top), .max = "1000000000", .default_text = "0", .metavar = "K",
     .help = "images that a text of --queries finds; 0: 1,000"},
    EVAL_TRANSFORM_ROW("crop"),
};

static const struct cli_program program = {
    .name = "ccstream-eval debias",
    .purpose = "classifies by prompts from which a spurious attribute is removed",
    .usage =
        (const char *const[]){"CHECKPOINT --data DIR --spurious FILE --pairs FILE [options]", NULL},
    .examples = (const char *const[]){"ccpack -o birds waterbirds   # waterbirds/landbird@land, "
                                      "landbird@water, waterbird@land, ...",
                                      "ccstream-eval debias runs/a --data birds --spurious "
                                      "backgrounds.txt --pairs birds.tsv --json",
                                      NULL},
    .notes =
        (const char *const[]){
            "Chuang et al., 'Debiasing vision-language models via biased prompts' (2023): class "
            "vectors z become P z of length 1, with P = P0 (I + lambda/pairs sum (zi - zj)(zi - "
            "zj)^T)^-1 and P0 the projection orthogonal to the spurious prompts. Prints the "
            "accuracy before and after, over all images and of the worst group.",
            "MaxSkew@K of a text is max log(r / (1/groups)), with r the share of a GROUP among the "
            "K images that are most similar to it, over all CLASSes: 0 where all are found "
            "equally often. The mean over --queries is printed, before and after the same "
            "projection.",
            NULL},
    CLI_OPTIONS(rows),
    .shared = eval_shared,
    .min_arguments = 1,
    .max_arguments = 1,
};

/* ---- groups: folders CLASS@GROUP ---- */

struct group {
    int32_t class_index;
    uint64_t images;
    double weight;        /* images in --train */
    double before, after; /* accuracy in percent; NaN without images */
};

struct groups {
    struct text_list folders; /* CLASS@GROUP, by label */
    struct text_list classes; /* the distinct CLASSes; lines point into its text */
    struct group *items;      /* (folders.count) */
};

static void groups_fini(struct groups *g) {
    text_list_fini(&g->folders);
    text_list_fini(&g->classes);
    free(g->items);
}

/* Index of a class, which is added if it is new. The list borrows `name`. */
static int32_t class_of(struct text_list *classes, char *name) {
    for (size_t c = 0; c < classes->count; c++) {
        if (strcmp(classes->lines[c], name) == 0) {
            return (int32_t)c;
        }
    }
    classes->lines[classes->count] = name;
    return (int32_t)classes->count++;
}

static enum status groups_read(struct groups *g, const char *dir, struct error *err) {
    size_t size_bytes = 1;
    bool any = false;
    TRY(zeroshot_classes(&g->folders, dir, err));
    for (size_t i = 0; i < g->folders.count; i++) {
        size_bytes += strlen(g->folders.lines[i]) + 1;
        any = any || strchr(g->folders.lines[i], '@') != NULL;
    }
    if (!any) {
        return error_set(err, STATUS_USAGE,
                         "%s has no groups; pack class folders named CLASS@GROUP, such as "
                         "waterbird@land",
                         dir);
    }
    g->items = calloc(g->folders.count, sizeof *g->items);
    g->classes.lines = calloc(g->folders.count, sizeof *g->classes.lines);
    g->classes.text = calloc(size_bytes, 1);
    if (g->items == NULL || g->classes.lines == NULL || g->classes.text == NULL) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", dir);
    }
    char *at = g->classes.text;
    for (size_t i = 0; i < g->folders.count; i++) {
        const size_t name_bytes = strcspn(g->folders.lines[i], "@");
        memcpy(at, g->folders.lines[i], name_bytes);
        g->items[i].class_index = class_of(&g->classes, at);
        at += name_bytes + 1;
    }
    return STATUS_OK;
}

/* Counts the images of each group in --train. */
static enum status weigh_groups(struct groups *g, const char *dir, struct error *err) {
    struct text_list folders = {0};
    struct dataset *d = NULL;
    int32_t *labels = NULL;
    uint64_t known = 0;
    enum status s;
    TRY(zeroshot_classes(&folders, dir, err));
    TRY_OR_FAIL(s, dataset_open(&d, dir, NULL, err));
    const uint64_t count = dataset_sample_count(d);
    labels = calloc((size_t)count + 1, sizeof *labels);
    if (labels == NULL) {
        s = error_set(err, STATUS_NOMEM, "%s: out of memory", dir);
        goto fail;
    }
    for (uint64_t i = 0; i < count; i++) {
        struct dataset_sample sample;
        TRY_OR_FAIL(s, dataset_sample_at(d, i, &sample, err));
        labels[i] = sample.label;
    }
    eval_map_labels(labels, (int64_t)count, &folders, &g->folders);
    for (uint64_t i = 0; i < count && folders.count > 0; i++) {
        if (labels[i] >= 0 && (size_t)labels[i] < g->folders.count) {
            g->items[labels[i]].weight += 1.0;
            known += g->items[labels[i]].images > 0 ? 1 : 0;
        }
    }
    if (known == 0) {
        s = error_set(err, STATUS_USAGE, "%s has none of the groups of --data", dir);
    }
fail:
    dataset_close(d);
    text_list_fini(&folders);
    free(labels);
    return s;
}

/* ---- accuracy ---- */

/* The accuracy of each group with these class vectors, into `before` or `after`. */
static enum status judge(struct groups *g,
                         struct eval *e,
                         const struct embeddings *images,
                         const float *vectors,
                         bool after,
                         struct error *err) {
    int32_t *labels = calloc((size_t)images->images_count, sizeof *labels);
    if (labels == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for %lld labels",
                         (long long)images->images_count);
    }
    enum status s = STATUS_OK;
    uint64_t judged = 0;
    for (size_t k = 0; s == STATUS_OK && k < g->folders.count; k++) {
        struct group *group = &g->items[k];
        struct classify_result r;
        group->images = 0;
        for (int64_t i = 0; i < images->images_count; i++) {
            const bool own = images->labels[i] == (int32_t)k;
            labels[i] = own ? group->class_index : -1;
            group->images += own ? 1 : 0;
        }
        *(after ? &group->after : &group->before) = (double)NAN;
        if (group->images == 0) {
            continue;
        }
        const struct classify_set set = eval_image_set(images, labels);
        s = classify_by_vectors(&r, e->dev, &set, vectors, NULL, (int32_t)g->classes.count, err);
        if (s == STATUS_OK) {
            *(after ? &group->after : &group->before) = r.top1;
            classify_result_fini(&r);
            judged += group->images;
        }
    }
    if (s == STATUS_OK && judged == 0) {
        s = error_set(err, STATUS_USAGE, "no image belongs to a group");
    }
    free(labels);
    return s;
}

struct accuracy { /* in percent */
    double average, weighted, worst;
    const char *worst_group;
};

static struct accuracy sum_up(const struct groups *g, bool after) {
    struct accuracy a = {.worst = HUGE_VAL};
    double images = 0.0;
    double weights = 0.0;
    for (size_t k = 0; k < g->folders.count; k++) {
        const struct group *group = &g->items[k];
        const double percent = after ? group->after : group->before;
        if (group->images == 0) {
            continue;
        }
        a.average += (double)group->images * percent;
        a.weighted += group->weight * percent;
        images += (double)group->images;
        weights += group->weight;
        if (percent < a.worst) {
            a.worst = percent;
            a.worst_group = g->folders.lines[k];
        }
    }
    a.average /= images;
    a.weighted /= weights;
    return a;
}

/* ---- prompts ---- */

/* The lines of a file; none for path NULL. */
static enum status read_lines(struct text_list *out, const char *path, struct error *err) {
    return path != NULL ? text_list_read(out, file_posix(), path, err) : STATUS_OK;
}

enum { MAX_PIECES = 91 }; /* of a line: they make at most DEBIAS_MAX_PROMPTS pairs */

struct pairs {
    char **prompts; /* (2 count): the two of a pair are adjacent; borrowed from the lines */
    int64_t count;
};

/* Splits the lines at their tabs, in place; every two pieces of a line are a pair. */
static enum status
split_pairs(struct pairs *out, const struct text_list *lines, const char *path, struct error *err) {
    char *pieces[MAX_PIECES];
    out->prompts = calloc(2 * (size_t)DEBIAS_MAX_PROMPTS, sizeof *out->prompts);
    if (out->prompts == NULL) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    for (size_t i = 0; i < lines->count; i++) {
        size_t count = 0;
        char *rest = lines->lines[i];
        for (char *piece; (piece = strtok_r(rest, "\t", &rest)) != NULL;) {
            if (count == MAX_PIECES || out->count + (int64_t)count > DEBIAS_MAX_PROMPTS) {
                return error_set(err, STATUS_LIMIT,
                                 "%s: more than %d prompts on a line, or %d pairs", path,
                                 MAX_PIECES, DEBIAS_MAX_PROMPTS);
            }
            for (size_t k = 0; k < count; k++) {
                out->prompts[2 * out->count] = pieces[k];
                out->prompts[2 * out->count + 1] = piece;
                out->count++;
            }
            pieces[count++] = piece;
        }
        if (count < 2) {
            return error_set(
                err, STATUS_USAGE,
                "%s: '%.80s' is only one prompt; a pair is two with a tab between them", path,
                lines->lines[i]);
        }
    }
    return STATUS_OK;
}

static enum status
encode(float **out, struct eval *e, char *const *texts, size_t count, struct error *err) {
    const size_t dim = (size_t)dual_encoder_get_options(e->model)->embed_dim;
    *out = calloc(count + 1, dim * sizeof **out);
    if (*out == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for %zu prompts", count);
    }
    return prompts_encode(*out, e->model, e->dev, e->tokenizer, e->tokenizer_size_bytes, texts,
                          count, false, err);
}

static enum status debias(float *vectors,
                          struct eval *e,
                          const struct text_list *names,
                          const struct text_list *spurious,
                          const struct pairs *pairs,
                          double lambda,
                          struct error *err) {
    float *spurious_rows = NULL;
    float *pair_rows = NULL;
    int64_t empty = -1;
    enum status s;
    TRY_OR_FAIL(s, encode(&spurious_rows, e, spurious->lines, spurious->count, err));
    TRY_OR_FAIL(s, encode(&pair_rows, e, pairs->prompts, 2 * (size_t)pairs->count, err));
    const struct debias_prompts how = {.spurious = spurious_rows,
                                       .spurious_count = (int64_t)spurious->count,
                                       .pairs = pair_rows,
                                       .pair_count = pairs->count,
                                       .lambda = lambda};
    s = debias_vectors(vectors, (int64_t)names->count,
                       dual_encoder_get_options(e->model)->embed_dim, &how, &empty, err);
    if (empty >= 0) {
        s = error_set(err, STATUS_USAGE, "the spurious prompts leave nothing of '%.80s'; use fewer",
                      names->lines[empty]);
    }
fail:
    free(spurious_rows);
    free(pair_rows);
    return s;
}

/* ---- what queries find ---- */

struct skew {
    struct text_list queries;
    double *before, *after; /* (queries.count): MaxSkew */
    double mean_before, mean_after;
    int32_t attribute_count; /* distinct GROUPs that have images */
    int64_t top;             /* as asked, or all images where there are fewer */
};

static void skew_fini(struct skew *k) {
    text_list_fini(&k->queries);
    free(k->before);
    free(k->after);
}

static const char *attribute_of(const struct groups *g, size_t folder) {
    const char *at = strchr(g->folders.lines[folder], '@');
    return at == NULL ? "" : at + 1;
}

/* The index of every folder's GROUP among those that have images, -1 without; returns how many
 * there are. */
static int32_t number_attributes(int32_t *out, const struct groups *g) {
    int32_t count = 0;
    for (size_t k = 0; k < g->folders.count; k++) {
        out[k] = -1;
        if (g->items[k].images == 0) {
            continue;
        }
        for (size_t i = 0; i < k && out[k] < 0; i++) {
            if (out[i] >= 0 && strcmp(attribute_of(g, i), attribute_of(g, k)) == 0) {
                out[k] = out[i];
            }
        }
        if (out[k] < 0) {
            out[k] = count++;
        }
    }
    return count;
}

struct ranking {
    const struct skew *skew;
    const int32_t *attributes; /* (I) of images */
    int64_t images_count;
    double *out;
};

static enum status rank_query(void *cookie, int64_t query, const float *scores, struct error *err) {
    const struct ranking *r = cookie;
    return max_skew(&r->out[query], scores, r->attributes, r->images_count,
                    r->skew->attribute_count, r->skew->top, err);
}

/* MaxSkew of all queries, into before or after. */
static enum status rank_queries(struct skew *k,
                                struct eval *e,
                                const float *vectors,
                                const struct embeddings *images,
                                const int32_t *attributes,
                                bool after,
                                struct error *err) {
    struct ranking r = {.skew = k,
                        .attributes = attributes,
                        .images_count = images->images_count,
                        .out = after ? k->after : k->before};
    TRY(scores_visit(e->dev, vectors, (int64_t)k->queries.count, images->images,
                     images->images_count, images->embed_dim, rank_query, &r, err));
    double sum = 0.0;
    for (size_t i = 0; i < k->queries.count; i++) {
        sum += r.out[i];
    }
    *(after ? &k->mean_after : &k->mean_before) = sum / (double)k->queries.count;
    return STATUS_OK;
}

/* ---- the job ---- */

struct job {
    const struct options *o;
    struct groups groups;
    struct text_list name_file, templates, spurious, pair_lines;
    struct pairs pairs;
    struct skew skew;
};

static enum status read_files(struct job *j, struct error *err) {
    const struct options *o = j->o;
    if (o->spurious == NULL && o->pairs == NULL) {
        return error_set(err, STATUS_USAGE, "--spurious FILE, --pairs FILE or both are required");
    }
    if (o->top > 0 && o->queries == NULL) {
        return error_set(err, STATUS_USAGE, "--top is for --queries");
    }
    TRY(groups_read(&j->groups, o->common.data, err));
    TRY(zeroshot_name_classes(&j->groups.classes, &j->name_file, o->class_names, o->common.data,
                              err));
    TRY(zeroshot_read_templates(&j->templates, o->templates, err));
    TRY(read_lines(&j->spurious, o->spurious, err));
    TRY(read_lines(&j->pair_lines, o->pairs, err));
    TRY(read_lines(&j->skew.queries, o->queries, err));
    return split_pairs(&j->pairs, &j->pair_lines, o->pairs, err);
}

/* The attribute of every image, allocated in *out, and how many there are. */
static enum status
find_attributes(int32_t **out, struct job *j, const struct embeddings *images, struct error *err) {
    struct skew *k = &j->skew;
    int32_t *numbers = calloc(j->groups.folders.count, sizeof *numbers);
    *out = calloc((size_t)images->images_count, sizeof **out);
    k->before = calloc(k->queries.count, sizeof *k->before);
    k->after = calloc(k->queries.count, sizeof *k->after);
    if (numbers == NULL || *out == NULL || k->before == NULL || k->after == NULL) {
        free(numbers);
        return error_set(err, STATUS_NOMEM, "no memory for %zu queries", k->queries.count);
    }
    int64_t ranked = 0;
    k->attribute_count = number_attributes(numbers, &j->groups);
    for (int64_t i = 0; i < images->images_count; i++) {
        const int32_t label = images->labels[i];
        (*out)[i] = label >= 0 && (size_t)label < j->groups.folders.count ? numbers[label] : -1;
        ranked += (*out)[i] >= 0 ? 1 : 0;
    }
    const uint64_t top = j->o->top > 0 ? j->o->top : 1000;
    k->top = top < (uint64_t)ranked ? (int64_t)top : ranked;
    free(numbers);
    return STATUS_OK;
}

static enum status
measure_skew(struct job *j, struct eval *e, const struct embeddings *images, struct error *err) {
    struct skew *k = &j->skew;
    int32_t *attributes = NULL;
    float *vectors = NULL;
    enum status s;
    TRY_OR_FAIL(s, find_attributes(&attributes, j, images, err));
    if (k->attribute_count < 2) {
        s = error_set(err, STATUS_USAGE, "--queries requires images of two groups or more in %s",
                      j->o->common.data);
        goto fail;
    }
    TRY_OR_FAIL(s, encode(&vectors, e, k->queries.lines, k->queries.count, err));
    TRY_OR_FAIL(s, rank_queries(k, e, vectors, images, attributes, false, err));
    TRY_OR_FAIL(s, debias(vectors, e, &k->queries, &j->spurious, &j->pairs, j->o->lambda, err));
    s = rank_queries(k, e, vectors, images, attributes, true, err);
fail:
    free(attributes);
    free(vectors);
    return s;
}

static enum status judge_both(struct job *j, struct eval *e, struct error *err) {
    struct embeddings images = {0};
    const struct options *o = j->o;
    const struct text_list *names = &j->groups.classes;
    struct embed_options how = eval_transformed(e, &o->common);
    float *vectors = NULL;
    enum status s;
    TRY_OR_FAIL(s, eval_class_vectors(&vectors, e, names, &j->templates, err));
    TRY_OR_FAIL(s, embed_dataset(&images, &e->encoder, e->dev, o->common.data, &how, err));
    TRY_OR_FAIL(s, judge(&j->groups, e, &images, vectors, false, err));
    TRY_OR_FAIL(s, debias(vectors, e, names, &j->spurious, &j->pairs, o->lambda, err));
    TRY_OR_FAIL(s, judge(&j->groups, e, &images, vectors, true, err));
    if (o->train != NULL) {
        TRY_OR_FAIL(s, weigh_groups(&j->groups, o->train, err));
    }
    if (j->skew.queries.count > 0) {
        s = measure_skew(j, e, &images, err);
    }
fail:
    embeddings_fini(&images);
    free(vectors);
    return s;
}

static void
write_accuracy(struct json_writer *w, const char *key, const struct accuracy *a, bool weighted) {
    json_open_object(w, key);
    json_double(w, "average", a->average);
    if (weighted) {
        json_double(w, "weighted_average", a->weighted);
    }
    json_double(w, "worst_group", a->worst);
    json_string(w, "worst", a->worst_group);
    json_close_object(w);
}

static void write_skew(struct json_writer *w, const struct skew *k) {
    json_open_object(w, "max_skew");
    json_u64(w, "top", (uint64_t)k->top);
    json_u64(w, "groups", (uint64_t)k->attribute_count);
    json_double(w, "zeroshot", k->mean_before);
    json_double(w, "debiased", k->mean_after);
    json_open_array(w, "queries");
    for (size_t i = 0; i < k->queries.count; i++) {
        json_open_object(w, NULL);
        json_string(w, "query", k->queries.lines[i]);
        json_double(w, "zeroshot", k->before[i]);
        json_double(w, "debiased", k->after[i]);
        json_close_object(w);
    }
    json_close_array(w);
    json_close_object(w);
}

static enum status report_json(const struct job *j, const struct accuracy a[2], struct error *err) {
    const struct groups *g = &j->groups;
    struct json_writer w;
    uint64_t images = 0;
    cli_begin_json(&w);
    write_accuracy(&w, "zeroshot", &a[0], j->o->train != NULL);
    write_accuracy(&w, "debiased", &a[1], j->o->train != NULL);
    json_open_array(&w, "groups");
    for (size_t k = 0; k < g->folders.count; k++) {
        const struct group *group = &g->items[k];
        json_open_object(&w, NULL);
        json_string(&w, "group", g->folders.lines[k]);
        json_string(&w, "class", g->classes.lines[group->class_index]);
        json_u64(&w, "images", group->images);
        if (group->images > 0) {
            json_double(&w, "zeroshot", group->before);
            json_double(&w, "debiased", group->after);
        }
        json_close_object(&w);
        images += group->images;
    }
    json_close_array(&w);
    json_u64(&w, "images", images);
    json_u64(&w, "classes", g->classes.count);
    json_u64(&w, "spurious", j->spurious.count);
    json_u64(&w, "pairs", (uint64_t)j->pairs.count);
    json_double(&w, "lambda", j->o->lambda);
    if (j->skew.queries.count > 0) {
        write_skew(&w, &j->skew);
    }
    return cli_end_json(&w, err);
}

static void report_text(const struct job *j, const struct accuracy a[2]) {
    const struct groups *g = &j->groups;
    printf("%-34s %10s %10s\n", "", "zero-shot", "debiased");
    for (size_t k = 0; k < g->folders.count; k++) {
        const struct group *group = &g->items[k];
        if (group->images > 0) {
            printf("  %-32.60s %8.2f %% %8.2f %%  of %llu\n", g->folders.lines[k], group->before,
                   group->after, (unsigned long long)group->images);
        }
    }
    printf("%-34s %8.2f %% %8.2f %%\n", "average", a[0].average, a[1].average);
    if (j->o->train != NULL) {
        printf("%-34s %8.2f %% %8.2f %%\n", "average, weighted as in --train", a[0].weighted,
               a[1].weighted);
    }
    printf("%-34s %8.2f %% %8.2f %%\n", "worst group", a[0].worst, a[1].worst);
    if (j->skew.queries.count > 0) {
        char name[64];
        (void)snprintf(name, sizeof name, "MaxSkew@%lld, mean of %zu", (long long)j->skew.top,
                       j->skew.queries.count);
        printf("%-34s %8.3f   %8.3f\n", name, j->skew.mean_before, j->skew.mean_after);
    }
}

static enum status report(const struct job *j, struct error *err) {
    const struct accuracy a[2] = {sum_up(&j->groups, false), sum_up(&j->groups, true)};
    if (j->o->common.json) {
        return report_json(j, a, err);
    }
    report_text(j, a);
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct job j = {.o = options};
    struct eval e = {0};
    enum status s;
    TRY_OR_FAIL(s, read_files(&j, err));
    TRY_OR_FAIL(s, eval_open(&e, a->items[0], &j.o->common, err));
    TRY_OR_FAIL(s, judge_both(&j, &e, err));
    s = report(&j, err);
fail:
    eval_close(&e);
    groups_fini(&j.groups);
    text_list_fini(&j.name_file);
    text_list_fini(&j.templates);
    text_list_fini(&j.spurious);
    text_list_fini(&j.pair_lines);
    skew_fini(&j.skew);
    free(j.pairs.prompts);
    return s;
}

int ccstream_eval_debias(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
