/*
 * randaugment: random choices, and the list of ops with their constants at magnitude 7.
 */
#include "augment/randaugment.h"

#include "augment/steps_internal.h"

enum { TRANSLATE_PX = 7, FILL = 128 };

static const float ENHANCE = 0.7 * 1.8 + 0.1;
static const float SHEAR = 0.7 * 0.3;
static const double ROTATE_DEGREES = 0.7 * 30.0;

void randaugment_draw(struct randaugment_step steps[RANDAUGMENT_STEPS], struct rng *rng) {
    for (int i = 0; i < RANDAUGMENT_STEPS; i++) {
        steps[i].op = (enum randaugment_op)rng_below(rng, RANDAUGMENT_OP_COUNT);
        steps[i].applied = rng_uniform(rng) < 0.5;
        steps[i].negative = rng_uniform(rng) < 0.5;
    }
}

bool randaugment_is_noop(const struct randaugment_step *s) {
    return !s->applied || s->op == RANDAUGMENT_IDENTITY;
}

bool randaugment_works_in_place(const struct randaugment_step *s) {
    return s->op < RANDAUGMENT_SHARPNESS;
}

void randaugment_apply(const struct randaugment_step *s, struct op_pass p) {
    float sign = s->negative ? -1.0F : 1.0F;
    int32_t shift_px = s->negative ? TRANSLATE_PX : -TRANSLATE_PX;
    switch (s->op) {
    case RANDAUGMENT_AUTOCONTRAST:
        op_autocontrast(p);
        break;
    case RANDAUGMENT_EQUALIZE:
        op_equalize(p);
        break;
    case RANDAUGMENT_BRIGHTNESS:
        op_brightness(p, ENHANCE);
        break;
    case RANDAUGMENT_SHARPNESS:
        op_sharpness(p);
        break;
    case RANDAUGMENT_SHEAR_X:
        op_shear_x(p, sign * SHEAR, FILL);
        break;
    case RANDAUGMENT_SHEAR_Y:
        op_shear_y(p, sign * SHEAR, FILL);
        break;
    case RANDAUGMENT_TRANSLATE_X:
        op_translate(p.out, p.in, shift_px, 0, FILL);
        break;
    case RANDAUGMENT_TRANSLATE_Y:
        op_translate(p.out, p.in, 0, shift_px, FILL);
        break;
    case RANDAUGMENT_ROTATE:
        op_rotate(p, s->negative ? -ROTATE_DEGREES : ROTATE_DEGREES, FILL);
        break;
    case RANDAUGMENT_IDENTITY:
    case RANDAUGMENT_OP_COUNT:
        break;
    }
}
