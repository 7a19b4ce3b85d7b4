/*
 * max_skew: sorts the ranked images and counts the values of the first.
 */
#include "train/eval/max_skew.h"

#include <math.h>
#include <stdlib.h>

struct ranked {
    float score;
    int32_t value;
    int64_t index;
};

static int by_score(const void *a, const void *b) {
    const struct ranked *x = a;
    const struct ranked *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return x->index < y->index ? -1 : 1;
}

enum status max_skew(double *out,
                     const float *scores,
                     const int32_t *values,
                     int64_t count,
                     int32_t value_count,
                     int64_t top,
                     struct error *err) {
    REQUIRE(out != NULL && scores != NULL && values != NULL && count >= 0 && value_count >= 1 &&
            top >= 1);
    struct ranked *images = malloc(((size_t)count + 1) * sizeof *images);
    int64_t *found = calloc((size_t)value_count, sizeof *found);
    int64_t ranked = 0;
    enum status s = STATUS_OK;
    if (images == NULL || found == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory to rank %lld images", (long long)count);
        goto fail;
    }
    for (int64_t i = 0; i < count; i++) {
        if (values[i] >= 0 && values[i] < value_count) {
            images[ranked++] = (struct ranked){.score = scores[i], .value = values[i], .index = i};
        }
    }
    if (ranked == 0) {
        s = error_set(err, STATUS_USAGE, "no image has a value of the attribute");
        goto fail;
    }
    qsort(images, (size_t)ranked, sizeof *images, by_score);
    const int64_t shown = top < ranked ? top : ranked;
    int64_t most = 0;
    for (int64_t i = 0; i < shown; i++) {
        const int64_t times = ++found[images[i].value];
        most = times > most ? times : most;
    }
    *out = log((double)most / (double)shown * (double)value_count);
fail:
    free(images);
    free(found);
    return s;
}
