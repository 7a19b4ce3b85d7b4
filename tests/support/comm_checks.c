#include "tests/support/comm_checks.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"

/* All sizes up to SMALL, then those around the 1024 words of a piece of a group of threads. Other
 * collectives, and other worlds than powers of two, take every SOME-th. */
enum { SMALL = 70, SOME = 9, COUNT_MAX = 3001, GUARD = 4 };
static const int64_t large_sizes[] = {1023, 1024, 1025, 2048, COUNT_MAX};
enum { LARGE = sizeof large_sizes / sizeof large_sizes[0], SIZES = SMALL + 1 + LARGE };

static int64_t size_at(int32_t index) {
    return index <= SMALL ? index : large_sizes[index - SMALL - 1];
}

static int32_t largest_power_of_two(int32_t world) {
    int32_t power = 1;
    while (power <= world / 2) {
        power *= 2;
    }
    return power;
}

/* Of very different magnitudes, so that another order of additions gives other bits. */
static float value(int32_t rank, int64_t i) {
    struct rng g;
    rng_init(&g, 7, RNG_INIT, (uint64_t)rank, (uint64_t)i);
    const float x = (float)rng_uniform(&g) - 0.5F;
    return x * (float)(1 << rng_below(&g, 24));
}

/* The sum over ranks [first, first + count), count a power of two, of values to which those of the
 * ranks beyond `power` were added. */
static float tree(int32_t first, int32_t count, int32_t power, int32_t world, int64_t i) {
    if (count > 1) {
        const float low = tree(first, count / 2, power, world, i);
        return low + tree(first + count / 2, count / 2, power, world, i);
    }
    const float own = value(first, i);
    return first + power < world ? own + value(first + power, i) : own;
}

static float sum_of_ranks(int32_t world, int64_t i) {
    const int32_t power = largest_power_of_two(world);
    return tree(0, power, power, world, i);
}

static uint32_t word(int32_t rank, int64_t i) {
    struct rng g;
    rng_init(&g, 8, RNG_INIT, (uint64_t)rank, (uint64_t)i);
    return rng_u32(&g);
}

enum status comm_check_ranks(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    const int32_t world = comm_world(c);
    int32_t ranks[64];
    RANK_CHECK(world >= 1 && world <= 64);
    const int32_t rank = comm_rank(c);
    TRY(comm_gather(c, ranks, &rank, sizeof rank, err));
    for (int32_t r = 0; r < world; r++) {
        RANK_CHECK(ranks[r] == r);
    }
    /* One machine. */
    RANK_CHECK(comm_local_rank(c) == rank && comm_local_world(c) == world);
    comm_at(c, 17, COMM_PHASE_LOSS);
    return STATUS_OK;
}

static enum status gather_words(struct comm *c, int64_t count, bool in_place, struct error *err) {
    const int32_t world = comm_world(c), rank = comm_rank(c);
    uint32_t *all = calloc((size_t)(world * count + GUARD), sizeof *all);
    uint32_t *own = calloc((size_t)(count + 1), sizeof *own);
    RANK_CHECK(all != NULL && own != NULL);
    uint32_t *from = in_place ? all + rank * count : own;
    for (int64_t i = 0; i < count; i++) {
        from[i] = word(rank, i);
    }
    enum status s = comm_gather(c, all, from, (size_t)count * sizeof *all, err);
    for (int64_t i = 0; i < world * count && s == STATUS_OK; i++) {
        if (all[i] != word((int32_t)(i / count), i % count)) {
            s = error_set(err, STATUS_MISMATCH, "word %lld of %lld gathered", (long long)i,
                          (long long)(world * count));
        }
    }
    for (int32_t g = 0; g < GUARD && s == STATUS_OK; g++) {
        s = all[world * count + g] == 0 ? STATUS_OK : STATUS_MISMATCH;
    }
    free(all);
    free(own);
    return s;
}

enum status comm_check_gather(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    for (int32_t k = 0; k < SIZES; k += k < SMALL - SOME ? SOME : 1) {
        TRY(gather_words(c, size_at(k), k % 2 == 0, err));
    }
    return STATUS_OK;
}

enum status comm_check_broadcast(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    static const int64_t counts[] = {0, 1, 70, 1024, 1025, 1500};
    const int32_t world = comm_world(c), rank = comm_rank(c);
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        for (int32_t root = 0; root < world; root++) {
            uint32_t data[1500 + GUARD] = {0};
            for (int64_t i = 0; i < counts[k] && rank == root; i++) {
                data[i] = word(root, i);
            }
            TRY(comm_broadcast(c, data, (size_t)counts[k] * sizeof data[0], root, err));
            for (int64_t i = 0; i < counts[k]; i++) {
                RANK_CHECK(data[i] == word(root, i));
            }
            RANK_CHECK(data[counts[k]] == 0);
        }
    }
    return STATUS_OK;
}

/* Bits that a sum of floats would change: NaN payloads, -0, halves of u64, denormals. */
enum status comm_check_merge(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    static const uint32_t bits[] = {0x7fc12345, 0xffa00001, 0x80000000, 0xffffffff,
                                    0x00000001, 0x7f800000, 0xdeadbeef, 0x3f800000};
    enum { BITS = sizeof bits / sizeof bits[0] };
    const int32_t world = comm_world(c), rank = comm_rank(c);
    static const int64_t counts[] = {0, 1, 2, 70, 1023, 1024, 1025, 1500};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        uint32_t owned[1500 + GUARD] = {0}, added[1500 + GUARD] = {0};
        for (int64_t i = 0; i < counts[k]; i++) {
            owned[i] = i % world == rank ? bits[i % BITS] : 0;
            added[i] = word(rank, i);
        }
        TRY(comm_merge(c, owned, counts[k], err));
        TRY(comm_merge(c, added, counts[k], err));
        for (int64_t i = 0; i < counts[k]; i++) {
            uint32_t sum = 0;
            for (int32_t r = 0; r < world; r++) {
                sum += word(r, i);
            }
            RANK_CHECK(owned[i] == bits[i % BITS] && added[i] == sum);
        }
        RANK_CHECK(owned[counts[k]] == 0 && added[counts[k]] == 0);
    }
    return comm_barrier(c, err);
}

/* One rank's failure, then that of all but rank 0, then the same of all, then different ones. */
enum status comm_check_agree(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    const int32_t world = comm_world(c), rank = comm_rank(c);
    const char *after;
    struct error own = {0};
    RANK_CHECK(comm_agree(c, STATUS_OK, &own) == STATUS_OK && own.text[0] == '\0');
    RANK_CHECK(comm_agree(c, STATUS_OK, NULL) == STATUS_OK);
    for (int32_t failing = 0; failing < world; failing++) {
        struct error mine = {0};
        const enum status s =
            rank == failing ? error_set(&mine, STATUS_NOTFOUND, "no file %d", rank) : STATUS_OK;
        RANK_CHECK(comm_agree(c, s, &mine) == STATUS_NOTFOUND && mine.status == STATUS_NOTFOUND);
        char begin[32], end[32];
        (void)snprintf(begin, sizeof begin, "rank %d on ", failing);
        (void)snprintf(end, sizeof end, "no file %d", failing);
        after = strstr(mine.text, end);
        RANK_CHECK(after != NULL && strlen(after) == strlen(end));
        RANK_CHECK(world == 1 || strncmp(mine.text, begin, strlen(begin)) == 0);
    }
    struct error same = {0}, other = {0};
    (void)error_set(&same, STATUS_USAGE, "no such option");
    RANK_CHECK(comm_agree(c, STATUS_USAGE, &same) == STATUS_USAGE);
    RANK_CHECK(strcmp(same.text, "no such option") == 0);
    const enum status s = rank == 0 ? STATUS_IO : STATUS_NOMEM;
    (void)error_set(&other, s, "failure %d", rank);
    RANK_CHECK(comm_agree(c, s, &other) == STATUS_IO && strstr(other.text, "failure 0") != NULL);
    RANK_CHECK(comm_agree(c, STATUS_IO, NULL) == STATUS_IO);
    return STATUS_OK;
}

static enum status check_sums(struct comm *c,
                              float *data,
                              const float *expected,
                              const float *own,
                              struct error *err) {
    const int32_t world = comm_world(c);
    const int32_t step = world == largest_power_of_two(world) ? 1 : SOME;
    for (int32_t k = 0; k < SIZES; k += k < SMALL - step ? step : 1) {
        const size_t size_bytes = (size_t)size_at(k) * sizeof *data;
        memcpy(data, own, size_bytes);
        data[size_at(k)] = 1.5F;
        TRY(comm_sum(c, data, size_at(k), err));
        RANK_CHECK(memcmp(data, expected, size_bytes) == 0 && data[size_at(k)] == 1.5F);
    }
    return STATUS_OK;
}

/* Begun one after another, each at another place of the data; more than the queue holds. */
static enum status check_in_flight(struct comm *c,
                                   float *data,
                                   const float *expected,
                                   const float *own,
                                   struct error *err) {
    memcpy(data, own, COUNT_MAX * sizeof *data);
    int64_t at = 0, begun = 0;
    for (int64_t n = 0; at + n <= COUNT_MAX; n = (n * 5 + 1) % 83, begun++) {
        TRY(comm_begin_sum(c, data + at, n, err));
        at += n;
    }
    RANK_CHECK(begun > 70);
    uint32_t one = 1; /* a collective before comm_finish comes after the sums */
    TRY(comm_merge(c, &one, 1, err));
    RANK_CHECK(one == (uint32_t)comm_world(c));
    TRY(comm_finish(c, err));
    RANK_CHECK(memcmp(data, expected, (size_t)at * sizeof *data) == 0);
    RANK_CHECK(memcmp(data + at, own + at, (size_t)(COUNT_MAX - at) * sizeof *data) == 0);
    return comm_finish(c, err);
}

typedef enum status
check_floats(struct comm *, float *, const float *, const float *, struct error *);

static enum status with_floats(struct comm *c, check_floats *check, struct error *err) {
    float *data = malloc(3 * (COUNT_MAX + 1) * sizeof *data);
    RANK_CHECK(data != NULL);
    float *expected = data + COUNT_MAX + 1, *own = expected + COUNT_MAX + 1;
    for (int64_t i = 0; i < COUNT_MAX; i++) {
        expected[i] = sum_of_ranks(comm_world(c), i);
        own[i] = value(comm_rank(c), i);
    }
    const enum status s = check(c, data, expected, own, err);
    free(data);
    return s;
}

enum status comm_check_sum(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    return with_floats(c, check_sums, err);
}

enum status comm_check_sums_in_flight(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    return with_floats(c, check_in_flight, err);
}

static enum status expect_sent(struct comm *c,
                               struct comm_counters before,
                               uint64_t messages,
                               uint64_t bytes,
                               struct error *err) {
    const struct comm_counters now = comm_counters(c);
    if (now.messages_count - before.messages_count != messages ||
        now.sent_bytes - before.sent_bytes != bytes || now.wait_ns < before.wait_ns) {
        return error_set(err, STATUS_MISMATCH, "%llu messages of %llu bytes, expected %llu, %llu",
                         (unsigned long long)(now.messages_count - before.messages_count),
                         (unsigned long long)(now.sent_bytes - before.sent_bytes),
                         (unsigned long long)messages, (unsigned long long)bytes);
    }
    return STATUS_OK;
}

enum status comm_check_counters(struct comm *c, void *cookie, struct error *err) {
    (void)cookie;
    enum { N = 960 }; /* one piece; divisible by 8 */
    const uint64_t rank = (uint64_t)comm_rank(c), world = (uint64_t)comm_world(c);
    float data[N] = {0};
    uint32_t all[64 * 10] = {0};
    const uint64_t power = (uint64_t)largest_power_of_two((int32_t)world);
    uint64_t messages = 1, bytes = sizeof data; /* of a rank beyond the largest power of two */
    if (rank < power) {
        const uint64_t extra = rank + power < world ? 1 : 0;
        messages = extra;
        for (uint64_t p = power; p > 1; p /= 2) {
            messages += 2;
        }
        bytes = extra * sizeof data + 2 * sizeof data * (power - 1) / power;
    }
    struct comm_counters before = comm_counters(c);
    TRY(comm_sum(c, data, N, err));
    TRY(expect_sent(c, before, messages, bytes, err));
    const uint64_t one = world > 1 ? 1 : 0;
    before = comm_counters(c);
    TRY(comm_gather(c, all, all + 10 * rank, 40, err));
    TRY(expect_sent(c, before, one, 40 * (world - 1), err));
    before = comm_counters(c);
    TRY(comm_merge(c, all, 100, err));
    TRY(expect_sent(c, before, one, 800 * (world - 1) / world, err));
    before = comm_counters(c);
    TRY(comm_broadcast(c, all, 100, 0, err));
    return expect_sent(c, before, rank == 0 ? one : 0, rank == 0 ? 100 * one : 0, err);
}
