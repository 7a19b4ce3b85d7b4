/*
 * What the per-sample state costs: memory of all columns that any loss keeps over an id space, and
 * user CPU time of bringing them all to the window and back for one batch of ids at random:
 *
 *     bench_state [IDS] [BATCH] [STEPS]          12000000 512 2000
 *
 * The share of a step: divide by the time of one, e.g. 1.6 s for ResNet-50 and DistilBERT with
 * batch 512 on a GPU.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "formats/base/rng.h"
#include "train/state/sample_state.h"

/* nuclr's, isogclr's, fastclip-v2's and emc2's together; no loss keeps all of them. */
static const char *const f32_names[] = {"image.log_u",
                                        "text.log_u",
                                        "image.zeta",
                                        "text.zeta",
                                        "image.zeta_momentum",
                                        "text.zeta_momentum",
                                        "image.tau",
                                        "text.tau",
                                        "image.v",
                                        "text.v",
                                        "image.tau_square",
                                        "text.tau_square",
                                        "image.chain_score",
                                        "text.chain_score"};
static const char *const id_names[] = {"image.chain_id", "text.chain_id"};

enum { F32_COUNT = 14, ID_COUNT = 2 };

static double user_s(void) {
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + 1e-6 * (double)u.ru_utime.tv_usec;
}

static void check(enum status s, const struct error *err) {
    if (s != STATUS_OK) {
        fprintf(stderr, "bench_state: %s\n", err->text);
        exit(EXIT_FAILURE);
    }
}

static struct sample_state *make_state(uint64_t ids, int64_t batch) {
    struct error err = {0};
    struct sample_state *s = NULL;
    int32_t c;
    check(sample_state_create(&s, ids, NULL, &err), &err);
    for (int i = 0; i < F32_COUNT; i++) {
        check(sample_state_add(s, f32_names[i], SAMPLE_STATE_F32, SAMPLE_STATE_UNVISITED, &c, &err),
              &err);
    }
    for (int i = 0; i < ID_COUNT; i++) {
        check(sample_state_add(s, id_names[i], SAMPLE_STATE_ID, 0.0f, &c, &err), &err);
    }
    check(sample_state_add(s, "visits", SAMPLE_STATE_COUNT, 0.0f, &c, &err), &err);
    check(sample_state_reserve(s, batch, &err), &err);
    return s;
}

int main(int argc, char **argv) {
    const uint64_t ids = argc > 1 ? strtoull(argv[1], NULL, 10) : 12000000;
    const int64_t batch = argc > 2 ? strtoll(argv[2], NULL, 10) : 512;
    const int steps = argc > 3 ? atoi(argv[3]) : 2000;
    if (ids == 0 || batch < 1 || steps < 1) {
        fprintf(stderr, "bench_state [IDS] [BATCH] [STEPS]\n");
        return EXIT_FAILURE;
    }
    struct error err = {0};
    struct sample_state *s = make_state(ids, batch);
    uint64_t *chosen = calloc((size_t)batch * (size_t)steps, sizeof *chosen);
    if (chosen == NULL) {
        return EXIT_FAILURE;
    }
    struct rng r;
    rng_init(&r, 1, RNG_INIT, 0, 0);
    for (int64_t i = 0; i < batch * steps; i++) {
        chosen[i] = rng_below(&r, ids);
    }
    const double from = user_s();
    for (int k = 0; k < steps; k++) {
        check(sample_state_begin_batch(s, chosen + k * batch, batch, &err), &err);
        check(sample_state_end_batch(s, &err), &err);
    }
    const double step_us = (user_s() - from) / steps * 1e6;
    printf("%" PRIu64 " ids, %d columns: %.1f MB; batch %" PRId64
           ": %.1f us of user time a step, to the window and back\n",
           ids, F32_COUNT + ID_COUNT + 1, (double)sample_state_bytes(s) / 1e6, batch, step_us);
    free(chosen);
    sample_state_destroy(s);
    return EXIT_SUCCESS;
}
