/*
 * The CUDA module's losses on the host (tests/support/cuda_emulation) against train/loss, which
 * specifies them: every loss and temperature over several steps with state, batches of odd sizes
 * and with repeated ids, temperatures from 0.005 to 1, extreme similarities.
 *
 * Both compute in double and store f32. They add in different orders, so a few f32 results differ
 * in the last bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/test.h"
#include "train/loss/loss_device.h"
#include "train/loss/loss_row.h"
#include "train/loss/loss_tiled.h"

enum { STEPS = 5, SAMPLES = 150, MAX_B = 130, MAX_ROWS = 2 * MAX_B };

/* ---- a device whose memory has guard zones ---- */

enum { GUARD_BYTES = 64, GUARD = 0xA5, MAX_ALLOCATIONS = 64 };

static struct {
    const struct ops *real;
    struct ops table;
    struct allocation {
        unsigned char *data; /* after the first guard */
        size_t size_bytes;
    } all[MAX_ALLOCATIONS];
    int count;
} guarded;

static enum status
guarded_alloc(struct device *dev, size_t size_bytes, void **out, struct error *err) {
    void *data;
    TRY(guarded.real->alloc(dev, size_bytes + 2 * GUARD_BYTES, &data, err));
    unsigned char *at = data;
    memset(at, GUARD, GUARD_BYTES);
    memset(at + GUARD_BYTES + size_bytes, GUARD, GUARD_BYTES);
    assert_true(guarded.count < MAX_ALLOCATIONS);
    guarded.all[guarded.count++] = (struct allocation){at + GUARD_BYTES, size_bytes};
    *out = at + GUARD_BYTES;
    emulation_announce(*out, size_bytes);
    return STATUS_OK;
}

static void guarded_free(struct device *dev, void *data) {
    for (int i = 0; i < guarded.count; i++) {
        if (data != NULL && guarded.all[i].data == data) {
            guarded.all[i] = guarded.all[--guarded.count];
            guarded.real->free(dev, (unsigned char *)data - GUARD_BYTES);
            return;
        }
    }
    assert_null(data);
}

static void check_guards(const char *what) {
    for (int i = 0; i < guarded.count; i++) {
        const struct allocation *a = &guarded.all[i];
        for (int k = 0; k < GUARD_BYTES; k++) {
            if (a->data[-1 - k] != GUARD || a->data[a->size_bytes + (size_t)k] != GUARD) {
                fail_msg("%s: memory beside an allocation of %zu bytes was written", what,
                         a->size_bytes);
            }
        }
    }
}

static struct device *open_guarded(void) {
    struct device *dev;
    struct device_options opt;
    struct error err = {0};
    if (test_sanitizer()[0] != '\0') {
        test_skip("sanitizers do not follow jumps between the stacks of fibers");
    }
    device_options_default(&opt);
    assert_ok(cuda_open(&dev, 0, &opt, &err), err);
    guarded.real = dev->ops;
    guarded.table = *dev->ops;
    guarded.table.alloc = guarded_alloc;
    guarded.table.free = guarded_free;
    guarded.count = 0;
    dev->ops = &guarded.table;
    return dev;
}

/* ---- comparison ---- */

struct scenario {
    const char *name;
    bool views;
    double tau;
    enum loss_temperature temperature;
    void (*tweak)(struct loss_options *o);
};

static void as_published(struct loss_options *o) {
    o->zeta_gradient = LOSS_ZETA_PAPER;
    o->gamma = 0.3;
}

/* Frozen in the first of the epochs of a test's steps. */
static void by_visit(struct loss_options *o) {
    o->zeta_by_visit = true;
    o->zeta_freeze_epochs = 1;
}

static void strong(struct loss_options *o) {
    o->beta = 2.0;
    o->tau_plus = 0.0;
}

static void floored(struct loss_options *o) {
    o->tau_plus = 0.9;
}

static void forgets(struct loss_options *o) {
    o->gamma = 1.0;
}

/* gamma falls over the epochs of a test's steps. */
static void falls(struct loss_options *o) {
    o->gamma_schedule = LOSS_GAMMA_COSINE;
    o->gamma_epochs = 3;
}

static void falls_and_learns(struct loss_options *o) {
    falls(o);
    o->tau_lr = 0.01;
}

static void from_the_start(struct loss_options *o) {
    o->burn_in = 0.0;
    o->seed = 0x123456789abcdef0u;
}

static void floored_u(struct loss_options *o) {
    falls(o);
    o->u_eps = 1e-2;
}

static void remembers(struct loss_options *o) {
    o->gamma_log_alpha = 0.0;
    o->gamma_slope = 0.25;
}

static const struct scenario scenarios[] = {
    {"clip", false, 0.01, LOSS_TEMPERATURE_CONSTANT, NULL},
    {"clip", false, 0.07, LOSS_TEMPERATURE_GLOBAL, NULL},
    {"siglip", false, 0.1, LOSS_TEMPERATURE_GLOBAL, NULL},
    {"siglip", false, 1.0, LOSS_TEMPERATURE_CONSTANT, NULL},
    {"cyclip", false, 0.05, LOSS_TEMPERATURE_GLOBAL, NULL},
    {"dcl", false, 0.005, LOSS_TEMPERATURE_OWN, NULL},
    {"dcl", false, 1.0, LOSS_TEMPERATURE_OWN, floored},
    {"hcl", false, 0.01, LOSS_TEMPERATURE_OWN, NULL},
    {"hcl", false, 0.3, LOSS_TEMPERATURE_OWN, strong},
    {"rince", false, 0.01, LOSS_TEMPERATURE_OWN, NULL},
    {"rince", false, 0.5, LOSS_TEMPERATURE_OWN, NULL},
    {"sogclr", false, 0.005, LOSS_TEMPERATURE_OWN, NULL},
    {"sogclr", false, 0.05, LOSS_TEMPERATURE_GLOBAL, NULL},
    {"sogclr", false, 0.1, LOSS_TEMPERATURE_OWN, forgets},
    {"isogclr", false, 0.01, LOSS_TEMPERATURE_OWN, NULL},
    {"nuclr", false, 0.01, LOSS_TEMPERATURE_OWN, NULL},
    {"nuclr", false, 0.07, LOSS_TEMPERATURE_OWN, as_published},
    {"nuclr", false, 0.05, LOSS_TEMPERATURE_OWN, by_visit},
    {"nuclr-frozen", false, 0.01, LOSS_TEMPERATURE_OWN, NULL},
    {"nuclr-noxi", false, 0.02, LOSS_TEMPERATURE_OWN, NULL},
    {"emc2", false, 0.07, LOSS_TEMPERATURE_OWN, NULL},
    {"emc2", false, 1.0, LOSS_TEMPERATURE_OWN, from_the_start},
    {"sogclr", false, 0.02, LOSS_TEMPERATURE_OWN, falls},
    {"nuclr", false, 0.05, LOSS_TEMPERATURE_OWN, falls},
    {"fastclip-v0", false, 0.07, LOSS_TEMPERATURE_OWN, falls_and_learns},
    {"fastclip-v1", false, 0.01, LOSS_TEMPERATURE_OWN, falls},
    {"fastclip-v2", false, 0.03, LOSS_TEMPERATURE_OWN, falls},
    {"fastclip-v3", false, 0.07, LOSS_TEMPERATURE_OWN, falls_and_learns},
    {"fastclip-v3", false, 0.025, LOSS_TEMPERATURE_OWN, falls},
    {"fastclip-v1", false, 0.02, LOSS_TEMPERATURE_OWN, floored_u},
    {"scent", false, 0.07, LOSS_TEMPERATURE_OWN, NULL},
    {"scent", false, 0.02, LOSS_TEMPERATURE_CONSTANT, remembers},
    {"simclr", true, 0.5, LOSS_TEMPERATURE_CONSTANT, NULL},
    {"simclr", true, 0.1, LOSS_TEMPERATURE_GLOBAL, NULL},
    {"dcl", true, 0.5, LOSS_TEMPERATURE_OWN, NULL},
    {"hcl", true, 0.1, LOSS_TEMPERATURE_OWN, strong},
    {"rince", true, 0.1, LOSS_TEMPERATURE_OWN, NULL},
    {"sogclr", true, 0.1, LOSS_TEMPERATURE_OWN, NULL},
    {"isogclr", true, 0.1, LOSS_TEMPERATURE_OWN, NULL},
    {"emc2", true, 0.07, LOSS_TEMPERATURE_OWN, NULL},
};
enum { SCENARIO_COUNT = sizeof scenarios / sizeof scenarios[0] };

static const char *case_name(const struct scenario *s, int64_t b) {
    static char text[120];
    (void)snprintf(text, sizeof text, "%s%s, tau %g, batch %d", s->name,
                   s->views ? " of two views" : "", s->tau, (int)b);
    return text;
}

/* One loss with its state; on the host, or on the device too. */
struct side {
    struct sample_state *state;
    struct loss *loss;
    struct loss_device *on_device;
    struct step_values values;
};

static void open_side(struct side *s,
                      const struct scenario *c,
                      int64_t b,
                      struct device *dev,
                      enum sample_state_place place) {
    struct error err = {0};
    struct loss_options o;
    loss_options_default(&o);
    o.name = c->name;
    o.views = c->views;
    o.tau = c->tau;
    o.temperature = c->temperature;
    o.seed = 11;
    o.emc2_carry = LOSS_EMC2_SKIP;
    if (c->tweak != NULL) {
        c->tweak(&o);
    }
    *s = (struct side){.values = {.sound = 1}};
    assert_ok(sample_state_create(&s->state, SAMPLES, NULL, &err), err);
    assert_ok(loss_create(&s->loss, &o, s->state, SAMPLES, b, &err), err);
    if (dev != NULL) {
        assert_ok(
            loss_device_create(&s->on_device, s->loss, s->state, dev, place, b, &s->values, &err),
            err);
    }
}

static void close_side(struct side *s) {
    loss_device_destroy(s->on_device);
    loss_destroy(s->loss);
    sample_state_destroy(s->state);
}

/* The batch of a step; `kind` of similarities: 0 random in [-1, 1], 1 only -1 and 1, 2 all equal.
 */
struct batch {
    struct loss_input in;
    uint64_t ids[MAX_B];
    float similarity[3][MAX_ROWS * MAX_ROWS];
};

static void fill_matrix(float *out, int64_t rows, bool symmetric, int kind, struct rng *r) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < rows; j++) {
            const double x = 2.0 * rng_uniform(r) - 1.0;
            const double v = kind == 0 ? x : kind == 1 ? (x < 0.0 ? -1.0 : 1.0) : 0.25;
            out[i * rows + j] = symmetric && j < i ? out[j * rows + i] : (float)v;
        }
    }
}

static void
make_batch(struct batch *x, int64_t b, bool views, uint64_t step, bool twice, int kind) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, step, (uint64_t)b);
    const uint64_t first = rng_below(&r, SAMPLES);
    for (int64_t i = 0; i < b; i++) { /* 7 and SAMPLES have no common factor */
        x->ids[i] = (first + 7 * (uint64_t)i) % SAMPLES;
    }
    for (int64_t i = 1; i < b && twice; i += 3) {
        x->ids[i] = x->ids[rng_below(&r, (uint32_t)i)];
    }
    const int64_t rows = views ? 2 * b : b;
    fill_matrix(x->similarity[0], rows, views, kind, &r);
    fill_matrix(x->similarity[1], b, true, kind, &r);
    fill_matrix(x->similarity[2], b, true, kind, &r);
    x->in = (struct loss_input){.similarity = x->similarity[0],
                                .image_similarity = x->similarity[1],
                                .text_similarity = x->similarity[2],
                                .sample_ids = x->ids,
                                .batch_count = b,
                                .step = step,
                                .epoch = step / 2,
                                .lr = 0.01,
                                .zeta_lr_text = step == 0 ? 0.0 : 0.02,
                                .zeta_lr_image = step == 2 ? 0.0 : 0.05};
}

struct result {
    struct loss_output out;
    float gradient[3][MAX_ROWS * MAX_ROWS];
};

static void step_on_host(struct side *s, const struct batch *x, struct result *r) {
    struct error err = {0};
    r->out = (struct loss_output){.gradient = r->gradient[0],
                                  .image_gradient = r->gradient[1],
                                  .text_gradient = r->gradient[2]};
    assert_ok(loss_step(s->loss, &x->in, &r->out, &err), err);
}

static int matrices_of(const struct side *s) {
    return loss_uses_self(s->loss) ? LOSS_DEVICE_MATRIX_COUNT : 1;
}

/* The old contents of the gradients do not matter. Returns OK or the status of loss_device_fault.
 */
static enum status
step_on_device(struct side *s, const struct batch *x, struct result *r, struct error *err) {
    for (int i = 0; i < matrices_of(s); i++) {
        const struct loss_device_matrix *m =
            loss_device_matrix(s->on_device, (enum loss_device_matrix_kind)i);
        const size_t size_bytes = tensor_size_bytes(&m->similarity);
        memcpy(m->similarity.data, x->similarity[i], size_bytes);
        memset(m->gradient.data, 0x77, size_bytes);
    }
    s->values.step = x->in.step;
    s->values.epoch = x->in.epoch;
    s->values.lr = x->in.lr;
    s->values.zeta_lr_image = x->in.zeta_lr_image;
    s->values.zeta_lr_text = x->in.zeta_lr_text;
    assert_ok(loss_device_put_ids(s->on_device, x->in.sample_ids, err), *err);
    assert_ok(loss_device_step(s->on_device, err), *err);
    r->out = (struct loss_output){
        .value = s->values.loss, .objective = s->values.objective, .tau = s->values.tau};
    for (int side = 0; side < 2; side++) {
        r->out.batch.log_u[side] = s->values.batch_log_u[side];
        r->out.batch.zeta[side] = s->values.batch_zeta[side];
    }
    for (int i = 0; i < matrices_of(s); i++) {
        const struct loss_device_matrix *m =
            loss_device_matrix(s->on_device, (enum loss_device_matrix_kind)i);
        memcpy(r->gradient[i], m->gradient.data, tensor_size_bytes(&m->gradient));
    }
    const enum status status = loss_device_fault(s->on_device, err);
    assert_int_equal(s->values.sound, status == STATUS_OK);
    return status;
}

static struct { int64_t numbers_count, unequal_count; /* f32, of all comparisons */ } tally;

static void close_f32(const char *what, const float *got, const float *ref, int64_t count) {
    double most = 0.0;
    for (int64_t i = 0; i < count; i++) {
        most = isnan(ref[i]) ? most : fmax(most, fabs((double)ref[i]));
    }
    for (int64_t i = 0; i < count; i++) {
        const double allowed = 2.4e-7 * fabs((double)ref[i]) + 1e-13 * most + 1e-44;
        if (isnan(ref[i]) ? !isnan(got[i]) : !(fabs((double)got[i] - (double)ref[i]) <= allowed)) {
            fail_msg("%s[%d] is %.9g, on the host %.9g", what, (int)i, (double)got[i],
                     (double)ref[i]);
        }
        tally.numbers_count++;
        tally.unequal_count += memcmp(&got[i], &ref[i], sizeof got[i]) != 0;
    }
}

static void close_f64(const char *what, const char *name, double got, double ref) {
    if (!(fabs(got - ref) <= 1e-7 * fabs(ref) + 1e-12)) {
        fail_msg("%s: %s is %.17g, on the host %.17g", what, name, got, ref);
    }
}

static void compare_state(const char *what, struct side *got, struct side *ref) {
    struct error err = {0};
    assert_ok(loss_device_fetch(got->on_device, &err), err);
    for (int32_t k = 0; k < sample_state_count(ref->state); k++) {
        char name[200];
        (void)snprintf(name, sizeof name, "%s: column %s", what, sample_state_name(ref->state, k));
        if (sample_state_kind(ref->state, k) == SAMPLE_STATE_F32) {
            close_f32(name, sample_state_column(got->state, k), sample_state_column(ref->state, k),
                      SAMPLES);
        } else if (memcmp(sample_state_column_u64(got->state, k),
                          sample_state_column_u64(ref->state, k),
                          SAMPLES * sizeof(uint64_t)) != 0) {
            fail_msg("%s is not that of the host", name);
        }
    }
    const struct loss_scalar *a;
    const struct loss_scalar *b;
    const int32_t count = loss_scalars(ref->loss, &b);
    assert_int_equal(loss_scalars(got->loss, &a), count);
    for (int32_t i = 0; i < count; i++) {
        close_f64(what, b[i].name, *a[i].value, *b[i].value);
    }
}

/* Compares f32 numbers, which may differ in the last bit; nothing if the host has none. */
static void close_mean(const char *what, const char *name, double got, double ref) {
    if (isnan(got) != isnan(ref) || fabs(got - ref) > 1e-6 * fmax(1.0, fabs(ref))) {
        fail_msg("%s: %s is %.17g, not %.17g", what, name, got, ref);
    }
}

static void compare_results(const char *what,
                            const struct side *s,
                            const struct result *got,
                            const struct result *ref,
                            int64_t rows) {
    static const char *const names[] = {"dL/dS", "dL/d(images)", "dL/d(texts)"};
    for (int i = 0; i < matrices_of(s); i++) {
        char name[200];
        (void)snprintf(name, sizeof name, "%s: %s", what, names[i]);
        close_f32(name, got->gradient[i], ref->gradient[i], rows * rows);
    }
    close_f64(what, "value", got->out.value, ref->out.value);
    close_f64(what, "objective", got->out.objective, ref->out.objective);
    close_f64(what, "tau", got->out.tau, ref->out.tau);
    for (int side = 0; side < 2; side++) {
        close_mean(what, "mean of log u", got->out.batch.log_u[side], ref->out.batch.log_u[side]);
        close_mean(what, "mean of zeta", got->out.batch.zeta[side], ref->out.batch.zeta[side]);
    }
}

/* Compares every step with the host, then runs the same steps with threads in backward order: the
 * same bits. */
static void
follow_host(const struct scenario *c, int64_t b, uint64_t steps, enum sample_state_place place) {
    static struct batch x;
    static struct result got;
    static struct result ref;
    static struct result other;
    struct side host;
    struct side forward;
    struct side backward;
    struct error err = {0};
    struct device *dev = open_guarded();
    const int64_t rows = c->views ? 2 * b : b;
    open_side(&host, c, b, NULL, SAMPLE_STATE_HOST);
    open_side(&forward, c, b, dev, place);
    open_side(&backward, c, b, dev, place);
    for (uint64_t step = 0; step < steps; step++) {
        const char *what = case_name(c, b);
        make_batch(&x, b, c->views, step, step % 2 == 1, step == 3 ? 1 : step == 4 ? 2 : 0);
        step_on_host(&host, &x, &ref);
        emulation_backwards(false);
        assert_ok(step_on_device(&forward, &x, &got, &err), err);
        compare_results(what, &host, &got, &ref, rows);
        compare_state(what, &forward, &host);
        emulation_backwards(true);
        assert_ok(step_on_device(&backward, &x, &other, &err), err);
        emulation_backwards(false);
        for (int i = 0; i < matrices_of(&host); i++) {
            assert_memory_equal(got.gradient[i], other.gradient[i],
                                (size_t)(rows * rows) * sizeof(float));
        }
        assert_true(got.out.value == other.out.value);
        assert_true(got.out.objective == other.out.objective);
        check_guards(what);
    }
    assert_ok(loss_device_fetch(backward.on_device, &err), err);
    for (int32_t k = 0; k < sample_state_count(forward.state); k++) {
        size_t size_bytes;
        const void *a = sample_state_values(forward.state, k, &size_bytes);
        assert_memory_equal(a, sample_state_values(backward.state, k, &size_bytes), size_bytes);
    }
    close_side(&host);
    close_side(&forward);
    close_side(&backward);
    assert_int_equal(guarded.count, 0);
    device_close(dev);
}

static void follow_host_everywhere(bool views) {
    static const int64_t sizes[] = {2, 7};
    tally.numbers_count = 0;
    tally.unequal_count = 0;
    for (int i = 0; i < SCENARIO_COUNT; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0] && scenarios[i].views == views; k++) {
            follow_host(&scenarios[i], sizes[k], STEPS,
                        (i + (int)k) % 2 == 0 ? SAMPLE_STATE_DEVICE : SAMPLE_STATE_PINNED);
        }
    }
    /* Nearly all have the same bits. */
    print_message("%lld of %lld f32 numbers differ from the host's in their last bit\n",
                  (long long)tally.unequal_count, (long long)tally.numbers_count);
    assert_true(tally.unequal_count * 1000 < tally.numbers_count);
}

TEST(losses_of_pairs_agree_with_the_host) {
    follow_host_everywhere(false);
}

TEST(losses_of_two_views_agree_with_the_host) {
    follow_host_everywhere(true);
}

/* More than a warp, and more than the threads of a block: each thread handles several elements. */
TEST(large_batches_agree_with_the_host) {
    static const struct {
        struct scenario scenario;
        int64_t batch_count;
        uint64_t steps;
    } large[] = {
        {{"nuclr", false, 0.01, LOSS_TEMPERATURE_OWN, NULL}, 70, 2},
        {{"siglip", false, 0.1, LOSS_TEMPERATURE_GLOBAL, NULL}, 33, 2},
        {{"emc2", true, 0.07, LOSS_TEMPERATURE_OWN, NULL}, MAX_B, 1},
        {{"cyclip", false, 0.05, LOSS_TEMPERATURE_GLOBAL, NULL}, 51, 2},
    };
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        follow_host(&large[i].scenario, large[i].batch_count, large[i].steps, SAMPLE_STATE_DEVICE);
    }
}

/* ---- by tiles ---- */

enum { TILED_B = 70, TILED_E = 8, TILED_STEPS = 3 };

struct tiled_side {
    struct device *dev;
    struct sample_state *state;
    struct loss *loss;
    struct loss_tiled *tiled;
    struct tensor x[2], dx[2]; /* of images and texts, on the device */
    float gradient[2][TILED_B * TILED_E];
    struct loss_output out;
};

static void
open_tiled(struct tiled_side *s, struct device *dev, const struct loss_options *o, int64_t tile) {
    struct error err = {0};
    memset(s, 0, sizeof *s);
    s->dev = dev;
    assert_ok(sample_state_create(&s->state, SAMPLES, NULL, &err), err);
    assert_ok(loss_create(&s->loss, o, s->state, SAMPLES, TILED_B, &err), err);
    assert_ok(loss_tiled_create(&s->tiled, s->loss, dev, TILED_B, tile, NULL, &err), err);
    for (int k = 0; k < 4; k++) {
        void *data;
        assert_ok(dev->ops->alloc(dev, sizeof s->gradient[0], &data, &err), err);
        *(k < 2 ? &s->x[k] : &s->dx[k - 2]) = tensor_2d(data, DTYPE_F32, TILED_B, TILED_E);
    }
}

static void close_tiled(struct tiled_side *s) {
    for (int k = 0; k < 2; k++) {
        s->dev->ops->free(s->dev, s->x[k].data);
        s->dev->ops->free(s->dev, s->dx[k].data);
    }
    loss_tiled_destroy(s->tiled);
    loss_destroy(s->loss);
    sample_state_destroy(s->state);
}

static void step_tiled(struct tiled_side *s, float (*x)[TILED_B * TILED_E], struct loss_input in) {
    struct error err = {0};
    for (int k = 0; k < 2; k++) {
        assert_ok(s->dev->ops->upload(s->dev, s->x[k].data, x[k], sizeof x[k], &err), err);
    }
    assert_ok(loss_tiled_step(s->tiled, s->x, s->dx, &in, &s->out, &err), err);
    for (int k = 0; k < 2; k++) {
        assert_ok(s->dev->ops->download(s->dev, s->gradient[k], s->dx[k].data,
                                        sizeof s->gradient[k], &err),
                  err);
    }
}

/* Several steps with state, weights where the loss takes them, and an id that occurs twice. */
static void tiles_follow_host(const struct loss_options *o, int64_t tile) {
    static struct tiled_side host, gpu;
    static float x[2][TILED_B * TILED_E];
    uint64_t ids[TILED_B];
    float weights[TILED_B];
    struct rng r;
    struct device *cpu;
    struct error err = {0};
    struct device *dev = open_guarded();
    assert_ok(device_open(&cpu, "cpu", 1, &err), err);
    open_tiled(&host, cpu, o, tile);
    open_tiled(&gpu, dev, o, tile);
    rng_init(&r, 78, RNG_INIT, (uint64_t)tile, 0);
    for (uint64_t step = 0; step < TILED_STEPS; step++) {
        for (int i = 0; i < TILED_B; i++) {
            ids[i] = (uint64_t)((7 * (i + 3 * (int)step)) % SAMPLES);
            weights[i] = (float)(2.0 * rng_uniform(&r));
        }
        ids[TILED_B - 1] = step == 1 ? ids[3] : ids[TILED_B - 1];
        for (int i = 0; i < 2 * TILED_B * TILED_E; i++) { /* 2^-6: similarities are exact */
            x[i / (TILED_B * TILED_E)][i % (TILED_B * TILED_E)] =
                (float)(rint(32.0 * rng_uniform(&r) - 16.0) / 64.0);
        }
        const struct loss_input in = {.weights = loss_takes_weights(host.loss) ? weights : NULL,
                                      .sample_ids = ids,
                                      .batch_count = TILED_B,
                                      .step = step,
                                      .lr = 0.01,
                                      .zeta_lr_image = 0.1,
                                      .zeta_lr_text = 0.1};
        step_tiled(&host, x, in);
        step_tiled(&gpu, x, in);
        for (int k = 0; k < 2; k++) {
            double largest = 0.0;
            for (int i = 0; i < TILED_B * TILED_E; i++) {
                largest = fmax(largest, fabs((double)host.gradient[k][i]));
            }
            for (int i = 0; i < TILED_B * TILED_E; i++) {
                const double d = fabs((double)(host.gradient[k][i] - gpu.gradient[k][i]));
                if (!(d <= 1e-6 * largest)) {
                    fail_msg("%s by tiles of %d: gradient %d differs by %g of %g", o->name,
                             (int)tile, i, d, largest);
                }
            }
        }
        assert_true(fabs(host.out.value - gpu.out.value) <= 1e-6 * (1.0 + fabs(host.out.value)));
        for (int32_t k = 0; k < sample_state_count(host.state); k++) {
            size_t size_bytes;
            const void *a = sample_state_values(host.state, k, &size_bytes);
            const void *b = sample_state_values(gpu.state, k, &size_bytes);
            for (int i = 0; i < SAMPLES && size_bytes == SAMPLES * sizeof(float); i++) {
                const double v = (double)((const float *)a)[i];
                const double d = fabs(v - (double)((const float *)b)[i]);
                const bool unseen = isnan(v) && isnan(((const float *)b)[i]);
                if (!unseen && !(d <= 3e-6 * (1.0 + fabs(v)))) {
                    fail_msg("%s by tiles of %d, step %d: %s of %d differs by %g of %g", o->name,
                             (int)tile, (int)step, sample_state_name(host.state, k), i, d, v);
                }
            }
        }
    }
    check_guards(o->name);
    close_tiled(&host);
    close_tiled(&gpu);
    device_close(cpu);
    device_close(dev);
}

/* Tiles that divide the batch, and some with fewer rows or columns than a block of threads. */
TEST(losses_by_tiles_agree_with_the_host) {
    static const char *const names[] = {"clip", "isogclr", "nuclr"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct loss_options o;
        loss_options_default(&o);
        o.name = names[i];
        o.tau = 0.05;
        o.gamma = 0.4;
        tiles_follow_host(&o, 35);
        tiles_follow_host(&o, 64);
    }
}

/* As a checkpoint does: copies state and scalars to the host, and from there to another run's
 * device. */
static void go_on(const struct scenario *c) {
    static struct batch x;
    static struct result whole;
    static struct result resumed;
    struct side first;
    struct side second;
    struct error err = {0};
    const int64_t b = 6;
    struct device *dev = open_guarded();
    open_side(&first, c, b, dev, SAMPLE_STATE_DEVICE);
    open_side(&second, c, b, dev, SAMPLE_STATE_PINNED);
    for (uint64_t step = 0; step < 4; step++) {
        make_batch(&x, b, c->views, step, false, 0);
        assert_ok(step_on_device(&first, &x, &whole, &err), err);
        if (step > 1) {
            assert_ok(step_on_device(&second, &x, &resumed, &err), err);
            assert_memory_equal(whole.gradient[0], resumed.gradient[0],
                                (size_t)(b * b) * sizeof(float));
            continue;
        }
        assert_ok(loss_device_fetch(first.on_device, &err), err);
        for (int32_t k = 0; k < sample_state_count(first.state); k++) {
            size_t size_bytes;
            const void *from = sample_state_values(first.state, k, &size_bytes);
            memcpy(sample_state_values(second.state, k, &size_bytes), from, size_bytes);
        }
        const struct loss_scalar *from;
        const struct loss_scalar *to;
        const int32_t count = loss_scalars(first.loss, &from);
        assert_int_equal(loss_scalars(second.loss, &to), count);
        for (int32_t i = 0; i < count; i++) {
            *to[i].value = *from[i].value;
        }
        assert_ok(loss_device_send(second.on_device, &err), err);
    }
    close_side(&first);
    close_side(&second);
    device_close(dev);
}

TEST(a_run_continues_from_the_state_of_the_host) {
    for (int i = 0; i < SCENARIO_COUNT; i++) {
        if (!scenarios[i].views) {
            go_on(&scenarios[i]);
        }
    }
}

/* A non-finite step changes neither state nor scalars and reports why; the next step continues from
 * there. */
static void survive(const struct scenario *c, float bad, bool bad_id, const char *why) {
    static struct batch x;
    static struct result got;
    static struct result ref;
    struct side host;
    struct side side;
    struct error err = {0};
    const int64_t b = 6;
    const bool ends_in_the_gradient = strcmp(c->name, "rince") == 0;
    struct device *dev = open_guarded();
    open_side(&host, c, b, NULL, SAMPLE_STATE_HOST);
    open_side(&side, c, b, dev, SAMPLE_STATE_DEVICE);
    for (uint64_t step = 0; step < 3; step++) {
        make_batch(&x, b, c->views, step, false, 0);
        if (step == 1) {
            x.similarity[matrices_of(&side) - 1][b * 2 + 1] = bad;
            x.ids[b - 1] = bad_id ? SAMPLES : x.ids[b - 1];
            assert_status(step_on_device(&side, &x, &got, &err), STATUS_CORRUPT, err);
            assert_non_null(strstr(err.text, why));
            for (int64_t i = 0; i < b * b && !ends_in_the_gradient; i++) {
                assert_true(isnan(got.gradient[0][i]));
            }
            compare_state(case_name(c, b), &side, &host);
            /* Nor do later steps, until sound is set again. */
            make_batch(&x, b, c->views, step, false, 0);
            assert_status(step_on_device(&side, &x, &got, &err), STATUS_CORRUPT, err);
            assert_true(isnan(got.gradient[0][0]) && isnan(got.out.value));
            side.values.sound = 1;
        } else {
            step_on_host(&host, &x, &ref);
            assert_ok(step_on_device(&side, &x, &got, &err), err);
        }
        compare_state(case_name(c, b), &side, &host);
    }
    check_guards(case_name(c, b));
    close_side(&host);
    close_side(&side);
    device_close(dev);
}

TEST(values_that_are_not_finite_change_nothing) {
    survive(&(struct scenario){"nuclr", .tau = 0.01}, NAN, false, "similarity is not finite");
    survive(&(struct scenario){"isogclr", .views = true, .tau = 0.1}, -INFINITY, false,
            "similarity is not finite");
    survive(&(struct scenario){"cyclip", .tau = 0.1, .temperature = LOSS_TEMPERATURE_GLOBAL},
            INFINITY, false, "similarity is not finite");
    survive(&(struct scenario){"siglip", .tau = 0.1}, NAN, false, "similarity is not finite");
    survive(&(struct scenario){"emc2", .tau = 0.1}, 0.5f, true, "id is outside");
    /* Finite, but not the gradient of exp(q S / tau). */
    survive(&(struct scenario){"rince", .tau = 0.01}, 1e4f, false, "gradient is not finite");
}

TEST(every_loss_with_kernels_has_a_scenario) {
    for (const struct loss_row *const *row = loss_rows(); *row != NULL; row++) {
        bool found = (*row)->device == DEVICE_LOSS_NONE;
        for (int i = 0; i < SCENARIO_COUNT && !found; i++) {
            found =
                strcmp(scenarios[i].name, (*row)->name) == 0 && scenarios[i].views == (*row)->views;
        }
        if (!found) {
            fail_msg("no scenario of %s%s", (*row)->name, (*row)->views ? " of two views" : "");
        }
    }
}

/* A batch of one sample has no contrasts: it counts as a visit only. */
TEST(one_sample_only_counts_as_a_visit) {
    static struct batch x;
    static struct result got;
    struct error err = {0};
    for (int i = 0; i < SCENARIO_COUNT; i++) {
        struct side host;
        struct side side;
        struct device *dev = open_guarded();
        const struct scenario *c = &scenarios[i];
        static struct result ref;
        open_side(&host, c, 3, NULL, SAMPLE_STATE_HOST);
        open_side(&side, c, 3, dev, SAMPLE_STATE_PINNED);
        make_batch(&x, 3, c->views, 1, false, 0);
        x.ids[1] = x.ids[0];
        x.ids[2] = x.ids[0];
        step_on_host(&host, &x, &ref);
        assert_ok(step_on_device(&side, &x, &got, &err), err);
        compare_results(case_name(c, 3), &host, &got, &ref, c->views ? 6 : 3);
        compare_state(case_name(c, 3), &side, &host);
        close_side(&host);
        close_side(&side);
        device_close(dev);
    }
}

/* A step that the struct does not describe fully is refused before anything is launched. */
TEST(incomplete_steps_are_refused) {
    struct device *dev = open_guarded();
    struct error err = {0};
    struct device_loss l = {.kind = DEVICE_LOSS_CLIP, .batch_count = 2, .id_space = 3, .world = 1};
    const uint64_t before = emulation_launches_count();
    assert_status(dev->losses->step(dev, &l, &err), STATUS_INVALID, err);
    l.batch_count = 1;
    assert_status(dev->losses->step(dev, &l, &err), STATUS_INVALID, err);
    l = (struct device_loss){
        .kind = DEVICE_LOSS_NUCLR, .batch_count = 2, .id_space = 3, .world = 1, .views = true};
    assert_status(dev->losses->step(dev, &l, &err), STATUS_INVALID, err);
    l.kind = (enum device_loss_kind)(DEVICE_LOSS_EMC2 + 1);
    assert_status(dev->losses->step(dev, &l, &err), STATUS_INVALID, err);
    assert_true(emulation_launches_count() == before);
    device_close(dev);
}

/* A recorded step relies on this: the launches depend only on loss and batch. */
TEST(the_number_of_launches_does_not_depend_on_the_batch) {
    static struct batch x;
    static struct result got;
    struct error err = {0};
    for (int i = 0; i < SCENARIO_COUNT; i++) {
        struct side side;
        struct device *dev = open_guarded();
        const struct scenario *c = &scenarios[i];
        uint64_t launches[3];
        open_side(&side, c, 4, dev, SAMPLE_STATE_DEVICE);
        for (uint64_t step = 0; step < 3; step++) {
            make_batch(&x, 4, c->views, step, step == 1, step == 2 ? 1 : 0);
            const uint64_t before = emulation_launches_count();
            assert_ok(step_on_device(&side, &x, &got, &err), err);
            launches[step] = emulation_launches_count() - before;
        }
        assert_true(launches[0] == launches[1] && launches[1] == launches[2]);
        const bool moves_zeta = strcmp(c->name, "nuclr") == 0 || strcmp(c->name, "nuclr-noxi") == 0;
        assert_int_equal(launches[0], strcmp(c->name, "siglip") == 0 ? 4 : moves_zeta ? 6 : 5);
        close_side(&side);
        device_close(dev);
    }
}

TEST(published_code_and_other_forms_of_xi_stay_on_the_host) {
    struct side side;
    struct error why = {0};
    struct loss_options o;
    struct device *dev = open_guarded();
    struct device *cpu;
    loss_options_default(&o);
    o.parity = LOSS_PARITY_REFERENCE;
    side = (struct side){0};
    assert_ok(sample_state_create(&side.state, SAMPLES, NULL, &why), why);
    assert_ok(loss_create(&side.loss, &o, side.state, SAMPLES, 4, &why), why);
    assert_false(loss_device_offered(side.loss, dev, &why));
    assert_non_null(strstr(why.text, "--variant code"));
    close_side(&side);
    loss_options_default(&o);
    o.xi = LOSS_XI_ALL;
    side = (struct side){0};
    assert_ok(sample_state_create(&side.state, SAMPLES, NULL, &why), why);
    assert_ok(loss_create(&side.loss, &o, side.state, SAMPLES, 4, &why), why);
    assert_false(loss_device_offered(side.loss, dev, &why));
    assert_non_null(strstr(why.text, "--xi all"));
    close_side(&side);
    loss_options_default(&o);
    o.name = "hcl";
    o.beta_stairs = 2;
    side = (struct side){0};
    assert_ok(sample_state_create(&side.state, SAMPLES, NULL, &why), why);
    assert_ok(loss_create(&side.loss, &o, side.state, SAMPLES, 4, &why), why);
    assert_false(loss_device_offered(side.loss, dev, &why));
    assert_non_null(strstr(why.text, "--beta-anneal-steps"));
    close_side(&side);
    open_side(&side, &scenarios[0], 4, NULL, SAMPLE_STATE_HOST);
    assert_ok(device_open(&cpu, "cpu-ref", 1, &why), why);
    assert_true(loss_device_offered(side.loss, dev, &why));
    assert_false(loss_device_offered(side.loss, cpu, &why));
    assert_non_null(strstr(why.text, "cpu-ref"));
    close_side(&side);
    device_close(cpu);
    device_close(dev);
}

TEST(columns_go_to_the_device_up_to_a_tenth_of_its_memory) {
    struct sample_state *s;
    struct error err = {0};
    enum sample_state_place place;
    int32_t column;
    struct device *dev = open_guarded(); /* reports 1 GiB free */
    assert_ok(sample_state_create(&s, 13 << 20, NULL, &err), err);
    assert_ok(sample_state_add(s, "a", SAMPLE_STATE_F32, 0.0f, &column, &err), err);
    assert_ok(sample_state_choose_place(&place, s, dev, &err), err);
    assert_int_equal(place, SAMPLE_STATE_DEVICE);
    assert_ok(sample_state_add(s, "b", SAMPLE_STATE_F32, 0.0f, &column, &err), err);
    assert_ok(sample_state_choose_place(&place, s, dev, &err), err);
    assert_int_equal(place, SAMPLE_STATE_PINNED);
    sample_state_destroy(s);
    device_close(dev);
}
