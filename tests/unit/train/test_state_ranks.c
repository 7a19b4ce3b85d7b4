/*
 * The state of samples on many ranks: every loss has the bits of one rank, columns come back in id
 * order, and memory is divided.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/comm_threads.h"
#include "tests/support/test.h"
#include "train/loss/loss_row.h"

enum { WORLDS = 4 };

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A whole column, from all ranks. */
static enum status
collect(const struct sample_state *s, int32_t column, void *out, struct error *err) {
    const size_t size = sample_state_kind(s, column) == SAMPLE_STATE_F32 ? 4 : 8;
    void *room = malloc(sample_state_piece_bytes(s) + 1);
    enum status got = room != NULL ? STATUS_OK : STATUS_NOMEM;
    uint64_t count = 0;
    for (uint64_t id = 0; id < sample_state_id_space(s) && got == STATUS_OK; id += count) {
        const void *values = NULL;
        got = sample_state_piece(s, column, id, room, &values, &count, err);
        if (got == STATUS_OK) {
            memcpy((char *)out + id * size, values, count * size);
        }
    }
    free(room);
    return got;
}

/* ---- losses ---- */

enum { MAX_B = 6, MAX_ROWS = 2 * MAX_B, ID_SPACE = 19, STEPS = 10 };

/* What a loss does in 10 steps, and leaves. Compared as bytes. */
struct trace {
    struct {
        float gradient[3][MAX_ROWS * MAX_ROWS];
        double value, objective, tau;
        struct loss_batch_state batch;
        double scalars[LOSS_MAX_SCALARS];
    } steps[STEPS];
    unsigned char columns[SAMPLE_STATE_MAX_COLUMNS][ID_SPACE * sizeof(uint64_t)];
};

struct job {
    const struct loss_row *row;
    enum loss_xi xi;
    const struct trace *expected; /* of one rank */
};

static void draw(float *m, int64_t rows, uint64_t stream) {
    struct rng r;
    rng_init(&r, 5, RNG_INIT, stream, 0);
    for (int64_t i = 0; i < rows * rows; i++) {
        m[i] = (float)(2.0 * rng_uniform(&r) - 1.0);
    }
}

/* 3 to 6 ids of 19, some of them twice; every third batch has distinct ones. */
static int64_t draw_ids(uint64_t ids[MAX_B], uint64_t step) {
    struct rng r;
    rng_init(&r, 6, RNG_INIT, step, 0);
    const int64_t b = 3 + (int64_t)rng_below(&r, MAX_B - 2);
    for (int64_t i = 0; i < b; i++) {
        ids[i] = step % 3 == 0 ? (7 * step + (uint64_t)i) % ID_SPACE : rng_below(&r, ID_SPACE);
    }
    ids[b - 1] = step % 3 == 1 ? ids[0] : ids[b - 1];
    return b;
}

static enum status
one_step(struct trace *t, uint64_t step, struct loss *l, const struct job *j, struct error *err) {
    static const double rates[] = {0.0, 0.05};
    uint64_t ids[MAX_B];
    float s[3][MAX_ROWS * MAX_ROWS];
    const int64_t b = draw_ids(ids, step);
    for (int i = 0; i < 3; i++) {
        draw(s[i], j->row->views ? 2 * b : b, 3 * step + (uint64_t)i);
    }
    uint64_t carried_ids[2 * MAX_B];
    float carried[2 * MAX_B];
    float carried_gradient[2 * MAX_B];
    const bool carries = loss_carries(l);
    for (int64_t i = 0; i < 2 * b; i++) {
        carried_ids[i] = (ids[i % b] + 1) % ID_SPACE;
        carried[i] = s[1][i];
    }
    if (carries && loss_cache_refresh(l) == 0.0) {
        TRY(loss_carried(l, carried_ids, NULL, ids, b, err));
    }
    const struct loss_input in = {.similarity = s[0],
                                  .image_similarity = s[1],
                                  .text_similarity = s[2],
                                  .sample_ids = ids,
                                  .carried_ids = carries ? carried_ids : NULL,
                                  .carried_similarity = carried,
                                  .batch_count = b,
                                  .step = step,
                                  .epoch = step / 4,
                                  .lr = 0.01,
                                  .zeta_lr_text = 0.1,
                                  .zeta_lr_image = rates[step > 1]};
    struct loss_output out = {.gradient = t->steps[step].gradient[0],
                              .image_gradient = t->steps[step].gradient[1],
                              .text_gradient = t->steps[step].gradient[2],
                              .carried_gradient = carried_gradient};
    TRY(loss_step(l, &in, &out, err));
    t->steps[step].value = out.value;
    t->steps[step].objective = out.objective;
    t->steps[step].tau = out.tau;
    t->steps[step].batch = out.batch;
    const struct loss_scalar *scalars;
    const int32_t count = loss_scalars(l, &scalars);
    for (int32_t i = 0; i < count; i++) {
        t->steps[step].scalars[i] = *scalars[i].value;
    }
    return STATUS_OK;
}

static enum status
run_loss(struct trace *t, const struct job *j, struct comm *c, struct error *err) {
    struct loss_options o;
    struct sample_state *state = NULL;
    struct loss *loss = NULL;
    loss_options_default(&o);
    o.name = j->row->name;
    o.views = j->row->views;
    o.parity = j->row->parity;
    o.tau = 0.1;
    o.tau_min = 0.05;
    o.tau_max = 0.5;
    o.xi = j->xi;
    enum status s;
    TRY_OR_FAIL(s, sample_state_create(&state, ID_SPACE, c, err));
    TRY_OR_FAIL(s, loss_create(&loss, &o, state, ID_SPACE, MAX_B, err));
    for (uint64_t step = 0; step < STEPS; step++) {
        TRY_OR_FAIL(s, one_step(t, step, loss, j, err));
    }
    for (int32_t i = 0; i < sample_state_count(state); i++) {
        TRY_OR_FAIL(s, collect(state, i, t->columns[i], err));
    }
fail:
    loss_destroy(loss);
    sample_state_destroy(state);
    return s;
}

static enum status loss_body(struct comm *c, void *cookie, struct error *err) {
    const struct job *j = cookie;
    struct trace *t = calloc(1, sizeof *t);
    enum status s = t == NULL ? STATUS_NOMEM : run_loss(t, j, c, err);
    if (s == STATUS_OK && memcmp(t, j->expected, sizeof *t) != 0) {
        s = error_set(err, STATUS_MISMATCH, "loss %s%s, xi %d: other bits than one rank",
                      j->row->name, j->row->views ? " of two views" : "", (int)j->xi);
    }
    free(t);
    return s;
}

/* Every rank has the value, gradient and scalars of one rank after each step, and all of them
 * together its state. */
TEST(every_loss_has_the_bits_of_one_rank) {
    struct trace *one = calloc(1, sizeof *one);
    assert_non_null(one);
    for (const struct loss_row *const *row = loss_rows(); *row != NULL; row++) {
        const bool nuclr = strcmp((*row)->name, "nuclr") == 0 && (*row)->parity == 0;
        for (int xi = LOSS_XI_SIGNED; xi <= (nuclr ? LOSS_XI_ALL : LOSS_XI_SIGNED); xi++) {
            struct error err = {0};
            struct job j = {*row, (enum loss_xi)xi, one};
            memset(one, 0, sizeof *one);
            assert_ok(run_loss(one, &j, NULL, &err), err);
            for (int32_t world = 1; world <= WORLDS; world++) {
                assert_ok(comm_threads_run(world, loss_body, &j, &err), err);
            }
        }
    }
    free(one);
}

/* ---- columns ---- */

static enum status bits_body(struct comm *c, void *cookie, struct error *err) {
    static const uint32_t odd[] = {0x7fc12345, 0xffc54321, 0x7f800001, 0x80000000, 0xff800000, 1};
    const uint64_t ids[] = {5, 0, 3, 1, 4, 2};
    struct sample_state *s = NULL;
    const uint64_t before = comm_counters(c).messages_count;
    int32_t f, u;
    (void)cookie;
    TRY(sample_state_create(&s, 6, c, err));
    TRY(sample_state_add(s, "f", SAMPLE_STATE_F32, 0.0f, &f, err));
    TRY(sample_state_add(s, "u", SAMPLE_STATE_ID, 0.0f, &u, err));
    TRY(sample_state_reserve(s, 6, err));
    /* Values of NaN and of u64 beyond 2^63 arrive as they are, and are stored as they are. */
    for (int round = 0; round < 2; round++) {
        TRY(sample_state_begin_batch(s, ids, 6, err));
        for (int i = 0; i < 6; i++) {
            RANK_CHECK(round == 0 || bits_of(sample_state_window(s, f)[i]) == odd[ids[i]]);
            RANK_CHECK(round == 0 || sample_state_window_u64(s, u)[i] == UINT64_MAX - ids[i]);
            sample_state_window(s, f)[i] = float_of(odd[ids[i]]);
            sample_state_window_u64(s, u)[i] = UINT64_MAX - ids[i];
        }
        TRY(sample_state_end_batch(s, err));
    }
    const uint64_t sent = comm_counters(c).messages_count - before;
    RANK_CHECK(sent == (comm_world(c) > 1 ? 2 : 0)); /* one a batch */
    uint32_t all[6];
    TRY(collect(s, f, all, err));
    RANK_CHECK(memcmp(all, odd, sizeof odd) == 0);
    sample_state_destroy(s);
    return STATUS_OK;
}

TEST(any_bits_reach_all_ranks) {
    struct error err = {0};
    for (int32_t world = 1; world <= WORLDS; world++) {
        assert_ok(comm_threads_run(world, bits_body, NULL, &err), err);
    }
}

enum { LARGE = 5 * SAMPLE_STATE_PIECE_IDS / 2 + 3 };

struct whole {
    float *values; /* (LARGE) */
    struct sample_state_summary summary;
};

static enum status pieces_body(struct comm *c, void *cookie, struct error *err) {
    const struct whole *whole = cookie;
    const uint64_t world = (uint64_t)comm_world(c);
    const uint64_t rank = (uint64_t)comm_rank(c);
    struct sample_state *s = NULL;
    struct sample_state_summary sum = {0};
    int32_t column;
    TRY(sample_state_create(&s, LARGE, c, err));
    TRY(sample_state_add(s, "x", SAMPLE_STATE_F32, SAMPLE_STATE_UNVISITED, &column, err));
    RANK_CHECK(sample_state_bytes(s) == ((LARGE - rank + world - 1) / world) * sizeof(float));
    for (uint64_t id = 0, count = 777777; id < LARGE; id += count) {
        count = LARGE - id < count ? LARGE - id : count;
        sample_state_put(s, column, id, whole->values + id, count);
    }
    RANK_CHECK(bits_of(sample_state_column(s, column)[11]) ==
               bits_of(whole->values[11 * world + rank]));
    void *room = malloc(sample_state_piece_bytes(s) + 1);
    uint64_t count = 0;
    int pieces = 0;
    for (uint64_t id = 0; id < LARGE; id += count, pieces++) {
        const void *values = NULL;
        TRY(sample_state_piece(s, column, id, room, &values, &count, err));
        RANK_CHECK(count <= SAMPLE_STATE_PIECE_IDS || world == 1);
        RANK_CHECK(memcmp(values, whole->values + id, count * sizeof(float)) == 0);
        sample_state_summarise(&sum, values, SAMPLE_STATE_F32, count);
    }
    RANK_CHECK(pieces == (world == 1 ? 1 : 3));
    RANK_CHECK(memcmp(&sum, &whole->summary, sizeof sum) == 0);
    free(room);
    sample_state_destroy(s);
    return STATUS_OK;
}

TEST(columns_are_divided_and_pass_by_in_id_order) {
    struct error err = {0};
    struct whole whole = {.values = calloc(LARGE, sizeof *whole.values)};
    assert_non_null(whole.values);
    for (uint32_t i = 0; i < LARGE; i++) {
        whole.values[i] = i % 5 == 0 ? SAMPLE_STATE_UNVISITED : 1.0f / (float)(i + 1);
    }
    sample_state_summarise(&whole.summary, whole.values, SAMPLE_STATE_F32, LARGE);
    assert_ok(comm_threads_run(1, pieces_body, &whole, &err), err);
    assert_ok(comm_threads_run(3, pieces_body, &whole, &err), err);
    free(whole.values);
}

static enum status few_ids_body(struct comm *c, void *cookie, struct error *err) {
    const uint64_t ids[] = {1, 0};
    struct sample_state *s = NULL;
    uint64_t all[2];
    int32_t column;
    (void)cookie;
    TRY(sample_state_create(&s, 2, c, err));
    TRY(sample_state_add(s, "visits", SAMPLE_STATE_COUNT, 0.0f, &column, err));
    TRY(sample_state_reserve(s, 2, err));
    RANK_CHECK(sample_state_bytes(s) == (comm_rank(c) < 2 ? 8 : 0));
    TRY(sample_state_begin_batch(s, ids, 2, err));
    sample_state_window_u64(s, column)[0] += 3;
    TRY(sample_state_end_batch(s, err));
    TRY(collect(s, column, all, err));
    RANK_CHECK(all[0] == 0 && all[1] == 3);
    sample_state_destroy(s);
    return STATUS_OK;
}

TEST(there_may_be_more_ranks_than_ids) {
    struct error err = {0};
    assert_ok(comm_threads_run(4, few_ids_body, NULL, &err), err);
}

/* ---- another dataset ---- */

enum { OLD_IDS = 9, NEW_IDS = 7 };

static enum status remap_body(struct comm *c, void *cookie, struct error *err) {
    static const uint64_t old_ids[NEW_IDS] = {8, SAMPLE_STATE_NO_ID, 7, 2,
                                              0, SAMPLE_STATE_NO_ID, 5};
    static const uint64_t chains[NEW_IDS] = {
        0, SAMPLE_STATE_NO_ID, SAMPLE_STATE_NO_ID, 6, 3, SAMPLE_STATE_NO_ID, 4};
    struct sample_state *to = NULL;
    struct sample_state *from = NULL;
    int32_t x, chain;
    float values[NEW_IDS];
    uint64_t ids[NEW_IDS];
    (void)cookie;
    TRY(sample_state_create(&to, NEW_IDS, c, err));
    TRY(sample_state_create(&from, OLD_IDS, NULL, err));
    for (int i = 0; i < 2; i++) {
        struct sample_state *s = i == 0 ? to : from;
        TRY(sample_state_add(s, "x", SAMPLE_STATE_F32, 0.5f, &x, err));
        TRY(sample_state_add(s, "chain", SAMPLE_STATE_ID, 0.0f, &chain, err));
    }
    for (uint64_t i = 0; i < OLD_IDS; i++) {
        sample_state_column(from, x)[i] = (float)i;
        sample_state_column_u64(from, chain)[i] = (2 * i + 1) % OLD_IDS;
    }
    sample_state_column_u64(from, chain)[8] = 8;
    sample_state_column_u64(from, chain)[0] = 2;
    sample_state_column_u64(from, chain)[5] = 0;
    TRY(sample_state_remap(to, from, old_ids, err));
    TRY(collect(to, x, values, err));
    TRY(collect(to, chain, ids, err));
    for (int i = 0; i < NEW_IDS; i++) {
        const bool is_new = old_ids[i] == SAMPLE_STATE_NO_ID;
        RANK_CHECK(values[i] == (is_new ? 0.5f : (float)old_ids[i]));
        RANK_CHECK(ids[i] == chains[i]);
    }
    sample_state_destroy(from);
    sample_state_destroy(to);
    return STATUS_OK;
}

TEST(each_rank_fills_its_part_from_another_dataset) {
    struct error err = {0};
    for (int32_t world = 1; world <= WORLDS; world++) {
        assert_ok(comm_threads_run(world, remap_body, NULL, &err), err);
    }
}
