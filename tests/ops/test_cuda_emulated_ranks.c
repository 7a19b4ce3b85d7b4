/*
 * Ranks on emulated GPUs: each a process of its own, with tests/support/nccl instead of NCCL.
 * Gathers, merges and sums are in order with the ops of the device, also where everything runs as
 * late as CUDA allows; ranks capture steps independently of each other; the state of samples that
 * ranks share is bit-identical to that of one rank.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/rng.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "kernels/device_loss.h"
#include "kernels/device_ranks.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/test.h"

enum { MAX_WORLD = 4, TIMEOUT_MS = 20000, SECONDS = 60 };

/* ---- processes ---- */

/* In a rank's process, where the assertions of a case have no meaning. */
#define demand(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "rank %d: line %d: %s\n", my_rank, __LINE__, #cond);             \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define demand_ok(call)                                                                            \
    do {                                                                                           \
        struct error err = {0};                                                                    \
        if ((call) != STATUS_OK) {                                                                 \
            (void)fprintf(stderr, "rank %d: line %d: %s\n", my_rank, __LINE__, err.text);          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int my_rank;

typedef void rank_body(struct device *dev, int rank, int world, void *shared);

static struct device *open_device(void) {
    struct device *dev;
    struct device_options how;
    struct error err = {0};
    if (test_sanitizer()[0] != '\0') {
        test_skip("sanitizers do not follow jumps between the stacks of fibers");
    }
    device_options_default(&how);
    assert_ok(cuda_open(&dev, 0, &how, &err), err);
    return dev;
}

static void run_rank(const unsigned char *id, int rank, int world, rank_body *body, void *shared) {
    struct device *dev;
    struct device_options how;
    my_rank = rank;
    (void)alarm(SECONDS);
    device_options_default(&how);
    demand_ok(cuda_open(&dev, 0, &how, &err));
    demand_ok(dev->ranks->check(dev, &err));
    demand_ok(dev->ranks->join(dev, id, rank, world, TIMEOUT_MS, &err));
    body(dev, rank, world, shared);
    device_close(dev);
    _exit(0);
}

enum when { NOW, LATE, APART }; /* tasks run, see emulation.h */

/* shared: memory that all processes see. */
static void run_ranks(int world, enum when when, rank_body *body, void *shared) {
    unsigned char id[DEVICE_RANKS_ID_BYTES];
    struct error err = {0};
    pid_t ranks[MAX_WORLD];
    int bad = 0;
    struct device *dev = open_device();
    assert_ok(dev->ranks->unique_id(dev, id, &err), err);
    device_close(dev);
    (when == APART ? emulation_apart : emulation_late)(when != NOW);
    for (int r = 0; r < world; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0) {
            run_rank(id, r, world, body, shared);
        }
    }
    emulation_apart(false);
    for (int r = 0; r < world; r++) {
        int status;
        bad += waitpid(ranks[r], &status, 0) != ranks[r] || status != 0;
    }
    if (bad > 0) {
        fail_msg("%d of %d ranks failed", bad, world);
    }
}

static void *shared_memory(size_t size_bytes) {
    void *data = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(data != MAP_FAILED);
    return data;
}

/* First: the library is opened once. */
TEST(an_old_nccl_is_refused) {
    struct device *dev = open_device();
    struct error err = {0};
    assert_int_equal(setenv("CCSTREAM_EMULATED_NCCL", "21600", 1), 0);
    assert_status(dev->ranks->check(dev, &err), STATUS_UNSUPPORTED, err);
    assert_string_equal(err.text, "NCCL 2.16 is installed; 2.18 or a later version 2 is required");
    assert_int_equal(unsetenv("CCSTREAM_EMULATED_NCCL"), 0);
    assert_ok(dev->ranks->check(dev, &err), err);
    device_close(dev);
}

/* ---- collectives ---- */

enum { COUNT = 70000, SMALL = 37, STEPS = 5 }; /* COUNT: more than one chunk of the emulation */

struct buffers {
    float *own, *all, *grad, *total; /* (SMALL), (world * SMALL), (COUNT), (COUNT) */
    uint32_t *words;                 /* (SMALL) */
};

static void *take(struct device *dev, size_t size_bytes) {
    void *data;
    demand_ok(dev->ops->alloc(dev, size_bytes, &data, &err));
    return data;
}

static void open_buffers(struct buffers *b, struct device *dev, int world) {
    b->own = take(dev, SMALL * sizeof(float));
    b->all = take(dev, (size_t)world * SMALL * sizeof(float));
    b->grad = take(dev, COUNT * sizeof(float));
    b->total = take(dev, COUNT * sizeof(float));
    b->words = take(dev, SMALL * sizeof(uint32_t));
}

static void close_buffers(struct buffers *b, struct device *dev) {
    dev->ops->free(dev, b->own);
    dev->ops->free(dev, b->all);
    dev->ops->free(dev, b->grad);
    dev->ops->free(dev, b->total);
    dev->ops->free(dev, b->words);
}

static void add(struct device *dev, float *out, const float *in, int64_t count, float alpha) {
    union {
        const float *in;
        float *out;
    } same = {.in = in};
    const struct add op = {.out = tensor_1d(out, DTYPE_F32, count),
                           .in = tensor_1d(same.out, DTYPE_F32, count),
                           .alpha = alpha};
    demand_ok(dev->ops->add(dev, &op, &err));
}

static void fill(struct device *dev, float *out, int64_t count, double value) {
    const struct fill op = {tensor_1d(out, DTYPE_F32, count), value};
    demand_ok(dev->ops->fill(dev, &op, &err));
}

/* Bits that are no number in any type. */
static uint32_t word_of(int i, int step) {
    return 0xFFC00000u + (uint32_t)(1000 * i + step);
}

static void collect(struct device *dev, int rank, int world, void *shared) {
    const struct device_ranks *ranks = dev->ranks;
    struct buffers b;
    uint32_t words[SMALL];
    (void)shared;
    open_buffers(&b, dev, world);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < SMALL; i++) {
            words[i] = i % world == rank ? word_of(i, step) : 0;
        }
        demand_ok(dev->ops->upload(dev, b.words, words, sizeof words, &err));
        fill(dev, b.own, SMALL, 10.0 * rank + step);
        demand_ok(ranks->gather(dev, b.all, b.own, SMALL * sizeof(float), &err));
        fill(dev, b.own, SMALL, -1.0); /* after the gather has read it */
        demand_ok(ranks->merge(dev, b.words, SMALL, &err));
        fill(dev, b.grad, COUNT, rank + 1.0);
        demand_ok(ranks->begin_sum(dev, b.grad, COUNT / 2, &err));
        demand_ok(ranks->begin_sum(dev, b.grad + COUNT / 2, COUNT - COUNT / 2, &err));
        fill(dev, b.total, COUNT, step);
        demand_ok(ranks->finish(dev, &err));
        add(dev, b.total, b.grad, COUNT, 1.0f);
        fill(dev, b.grad, COUNT, -5.0); /* after the sum has been read */
        demand_ok(dev->ops->sync(dev, &err));
        for (int i = 0; i < world * SMALL; i++) {
            demand(b.all[i] == (float)(10 * (i / SMALL) + step));
        }
        for (int i = 0; i < SMALL; i++) {
            demand(b.words[i] == word_of(i, step));
        }
        for (int i = 0; i < COUNT; i++) {
            demand(b.total[i] == (float)(world * (world + 1) / 2 + step));
        }
    }
    close_buffers(&b, dev);
}

TEST(collectives_are_in_order_with_the_ops) {
    for (int world = 1; world <= MAX_WORLD; world++) {
        for (int when = NOW; when <= APART; when++) {
            run_ranks(world, (enum when)when, collect, NULL);
        }
    }
}

/* ---- captured steps ---- */

struct mixed {
    bool captures;
    float result[MAX_WORLD][SMALL]; /* of the run without captured steps, by rank */
};

struct step {
    struct buffers b;
    struct device *dev;
    int rank, world;
};

/* Every step depends on the ones before it, on all ranks. */
static enum status compute(void *cookie, struct error *err) {
    struct step *s = cookie;
    const struct device_ranks *ranks = s->dev->ranks;
    struct device *dev = s->dev;
    add(dev, s->b.own, s->b.grad, SMALL, 0.5f);
    TRY(ranks->gather(dev, s->b.all, s->b.own, SMALL * sizeof(float), err));
    for (int r = 0; r < s->world; r++) {
        add(dev, s->b.grad, s->b.all + (size_t)r * SMALL, SMALL, 0.125f * (float)(r + 1));
    }
    TRY(ranks->begin_sum(dev, s->b.grad, SMALL, err));
    TRY(ranks->begin_sum(dev, s->b.grad + SMALL, COUNT - SMALL, err));
    add(dev, s->b.own, s->b.all, SMALL, -0.25f);
    TRY(ranks->finish(dev, err));
    add(dev, s->b.own, s->b.grad, SMALL, 0.01f);
    return STATUS_OK;
}

/* Rank r captures step r. */
static void record_alone(struct device *dev, int rank, int world, void *shared) {
    struct mixed *m = shared;
    struct step s = {.dev = dev, .rank = rank, .world = world};
    struct captured_step *steps = NULL;
    struct error why = {0};
    open_buffers(&s.b, dev, world);
    fill(dev, s.b.own, SMALL, 1.0 + 0.3 * rank);
    fill(dev, s.b.grad, COUNT, 0.7 - 0.1 * rank);
    for (int step = 0; step < STEPS + MAX_WORLD; step++) {
        if (m->captures && step > 0 && step == rank + 1) {
            demand_ok(device_capture(dev, &steps, compute, &s, &why, &err));
            demand(steps != NULL);
        }
        demand_ok(steps != NULL ? dev->stream->replay(dev, steps, &err) : compute(&s, &err));
    }
    demand_ok(dev->ops->sync(dev, &err));
    demand(s.b.own[0] != 0.0f && isfinite(s.b.own[0]));
    if (!m->captures) {
        memcpy(m->result[rank], s.b.own, sizeof m->result[rank]);
    } else {
        const struct device_counters c = dev->stream->counters(dev);
        demand(memcmp(m->result[rank], s.b.own, sizeof m->result[rank]) == 0);
        demand(c.captures == 1 && c.replays >= STEPS);
        demand(c.captured_launches == (uint64_t)(3 + world)); /* those of `add` */
    }
    dev->stream->captured_free(dev, steps);
    close_buffers(&s.b, dev);
}

TEST(each_rank_records_steps_when_it_likes) {
    struct mixed *m = shared_memory(sizeof *m);
    for (int world = 2; world <= 3; world++) {
        m->captures = false;
        run_ranks(world, NOW, record_alone, m);
        m->captures = true;
        for (int when = NOW; when <= APART; when++) {
            run_ranks(world, (enum when)when, record_alone, m);
        }
    }
    (void)munmap(m, sizeof *m);
}

/* ---- losses ---- */

enum { SAMPLES = 41, BATCH = 12, ROWS = 2 * BATCH, MAX_KIND_STEPS = 6 };

/* What a run leaves: columns in the order of ids, and what every rank reports. */
struct left {
    float columns[DEVICE_LOSS_COLUMN_COUNT][DEVICE_LOSS_SIDES][SAMPLES];
    uint64_t chain_id[DEVICE_LOSS_SIDES][SAMPLES], visits[SAMPLES];
    float gradient[ROWS * ROWS];
    double loss;
};

struct kind {
    enum device_loss_kind kind;
    bool views;
    unsigned columns; /* as columns_of in device_loss.c */
};

static const struct kind kinds[] = {
    {DEVICE_LOSS_CLIP, false, 0},
    {DEVICE_LOSS_SOGCLR, false, 1u << DEVICE_LOSS_LOG_U},
    {DEVICE_LOSS_SOGCLR, true, 1u << DEVICE_LOSS_LOG_U},
    {DEVICE_LOSS_ISOGCLR, false,
     1u << DEVICE_LOSS_LOG_U | 1u << DEVICE_LOSS_TAU | 1u << DEVICE_LOSS_TAU_GRADIENT},
    {DEVICE_LOSS_NUCLR, false,
     1u << DEVICE_LOSS_LOG_U | 1u << DEVICE_LOSS_ZETA | 1u << DEVICE_LOSS_ZETA_MOMENTUM},
    {DEVICE_LOSS_FASTCLIP, false,
     1u << DEVICE_LOSS_LOG_U | 1u << DEVICE_LOSS_TAU | 1u << DEVICE_LOSS_TAU_GRADIENT |
         1u << DEVICE_LOSS_TAU_SQUARE},
    {DEVICE_LOSS_EMC2, false, 1u << DEVICE_LOSS_CHAIN},
    {DEVICE_LOSS_EMC2, true, 1u << DEVICE_LOSS_CHAIN},
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

struct shared_losses {
    struct left alone, together[MAX_WORLD]; /* columns: of `together` in the first */
    int kind;
};

static float first_value(int column) {
    return column == DEVICE_LOSS_TAU ? 0.1f
           : column == DEVICE_LOSS_LOG_U || column == DEVICE_LOSS_ZETA_MOMENTUM ||
                   column == DEVICE_LOSS_CHAIN
               ? NAN
               : 0.0f;
}

static void fill_batch(struct device_loss *l, float *similarity, uint64_t *ids, int step) {
    struct rng r;
    rng_init(&r, 7, RNG_INIT, (uint64_t)step, 0);
    const int rows = l->views ? ROWS : BATCH;
    for (int i = 0; i < rows * rows; i++) {
        similarity[i] = (float)(2.0 * rng_uniform(&r) - 1.0);
    }
    for (int i = 0; i < BATCH; i++) {
        ids[i] = rng_below(&r, SAMPLES); /* some are equal */
    }
}

/* The entries of this rank, to or from memory that has those of all ids. */
static void
move_entries(const struct device_loss *l, void *own, void *whole, size_t each, bool to_whole) {
    for (int id = l->rank; id < SAMPLES; id += l->world) {
        unsigned char *a = (unsigned char *)own + (size_t)(id / l->world) * each;
        unsigned char *b = (unsigned char *)whole + (size_t)id * each;
        memcpy(to_whole ? b : a, to_whole ? a : b, each);
    }
}

static void all_entries(const struct device_loss *l, struct left *whole, bool to_whole) {
    for (int side = 0; side < DEVICE_LOSS_SIDES; side++) {
        for (int k = 0; k < DEVICE_LOSS_COLUMN_COUNT; k++) {
            if (l->columns[k][side] != NULL) {
                move_entries(l, l->columns[k][side], whole->columns[k][side], sizeof(float),
                             to_whole);
            }
        }
        if (l->chain_id[side] != NULL) {
            move_entries(l, l->chain_id[side], whole->chain_id[side], sizeof(uint64_t), to_whole);
        }
    }
    move_entries(l, l->visits, whole->visits, sizeof(uint64_t), to_whole);
}

static const struct device_loss_constants constants = {.samples_count = SAMPLES,
                                                       .tau = 0.1,
                                                       .tau_min = 0.01,
                                                       .tau_max = 1.0,
                                                       .tau_lr = 0.05,
                                                       .tau_momentum = 0.5,
                                                       .rho = 2.0,
                                                       .gamma = 0.6,
                                                       .zeta_momentum = 0.9,
                                                       .burn_in = 0.2,
                                                       .seed = 5};

static void train(struct device *dev,
                  int rank,
                  int world,
                  const struct kind *kind,
                  struct left *whole,
                  struct left *mine) {
    struct device_loss l = {.kind = kind->kind,
                            .views = kind->views,
                            .batch_count = BATCH,
                            .id_space = SAMPLES,
                            .rank = rank,
                            .world = world,
                            .constants = constants};
    struct left first;
    float *similarity = take(dev, ROWS * ROWS * sizeof(float));
    uint64_t *ids = take(dev, BATCH * sizeof(uint64_t));
    memset(&first, 0xFF, sizeof first); /* chains: of no sample */
    memset(first.visits, 0, sizeof first.visits);
    l.constants.own_tau = kind->kind == DEVICE_LOSS_FASTCLIP;
    l.similarity = similarity;
    l.sample_ids = ids;
    l.gradient = take(dev, ROWS * ROWS * sizeof(float));
    l.values = take(dev, sizeof *l.values);
    l.fault = take(dev, sizeof *l.fault);
    l.scalars = take(dev, sizeof *l.scalars);
    for (int side = 0; side < (l.views ? 1 : DEVICE_LOSS_SIDES); side++) {
        for (int k = 0; k < DEVICE_LOSS_COLUMN_COUNT; k++) {
            for (int i = 0; i < SAMPLES; i++) {
                first.columns[k][side][i] = first_value(k);
            }
            if ((kind->columns >> k & 1u) != 0) {
                l.columns[k][side] = take(dev, SAMPLES * sizeof(float));
            }
        }
        if (kind->kind == DEVICE_LOSS_EMC2) {
            l.chain_id[side] = take(dev, SAMPLES * sizeof(uint64_t));
        }
    }
    l.visits = take(dev, SAMPLES * sizeof(uint64_t));
    l.workspace = take(dev, dev->losses->workspace_bytes(&l));
    all_entries(&l, &first, false);
    l.values->sound = 1;
    for (int step = 0; step < MAX_KIND_STEPS; step++) {
        fill_batch(&l, similarity, ids, step);
        l.values->step = (uint64_t)step;
        l.values->zeta_lr_image = 0.05;
        l.values->zeta_lr_text = 0.02;
        demand_ok(dev->losses->step(dev, &l, &err));
        demand_ok(dev->ops->sync(dev, &err));
        demand(l.values->sound == 1);
    }
    all_entries(&l, whole, true);
    memcpy(mine->gradient, l.gradient, sizeof mine->gradient);
    mine->loss = l.values->loss;
}

static void train_shared(struct device *dev, int rank, int world, void *shared) {
    struct shared_losses *s = shared;
    train(dev, rank, world, &kinds[s->kind], &s->together[0], &s->together[rank]);
}

static void train_alone(struct device *dev, int rank, int world, void *shared) {
    struct shared_losses *s = shared;
    train(dev, rank, world, &kinds[s->kind], &s->alone, &s->alone);
}

TEST(state_shared_by_ranks_is_that_of_one) {
    struct shared_losses *s = shared_memory(sizeof *s);
    for (int k = 0; k < KIND_COUNT; k++) {
        const int world = 2 + k % 2;
        uint64_t visits = 0;
        memset(s, 0, sizeof *s);
        s->kind = k;
        run_ranks(1, NOW, train_alone, s);
        run_ranks(world, (enum when)(k % 3), train_shared, s);
        for (int r = 0; r < world; r++) {
            const struct left *t = &s->together[r];
            assert_memory_equal(t->gradient, s->alone.gradient, sizeof t->gradient);
            assert_memory_equal(&t->loss, &s->alone.loss, sizeof t->loss);
        }
        const struct left *t = &s->together[0];
        assert_memory_equal(t->columns, s->alone.columns, sizeof t->columns);
        assert_memory_equal(t->chain_id, s->alone.chain_id, sizeof t->chain_id);
        assert_memory_equal(t->visits, s->alone.visits, sizeof t->visits);
        for (int i = 0; i < SAMPLES; i++) {
            visits += s->alone.visits[i];
        }
        assert_true(visits > SAMPLES / 2);
    }
    (void)munmap(s, sizeof *s);
}

/* ---- what fails ---- */

TEST(a_rank_that_nobody_joins_gives_up) {
    struct device *dev = open_device();
    struct error err = {0};
    unsigned char id[DEVICE_RANKS_ID_BYTES];
    assert_ok(dev->ranks->unique_id(dev, id, &err), err);
    assert_status(dev->ranks->join(dev, id, 1, 3, 100, &err), STATUS_DEVICE, err);
    assert_non_null(strstr(err.text, "is not done after 0.1 s on rank 1 of 3"));
    device_close(dev);
}

static void *abort_soon(void *cookie) {
    struct device *dev = cookie;
    const struct timespec pause = {.tv_nsec = 200000000};
    (void)nanosleep(&pause, NULL);
    dev->ranks->abort(dev);
    return NULL;
}

/* Rank 0 waits for a gather that rank 1 never makes. */
static void be_left(struct device *dev, int rank, int world, void *shared) {
    struct buffers b;
    struct error err = {0};
    pthread_t thread;
    (void)shared;
    open_buffers(&b, dev, world);
    if (rank == 0) {
        demand(pthread_create(&thread, NULL, abort_soon, dev) == 0);
        (void)dev->ranks->gather(dev, b.all, b.own, sizeof(float), &err);
        (void)dev->ops->sync(dev, &err);
        demand(pthread_join(thread, NULL) == 0);
        demand(dev->ranks->gather(dev, b.all, b.own, sizeof(float), &err) == STATUS_DEVICE);
        demand(strstr(err.text, "aborted") != NULL);
    }
    close_buffers(&b, dev);
}

TEST(abort_ends_a_wait_for_a_lost_rank) {
    run_ranks(2, NOW, be_left, NULL);
    run_ranks(2, LATE, be_left, NULL);
}
