/*
 * Every row of losses against tests/golden/losses/losses.txt: values, gradients and state of three
 * steps, computed in float64 by another implementation (make_losses.py, which describes the lines).
 * A row without a case fails.
 *
 * State is kept in f32, so a later step may differ by 2^-22 / tau, relative: what a similarity's
 * last bit does to an exponential.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"
#include "train/loss/loss_row.h"

enum {
    MAX_B = 64,
    PROJECTIONS = 4,
    SAMPLES = 1000,
    FIRST_ID = 5,
    ID_STEP = 3,
    STEPS = 3,
    WHOLE = 5
};

struct draws {
    uint64_t state;
};

static uint64_t next(struct draws *d) {
    d->state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = d->state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static void draw_matrix(struct draws *d, float *m, int b, bool extreme) {
    for (int i = 0; i < b * b; i++) {
        m[i] = (float)((double)((int)((next(d) >> 51) % 8193) - 4096) / 4096.0);
    }
    for (int i = 0; extreme && i < b * b; i++) {
        m[i] = i / b == i % b ? 1.0f : (i / b + 1) % b == i % b ? 0.75f : -1.0f;
    }
}

/* Symmetric, with ones on the diagonal. */
static void draw_self(struct draws *d, float *m, int b) {
    draw_matrix(d, m, b, false);
    for (int i = 0; i < b; i++) {
        m[i * b + i] = 1.0f;
        for (int j = 0; j < i; j++) {
            m[i * b + j] = m[j * b + i];
        }
    }
}

struct golden {
    FILE *file;
    int b, rows;   /* pairs; rows of similarities */
    int positives; /* pairs of a sample */
    double tau;
    struct loss_options options;
    const struct loss_row *row;
    bool extreme, away;
    char name[32];
};

/* An option by its name on the command line. */
static void set_option(struct loss_options *o, const char *key, const char *value) {
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        const struct loss_option_row *row = &loss_option_rows[i];
        const bool former = row->alias != NULL && strcmp(row->alias, key) == 0;
        if (strcmp(row->name, key) != 0 && !former) {
            continue;
        }
        double number = strtod(value, NULL);
        for (int k = 0; row->kind == LOSS_OPTION_CHOICE && row->choices[k] != NULL; k++) {
            number = strcmp(row->choices[k], value) == 0 ? k : number;
        }
        loss_option_set(o, row, number);
        return;
    }
    fail_msg("no option '%s'", key);
}

static void set_key(struct golden *g, const char *key, const char *value) {
    if (strcmp(key, "loss") == 0) {
        (void)snprintf(g->name, sizeof g->name, "%s", value);
    } else if (strcmp(key, "b") == 0) {
        g->b = atoi(value);
    } else if (strcmp(key, "extreme") == 0) {
        g->extreme = atoi(value) == 1;
    } else if (strcmp(key, "away") == 0) {
        g->away = atoi(value) == 1;
    } else if (strcmp(key, "views") == 0) {
        g->options.views = atoi(value) == 1;
    } else if (strcmp(key, "parity") == 0) {
        assert_string_equal(value, "reference");
        g->options.parity = LOSS_PARITY_REFERENCE;
    } else {
        set_option(&g->options, key, value);
    }
}

/* A line "case KEY=VALUE ...". */
static bool read_case(struct golden *g) {
    char line[512];
    char word[16];
    struct error err = {0};
    if (fscanf(g->file, " %15s", word) != 1) {
        return false;
    }
    assert_string_equal(word, "case");
    assert_non_null(fgets(line, sizeof line, g->file));
    loss_options_default(&g->options);
    g->options.zeta_lr = 0.0;
    g->options.zeta_gradient = LOSS_ZETA_PAPER;
    g->extreme = false;
    g->away = false;
    for (char *key = strtok(line, " \n"); key != NULL; key = strtok(NULL, " \n")) {
        char *equals = strchr(key, '=');
        assert_non_null(equals);
        *equals = '\0';
        set_key(g, key, equals + 1);
    }
    g->options.name = g->name;
    g->tau = g->options.tau;
    g->rows = g->options.views ? 2 * g->b : g->b;
    g->positives = (int)loss_positives(&g->options);
    assert_true(g->b >= 2 && g->rows <= MAX_B && g->tau > 0.0);
    assert_ok(loss_find_row(&g->row, &g->options, &err), err);
    return true;
}

static double read_number(const struct golden *g) {
    double x = 0.0;
    assert_int_equal(fscanf(g->file, "%lf", &x), 1);
    return x;
}

static void expect_word(const struct golden *g, const char *word) {
    char got[32];
    assert_int_equal(fscanf(g->file, " %31s", got), 1);
    assert_string_equal(got, word);
}

/* Norm and signed sums of (count) elements: each within `tolerance` of the norm times what a sum of
 * the errors with random signs can reach. */
static void check_gradient(const struct golden *g,
                           struct draws *d,
                           const char *what,
                           const float *m,
                           int count,
                           double tolerance) {
    expect_word(g, what);
    const double norm = read_number(g);
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sum += (double)m[i] * (double)m[i];
    }
    /* Where own pairs have won, the reference subtracts probabilities from 1 in float64. */
    const double allowed = tolerance * norm + 1e-14 / g->tau;
    if (fabs(sqrt(sum) - norm) > allowed) {
        fail_msg("%s, B %d, tau %g: %s has norm %.9g, not %.9g", g->name, g->b, g->tau, what,
                 sqrt(sum), norm);
    }
    for (int p = 0; p < PROJECTIONS; p++) {
        double projection = 0.0;
        for (int i = 0; i < count; i++) {
            projection += next(d) >> 63 ? (double)m[i] : -(double)m[i];
        }
        const double expected = read_number(g);
        if (fabs(projection - expected) > 4.0 * allowed) {
            fail_msg("%s, B %d, tau %g: projection %d of %s is %.9g, not %.9g", g->name, g->b,
                     g->tau, p, what, projection, expected);
        }
    }
}

static void
check_near(const struct golden *g, const char *what, double got, double want, double at) {
    if (!(fabs(got - want) <= at)) {
        fail_msg("%s, B %d, tau %g: %s is %.9g, not %.9g", g->name, g->b, g->tau, what, got, want);
    }
}

/* Small matrices element by element: 2^-22 / tau of each, which is what the last bit of a
 * similarity does to it, and what terms that cancel leave of the largest. */
static void check_elements(const struct golden *g, const float *m, int count) {
    double want[WHOLE * WHOLE];
    double largest = 0.0;
    if (count > WHOLE * WHOLE) {
        return;
    }
    expect_word(g, "elements");
    for (int i = 0; i < count; i++) {
        want[i] = read_number(g);
        largest = fmax(largest, fabs(want[i]));
    }
    for (int i = 0; i < count; i++) {
        char what[40];
        (void)snprintf(what, sizeof what, "element %d of the gradient", i);
        check_near(g, what, (double)m[i], want[i],
                   ldexp(1.0, -22) / g->tau * fabs(want[i]) + 1e-9 * largest + 1e-14 / g->tau);
    }
}

struct run {
    struct sample_state *state;
    struct loss *loss;
    uint64_t ids[MAX_B];
    float s[MAX_B * MAX_B], xx[MAX_B * MAX_B], tt[MAX_B * MAX_B];
    float gs[MAX_B * MAX_B], gxx[MAX_B * MAX_B], gtt[MAX_B * MAX_B];
    uint64_t carried_ids[2 * MAX_B];
    float carried[2 * MAX_B], carried_gradient[2 * MAX_B];
};

/* The samples of step k, and those outside the batch that the loss needs, with similarities. */
static void choose_samples(const struct golden *g, struct run *r, struct draws *d, int k) {
    struct error err = {0};
    for (int i = 0; i < g->b; i++) {
        r->ids[i] =
            (uint64_t)(FIRST_ID + ID_STEP * (i / g->positives + (g->away ? k * (g->b / 2) : 0)));
    }
    for (int i = 0; g->away && i < 2 * g->b; i++) {
        draw_matrix(d, &r->carried[i], 1, false);
    }
    for (int i = 0; i < 2 * g->b; i++) { /* drawn, but that every fourth has none */
        r->carried_ids[i] = i % 4 == 3 ? SAMPLE_STATE_NO_ID : FIRST_ID;
    }
    if (g->away && loss_carries(r->loss) && loss_cache_refresh(r->loss) == 0.0) {
        assert_ok(loss_carried(r->loss, r->carried_ids, NULL, r->ids, g->b, &err), err);
    }
}

static void one_step(const struct golden *g, struct run *r, struct draws *d, int k) {
    struct error err = {0};
    draw_matrix(d, r->s, g->rows, g->extreme && k != 1);
    draw_self(d, r->xx, g->b);
    draw_self(d, r->tt, g->b);
    choose_samples(g, r, d, k);
    const struct loss_input in = {.similarity = r->s,
                                  .image_similarity = r->xx,
                                  .text_similarity = r->tt,
                                  .sample_ids = r->ids,
                                  .carried_ids =
                                      g->away && loss_carries(r->loss) ? r->carried_ids : NULL,
                                  .carried_similarity = r->carried,
                                  .batch_count = g->b,
                                  .step = (uint64_t)k,
                                  .epoch = (uint64_t)k / 2,
                                  .lr = 1e-3,
                                  .zeta_lr_text = g->options.zeta_lr,
                                  .zeta_lr_image = 0.1 * g->options.zeta_lr};
    struct loss_output out = {.gradient = r->gs,
                              .image_gradient = r->gxx,
                              .text_gradient = r->gtt,
                              .carried_gradient = r->carried_gradient};
    assert_ok(loss_step(r->loss, &in, &out, &err), err);
    assert_true(isfinite(out.objective));
    const double tolerance = k == 0 ? 1e-6 : 1e-6 + ldexp(1.0, -22) / g->tau;
    expect_word(g, "value");
    const double value = read_number(g);
    /* Computed in double: of a fresh state, to 1e-8. Individual temperatures and the sums of the
     * published code are f32 by then. */
    const bool exact = k == 0 && g->row->parity == LOSS_PARITY_ALGORITHM &&
                       g->row->defaults.temperature != LOSS_TEMPERATURE_INDIVIDUAL;
    check_near(g, "the value", out.value, value,
               (exact ? 1e-8 : tolerance) * fmax(1.0, fabs(value)));
    const int count = g->rows * g->rows;
    check_gradient(g, d, "gradient", r->gs, count, tolerance);
    check_elements(g, r->gs, count);
    if (loss_uses_self(r->loss)) {
        check_gradient(g, d, "image_gradient", r->gxx, count, tolerance);
        check_elements(g, r->gxx, count);
        check_gradient(g, d, "text_gradient", r->gtt, count, tolerance);
        check_elements(g, r->gtt, count);
    }
    if (in.carried_ids != NULL) {
        check_gradient(g, d, "carried_gradient", r->carried_gradient, 2 * g->b, tolerance);
        check_elements(g, r->carried_gradient, 2 * g->b);
    }
}

static const void *find_column(const struct run *r, const char *name, enum sample_state_kind kind) {
    for (int32_t i = 0; i < sample_state_count(r->state); i++) {
        if (strcmp(sample_state_name(r->state, i), name) == 0) {
            size_t size_bytes;
            assert_int_equal(sample_state_kind(r->state, i), kind);
            return sample_state_values(r->state, i, &size_bytes);
        }
    }
    fail_msg("no column %s", name);
    return NULL;
}

static double find_scalar(const struct run *r, const char *name) {
    const struct loss_scalar *scalars = NULL;
    const int32_t count = loss_scalars(r->loss, &scalars);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(scalars[i].name, name) == 0) {
            return *scalars[i].value;
        }
    }
    fail_msg("no scalar %s", name);
    return 0.0;
}

/* How many cases the row at this place of the table has. */
static int *cases_of(const struct loss_row *row) {
    static int counts[64];
    int i = 0;
    while (loss_rows()[i] != row) {
        assert_non_null(loss_rows()[i++]);
    }
    assert_true(i < 64);
    return &counts[i];
}

/* Lines "column NAME ...", "ids NAME ..." and "scalar NAME x" up to the next case. */
static void check_state(const struct golden *g, const struct run *r) {
    char word[16];
    char name[64];
    long at = ftell(g->file);
    while (fscanf(g->file, " %15s", word) == 1 && strcmp(word, "case") != 0) {
        assert_int_equal(fscanf(g->file, " %63s", name), 1);
        if (strcmp(word, "scalar") == 0) {
            const double want = read_number(g);
            check_near(g, name, find_scalar(r, name), want, 1e-6 * fmax(1.0, fabs(want)));
        } else if (strcmp(word, "ids") == 0) {
            const uint64_t *column = find_column(r, name, SAMPLE_STATE_ID);
            for (int i = 0; i < g->b; i++) {
                check_near(g, name, (double)column[r->ids[i]], read_number(g), 0.0);
            }
        } else {
            assert_string_equal(word, "column");
            const float *column = find_column(r, name, SAMPLE_STATE_F32);
            for (int i = 0; i < g->b; i += g->positives) {
                const double want = read_number(g);
                const double scale = ldexp(1.0, -22) / g->tau + 1e-6;
                check_near(g, name, (double)column[r->ids[i]], want, scale * fmax(1.0, fabs(want)));
            }
        }
        at = ftell(g->file);
    }
    assert_int_equal(fseek(g->file, at, SEEK_SET), 0);
}

TEST(losses_are_those_of_the_float64_reference) {
    struct golden g = {0};
    char path[1024];
    static struct run r;
    struct error err = {0};
    int cases = 0;
    snprintf(path, sizeof path, "%s", test_source_path("tests/golden/losses/losses.txt"));
    g.file = fopen(path, "r");
    assert_non_null(g.file);
    while (read_case(&g)) {
        struct draws d = {(uint64_t)cases};
        assert_ok(sample_state_create(&r.state, SAMPLES, NULL, &err), err);
        assert_ok(loss_create(&r.loss, &g.options, r.state, SAMPLES, g.b, &err), err);
        for (int k = 0; k < STEPS; k++) {
            one_step(&g, &r, &d, k);
        }
        check_state(&g, &r);
        ++*cases_of(g.row);
        loss_destroy(r.loss);
        sample_state_destroy(r.state);
        cases++;
    }
    fclose(g.file);
    for (int i = 0; loss_rows()[i] != NULL; i++) {
        const struct loss_row *row = loss_rows()[i];
        if (*cases_of(row) == 0) {
            fail_msg("loss %s%s%s has no case in losses.txt", row->name,
                     row->views ? ", views" : "",
                     row->parity == LOSS_PARITY_REFERENCE ? ", published code" : "");
        }
    }
}
