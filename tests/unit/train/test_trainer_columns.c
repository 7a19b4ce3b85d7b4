/*
 * Runs with attached columns: weights of samples, a reference model, a teacher; on ranks, resumed,
 * and what is refused, with its sample.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/columns/columns.h"
#include "tests/support/comm_threads.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"
#include "train/run/trainer.h"

enum {
    SAMPLES = 16,
    ID_STEP = 3,
    BATCH = 8,
    EPOCHS = 2,
    STEPS = SAMPLES / BATCH * EPOCHS,
    WIDTH = 6
};

struct seen {
    struct step_report steps[STEPS];
    uint64_t count;
    struct error error;
    enum status status;
};

struct run {
    const char *name, *loss, *weight, *reference, *teacher;
    double distill_weight;
    uint64_t max_steps;
    char data[256], directory[256];
    struct seen seen[4];
};

static void on_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    struct seen *s = cookie;
    if (total_steps <= STEPS && s->count < STEPS) {
        s->steps[s->count++] = *r;
    }
}

static enum status body(struct comm *c, void *cookie, struct error *err) {
    struct run *run = cookie;
    struct seen *seen = &run->seen[comm_rank(c)];
    const struct loader_source source = {.directory = run->data};
    struct trainer_options o;
    struct trainer *t = NULL;
    struct retrieval_result result;
    *seen = (struct seen){0};
    trainer_options_default(&o);
    o.comm = c;
    o.sources = &source;
    o.source_count = 1;
    o.run = run->directory;
    o.loss.name = run->loss;
    o.loss.tau = 0.1;
    o.weight = run->weight;
    o.reference = run->reference;
    o.teacher_image = run->teacher;
    o.teacher_text = run->teacher;
    o.distill_weight = run->distill_weight;
    o.image_tower = "tiny";
    o.text_tower = "tiny";
    o.small_stem = true;
    o.image_size_px = 8;
    o.max_tokens = 8;
    o.batch_count = BATCH;
    o.micro_batch_count = 2;
    o.epochs = EPOCHS;
    o.max_steps = run->max_steps;
    o.lr = 1e-3;
    o.threads = 1;
    o.loader_threads = 1;
    o.on_step = on_step;
    o.cookie = seen;
    enum status s = trainer_create(&t, &o, err);
    if (s == STATUS_OK) {
        s = trainer_run(t, &result, err);
    }
    trainer_destroy(t);
    seen->status = s;
    seen->error = *err;
    return STATUS_OK;
}

static const struct seen *train(struct run *run, int32_t world) {
    struct error err = {0};
    (void)snprintf(run->data, sizeof run->data, "%s", test_temp_path("d"));
    (void)snprintf(run->directory, sizeof run->directory, "%s", test_temp_path("%s", run->name));
    (void)mkdir(run->directory, 0777);
    assert_ok(comm_threads_run_large(world, body, run, &err), err);
    return &run->seen[0];
}

static void make_data(void) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.samples = SAMPLES;
    image_dataset_make(test_temp_path("d"), &how);
}

/* Row i of id 3 i is `values` numbers of value(i, k); without the one of `missing`. */
static void attach(const char *name,
                   uint32_t values,
                   uint32_t vectors,
                   int missing,
                   float (*value)(int i, int k)) {
    struct column_info info = {.kind = SAFETENSORS_F32, .values = values, .vectors = vectors};
    struct column_block block = {0};
    struct column_writer *w = NULL;
    struct manifest m;
    struct error err = {0};
    const char *directory = test_temp_path("d");
    (void)snprintf(info.name, sizeof info.name, "%s", name);
    info.source = (char[]){"{}"};
    assert_ok(manifest_read(&m, file_posix(), directory, &err), err);
    info.fingerprint = m.fingerprint;
    manifest_fini(&m);
    assert_ok(column_writer_create(&w, file_posix(), directory, &info, &err), err);
    for (int i = 0; i < SAMPLES; i++) {
        float row[2 * WIDTH] = {0};
        for (uint32_t k = 0; k < values; k++) {
            row[k] = value(i, (int)k);
        }
        if (i != missing) {
            assert_ok(column_block_add(&block, &info, (uint64_t)(ID_STEP * i), row,
                                       values * sizeof *row, &err),
                      err);
        }
    }
    assert_ok(column_writer_put(w, &block, &err), err);
    assert_ok(column_writer_finish(w, &err), err);
    column_writer_destroy(w);
    column_block_fini(&block);
}

static float one(int i, int k) {
    return (float)(1 + 0 * (i + k));
}
static float two(int i, int k) {
    return (float)(2 + 0 * (i + k));
}
static float uneven(int i, int k) {
    return (float)(i % 4) / 2.0f + (float)k;
}
static float one_negative(int i, int k) {
    return i == 5 ? -0.5f : one(i, k);
}
static float one_nan(int i, int k) {
    return i == 5 && k % WIDTH == 0 ? NAN : one(i, k);
}
static float features(int i, int k) {
    return (float)sin((double)(3 * i + 1) * (double)(k + 1));
}
/* All that the two reported but for the times. */
static void same_reports(const struct seen *a, const struct seen *b) {
    assert_string_equal(a->error.text, "");
    assert_string_equal(b->error.text, "");
    assert_int_equal(a->count, b->count);
    for (uint64_t i = 0; i < a->count; i++) {
        assert_true(a->steps[i].loss == b->steps[i].loss &&
                    a->steps[i].grad_norm == b->steps[i].grad_norm &&
                    a->steps[i].global_loss == b->steps[i].global_loss);
    }
}

static double first_loss(const struct seen *s) {
    assert_string_equal(s->error.text, "");
    return s->steps[0].loss;
}

TEST(weights_multiply_the_loss_and_equal_features_change_nothing) {
    static struct run plain, with;
    make_data();
    attach("w1", 1, 1, -1, one);
    attach("w2", 1, 1, -1, two);
    attach("w", 1, 1, -1, uneven);
    attach("same", 2 * WIDTH, 2, -1, one);
    attach("f", 2 * WIDTH, 2, -1, features);
    plain = (struct run){.name = "plain", .loss = "nuclr", .max_steps = 2};
    const struct seen *base = train(&plain, 1);
    const double loss = first_loss(base);
    with = (struct run){.name = "ones", .loss = "nuclr", .max_steps = 2, .weight = "w1"};
    same_reports(base, train(&with, 1));
    with = (struct run){.name = "twos", .loss = "nuclr", .max_steps = 2, .weight = "w2"};
    assert_true(first_loss(train(&with, 1)) == 2.0 * loss);
    with = (struct run){.name = "uneven", .loss = "nuclr", .max_steps = 2, .weight = "w"};
    assert_true(first_loss(train(&with, 1)) != loss);
    with = (struct run){.name = "same", .loss = "nuclr", .max_steps = 2, .reference = "same"};
    assert_true(fabs(first_loss(train(&with, 1)) - loss) < 1e-5 * fabs(loss) + 1e-7);
    with = (struct run){.name = "reference", .loss = "nuclr", .max_steps = 2, .reference = "f"};
    assert_true(fabs(first_loss(train(&with, 1)) - loss) > 1e-3 * fabs(loss));
    with = (struct run){.name = "untaught", .loss = "nuclr", .max_steps = 2, .teacher = "f"};
    same_reports(base, train(&with, 1)); /* its weight is 0 */
    assert_true(with.seen[0].steps[0].distill_loss > 0.0);
    with = (struct run){
        .name = "taught", .loss = "clip", .max_steps = 2, .teacher = "f", .distill_weight = 1.0};
    assert_true(first_loss(train(&with, 1)) == with.seen[0].steps[0].distill_loss);
}

TEST(columns_on_ranks_give_the_run_of_one_process) {
    static struct run alone, many;
    make_data();
    attach("w", 1, 1, -1, uneven);
    attach("f", 2 * WIDTH, 2, -1, features);
    alone = (struct run){.name = "alone",
                         .loss = "sogclr",
                         .max_steps = 2,
                         .weight = "w",
                         .reference = "f",
                         .teacher = "f",
                         .distill_weight = 0.25};
    many = alone;
    many.name = "many";
    same_reports(train(&alone, 1), train(&many, 2));
    test_same_file(test_temp_path("alone/last"), test_temp_path("many/last"));
}

TEST(a_run_with_columns_resumes_and_refuses_others) {
    static struct run whole, parts;
    make_data();
    attach("w", 1, 1, -1, uneven);
    attach("f", 2 * WIDTH, 2, -1, features);
    whole = (struct run){.name = "whole", .loss = "nuclr", .weight = "w", .reference = "f"};
    parts = whole;
    parts.name = "parts";
    parts.max_steps = 2;
    (void)first_loss(train(&whole, 1));
    (void)first_loss(train(&parts, 1));
    attach("w", 1, 1, -1, two);
    parts.max_steps = 0;
    assert_int_equal(train(&parts, 1)->status, STATUS_MISMATCH);
    assert_non_null(strstr(parts.seen[0].error.text, "other columns"));
    attach("w", 1, 1, -1, uneven);
    assert_string_equal(train(&parts, 1)->error.text, "");
    test_same_file(test_temp_path("whole/last"), test_temp_path("parts/last"));
}

enum option { WEIGHT, REFERENCE, TEACHER };

/* Each with a run of its own, which ends before its first epoch does. */
static void refused(enum option option, const char *column, const char *loss, const char *why) {
    static struct run r;
    static int number;
    char name[32];
    (void)snprintf(name, sizeof name, "refused-%d", number++);
    r = (struct run){.name = name, .loss = loss};
    *(option == WEIGHT ? &r.weight : option == REFERENCE ? &r.reference : &r.teacher) = column;
    const struct seen *s = train(&r, 1);
    if (strstr(s->error.text, why) == NULL) {
        fail_msg("--%d %s, %s: '%s' has no '%s'", (int)option, column, loss, s->error.text, why);
    }
}

TEST(values_that_cannot_be_used_are_refused_with_their_sample) {
    make_data();
    attach("w", 1, 1, -1, uneven);
    attach("w2", 2, 1, -1, uneven);
    attach("missing", 1, 1, 5, one);
    attach("negative", 1, 1, -1, one_negative);
    attach("nan", 1, 1, -1, one_nan);
    attach("f", 2 * WIDTH, 2, -1, features);
    attach("f1", WIDTH, 1, -1, features);
    attach("fnan", 2 * WIDTH, 2, -1, one_nan);
    attach("fmissing", 2 * WIDTH, 2, 15, features);
    refused(WEIGHT, "missing", "nuclr", "column 'missing' has no value for sample 15");
    refused(WEIGHT, "negative", "nuclr", "column 'negative' has -0.5 for sample 15");
    refused(WEIGHT, "nan", "nuclr", "column 'nan' has NaN or infinity for sample 15");
    refused(WEIGHT, "none", "nuclr", "there is no column 'none'");
    refused(WEIGHT, "w2", "nuclr", "column 'w2' has 2 numbers per sample, expected one");
    refused(WEIGHT, "w,f", "nuclr", "is not a valid column name");
    refused(WEIGHT, "w", "cyclip", "loss cyclip does not support sample weights");
    refused(REFERENCE, "fmissing", "nuclr", "column 'fmissing' has no value for sample 45");
    refused(REFERENCE, "fnan", "nuclr", "column 'fnan' has NaN or infinity for sample 15");
    refused(REFERENCE, "f1", "nuclr", "column 'f1' has 6 numbers in 1 vectors");
    refused(REFERENCE, "w", "nuclr", "column 'w' has 1 numbers in 1 vectors");
    refused(REFERENCE, "f", "clip", "loss clip keeps no moving average u");
    refused(TEACHER, "w", "clip", "column 'w' has 1 numbers in 1 vectors");
    refused(TEACHER, "fnan", "clip", "column 'fnan' has NaN or infinity for sample 15");
}
