/*
 * ccstudy blocks: the block loss of Arora et al. (ICML 2019), section 6.3 and table 2: whether
 * larger blocks of similar points give a tighter bound and a better mean classifier, and how pairs
 * of the same points compare (QT).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/rng.h"
#include "tools/ccstudy/blocks_model.h"
#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/study.h"
#include "tools/cli/chart.h"
#include "tools/cli/cli.h"
#include "tools/cli/path_kind.h"

enum { METHODS = 2, MAX_REPEATS = 100, QUICK_STEPS = 200, QUICK_REPEATS = 2 };
enum equal { EQUAL_BLOCKS, EQUAL_POINTS };

static const char *const method_names[METHODS] = {"blocks", "pairs"};
static const char *const loss_names_of[] =
    {[BLOCK_LOGISTIC] = "logistic", [BLOCK_HINGE] = "hinge", NULL};
static const char *const equals[] = {[EQUAL_BLOCKS] = "blocks", [EQUAL_POINTS] = "points", NULL};

struct options {
    struct study_options shared;
    const char *data, *topics;
    bool captions;
    uint64_t size_px, blocks, negatives, steps, repeats;
    double lr;
    int loss, equal;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    STUDY_OPTIONS(struct options, shared),
    {"data", 'd', CLI_STRING, FIELD(data), .metavar = "DIR",
     .help = "dataset with labels, 44 pictures of every class or more, or with --captions of any "
             "pictures; default: a mixture of Gaussians that is drawn"},
    {"captions", 0, CLI_FLAG, FIELD(captions),
     .help = "with --data: its captions, grouped by topic, in the place of its pictures"},
    {"topics", 0, CLI_STRING, FIELD(topics), .metavar = "WORDS",
     .default_text = "water,snow,grass,street,beach,bike,pool,soccer,football,mountain,tennis,car,"
                     "skateboard,baseball,basketball,horse,frisbee,boat,slide,swing",
     .help = "with --captions: words separated by commas; a caption belongs to the topic whose "
             "word, or its plural in s, it has, if there is exactly one"},
    {"size", 0, CLI_U64, FIELD(size_px), .min = "8", .max = "128", .default_text = "32",
     .metavar = "PX", .help = "with --data: side of the pictures"},
    {"loss", 0, CLI_ENUM, FIELD(loss), .choices = loss_names_of, .default_text = "logistic",
     .metavar = "NAME", .help = "logistic or hinge"},
    {"blocks", 'b', CLI_U64, FIELD(blocks), .min = "2", .max = "512", .default_text = "32",
     .metavar = "N", .help = "blocks of a step, each with an anchor"},
    {"negatives", 'k', CLI_U64, FIELD(negatives), .min = "1", .max = "511", .default_text = "4",
     .metavar = "K",
     .help = "other blocks that an anchor is compared with (paper: 4 on CIFAR-100)"},
    {"equal", 0, CLI_ENUM, FIELD(equal), .choices = equals, .default_text = "blocks",
     .metavar = "WHAT",
     .help = "blocks: --blocks whatever their size, so that larger ones show more points; points: "
             "as many blocks as have the points of --blocks pairs, at least K + 1"},
    {"steps", 0, CLI_U64, FIELD(steps), .min = "1", .max = "1000000", .default_text = "2000",
     .metavar = "N", .help = "of every tower"},
    {"lr", 0, CLI_DOUBLE, FIELD(lr), .min = "0", .max = "10", .default_text = "0.0003",
     .metavar = "X", .help = "learning rate of AdamW, decays to 0 by a cosine"},
    {"repeats", 'r', CLI_U64, FIELD(repeats), .min = "1", .max = "100", .default_text = "5",
     .metavar = "N", .help = "towers of every kind, each with draws of its own"},
};

static const struct cli_program program = {
    .name = "ccstudy blocks",
    .purpose = "larger blocks of similar points: the block loss of CURL against pairs",
    .usage = (const char *const[]){"[-o DIR] [options]", NULL},
    .examples = (const char *const[]){"ccstudy blocks -o studies",
                                      "ccstudy blocks --data cifar10 -o studies",
                                      "ccstudy blocks --data flickr8k --captions -o studies",
                                      "ccstudy blocks --quick --json", NULL},
    .notes =
        (const char *const[]){
            "A step draws the class of every block with replacement, and of each class an anchor "
            "and b points. blocks: the anchor against the mean of the b points (CURL, eq. (12)); "
            "pairs: against each of them, the mean of the losses (QT); with b = 1 the same. The "
            "tower is a perceptron with one hidden layer on the points or pixels, whose 32 outputs "
            "are not normalised: it is no VGG or GRU, so numbers compare with each other, not with "
            "the paper's.",
            "--captions: points are TF-IDF of words, without the topics' own words; captions of "
            "every fourth picture are to test. A topic is a word that people chose, not what a "
            "caption was written about, and the words beside it tell it: this shows what blocks do "
            "to text in bags of words, not what a recurrent tower makes of sentences.",
            "Measured on points that were not trained on: AVG-2 (two classes at a time, exactly) "
            "and top-1 of the mean classifier, with the means of all training points, and of mu-5 "
            "with those of 5 of every class. The bound: with tau = 1 / classes the chance that two "
            "blocks have the same class, (L - tau) / (1 - tau) of the loss L with one negative "
            "is, for the logistic loss, no less than the average loss of the mean classifier on "
            "two "
            "classes (Proposition 6.2), and falls with b.",
            "--json: rows of method, b, repeats, avg2, top1, avg2_5, top1_5 (percent; 5: mu-5), "
            "gain (in avg2, over b = 1 in the same repeat), each with _sd over the repeats, and "
            "mean_loss; bound: rows of method and b (of the "
            "training), size (of the measurement) and bound. --quick: 200 steps, 2 repeats.",
            NULL},
    CLI_OPTIONS(rows),
};

/* ---- the experiment ---- */

struct study_blocks {
    struct options o;
    int32_t classes;
    int64_t train_count, test_count, dim;
    /* pairs of b = 1 are the blocks of b = 1, and not run again */
    struct blocks_result results[METHODS][BLOCKS_SIZES][MAX_REPEATS];
};

static enum status advance(void *cookie, double points, struct error *err) {
    return study_advance(cookie, points, err);
}

static bool is_run(int method, int k) {
    return method == 0 || BLOCKS_SIZE[k] > 1;
}

static int64_t blocks_of(const struct options *o, int k) {
    if (o->equal == EQUAL_BLOCKS) {
        return (int64_t)o->blocks;
    }
    const int64_t as_many = 2 * (int64_t)o->blocks / (BLOCKS_SIZE[k] + 1);
    const int64_t least = (int64_t)o->negatives + 1;
    return as_many > least ? as_many : least;
}

static enum status
read_data(struct blocks_data *data, const struct options *o, uint64_t seed, struct error *err) {
    if (o->captions) {
        return blocks_data_read_captions(data, o->data, o->topics, BLOCKS_LARGEST + 1, err);
    }
    return o->data != NULL
               ? blocks_data_read(data, o->data, (uint32_t)o->size_px, BLOCKS_LARGEST + 1, err)
               : blocks_data_draw(data, seed, err);
}

static enum status run_repeat(struct study_blocks *s,
                              const struct blocks_data *data,
                              uint64_t repeat,
                              uint64_t seed,
                              struct study_progress *progress,
                              struct error *err) {
    for (int i = 0; i < METHODS * BLOCKS_SIZES; i++) {
        const int method = i / BLOCKS_SIZES;
        const int k = i % BLOCKS_SIZES;
        const struct blocks_setting setting = {.loss = {.blocks = blocks_of(&s->o, k),
                                                        .size = BLOCKS_SIZE[k],
                                                        .negatives = (int64_t)s->o.negatives,
                                                        .kind = (enum block_kind)s->o.loss,
                                                        .pairs = method == 1},
                                               .steps = (int64_t)s->o.steps,
                                               .lr = s->o.lr,
                                               .seed = seed};
        if (is_run(method, k)) {
            TRY(blocks_run(&s->results[method][k][repeat], data, &setting, advance, progress, err));
        }
    }
    s->results[1][0][repeat] = s->results[0][0][repeat];
    return STATUS_OK;
}

/* Every repeat has a seed, and without --data points, of its own. */
static enum status run_all(struct study_blocks *s, struct error *err) {
    struct study_progress progress;
    struct blocks_data data = {0};
    double work = 0.0;
    for (int i = 0; i < METHODS * BLOCKS_SIZES; i++) {
        const int k = i % BLOCKS_SIZES;
        work += is_run(i / BLOCKS_SIZES, k) ? (double)(blocks_of(&s->o, k) * (BLOCKS_SIZE[k] + 1))
                                            : 0.0;
    }
    study_begin(&progress, work * (double)(s->o.steps * s->o.repeats), s->o.shared.quiet);
    enum status status = STATUS_OK;
    for (uint64_t repeat = 0; repeat < s->o.repeats && status == STATUS_OK; repeat++) {
        struct rng r;
        rng_init(&r, s->o.shared.seed, RNG_STUDY, 0, repeat);
        const uint64_t seed = rng_u64(&r);
        if (data.classes == 0 || s->o.data == NULL) {
            blocks_data_fini(&data);
            status = read_data(&data, &s->o, seed, err);
        }
        s->classes = data.classes;
        s->train_count = data.train.count;
        s->test_count = data.test.count;
        s->dim = data.dim;
        if (status == STATUS_OK) {
            status = run_repeat(s, &data, repeat, seed, &progress, err);
        }
    }
    blocks_data_fini(&data);
    study_end(&progress);
    return status;
}

/* ---- numbers ---- */

static const struct measure {
    const char *name, *title;
    size_t offset;
} measures[] = {
    {"avg2", "AVG-2", offsetof(struct blocks_result, avg2)},
    {"top1", "top-1", offsetof(struct blocks_result, top1)},
    {"avg2_5", "AVG-2, mu-5", offsetof(struct blocks_result, avg2_few)},
    {"top1_5", "top-1, mu-5", offsetof(struct blocks_result, top1_few)},
};
enum { MEASURES = sizeof measures / sizeof measures[0] };

struct summary {
    double mean, deviation; /* NaN of one repeat */
};

/* Of one number over repeats, or `gained` of what it has above that of b = 1. */
static struct summary
summarise_from(const struct study_blocks *s, int method, int k, size_t offset, bool gained) {
    const uint64_t n = s->o.repeats;
    struct summary out = {0.0, 0.0};
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t r = 0; r < n; r++) {
            const char *const base = (const char *)&s->results[0][0][r];
            const double x = *(const double *)((const char *)&s->results[method][k][r] + offset) -
                             (gained ? *(const double *)(base + offset) : 0.0);
            if (pass == 0) {
                out.mean += x / (double)n;
            } else {
                out.deviation += (x - out.mean) * (x - out.mean);
            }
        }
    }
    out.deviation = n > 1 ? sqrt(out.deviation / (double)(n - 1)) : (double)NAN;
    return out;
}

static struct summary summarise(const struct study_blocks *s, int method, int k, size_t offset) {
    return summarise_from(s, method, k, offset, false);
}

/* The gain in AVG-2 over b = 1 in the same repeat: repeats differ by more than methods do. */
static struct summary gain_of(const struct study_blocks *s, int method, int k) {
    return summarise_from(s, method, k, measures[0].offset, true);
}

/* (L - tau) / (1 - tau) of the loss over blocks of BLOCKS_SIZE[measured]. */
static double bound_of(const struct study_blocks *s, int method, int k, int measured) {
    const size_t offset =
        offsetof(struct blocks_result, block_loss) + (size_t)measured * sizeof(double);
    const double tau = 1.0 / (double)s->classes;
    return (summarise(s, method, k, offset).mean - tau) / (1.0 - tau);
}

static double mean_loss_of(const struct study_blocks *s, int method, int k) {
    return summarise(s, method, k, offsetof(struct blocks_result, mean_loss)).mean;
}

static void write_summary(struct json_writer *w, const char *name, struct summary x) {
    char deviation[24];
    (void)snprintf(deviation, sizeof deviation, "%s_sd", name);
    json_double(w, name, x.mean);
    if (!isnan(x.deviation)) {
        json_double(w, deviation, x.deviation);
    }
}

static void write_json(struct json_writer *w, const void *result) {
    const struct study_blocks *s = result;
    json_i64(w, "classes", s->classes);
    json_i64(w, "train", s->train_count);
    json_i64(w, "test", s->test_count);
    json_string(w, "loss", loss_names_of[s->o.loss]);
    json_u64(w, "negatives", s->o.negatives);
    json_string(w, "equal", equals[s->o.equal]);
    json_u64(w, "steps", s->o.steps);
    json_open_array(w, "rows");
    for (int i = 0; i < METHODS * BLOCKS_SIZES; i++) {
        const int k = i % BLOCKS_SIZES;
        json_open_object(w, NULL);
        json_string(w, "method", method_names[i / BLOCKS_SIZES]);
        json_i64(w, "b", BLOCKS_SIZE[k]);
        json_u64(w, "repeats", s->o.repeats);
        for (int m = 0; m < MEASURES; m++) {
            write_summary(w, measures[m].name,
                          summarise(s, i / BLOCKS_SIZES, k, measures[m].offset));
        }
        write_summary(w, "gain", gain_of(s, i / BLOCKS_SIZES, k));
        json_double(w, "mean_loss", mean_loss_of(s, i / BLOCKS_SIZES, k));
        json_close_object(w);
    }
    json_close_array(w);
    json_open_array(w, "bound");
    for (int i = 0; i < METHODS * BLOCKS_SIZES * BLOCKS_SIZES; i++) {
        const int method = i / BLOCKS_SIZES / BLOCKS_SIZES;
        const int k = i / BLOCKS_SIZES % BLOCKS_SIZES;
        json_open_object(w, NULL);
        json_string(w, "method", method_names[method]);
        json_i64(w, "b", BLOCKS_SIZE[k]);
        json_i64(w, "size", BLOCKS_SIZE[i % BLOCKS_SIZES]);
        json_double(w, "bound", bound_of(s, method, k, i % BLOCKS_SIZES));
        json_close_object(w);
    }
    json_close_array(w);
}

static void print_summary(struct summary x) {
    char text[32];
    (void)snprintf(text, sizeof text, isnan(x.deviation) ? "%.2f" : "%.2f +- %.2f", x.mean,
                   x.deviation);
    printf(" %16s", text);
}

static void print_table(const struct study_blocks *s) {
    printf("%-7s %3s", "method", "b");
    for (int m = 0; m < MEASURES; m++) {
        printf(" %16s", measures[m].title);
    }
    printf(" %16s %10s\n", "gain in AVG-2", "mean loss");
    for (int i = 0; i < METHODS * BLOCKS_SIZES; i++) {
        const int k = i % BLOCKS_SIZES;
        if (!is_run(i / BLOCKS_SIZES, k)) {
            continue;
        }
        printf("%-7s %3d", method_names[i / BLOCKS_SIZES], (int)BLOCKS_SIZE[k]);
        for (int m = 0; m < MEASURES; m++) {
            print_summary(summarise(s, i / BLOCKS_SIZES, k, measures[m].offset));
        }
        print_summary(gain_of(s, i / BLOCKS_SIZES, k));
        printf(" %10.4f\n", mean_loss_of(s, i / BLOCKS_SIZES, k));
    }
}

/* ---- the page ---- */

static const double sizes_x[BLOCKS_SIZES] = {1, 2, 5, BLOCKS_LARGEST};

static void draw_accuracy(struct html_page *p, const struct study_blocks *s) {
    static const char *const names[2 * METHODS] = {"blocks, all points", "blocks, mu-5",
                                                   "pairs, all points", "pairs, mu-5"};
    double y[2 * METHODS][BLOCKS_SIZES];
    double error[2 * METHODS][BLOCKS_SIZES];
    struct chart_series series[2 * METHODS];
    for (int i = 0; i < 2 * METHODS; i++) {
        for (int k = 0; k < BLOCKS_SIZES; k++) {
            const struct summary x = summarise(s, i / 2, k, measures[i % 2 * 2].offset);
            y[i][k] = x.mean;
            error[i][k] = isnan(x.deviation) ? 0.0 : x.deviation;
        }
        series[i] = (struct chart_series){
            .name = names[i], .x = sizes_x, .y = y[i], .error = error[i], .count = BLOCKS_SIZES};
    }
    chart_lines(p, &(struct chart){.title = "AVG-2 of the mean classifier over the size of the "
                                            "blocks that towers were trained with; bars: standard "
                                            "deviation over repeats",
                                   .x_label = "b",
                                   .y_label = "AVG-2, percent",
                                   .log_x = true,
                                   .series = series,
                                   .series_count = 2 * METHODS});
}

static void draw_bound(struct html_page *p, const struct study_blocks *s) {
    static const char *const names[] = {"bound, tower of b = 1", "mean classifier, tower of b = 1",
                                        "bound, tower of b = 10",
                                        "mean classifier, tower of b = 10"};
    double y[4][BLOCKS_SIZES];
    struct chart_series series[4];
    for (int i = 0; i < 4; i++) {
        const int k = i / 2 * (BLOCKS_SIZES - 1);
        for (int size = 0; size < BLOCKS_SIZES; size++) {
            y[i][size] = i % 2 == 0 ? bound_of(s, 0, k, size) : mean_loss_of(s, 0, k);
        }
        series[i] = (struct chart_series){
            .name = names[i], .x = sizes_x, .y = y[i], .count = BLOCKS_SIZES, .plain = i % 2 == 1};
    }
    chart_lines(p,
                &(struct chart){.title = "The bound that the logistic block loss of test points "
                                         "gives, over the size of its blocks, and what it "
                                         "bounds: the loss of the mean classifier on two classes",
                                .x_label = "b",
                                .y_label = "loss, bits",
                                .log_x = true,
                                .series = series,
                                .series_count = 4});
}

static void draw_summary(struct html_page *p, struct summary x) {
    html_markup(p, isnan(x.deviation) ? "<td>%.2f" : "<td>%.2f &plusmn; %.2f", x.mean, x.deviation);
}

static void draw_numbers(struct html_page *p, const struct study_blocks *s) {
    html_markup(p,
                "<h2>Numbers</h2><div class=\"scroll\"><table><caption>Mean and standard "
                "deviation over %d repeats, percent; gain: over b = 1 in the same "
                "repeat</caption><tr><th>method<th>b",
                (int)s->o.repeats);
    for (int m = 0; m < MEASURES; m++) {
        html_markup(p, "<th>%s", measures[m].title);
    }
    html_markup(p, "<th>gain in AVG-2</tr>");
    for (int i = 0; i < METHODS * BLOCKS_SIZES; i++) {
        const int k = i % BLOCKS_SIZES;
        if (!is_run(i / BLOCKS_SIZES, k)) {
            continue;
        }
        html_markup(p, "<tr><td>%s<td>%d", method_names[i / BLOCKS_SIZES], (int)BLOCKS_SIZE[k]);
        for (int m = 0; m < MEASURES; m++) {
            draw_summary(p, summarise(s, i / BLOCKS_SIZES, k, measures[m].offset));
        }
        draw_summary(p, gain_of(s, i / BLOCKS_SIZES, k));
        html_markup(p, "</tr>");
    }
    html_markup(p, "</table></div>");
}

static void draw_paper(struct html_page *p) {
    html_markup(p,
                "<h2>The paper</h2><div class=\"scroll\"><table><caption>Table 2 of Arora et al., "
                "percent: AVG-2 of CIFAR-100 (VGG-16) and Wiki-3029 (GRU), accuracy on IMDB"
                "</caption><tr><th>data<th>method<th>b = 2<th>b = 5<th>b = 10</tr>"
                "<tr><td>CIFAR-100<td>CURL<td>88.1<td>89.6<td>89.7</tr>"
                "<tr><td>Wiki-3029<td>CURL<td>96.6<td>97.5<td>97.7</tr>"
                "<tr><td>IMDB<td>CURL<td>89.2<td>89.6<td>89.7</tr>"
                "<tr><td>IMDB<td>QT<td>86.5<td>87.7<td>86.7</tr></table></div>");
}

static enum status
draw_page(struct html_page *p, const void *result, const void *options, struct error *err) {
    const struct study_blocks *s = result;
    const struct summary one = summarise(s, 0, 0, measures[0].offset);
    const struct summary ten = summarise(s, 0, BLOCKS_SIZES - 1, measures[0].offset);
    const struct summary pairs = summarise(s, 1, BLOCKS_SIZES - 1, measures[0].offset);
    (void)options;
    (void)err;
    html_markup(p, "<p>The paper's claims (Arora et al., ICML 2019): the loss that compares an "
                   "anchor with the mean of a block of b similar points bounds the loss of the "
                   "mean classifier more tightly than pairs do, and towers trained with larger "
                   "blocks classify better; pairs made of the same blocks (QT) do not gain as "
                   "much.</p><p>Measured here: ");
    html_markup(p,
                s->o.captions       ? "captions of %d topics, in bags of words"
                : s->o.data != NULL ? "pictures of %d classes"
                                    : "a mixture of %d Gaussians",
                (int)s->classes);
    html_markup(p,
                ", %lld points to train on, %lld to test, a perceptron with one hidden layer, %s "
                "loss, %d negatives, %d steps of %s. AVG-2 of the mean classifier is %.2f %% with "
                "b = 1, %.2f %% with blocks of 10, %.2f %% with the pairs of those blocks. On the "
                "tower of b = 1 the bound falls from %.3f to %.3f bits as blocks grow from 1 to "
                "10; the mean classifier has %.3f.</p>",
                (long long)s->train_count, (long long)s->test_count, loss_names_of[s->o.loss],
                (int)s->o.negatives, (int)s->o.steps,
                s->o.equal == EQUAL_BLOCKS ? "equally many blocks" : "equally many points",
                one.mean, ten.mean, pairs.mean, bound_of(s, 0, 0, 0),
                bound_of(s, 0, 0, BLOCKS_SIZES - 1), mean_loss_of(s, 0, 0));
    html_markup(p, "<div class=\"wide\">");
    draw_accuracy(p, s);
    draw_bound(p, s);
    html_markup(p, "</div>");
    draw_numbers(p, s);
    draw_paper(p);
    return STATUS_OK;
}

static enum status
check(const struct options *o, const struct cli_arguments *a, struct error *err) {
    if (!o->captions && cli_given(&program, a, "topics")) {
        return error_set(err, STATUS_USAGE, "--topics needs --captions, which they group");
    }
    if ((o->captions || o->data == NULL) && cli_given(&program, a, "size")) {
        return error_set(err, STATUS_USAGE, "--size is that of the pictures of --data DIR");
    }
    if (o->captions && o->data == NULL) {
        return error_set(err, STATUS_USAGE, "--captions needs --data DIR, whose captions they are");
    }
    if (o->negatives >= o->blocks) {
        return error_set(err, STATUS_USAGE,
                         "--negatives %llu: of %llu blocks an anchor has at most %llu others",
                         (unsigned long long)o->negatives, (unsigned long long)o->blocks,
                         (unsigned long long)o->blocks - 1);
    }
    return o->data != NULL ? path_check_dataset(o->data, err) : STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct study_blocks *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    s->o = *(const struct options *)options;
    const struct study study = {.name = "blocks",
                                .title = "CURL: blocks of similar points",
                                .options = &s->o,
                                .shared = &s->o.shared,
                                .result = s,
                                .write_json = write_json,
                                .draw_page = draw_page};
    if (s->o.shared.quick && !cli_given(&program, a, "steps")) {
        s->o.steps = QUICK_STEPS;
    }
    if (s->o.shared.quick && !cli_given(&program, a, "repeats")) {
        s->o.repeats = QUICK_REPEATS;
    }
    enum status status = check(&s->o, a, err);
    if (status == STATUS_OK) {
        status = study_check(&study, err);
    }
    if (status == STATUS_OK) {
        status = run_all(s, err);
    }
    if (status == STATUS_OK && !s->o.shared.json && !s->o.shared.quiet) {
        print_table(s);
    }
    if (status == STATUS_OK) {
        status = study_finish(&study, err);
    }
    free(s);
    return status;
}

int ccstudy_blocks(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
