/*
 * tuning: which parameters of a dual encoder are trained, and at which rates, by tower and depth.
 *
 * A tower's parameters are groups, in the order of open_clip's lock(): what comes before the
 * blocks; each block but the last; the last one with the norm after it; the projection. Blocks of a
 * resnet are its four stages.
 *
 * Threading : pure functions of the table.
 */
#ifndef TRAIN_MODEL_TUNING_H
#define TRAIN_MODEL_TUNING_H

#include "formats/base/status.h"
#include "train/model/params.h"

enum tuning_side { TUNING_IMAGE, TUNING_TEXT, TUNING_SIDES };

/* All zero: everything trains at one rate. */
struct tuning {
    int32_t lock[TUNING_SIDES]; /* 0: the tower trains; 1 + n: its last n groups alone */
    double rate[TUNING_SIDES];  /* of the tower, times the step's; 0: 1 */
    double layer_decay;         /* the rate of a group is that of the next one times this; 0: 1 */
};

/* Locks tensors of a table, before params_alloc, and sets rates. *frozen: by side, how many of the
 * first groups have no gradient. Returns OK, or USAGE (as many groups unlocked as there are). */
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
