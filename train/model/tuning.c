/*
 * tuning: a tensor's group follows from its name, which is timm's, Hugging Face's or open_clip's.
 */
#include "train/model/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tensors outside blocks: before the blocks, after them, and the projection. */
enum { PLACE_FIRST = -1, PLACE_LAST_BLOCK = -2, PLACE_PROJECTION = -3 };

static bool has_any(const char *name, const char *const words[]) {
    while (*words != NULL && strstr(name, *words) == NULL) {
        words++;
    }
    return *words != NULL;
}

static enum tuning_side side_of(const char *name) {
    return strncmp(name, "visual.", 7) == 0 || strncmp(name, "image", 5) == 0 ? TUNING_IMAGE
                                                                              : TUNING_TEXT;
}

static int32_t place_of(const char *name) {
    static const char *const projections[] = {"visual.proj", "text_projection",  "image_proj.",
                                              "text_proj.",  "attnpool.c_proj.", NULL};
    static const char *const last[] = {"ln_post.",    "ln_final.",  "attnpool.",
                                       "trunk.norm.", "attn_pool.", NULL};
    static const char *const blocks[] = {"resblocks.", "transformer.layer.", "trunk.blocks."};
    if (has_any(name, projections)) {
        return PLACE_PROJECTION;
    }
    if (has_any(name, last)) {
        return PLACE_LAST_BLOCK;
    }
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        const char *at = strstr(name, blocks[i]);
        if (at != NULL) {
            return (int32_t)strtol(at + strlen(blocks[i]), NULL, 10);
        }
    }
    const char *stage = strstr(name, ".layer"); /* of a resnet, from 1 */
    return stage != NULL ? (int32_t)strtol(stage + 6, NULL, 10) - 1 : PLACE_FIRST;
}

/* For a tower with so many blocks. */
static int32_t group_of(int32_t place, int32_t blocks) {
    return place == PLACE_PROJECTION ? blocks + 1 : place == PLACE_LAST_BLOCK ? blocks : place + 1;
}

enum status tuning_apply(struct params *p,
                         int32_t frozen[TUNING_SIDES],
                         const struct tuning *t,
                         struct error *err) {
    static const char *const options[] = {"--lock-image", "--lock-text"};
    int32_t blocks[TUNING_SIDES] = {0};
    for (int32_t i = 0; i < params_count(p); i++) {
        const char *name = params_info(p, i).name;
        const int32_t count = place_of(name) + 1;
        int32_t *most = &blocks[side_of(name)];
        *most = count > *most ? count : *most;
    }
    for (int k = 0; k < TUNING_SIDES; k++) {
        const int32_t groups = blocks[k] + 2;
        FAIL_IF(t->lock[k] > groups, err, STATUS_USAGE,
                "%s %d: the tower has %d groups, so that nothing would be locked", options[k],
                (int)t->lock[k] - 1, (int)groups);
        frozen[k] = t->lock[k] > 0 ? groups - (t->lock[k] - 1) : 0;
    }
    for (int32_t i = 0; i < params_count(p); i++) {
        const char *name = params_info(p, i).name;
        const enum tuning_side k = side_of(name);
        const int32_t group = group_of(place_of(name), blocks[k]);
        const double rate = t->rate[k] > 0.0 ? t->rate[k] : 1.0;
        const double decay = t->layer_decay > 0.0 ? t->layer_decay : 1.0;
        if (group < frozen[k]) {
            params_lock(p, i);
        }
        params_set_rate(p, i, (float)(rate * pow(decay, (double)(blocks[k] + 1 - group))));
    }
    return STATUS_OK;
}
