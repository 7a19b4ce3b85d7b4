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
#include "tools/inspect/input.h"
#include "train/eval/debias.h"
#include "train/eval/scores.h"

struct options {
    struct eval_options common;
    const char *templates, *class_names, *spurious, *pairs, *train, *queries;
    double lambda;
    uint64_t top;
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
    {"train", 0, CLI_STRING, FIELD(train), .metavar = "DIR",
     .help =
         "also print the average with groups weighted as in this dataset (with the same folders)"},
    {"queries", 0, CLI_STRING, FIELD(queries), .metavar = "FILE",
     .help = "texts that should retrieve every GROUP equally often, one per line: also print their "
             "MaxSkew"},
    {"top", 0, CLI_U64, FIELD(top), .max = "1000000000", .default_text = "0", .metavar = "K",
     .help = "images retrieved per text of --queries; 0: 1,000"},
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
        "accuracy before and after, over all images and of the worst group.",
        "MaxSkew@K of a text is max log(r / (1/groups)), with r the fraction of a GROUP among "
        "the K most similar images, over all CLASSes: 0 if all are retrieved equally often. "
        "The mean over --queries is printed, before and after the same projection."),
    CLI_OPTIONS(rows),
    .shared = eval_shared,
    .min_arguments = 1,
    .max_arguments = 1,
};

enum { BEFORE, AFTER, SIDES }; /* the projection */

/* A folder CLASS@GROUP. */
struct group {
    int32_t class_index;
    int32_t attribute; /* number of its GROUP among those that have images; -1: no image */
    uint64_t images, right[SIDES];
    double weight; /* images in --train */
};

struct accuracy { /* in percent */
    double average, weighted, worst;
    const char *worst_group;
};

struct job {
    const struct options *o;
    struct eval eval;
    struct embeddings images;
    struct text_list folders, classes; /* CLASS@GROUP by label; the distinct CLASSes */
    struct group *groups;              /* (folders.count) */
    struct text_list name_file, templates, spurious, pair_lines, queries;
    char **pairs; /* (2 pair_count): the two of a pair are adjacent; borrowed from the lines */
    int64_t pair_count;
    double *skews[SIDES]; /* (queries.count): MaxSkew */
    int32_t attribute_count;
    int64_t top; /* of --queries, as asked, or all images where there are fewer */
};

static enum status out_of_memory(struct error *err) {
    return error_set(err, STATUS_NOMEM, "out of memory");
}

/* ---- files ---- */

/* The folders, and the classes: what stands before the @ of each. */
static enum status read_groups(struct job *j, struct error *err) {
    const char *dir = j->o->common.data;
    size_t classes = 0;
    bool any = false;
    TRY(zeroshot_classes(&j->folders, dir, err));
    TRY(zeroshot_classes(&j->classes, dir, err));
    j->groups = calloc(j->folders.count + 1, sizeof *j->groups);
    if (j->groups == NULL) {
        return out_of_memory(err);
    }
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
    if (j->pairs == NULL) {
        return out_of_memory(err);
    }
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
    const struct {
        const char *path;
        struct text_list *lines;
    } files[] = {
        {o->spurious, &j->spurious}, {o->pairs, &j->pair_lines}, {o->queries, &j->queries}};
    FAIL_IF(o->spurious == NULL && o->pairs == NULL, err, STATUS_USAGE,
            "--spurious FILE, --pairs FILE or both are required");
    FAIL_IF(o->top > 0 && o->queries == NULL, err, STATUS_USAGE, "--top is for --queries");
    TRY(read_groups(j, err));
    TRY(zeroshot_name_classes(&j->classes, &j->name_file, o->class_names, o->common.data, err));
    TRY(zeroshot_read_templates(&j->templates, o->templates, err));
    for (size_t i = 0; i < CLI_COUNT(files); i++) {
        if (files[i].path != NULL) {
            TRY(text_list_read(files[i].lines, file_posix(), files[i].path, err));
        }
    }
    return split_pairs(j, err);
}

/* Counts the images of each group in --train. */
static enum status weigh_groups(struct job *j, struct error *err) {
    struct input *in = NULL;
    struct sample_facts f;
    enum status s;
    uint64_t known = 0;
    TRY(input_open(&in, j->o->train, err));
    while ((s = input_next(in, &f, err)) == STATUS_OK) {
        for (size_t k = 0; f.class_name != NULL && k < j->folders.count; k++) {
            if (strcmp(f.class_name, j->folders.lines[k]) == 0) {
                j->groups[k].weight += 1.0;
                known += j->groups[k].images > 0;
            }
        }
    }
    input_close(in);
    return s != STATUS_END ? s
           : known > 0
               ? STATUS_OK
               : error_set(err, STATUS_USAGE, "%s has none of the groups of --data", j->o->train);
}

/* ---- vectors ---- */

/* The embeddings of texts, allocated in *out. */
static enum status
encode(float **out, struct job *j, char *const *texts, size_t count, struct error *err) {
    struct eval *e = &j->eval;
    *out = calloc(count + 1, (size_t)j->images.embed_dim * sizeof **out);
    return *out == NULL ? out_of_memory(err)
                        : prompts_encode(*out, e->model, e->dev, e->tokenizer,
                                         e->tokenizer_size_bytes, texts, count, err);
}

/* Projects the vectors of these names. */
static enum status
project(float *vectors, struct job *j, const struct text_list *names, struct error *err) {
    float *spurious = NULL;
    float *pairs = NULL;
    int64_t empty = -1;
    enum status s = encode(&spurious, j, j->spurious.lines, j->spurious.count, err);
    THEN(s, encode(&pairs, j, j->pairs, 2 * (size_t)j->pair_count, err));
    if (s == STATUS_OK) {
        const struct debias_prompts how = {spurious, (int64_t)j->spurious.count, pairs,
                                           j->pair_count, j->o->lambda};
        s = debias_vectors(vectors, (int64_t)names->count, j->images.embed_dim, &how, &empty, err);
    }
    if (empty >= 0) {
        s = error_set(err, STATUS_USAGE, "the spurious prompts leave nothing of '%.80s'; use fewer",
                      names->lines[empty]);
    }
    free(spurious);
    free(pairs);
    return s;
}

/* ---- accuracy ---- */

/* The group of an image; NULL: none. */
static struct group *group_of(const struct job *j, int64_t image) {
    const int32_t label = j->images.labels[image];
    return label >= 0 && (size_t)label < j->folders.count ? &j->groups[label] : NULL;
}

/* Counts the images of each group and numbers the GROUPs. */
static enum status count_groups(struct job *j, struct error *err) {
    int64_t ranked = 0;
    for (int64_t i = 0; i < j->images.images_count; i++) {
        struct group *g = group_of(j, i);
        ranked += g != NULL;
        if (g != NULL) {
            g->images++;
        }
    }
    for (size_t k = 0; k < j->folders.count; k++) {
        struct group *g = &j->groups[k];
        g->attribute = g->images > 0 ? j->attribute_count : -1;
        for (size_t i = 0; i < k && g->images > 0; i++) {
            const char *a = strchr(j->folders.lines[i], '@');
            const char *b = strchr(j->folders.lines[k], '@');
            if (j->groups[i].images > 0 && strcmp(a ? a : "", b ? b : "") == 0) {
                g->attribute = j->groups[i].attribute;
            }
        }
        j->attribute_count += g->attribute == j->attribute_count;
    }
    const int64_t top = j->o->top > 0 ? (int64_t)j->o->top : 1000;
    j->top = top < ranked ? top : ranked;
    return ranked > 0 ? STATUS_OK : error_set(err, STATUS_USAGE, "no image belongs to a group");
}

struct judge {
    struct job *job;
    int side;
};

/* An image is right if its class has the largest score; a tie is lost. */
static enum status
judge_image(void *cookie, int64_t image, const float *scores, struct error *err) {
    const struct judge *c = cookie;
    struct group *g = group_of(c->job, image);
    (void)err;
    bool right = g != NULL;
    for (int32_t k = 0; right && k < (int32_t)c->job->classes.count; k++) {
        right = k == g->class_index || scores[k] < scores[g->class_index];
    }
    if (right) {
        g->right[c->side]++;
    }
    return STATUS_OK;
}

static enum status judge(struct job *j, const float *vectors, int side, struct error *err) {
    struct judge c = {j, side};
    return scores_visit(j->eval.dev, j->images.images, j->images.images_count, vectors,
                        (int64_t)j->classes.count, j->images.embed_dim, judge_image, &c, err);
}

static double percent_of(const struct group *g, int side) {
    return 100.0 * (double)g->right[side] / (double)g->images;
}

static struct accuracy sum_up(const struct job *j, int side) {
    struct accuracy a = {.worst = HUGE_VAL};
    double images = 0.0;
    double weights = 0.0;
    for (size_t k = 0; k < j->folders.count; k++) {
        const struct group *g = &j->groups[k];
        if (g->images == 0) {
            continue;
        }
        const double percent = percent_of(g, side);
        a.average += (double)g->images * percent;
        a.weighted += g->weight * percent;
        images += (double)g->images;
        weights += g->weight;
        if (percent < a.worst) {
            a.worst = percent;
            a.worst_group = j->folders.lines[k];
        }
    }
    a.average /= images;
    a.weighted /= weights;
    return a;
}

/* ---- what queries find ---- */

struct ranking {
    const struct job *job;
    const int32_t *attributes; /* (images) */
    double *out;               /* (queries) */
};

static enum status rank_query(void *cookie, int64_t query, const float *scores, struct error *err) {
    const struct ranking *r = cookie;
    return max_skew(&r->out[query], scores, r->attributes, r->job->images.images_count,
                    r->job->attribute_count, r->job->top, err);
}

static enum status measure_skew(struct job *j, struct error *err) {
    const int64_t count = j->images.images_count;
    float *vectors = NULL;
    enum status s;
    FAIL_IF(j->attribute_count < 2, err, STATUS_USAGE,
            "--queries requires images of two groups or more in %s", j->o->common.data);
    int32_t *attributes = calloc((size_t)count, sizeof *attributes);
    s = attributes == NULL ? out_of_memory(err)
                           : encode(&vectors, j, j->queries.lines, j->queries.count, err);
    for (int64_t i = 0; s == STATUS_OK && i < count; i++) {
        const struct group *g = group_of(j, i);
        attributes[i] = g != NULL ? g->attribute : -1;
    }
    for (int side = BEFORE; side < SIDES && s == STATUS_OK; side++) {
        j->skews[side] = calloc(j->queries.count, sizeof *j->skews[side]);
        struct ranking r = {j, attributes, j->skews[side]};
        s = r.out == NULL   ? out_of_memory(err)
            : side == AFTER ? project(vectors, j, &j->queries, err)
                            : STATUS_OK;
        THEN(s, scores_visit(j->eval.dev, vectors, (int64_t)j->queries.count, j->images.images,
                             count, j->images.embed_dim, rank_query, &r, err));
    }
    free(attributes);
    free(vectors);
    return s;
}

static double mean_skew(const struct job *j, int side) {
    double sum = 0.0;
    for (size_t i = 0; i < j->queries.count; i++) {
        sum += j->skews[side][i];
    }
    return sum / (double)j->queries.count;
}

static enum status judge_both(struct job *j, struct error *err) {
    const struct options *o = j->o;
    struct embed_options how = eval_transformed(&j->eval, &o->common);
    float *vectors = NULL;
    enum status s;
    TRY(embed_dataset(&j->images, &j->eval.encoder, j->eval.dev, o->common.data, &how, err));
    TRY(count_groups(j, err));
    TRY_OR_FAIL(s, eval_class_vectors(&vectors, &j->eval, &j->classes, &j->templates, err));
    TRY_OR_FAIL(s, judge(j, vectors, BEFORE, err));
    TRY_OR_FAIL(s, project(vectors, j, &j->classes, err));
    TRY_OR_FAIL(s, judge(j, vectors, AFTER, err));
    if (o->train != NULL) {
        TRY_OR_FAIL(s, weigh_groups(j, err));
    }
    s = j->queries.count > 0 ? measure_skew(j, err) : STATUS_OK;
fail:
    free(vectors);
    return s;
}

/* ---- the report ---- */

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

/* Before and after the projection. */
static void write_sides(struct json_writer *w, double before, double after) {
    json_double(w, "zeroshot", before);
    json_double(w, "debiased", after);
}

static void write_skew(struct json_writer *w, const struct job *j) {
    json_open_object(w, "max_skew");
    json_u64(w, "top", (uint64_t)j->top);
    json_u64(w, "groups", (uint64_t)j->attribute_count);
    write_sides(w, mean_skew(j, BEFORE), mean_skew(j, AFTER));
    json_open_array(w, "queries");
    for (size_t i = 0; i < j->queries.count; i++) {
        json_open_object(w, NULL);
        json_string(w, "query", j->queries.lines[i]);
        write_sides(w, j->skews[BEFORE][i], j->skews[AFTER][i]);
        json_close_object(w);
    }
    json_close_array(w);
    json_close_object(w);
}

static enum status
report_json(const struct job *j, const struct accuracy a[SIDES], struct error *err) {
    struct json_writer w;
    uint64_t images = 0;
    cli_begin_json(&w);
    write_accuracy(&w, "zeroshot", &a[BEFORE], j->o->train != NULL);
    write_accuracy(&w, "debiased", &a[AFTER], j->o->train != NULL);
    json_open_array(&w, "groups");
    for (size_t k = 0; k < j->folders.count; k++) {
        const struct group *g = &j->groups[k];
        json_open_object(&w, NULL);
        json_string(&w, "group", j->folders.lines[k]);
        json_string(&w, "class", j->classes.lines[g->class_index]);
        json_u64(&w, "images", g->images);
        if (g->images > 0) {
            write_sides(&w, percent_of(g, BEFORE), percent_of(g, AFTER));
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
    if (j->queries.count > 0) {
        write_skew(&w, j);
    }
    return cli_end_json(&w, err);
}

static void print_sides(const char *what, double before, double after) {
    printf("%-34s %8.2f %% %8.2f %%\n", what, before, after);
}

static void report_text(const struct job *j, const struct accuracy a[SIDES]) {
    printf("%-34s %10s %10s\n", "", "zero-shot", "debiased");
    for (size_t k = 0; k < j->folders.count; k++) {
        const struct group *g = &j->groups[k];
        if (g->images > 0) {
            printf("  %-32.60s %8.2f %% %8.2f %%  of %llu\n", j->folders.lines[k],
                   percent_of(g, BEFORE), percent_of(g, AFTER), (unsigned long long)g->images);
        }
    }
    print_sides("average", a[BEFORE].average, a[AFTER].average);
    if (j->o->train != NULL) {
        print_sides("average, weighted as in --train", a[BEFORE].weighted, a[AFTER].weighted);
    }
    print_sides("worst group", a[BEFORE].worst, a[AFTER].worst);
    if (j->queries.count > 0) {
        char name[64];
        (void)snprintf(name, sizeof name, "MaxSkew@%lld, mean of %zu", (long long)j->top,
                       j->queries.count);
        printf("%-34s %8.3f   %8.3f\n", name, mean_skew(j, BEFORE), mean_skew(j, AFTER));
    }
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct job j = {.o = options};
    enum status s;
    TRY_OR_FAIL(s, read_files(&j, err));
    TRY_OR_FAIL(s, eval_open(&j.eval, a->items[0], &j.o->common, err));
    TRY_OR_FAIL(s, judge_both(&j, err));
    const struct accuracy both[SIDES] = {sum_up(&j, BEFORE), sum_up(&j, AFTER)};
    if (j.o->common.json) {
        s = report_json(&j, both, err);
    } else {
        report_text(&j, both);
    }
fail:
    eval_close(&j.eval);
    embeddings_fini(&j.images);
    struct text_list *const lists[] = {&j.folders,  &j.classes,    &j.name_file, &j.templates,
                                       &j.spurious, &j.pair_lines, &j.queries};
    for (size_t i = 0; i < CLI_COUNT(lists); i++) {
        text_list_fini(lists[i]);
    }
    free(j.groups);
    free(j.pairs);
    free(j.skews[BEFORE]);
    free(j.skews[AFTER]);
    return s;
}

CLI_MAIN(ccstream_eval_debias, program, struct options, run)
