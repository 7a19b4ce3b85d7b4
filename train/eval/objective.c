/*
 * objective: one walk over all scores for each side, sums in log space.
 */
#include "train/eval/objective.h"

#include <math.h>

#include "train/eval/scores.h"

struct side {
    double tau;
    int64_t count;
    const float *zeta; /* of the candidates; NULL: none */
    double gcl, clip, nuclr;
};

static enum status
add_anchor(void *cookie, int64_t anchor, const float *scores, struct error *err) {
    struct side *s = cookie;
    const double own = (double)scores[anchor];
    double largest = 0.0; /* the positive's Delta */
    double largest_zeta = s->zeta != NULL ? -(double)s->zeta[anchor] / s->tau : 0.0;
    (void)err;
    for (int64_t c = 0; c < s->count; c++) {
        const double e = ((double)scores[c] - own) / s->tau;
        largest = fmax(largest, e);
        if (s->zeta != NULL) {
            largest_zeta = fmax(largest_zeta, e - (double)s->zeta[c] / s->tau);
        }
    }
    double others = 0.0;
    double with_zeta = 0.0;
    for (int64_t c = 0; c < s->count; c++) {
        const double e = ((double)scores[c] - own) / s->tau;
        others += c == anchor ? 0.0 : exp(e - largest);
        if (s->zeta != NULL) {
            with_zeta += exp(e - (double)s->zeta[c] / s->tau - largest_zeta);
        }
    }
    const double n = (double)s->count;
    s->gcl += s->tau * (largest + log(others)) / n;
    s->clip += (largest + log(others + exp(-largest))) / n;
    if (s->zeta != NULL) {
        s->nuclr += (s->tau * (largest_zeta + log(with_zeta)) + (double)s->zeta[anchor]) / n;
    }
    return STATUS_OK;
}

enum status objective_compute(struct objective_result *out,
                              struct device *dev,
                              const float *images,
                              const float *texts,
                              int64_t count,
                              int64_t dim,
                              double tau,
                              const float *zeta_image,
                              const float *zeta_text,
                              struct error *err) {
    REQUIRE(out != NULL && count >= 2 && tau > 0.0 && (zeta_image == NULL) == (zeta_text == NULL));
    struct side image = {.tau = tau, .count = count, .zeta = zeta_text};
    struct side text = {.tau = tau, .count = count, .zeta = zeta_image};
    TRY(scores_visit(dev, images, count, texts, count, dim, add_anchor, &image, err));
    TRY(scores_visit(dev, texts, count, images, count, dim, add_anchor, &text, err));
    *out = (struct objective_result){.gcl = image.gcl + text.gcl,
                                     .gcl_image = image.gcl,
                                     .gcl_text = text.gcl,
                                     .clip = 0.5 * (image.clip + text.clip),
                                     .nuclr = zeta_image != NULL ? image.nuclr + text.nuclr
                                                                 : (double)NAN};
    return STATUS_OK;
}
