/*
 * tree_sum: a sum over ranks whose order of additions is fixed, by recursive halving and doubling.
 *
 * With P the largest power of two among the ranks: rank P + i first adds its data to rank i. Then
 * partners differ in one bit of their number, the lowest first. Each sends half of its range and
 * adds what it receives to the other half, so that an element is summed as
 *
 *   level 1 (rank ^ 1)    0+1      2+3      4+5      6+7
 *   level 2 (rank ^ 2)      \--+--/          \--+--/
 *   level 3 (rank ^ 4)          \-------+-------/
 *
 * on whichever rank. The finished ranges are sent back in reverse order, and the whole to rank P +
 * i. One rank computes each element, so results are bit-identical on all ranks, even NaN.
 */
#include "train/comm/comm_internal.h"

enum { LEVELS_MAX = 12 }; /* 2^12 = COMM_MAX_WORLD */

static void add(float *restrict data, const float *restrict part, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        data[i] += part[i];
    }
}

static enum status
send_floats(struct comm *c, int32_t peer, const float *data, int64_t count, struct error *err) {
    return comm_exchange(c, peer, NULL, 0, data, (size_t)count * sizeof *data, err);
}

static enum status
receive_floats(struct comm *c, int32_t peer, float *data, int64_t count, struct error *err) {
    return comm_exchange(c, peer, data, (size_t)count * sizeof *data, NULL, 0, err);
}

/* Among the first `ranks` ranks, a power of two. */
static enum status halve_and_double(struct comm *c,
                                    int32_t ranks,
                                    float *data,
                                    float *workspace,
                                    int64_t count,
                                    struct error *err) {
    const int32_t rank = comm_rank(c);
    struct range {
        int64_t begin, end;
    } kept[LEVELS_MAX + 1] = {{0, count}}, given[LEVELS_MAX];
    int32_t level = 0;
    for (; 1 << level < ranks; level++) {
        const struct range r = kept[level];
        const int64_t middle = r.begin + (r.end - r.begin) / 2;
        const bool upper = (rank >> level & 1) != 0;
        const struct range low = {r.begin, middle}, high = {middle, r.end};
        const struct range keep = upper ? high : low, give = upper ? low : high;
        const int64_t keep_count = keep.end - keep.begin;
        TRY(comm_exchange(c, rank ^ 1 << level, workspace, (size_t)keep_count * sizeof *data,
                          data + give.begin, (size_t)(give.end - give.begin) * sizeof *data, err));
        add(data + keep.begin, workspace, keep_count);
        kept[level + 1] = keep;
        given[level] = give;
    }
    while (level-- > 0) {
        const struct range keep = kept[level + 1], give = given[level];
        TRY(comm_exchange(c, rank ^ 1 << level, data + give.begin,
                          (size_t)(give.end - give.begin) * sizeof *data, data + keep.begin,
                          (size_t)(keep.end - keep.begin) * sizeof *data, err));
    }
    return STATUS_OK;
}

enum status
tree_sum(struct comm *c, float *data, float *workspace, int64_t count, struct error *err) {
    const int32_t rank = comm_rank(c), world = comm_world(c);
    int32_t ranks = 1;
    while (ranks <= world / 2) {
        ranks *= 2;
    }
    if (rank >= ranks) {
        TRY(send_floats(c, rank - ranks, data, count, err));
        return receive_floats(c, rank - ranks, data, count, err);
    }
    const bool has_extra = rank + ranks < world;
    if (has_extra) {
        TRY(receive_floats(c, rank + ranks, workspace, count, err));
        add(data, workspace, count);
    }
    TRY(halve_and_double(c, ranks, data, workspace, count, err));
    return has_extra ? send_floats(c, rank + ranks, data, count, err) : STATUS_OK;
}
