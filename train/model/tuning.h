/*
 * tuning: which parameters of a dual encoder are trained, and at which rates, by tower and depth.
 *
 * A tower's parameters are groups, in the order of open_clip's lock(): layers before the blocks;
 * each block except the last; the last one with the final norm; the projection. A ResNet's blocks
 * are its four stages.
 *
 * Threading : pure functions of the table.
 */
#ifndef TRAIN_MODEL_TUNING_H
#define TRAIN_MODEL_TUNING_H

#include "formats/base/status.h"
#include "train/model/params.h"

enum tuning_side { TUNING_IMAGE, TUNING_TEXT, TUNING_SIDES };

/* All zero: everything is trained, at one rate. */
struct tuning {
    int32_t lock[TUNING_SIDES]; /* 0: the whole tower is trained; 1 + n: its last n groups */
    double rate[TUNING_SIDES];  /* factor of the step's rate; 0: 1 */
    double layer_decay;         /* a group's rate is the next group's times this; 0: 1 */
};

/* Locks tensors of a table, before params_alloc, and sets rates. frozen: by side, how many of the
 * first groups have no gradient. Returns OK, or USAGE (no group would be locked). */
enum status tuning_apply(struct params *p,
                         int32_t frozen[TUNING_SIDES],
                         const struct tuning *t,
                         struct error *err);

/* Whether a tower is locked, with or without its projection: then its backward pass never runs.
 */
static inline bool tuning_is_frozen(const struct tuning *t, enum tuning_side side) {
    return t->lock[side] == 1 || t->lock[side] == 2;
}

#endif
