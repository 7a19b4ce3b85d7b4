/*
 * randaugment: the papers' RandAugment, with the constants and arithmetic of their code: two ops
 * sampled from ten with replacement, each applied with probability 1/2, at magnitude 7 of 10.
 *
 *     Brightness, Sharpness  factor 1.36 always   ShearX, ShearY          by +-0.21
 *     TranslateX, TranslateY by +-7 px            Rotate                  by +-21 degrees
 *
 * Shears, translations and rotations are bilinear (translations are by whole pixels), either sign
 * is equally likely, and the fill colour is (128, 128, 128). AutoContrast and Equalize work on each
 * channel. Sharpness keeps the outermost pixels, and wraps around below 0 and above 255, as the
 * papers' code does.
 *
 * Threading : pure functions of their arguments and the state of the generator.
 */
#ifndef AUGMENT_RANDAUGMENT_H
#define AUGMENT_RANDAUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/rng.h"

/* In the order of the papers' list, from which ops are sampled. */
enum randaugment_op {
    RANDAUGMENT_IDENTITY,
    RANDAUGMENT_AUTOCONTRAST,
    RANDAUGMENT_EQUALIZE,
    RANDAUGMENT_BRIGHTNESS,
    RANDAUGMENT_SHARPNESS,
    RANDAUGMENT_SHEAR_X,
    RANDAUGMENT_SHEAR_Y,
    RANDAUGMENT_TRANSLATE_X,
    RANDAUGMENT_TRANSLATE_Y,
    RANDAUGMENT_ROTATE,
    RANDAUGMENT_OP_COUNT,
};

enum { RANDAUGMENT_STEPS = 2 };

struct randaugment_step {
    enum randaugment_op op;
    bool applied;
    bool negative; /* for ops that have a sign */
};

/* Chooses op, application and sign of each step, all with random numbers even if they are
 * unused. */
void randaugment_draw(struct randaugment_step steps[RANDAUGMENT_STEPS], struct rng *rng);

#endif
