/*
 * Groups are numbered from the last one, in the order of backward: group i = 0, 1, ... Its level is
 * the number of trailing ones of i in binary, as in a counter that goes from i to i + 1: that many
 * blocks are added to it, and the free block of that level receives it. The last group is computed
 * in the table's own block, to which blocks are added range by range.
 */
#include "train/model/gradients.h"

/* ---- memory ---- */

int32_t gradients_block_count(int32_t part_count) {
    int32_t k = 0;
    while (part_count > 0 && part_count % 2 == 0) {
        part_count /= 2;
        k++;
    }
    return k;
}

struct tensor gradients_whole(const struct params *p) {
    struct tensor all = params_range(p, PARAM_GRAD, true);
    all.shape[0] += params_range(p, PARAM_GRAD, false).shape[0]; /* they follow */
    return all;
}

enum status gradients_init(struct gradients *g,
                           struct params *p,
                           struct device *dev,
                           int32_t block_count,
                           struct error *err) {
    REQUIRE(block_count >= 0 && block_count <= GRADIENTS_MAX_BLOCKS);
    *g = (struct gradients){.params = p, .dev = dev, .block_count = block_count};
    const struct tensor all = gradients_whole(g->params);
    for (int32_t i = 0; i < block_count; i++) {
        TRY(dev->ops->alloc(dev, tensor_size_bytes(&all), &g->blocks[i], err));
    }
    return STATUS_OK;
}

void gradients_fini(struct gradients *g) {
    for (int32_t i = 0; i < g->block_count; i++) {
        g->dev->ops->free(g->dev, g->blocks[i]);
    }
}

/* ---- sums ---- */

/* `count` elements of a block laid out as the table's, from element `from` on. */
static struct tensor range_of(const struct gradients *g, void *block, int64_t from, int64_t count) {
    const enum dtype dtype = params_dtype(g->params);
    return tensor_1d((uint8_t *)block + (size_t)from * dtype_size_bytes(dtype), dtype, count);
}

/* to += blocks 0, 1, ... below `level`, in elements [from, from + count) */
static enum status add_blocks(const struct gradients *g,
                              void *to,
                              int32_t level,
                              int64_t from,
                              int64_t count,
                              struct error *err) {
    for (int32_t l = 0; l < level; l++) {
        const struct add add = {.out = range_of(g, to, from, count),
                                .in = range_of(g, g->blocks[l], from, count),
                                .alpha = 1.0f};
        TRY(g->dev->ops->add(g->dev, &add, err));
    }
    return STATUS_OK;
}

static int32_t level_of(const struct gradients *g) {
    int32_t i = (g->part_count - 1 - g->part) / g->group_size;
    int32_t level = 0;
    for (; i % 2 == 1; i /= 2) {
        level++;
    }
    return level;
}

void gradients_begin(struct gradients *g,
                     int32_t part_count,
                     enum write_mode mode,
                     const struct gradient_ready *ready) {
    const int32_t k = gradients_block_count(part_count);
    g->ready = ready;
    g->mode = mode;
    g->part_count = part_count;
    g->group_size = part_count >> (k < g->block_count ? k : g->block_count);
    g->part = part_count;
    g->done = 0;
}

enum write_mode gradients_part(struct gradients *g, int32_t part) {
    const bool last_group = part < g->group_size;
    const bool first_of_group = (part + 1) % g->group_size == 0;
    g->part = part;
    params_redirect_gradients(g->params, last_group ? NULL : g->blocks[level_of(g)]);
    return !first_of_group ? WRITE_ADD : last_group ? g->mode : WRITE_SET;
}

/* The next `count` elements of the sum are complete in the table, except for adding the blocks. */
static enum status finish(struct gradients *g, int64_t from, int64_t count, struct error *err) {
    void *sum = gradients_whole(g->params).data;
    TRY(add_blocks(g, sum, level_of(g), from, count, err));
    if (g->ready == NULL) {
        return STATUS_OK;
    }
    const struct tensor range = range_of(g, sum, from, count);
    return g->ready->call(g->ready->cookie, &range, err);
}

/* Finishes the decayed range up to `end`, in whole steps of `step` or, at its end, the rest. */
static enum status finish_decayed(struct gradients *g, int64_t end, struct error *err) {
    const int64_t count = params_range(g->params, PARAM_GRAD, true).shape[0];
    while (g->done < end) {
        const int64_t left = count - g->done;
        const int64_t next = left < GRADIENTS_RANGE_COUNT ? left : GRADIENTS_RANGE_COUNT;
        if (g->done + next > end) {
            break;
        }
        TRY(finish(g, g->done, next, err));
        g->done += next;
    }
    return STATUS_OK;
}

enum status gradients_final(struct gradients *g, int32_t index, struct error *err) {
    if (g == NULL || g->part > 0) {
        return STATUS_OK;
    }
    return finish_decayed(g, params_decayed_prefix(g->params, index), err);
}

enum status gradients_part_end(struct gradients *g, struct error *err) {
    const int64_t decayed = params_range(g->params, PARAM_GRAD, true).shape[0];
    const int64_t all = gradients_whole(g->params).shape[0];
    if (g->part == 0) {
        TRY(finish_decayed(g, decayed, err));
        return all > decayed ? finish(g, decayed, all - decayed, err) : STATUS_OK;
    }
    if (g->part < g->group_size || g->part % g->group_size != 0) {
        return STATUS_OK;
    }
    const int32_t level = level_of(g);
    return add_blocks(g, g->blocks[level], level, 0, all, err);
}
