/*
 * The formulae for two sets of rows, a and b, are those of Chan, Golub and LeVeque, "Updating
 * formulae and a pairwise algorithm for computing sample variances", 1979. With n = n_a + n_b and
 * delta = mean_b - mean_a,
 *
 *     mean = mean_a + delta n_b / n
 *     M2   = M2_a + M2_b + delta^2 n_a n_b / n
 *
 * Unlike in the difference of sum x^2 and n mean^2, nothing cancels if means are far from zero.
 */
#include "kernels/batch_norm_group.h"

#include <string.h>

int64_t batch_norm_group_doubles(const struct batch_norm_group *group, int64_t channels) {
    return (1 + (group == NULL ? 0 : (int64_t)group->ranks_count)) * (2 * channels + 1);
}

/* Gathers the 2 C + 1 numbers of every rank after the own ones, which rank 0's then replace. */
static enum status
gather(const struct batch_norm_group *g, double *memory, int64_t channels, struct error *err) {
    const size_t count = (size_t)(2 * channels + 1);
    TRY(g->gather(g->cookie, memory + count, memory, count * sizeof *memory, err));
    memcpy(memory, memory + count, count * sizeof *memory);
    return STATUS_OK;
}

enum status batch_norm_group_merge(const struct batch_norm_group *group,
                                   double *memory,
                                   int64_t channels,
                                   struct error *err) {
    const int64_t c = channels;
    if (group == NULL) {
        return STATUS_OK;
    }
    TRY(gather(group, memory, c, err));
    for (int64_t rank = 1; rank < group->ranks_count; rank++) {
        const double *other = memory + (1 + rank) * (2 * c + 1);
        const double n = memory[2 * c] + other[2 * c];
        const double fraction = other[2 * c] / n; /* n_b / n */
        for (int64_t i = 0; i < c; i++) {
            const double delta = other[i] - memory[i];
            memory[i] += delta * fraction;
            memory[c + i] += other[c + i] + delta * delta * memory[2 * c] * fraction;
        }
        memory[2 * c] = n;
    }
    return STATUS_OK;
}

enum status batch_norm_group_add(const struct batch_norm_group *group,
                                 double *memory,
                                 int64_t channels,
                                 struct error *err) {
    const int64_t count = 2 * channels + 1;
    if (group == NULL) {
        return STATUS_OK;
    }
    TRY(gather(group, memory, channels, err));
    for (int64_t rank = 1; rank < group->ranks_count; rank++) {
        for (int64_t i = 0; i < count; i++) {
            memory[i] += memory[(1 + rank) * count + i];
        }
    }
    return STATUS_OK;
}
