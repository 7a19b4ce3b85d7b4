/*
 * What must hold of every row of losses (train/loss/loss_row.h), by one loop each: a new row is
 * tested with nothing written here. Its golden case is demanded by test_loss_golden.c.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/loss/loss_row.h"

enum { MAX_B = 9, MAX_ROWS = 2 * MAX_B, ID_SPACE = 64, SAMPLES = 1000 };

/* ---- a batch and a loss ---- */

struct fixture {
    const struct loss_row *row;
    struct loss_options options;
    struct sample_state *state;
    struct loss *loss;
    int b, rows; /* samples; rows of similarities */
    uint64_t steps;
    /* S, images with images, texts with texts */
    float similarity[3][MAX_ROWS * MAX_ROWS], gradient[3][MAX_ROWS * MAX_ROWS];
    uint64_t ids[MAX_B];
    /* Samples outside the batch */
    uint64_t carried_ids[2 * MAX_B];
    float carried[2 * MAX_B], carried_gradient[2 * MAX_B];
};

/* "isogclr of two views" */
static const char *title(const struct loss_row *row) {
    static char text[80];
    (void)snprintf(text, sizeof text, "loss %s%s", row->name,
                   row->views                             ? " of two views"
                   : row->parity == LOSS_PARITY_REFERENCE ? " (published code)"
                                                          : "");
    return text;
}

/* Multiples of 2^-12, so that finite differences step between exact floats. */
static void draw(float *m, int rows, uint64_t stream, bool symmetric) {
    struct rng r;
    rng_init(&r, 21, RNG_INIT, stream, 0);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < rows; j++) {
            const double x = rint((2.0 * rng_uniform(&r) - 1.0) * 4096.0) / 4096.0;
            m[i * rows + j] = symmetric && j < i ? m[j * rows + i] : (float)x;
        }
    }
}

static void draw_batch(struct fixture *f, uint64_t stream) {
    draw(f->similarity[0], f->rows, 3 * stream, false);
    draw(f->similarity[1], f->b, 3 * stream + 1, true);
    draw(f->similarity[2], f->b, 3 * stream + 2, true);
}

static void fixture_init(struct fixture *f, const struct loss_row *row, double tau, int b) {
    memset(f, 0, sizeof *f);
    loss_options_default(&f->options);
    f->row = row;
    f->options.name = row->name;
    f->options.views = row->views;
    f->options.parity = row->parity;
    f->options.tau = tau;
    f->options.tau_min = 0.001;
    f->options.tau_max = 2.0;
    f->b = b;
    f->rows = row->views ? 2 * b : b;
    draw_batch(f, 0);
    for (int i = 0; i < b; i++) {
        f->ids[i] = (uint64_t)(60 - 5 * i);
    }
}

/* Every `each` consecutive pairs become one sample. */
static void fixture_group(struct fixture *f, int each) {
    f->options.positives = (uint64_t)each;
    for (int i = 0; i < f->b; i++) {
        f->ids[i] = (uint64_t)(60 - 5 * (i / each));
    }
}

static void fixture_open(struct fixture *f) {
    struct error err = {0};
    f->steps = 0;
    assert_ok(sample_state_create(&f->state, ID_SPACE, NULL, &err), err);
    assert_ok(loss_create(&f->loss, &f->options, f->state, SAMPLES, MAX_B, &err), err);
}

static void fixture_close(struct fixture *f) {
    loss_destroy(f->loss);
    sample_state_destroy(f->state);
}

/* Of a loss that draws them: some of the batch and some outside it. */
static void carry(struct fixture *f) {
    struct error err = {0};
    for (int i = 0; i < 2 * f->b; i++) {
        f->carried_ids[i] = (f->ids[i % f->b] + 5 * (1 + f->steps)) % ID_SPACE;
    }
    if (loss_cache_refresh(f->loss) == 0.0) {
        assert_ok(loss_carried(f->loss, f->carried_ids, NULL, f->ids, f->b, &err), err);
    }
    for (int i = 0; i < 2 * f->b; i++) {
        const uint64_t id = f->carried_ids[i];
        const uint64_t anchor = 2 * f->ids[i % f->b] + (i < f->b ? 0 : 1);
        f->carried[i] = (float)((id * 37 + anchor * 11) % 97) / 97.0f;
    }
}

static enum status try_step(struct fixture *f, struct loss_output *out, struct error *err) {
    const bool carries = loss_carries(f->loss);
    if (carries) {
        carry(f);
    }
    const struct loss_input in = {.similarity = f->similarity[0],
                                  .image_similarity = f->similarity[1],
                                  .text_similarity = f->similarity[2],
                                  .sample_ids = f->ids,
                                  .carried_ids = carries ? f->carried_ids : NULL,
                                  .carried_similarity = f->carried,
                                  .batch_count = f->b,
                                  .step = f->steps,
                                  .epoch = f->steps / 2,
                                  .lr = 1e-3,
                                  .zeta_lr_text = 1e-4,
                                  .zeta_lr_image = 3e-5};
    *out = (struct loss_output){.gradient = f->gradient[0],
                                .image_gradient = f->gradient[1],
                                .text_gradient = f->gradient[2],
                                .carried_gradient = f->carried_gradient};
    f->steps++;
    return loss_step(f->loss, &in, out, err);
}

static struct loss_output step(struct fixture *f) {
    struct error err = {0};
    struct loss_output out;
    assert_ok(try_step(f, &out, &err), err);
    return out;
}

static int matrix_count(const struct fixture *f) {
    return f->row->uses_self ? 3 : 1;
}

static int side_of(const struct fixture *f, int matrix) {
    return matrix == 0 ? f->rows : f->b;
}

/* Everything that a loss keeps, as bytes. */
struct kept {
    unsigned char bytes[65536];
    size_t size_bytes;
};

static void keep(struct kept *k, const void *data, size_t size_bytes) {
    assert_true(k->size_bytes + size_bytes <= sizeof k->bytes);
    memcpy(k->bytes + k->size_bytes, data, size_bytes);
    k->size_bytes += size_bytes;
}

static void keep_state(struct kept *k, struct fixture *f, bool visits) {
    const struct loss_scalar *scalars = NULL;
    const int32_t count = loss_scalars(f->loss, &scalars);
    k->size_bytes = 0;
    for (int32_t i = 0; i < sample_state_count(f->state); i++) {
        size_t size_bytes;
        const void *values = sample_state_values(f->state, i, &size_bytes);
        if (visits || sample_state_kind(f->state, i) != SAMPLE_STATE_COUNT) {
            keep(k, values, size_bytes);
        }
    }
    for (int32_t i = 0; i < count; i++) {
        keep(k, scalars[i].value, sizeof *scalars[i].value);
    }
}

static bool same(const struct kept *a, const struct kept *b) {
    return a->size_bytes == b->size_bytes && memcmp(a->bytes, b->bytes, a->size_bytes) == 0;
}

#define FOR_EACH_ROW(row)                                                                          \
    for (const struct loss_row *const *at_ = loss_rows(), *row; (row = *at_) != NULL; at_++)

/* ---- slopes ---- */

/* What the gradient is the slope of, in the first step of a new loss. */
static double first_value(struct fixture *f) {
    fixture_open(f);
    const struct loss_output out = step(f);
    fixture_close(f);
    return f->row->surrogate ? out.objective : out.value;
}

/* By four points. */
static double slope(struct fixture *f, float *element, double h) {
    static const double steps[] = {1.0, -1.0, 2.0, -2.0};
    const double before = (double)*element;
    double at[4];
    for (int k = 0; k < 4; k++) {
        *element = (float)(before + steps[k] * h);
        at[k] = first_value(f);
    }
    *element = (float)before;
    return (8.0 * (at[0] - at[1]) - (at[2] - at[3])) / (12.0 * h);
}

/* The published code keeps its sums in f32 before it uses them. FastCLIP's v2 learns its
 * temperatures on tau times the loss whose gradient it takes. */
static void assert_slopes(struct fixture *f) {
    static float gradient[3][MAX_ROWS * MAX_ROWS];
    const bool f32 = f->row->parity == LOSS_PARITY_REFERENCE;
    const double tau = f->options.tau;
    const double h = !f32 ? 0x1p-20 : tau > 0.2 ? 0x1p-7 : 0x1p-10;
    const double scale = strcmp(f->row->name, "fastclip-v2") == 0 ? 1.0 / tau : 1.0;
    (void)first_value(f);
    memcpy(gradient, f->gradient, sizeof gradient);
    for (int m = 0; m < matrix_count(f); m++) {
        const int n = side_of(f, m);
        double error = 0.0;
        double norm = 0.0;
        for (int i = 0; i < n * n; i++) {
            const double expected = scale * slope(f, &f->similarity[m][i], h);
            error += pow((double)gradient[m][i] - expected, 2.0);
            norm += expected * expected;
        }
        if (!(norm > 0.0 && sqrt(error / norm) < (f32 ? 1e-4 : 1e-6))) {
            fail_msg("%s, B %d, tau %g: slopes of matrix %d differ by %g of norm %g", title(f->row),
                     f->b, tau, m, sqrt(error / norm), sqrt(norm));
        }
    }
}

TEST(gradients_are_slopes_with_several_positives) {
    static struct fixture f;
    FOR_EACH_ROW(row) {
        for (int each = 2; each <= 4 && loss_may_read(row, LOSS_POSITIVES); each++) {
            fixture_init(&f, row, 0.25, 2 * each);
            fixture_group(&f, each);
            f.options.tau_plus = 0.02;
            f.options.zeta0 = 0.0;
            assert_slopes(&f);
        }
    }
}

TEST(gradients_are_slopes) {
    static const double taus[] = {1.0, 0.25, 0.0625};
    static const int batches[] = {2, 5, MAX_B};
    static struct fixture f;
    FOR_EACH_ROW(row) {
        for (int t = 0; t < 3; t++) {
            for (int k = 0; k < 3; k++) {
                fixture_init(&f, row, taus[t], batches[k]);
                f.options.beta = 0.7;
                f.options.q = 0.4;
                f.options.lambda = 0.05;
                f.options.tau_plus = 0.02;
                f.options.bias0 = -1.0;
                f.options.zeta0 = 0.0; /* with xi: then eq. (15) is the slope of the objective */
                assert_slopes(&f);
            }
        }
    }
}

/* ---- ids, and what is not finite ---- */

/* The same as a batch without the second place of the id. */
TEST(a_repeated_id_counts_in_its_first_place) {
    static struct fixture whole;
    static struct fixture part;
    static struct kept a;
    static struct kept b;
    FOR_EACH_ROW(row) {
        fixture_init(&whole, row, 0.25, 5);
        fixture_init(&part, row, 0.25, 4);
        whole.ids[3] = whole.ids[1];
        part.ids[3] = whole.ids[4];
        static const int places[] = {0, 1, 2, 4};
        fixture_open(&whole);
        fixture_open(&part);
        for (int k = 0; k < 3; k++) {
            draw_batch(&whole, (uint64_t)(10 + k));
            for (int m = 0; m < 3; m++) {
                const int n = side_of(&part, m);
                for (int i = 0; i < n * n; i++) {
                    const int row_of = places[i / n % 4] + i / n / 4 * 5;
                    const int column_of = places[i % n % 4] + i % n / 4 * 5;
                    part.similarity[m][i] =
                        whole.similarity[m][row_of * side_of(&whole, m) + column_of];
                }
            }
            const struct loss_output all = step(&whole);
            const struct loss_output distinct = step(&part);
            assert_true(all.value == distinct.value && all.objective == distinct.objective);
            assert_true(all.tau == distinct.tau);
            for (int m = 0; m < matrix_count(&whole); m++) {
                const int n = side_of(&whole, m);
                for (int i = 0, next = 0; i < n * n; i++) {
                    const bool repeated = i / n % 5 == 3 || i % n % 5 == 3;
                    assert_true(whole.gradient[m][i] == (repeated ? 0.0f : part.gradient[m][next]));
                    next += !repeated;
                }
            }
        }
        keep_state(&a, &whole, true);
        keep_state(&b, &part, true);
        assert_true(same(&a, &b));
        fixture_close(&whole);
        fixture_close(&part);
    }
}

TEST(two_ids_are_the_smallest_batch) {
    static struct fixture f;
    static struct kept before;
    static struct kept after;
    struct error err = {0};
    FOR_EACH_ROW(row) {
        struct loss *none = NULL;
        fixture_init(&f, row, 0.25, 3);
        f.options.margin = 2.0; /* hgcl: no contrast is beyond it */
        fixture_open(&f);
        assert_status(loss_create(&none, &f.options, f.state, 1, MAX_B, &err), STATUS_USAGE, err);
        assert_null(none);

        /* One id alone is a visit and nothing more. */
        f.ids[1] = f.ids[0];
        f.ids[2] = f.ids[0];
        keep_state(&before, &f, false);
        const struct loss_output alone = step(&f);
        keep_state(&after, &f, false);
        assert_true(alone.value == 0.0 && same(&before, &after));
        const int32_t visits = sample_state_find(f.state, "visits");
        assert_int_equal(sample_state_column_u64(f.state, visits)[f.ids[0]], 1);
        for (int i = 0; i < f.rows * f.rows; i++) {
            assert_true(f.gradient[0][i] == 0.0f);
        }

        /* Two are a batch. */
        f.ids[1] = 7;
        double norm = 0.0;
        assert_true(isfinite(step(&f).value));
        for (int i = 0; i < f.rows * f.rows; i++) {
            norm += fabs((double)f.gradient[0][i]);
        }
        assert_true(norm > 0.0);
        fixture_close(&f);
    }
}

TEST(similarities_that_are_not_finite_change_nothing) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static struct fixture f;
    static struct kept before;
    static struct kept after;
    FOR_EACH_ROW(row) {
        fixture_init(&f, row, 0.25, 5);
        fixture_open(&f);
        (void)step(&f);
        keep_state(&before, &f, true);
        for (int m = 0; m < matrix_count(&f); m++) {
            for (int k = 0; k < 3; k++) {
                struct error err = {0};
                struct loss_output out;
                const float good = f.similarity[m][7];
                f.similarity[m][7] = bad[k];
                assert_status(try_step(&f, &out, &err), STATUS_CORRUPT, err);
                assert_non_null(strstr(err.text, "not finite"));
                f.similarity[m][7] = good;
                keep_state(&after, &f, true);
                assert_true(same(&before, &after));
            }
        }
        fixture_close(&f);
    }
}

/* ---- numbers at their ends ---- */

/* Own pairs at one end and the others at the other. */
static void draw_ends(struct fixture *f, float own_pairs, float others) {
    for (int i = 0; i < f->rows * f->rows; i++) {
        const int a = i / f->rows;
        const int c = i % f->rows;
        const bool own = f->row->views ? a % f->b == c % f->b : a == c;
        f->similarity[0][i] = own ? own_pairs : others;
    }
}

TEST(extreme_similarities_stay_finite_at_a_small_temperature) {
    static struct fixture f;
    FOR_EACH_ROW(row) {
        fixture_init(&f, row, 0.005, 5);
        fixture_open(&f);
        for (int round = 0; round < 4; round++) {
            draw_ends(&f, round % 2 == 0 ? 1.0f : -1.0f, round % 2 == 0 ? -1.0f : 1.0f);
            const struct loss_output out = step(&f);
            assert_true(isfinite(out.value) && isfinite(out.objective) && isfinite(out.tau));
            double norm = 0.0;
            for (int i = 0; i < f.rows * f.rows; i++) {
                assert_true(isfinite(f.gradient[0][i]));
                norm += fabs((double)f.gradient[0][i]);
            }
            if (round == 1 && !(norm > 0.1)) {
                fail_msg("%s is mute where own pairs lose: %g, tau %g", title(row), norm, out.tau);
            }
        }
        fixture_close(&f);
    }
}

/* ---- options ---- */

/* What six steps leave, gradients and value of each included, of three kinds of similarities. Half
 * of the samples are others in every second step. */
static void run_options(struct kept *k, struct fixture *f) {
    static struct kept state;
    k->size_bytes = 0;
    for (int kind = 0; kind < 3; kind++) {
        fixture_open(f);
        for (int i = 0; i < 6; i++) {
            for (int n = 0; n < f->b; n++) {
                f->ids[n] = (uint64_t)(60 - 5 * n + (n % 2 == 0 ? i % 2 : 0));
            }
            if (kind == 0) {
                draw_batch(f, (uint64_t)i);
            } else {
                draw_ends(f, kind == 1 ? 0.125f : 0.0f, kind == 1 ? 0.0f : 0.125f);
            }
            const struct loss_output out = step(f);
            keep(k, &out.value, sizeof out.value);
            keep(k, &out.objective, sizeof out.objective);
            keep(k, &out.tau, sizeof out.tau);
            keep(k, f->gradient[0], (size_t)(f->rows * f->rows) * sizeof f->gradient[0][0]);
        }
        keep_state(&state, f, true);
        keep(k, state.bytes, state.size_bytes);
        fixture_close(f);
    }
}

/* Another value that the row can have. */
static bool change(struct fixture *f, enum loss_option option) {
    const struct loss_option_row *o = &loss_option_rows[option];
    const double value = loss_option_value(&f->options, o);
    if (o->kind != LOSS_OPTION_CHOICE) {
        const double factor = option == LOSS_TAU         ? 1.001
                              : option == LOSS_TAU_MAX   ? 2.0
                              : option == LOSS_POSITIVES ? 3.0
                                                         : 0.5;
        loss_option_set(&f->options, o, value != 0.0 ? factor * value : 0.125);
        return true;
    }
    /* emc2's view and encode are different samples of the trainer */
    for (int i = option == LOSS_EMC2_CARRY ? LOSS_EMC2_SKIP : 0; o->choices[i] != NULL; i++) {
        struct loss_options completed = f->options;
        loss_option_set(&f->options, o, i);
        completed = f->options;
        if (i != (int)value && loss_complete_options(&completed, f->row, NULL) == STATUS_OK &&
            loss_option_value(&completed, o) != value) {
            return true;
        }
    }
    loss_option_set(&f->options, o, value);
    return false;
}

/* The trainer makes loss_input.zeta_lr_text and zeta_lr_image of these; or which features it
 * encodes.
 */
static bool is_of_the_trainer(enum loss_option option) {
    return option == LOSS_ZETA_LR || option == LOSS_ZETA_LR_IMAGE_RATIO ||
           option == LOSS_ZETA_FREEZE_EPOCHS || option == LOSS_CACHE_REFRESH;
}

static void check_options(struct fixture *f, const struct fixture *base) {
    static struct kept plain;
    static struct kept changed;
    *f = *base;
    run_options(&plain, f);
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        const enum loss_option option = (enum loss_option)i;
        const bool reads = loss_reads(base->row, &base->options, option);
        *f = *base;
        if ((reads && is_of_the_trainer(option)) || !change(f, option)) {
            continue;
        }
        run_options(&changed, f);
        if (reads == same(&plain, &changed)) {
            fail_msg("%s %s --%s, which changes %s", title(base->row),
                     reads ? "reads" : "does not read", loss_option_rows[i].name,
                     reads ? "nothing" : "something");
        }
    }
}

/* An option changes what a loss does exactly where its row says that the loss reads it. */
TEST(options_have_an_effect_where_the_row_reads_them) {
    static struct fixture f;
    static struct fixture base;
    FOR_EACH_ROW(row) {
        for (int t = LOSS_TEMPERATURE_CONSTANT; t <= LOSS_TEMPERATURE_INDIVIDUAL; t++) {
            const uint64_t possible = row->temperatures != 0 ? row->temperatures : LOSS_CONSTANT;
            if ((possible & LOSS_BIT(t)) == 0) {
                continue;
            }
            fixture_init(&base, row, 0.05, 6);
            base.options.temperature = (enum loss_temperature)t;
            base.options.tau_min = 0.045;
            base.options.tau_max = 0.055;
            base.options.tau_lr = t == LOSS_TEMPERATURE_GLOBAL ? 0.05 : 2e-3;
            base.options.rho = 1.0;
            base.options.gamma = 0.4;
            base.options.gamma_epochs = 2;
            base.options.beta_stairs = 3;
            base.options.false_negative_start = 2;
            base.options.beta_epochs = 4;
            base.options.gamma_schedule =
                row->parity == LOSS_PARITY_REFERENCE ? LOSS_GAMMA_CONSTANT : LOSS_GAMMA_COSINE;
            check_options(&f, &base);
        }
    }
}

TEST(values_out_of_range_are_refused) {
    static struct fixture f;
    FOR_EACH_ROW(row) {
        for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
            const struct loss_option_row *o = &loss_option_rows[i];
            const double wrong[] = {o->min - 2.0, o->max * 1.01 + 1.0, NAN, INFINITY};
            for (int k = o->kind == LOSS_OPTION_WHOLE; k < 4; k++) {
                struct error err = {0};
                fixture_init(&f, row, 0.05, 5);
                f.options.beta_stairs = 1;
                f.options.gamma_schedule =
                    row->parity == LOSS_PARITY_REFERENCE ? LOSS_GAMMA_CONSTANT : LOSS_GAMMA_COSINE;
                if (o->kind == LOSS_OPTION_CHOICE ||
                    !loss_reads(row, &f.options, (enum loss_option)i) ||
                    (o->kind == LOSS_OPTION_WHOLE && k > 1)) {
                    break;
                }
                loss_option_set(&f.options, o, wrong[k]);
                assert_status(loss_complete_options(&f.options, row, &err), STATUS_USAGE, err);
                assert_non_null(strstr(err.text, o->name));
            }
        }
    }
}

/* ---- the table itself ---- */

TEST(rows_and_options_are_complete) {
    const struct loss_row *last = NULL;
    FOR_EACH_ROW(row) {
        struct loss_options o;
        loss_options_default(&o);
        o.name = row->name;
        o.views = row->views;
        o.parity = row->parity;
        const struct loss_row *found = NULL;
        struct error err = {0};
        assert_ok(loss_find_row(&found, &o, &err), err);
        assert_ptr_equal(found, row); /* no two of the same name and form */
        assert_ok(loss_complete_options(&o, row, &err), err);
        assert_non_null(row->step);
        assert_true(row->reads & LOSS_BIT(LOSS_TAU) && row->reads & LOSS_BIT(LOSS_TEMPERATURE));
        /* Forms of a name stand together; the first describes it. */
        const bool known = last != NULL && strcmp(last->name, row->name) == 0;
        assert_true(known || (row->paper[0] != '\0' && row->what[0] != '\0'));
        for (const struct loss_row *const *r = loss_rows(); !known && *r != row; r++) {
            assert_true(strcmp((*r)->name, row->name) != 0);
        }
        last = row;
    }
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        const struct loss_option_row *o = &loss_option_rows[i];
        bool is_read = false;
        FOR_EACH_ROW(row) {
            is_read = is_read || loss_may_read(row, (enum loss_option)i);
        }
        assert_true(is_read && o->name[0] != '\0' && o->help[0] != '\0');
        assert_true(o->kind == LOSS_OPTION_CHOICE ? o->choices[(int)o->value] != NULL
                    : o->automatic                ? o->value == LOSS_AUTO && LOSS_AUTO < o->min
                                                  : o->value >= o->min && o->value <= o->max);
    }
}
