/*
 * loss: contrastive losses over a batch of B image-text pairs, each one file (loss_NAME.c): value,
 * gradient with respect to the similarity matrix, and the per-sample state it keeps.
 *
 * S_ij = <image i, text j> of L2-normalised embeddings, rows images, columns texts. "Row side":
 * image i is the anchor and texts are its contrasts; "column side": text j is the anchor. Delta is
 * S_ij minus the anchor's own pair. With two views of B images every one of the 2B is an anchor,
 * its own pair is the other view, its contrasts the 2B - 2 views of other images. All sums of
 * exponentials are taken in log space in double, so tau = 0.005 neither overflows nor mutes easy
 * samples; state is stored in f32.
 *
 * Threading : single-owner.
 * Ownership : a loss owns its scratch and the columns it added to the sample state it borrows.
 */
#ifndef TRAIN_LOSS_LOSS_H
#define TRAIN_LOSS_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "train/state/sample_state.h"

enum { LOSS_MAX_BATCH = 32768 };

/* Who has a temperature of its own. */
enum loss_temperature {
    LOSS_TEMPERATURE_OWN,        /* as the loss was published */
    LOSS_TEMPERATURE_CONSTANT,   /* tau stays */
    LOSS_TEMPERATURE_GLOBAL,     /* one tau, learned: clip, cyclip, siglip, sogclr, fastclip-v0
                                    and -v3 */
    LOSS_TEMPERATURE_INDIVIDUAL, /* one per sample and side, learned: isogclr, fastclip-v2 */
};

/* How gamma goes over the run. */
enum loss_gamma_schedule {
    LOSS_GAMMA_OWN,      /* as the loss was published: constant, fastclip's cosine */
    LOSS_GAMMA_CONSTANT, /* gamma stays */
    LOSS_GAMMA_COSINE,   /* from 1 down to gamma, see schedule_gamma */
};

enum loss_parity {
    LOSS_PARITY_ALGORITHM, /* the published algorithm */
    LOSS_PARITY_REFERENCE, /* the published code, quirks included: sogclr, isogclr, nuclr */
};

/* What a loss does not use is ignored. A temperature, bias, rho or rate of 0 where 0 makes no sense
 * is the default of the loss itself. */
struct loss_options {
    const char *name; /* see loss_names */
    bool views;       /* two views of images instead of pairs: simclr, dcl, hcl, rince, sogclr,
                         isogclr, emc2; false */
    double tau;       /* temperature, above 0; 0: 0.01, siglip 0.1, emc2 0.07, fastclip 0.07, its
                         v2 0.03; with two views 0.5, rince, sogclr and isogclr 0.1, emc2 0.07 */
    enum loss_temperature temperature;
    enum loss_parity parity;
    double gamma; /* weight of the new value in the running sums u, (0, 1]; 0: 0.8, fastclip 0.2 */
    enum loss_gamma_schedule gamma_schedule; /* LOSS_GAMMA_OWN */
    uint64_t gamma_epochs;                   /* in which the cosine falls; 0 is 1 */
    double zeta0;                            /* nuclr: first zeta of every sample; -0.05 */
    double xi0;                              /* nuclr: first xi; 0 */
    double zeta_momentum;    /* nuclr: weight of the NEW gradient in zeta's momentum, (0, 1]; 0.9 */
    bool zeta_unbiased;      /* nuclr: unbiased zeta gradient instead of the paper's; false */
    double tau_min, tau_max; /* bounds of a learned temperature; 0: 0.01 and 1, isogclr 0.005 and
                                0.05, with two views 0.05 and 1 */
    double tau_lr; /* its step size; 0: global the model's, fastclip-v2 0.0133, -v3 2e-4, isogclr
                      0.001, with two views 0.03 */
    double tau_momentum; /* isogclr: weight of the NEW gradient, (0, 1]; 0.9 */
    double rho; /* sogclr with learned tau, fastclip-v3, isogclr, fastclip-v2: weight of tau itself;
                   0: 6.5, 6.5, 8 and 7, with two views 0.4 */
    double tau_plus;     /* dcl, hcl: share of false negatives, [0, 1); 0.1 */
    double beta;         /* hcl: how much harder negatives weigh, >= 0; 0.5 */
    double q;            /* rince: (0, 1]; 0.1 */
    double lambda;       /* rince: weight of the sum, (0, 1]; 0.01 */
    double cyclic_self;  /* cyclip: weight of image-image against text-text; 0.1 */
    double cyclic_cross; /* cyclip: weight of S against its transpose; 0.1 */
    double bias0;        /* siglip: first bias; -10 */
    double burn_in;      /* emc2: share of the proposals that are not recorded, [0, 1); 0.5 */
    uint64_t seed;       /* emc2: of its draws */
};

void loss_options_default(struct loss_options *opt);

struct loss_input {
    /* (B, B); with two views (2B, 2B) of all views with all: rows 0 to B - 1 the first views, then
     * the second ones in the same order. The diagonal is not used. */
    const float *similarity;
    /* (B, B) of images with images and texts with texts; read where loss_uses_self says so. */
    const float *image_similarity, *text_similarity;
    const uint64_t *sample_ids; /* (B); an id met again counts in its first place only */
    int64_t batch_count;  /* B in [2, the maximum given at creation, at most LOSS_MAX_BATCH] */
    uint64_t step, epoch; /* from 0 */
    double lr;            /* of the model in this step: learned scalars without their own follow */
    double zeta_lr_text;  /* nuclr: step size of zeta of texts and images in this step; */
    double zeta_lr_image; /*        0 = frozen */
};

/* What a step left of the batch's distinct samples, as means over them: by side, images first. NaN
 * where the loss keeps no such number. */
struct loss_batch_state {
    double log_u[2]; /* log of the running means */
    double zeta[2];
};

struct loss_output {
    /* As similarity: dL/dS, the caller's storage. With two views every element is a variable of its
     * own: the embeddings' gradient is (G + G^T) X. */
    float *gradient;
    /* (B, B) dL/d(image_similarity) and dL/d(text_similarity), symmetric: the embeddings' gradient
     * is 2 G X. The caller's storage, written where loss_uses_self says so. */
    float *image_gradient, *text_gradient;
    double value; /* what `gradient` is the gradient of. For sogclr, isogclr, fastclip, nuclr and
                     emc2 a surrogate whose weights are constants: normally slightly negative, no
                     test of convergence */
    double objective; /* an estimate of the loss over the whole dataset, from the running sums; for
                         losses without them the value itself, for emc2 that of the batch */
    double tau;       /* temperature in this step; individual: the mean over the batch */
    struct loss_batch_state batch;
};

struct loss;

/* Names of the losses, NULL at the end. */
const char *const *loss_names(void);

/* `state` (borrowed for the life of the loss) gets the loss's columns, and "visits": in how many
 * steps a sample took part. samples_count: live samples
 * n of the dataset, at least 2. Returns OK, NOMEM, USAGE (unknown name, value out of range). */
enum status loss_create(struct loss **out,
                        const struct loss_options *opt,
                        struct sample_state *state,
                        uint64_t samples_count,
                        int64_t max_batch_count,
                        struct error *err);
void loss_destroy(struct loss *l); /* accepts NULL */

/* Value, gradient, and the state of the batch's samples and the learned scalars updated. Returns
 * OK, INVALID, or CORRUPT when similarities are not finite (the state is then untouched). */
enum status
loss_step(struct loss *l, const struct loss_input *in, struct loss_output *out, struct error *err);

/* Whether loss_input.image_similarity and text_similarity are needed (cyclip). */
bool loss_uses_self(const struct loss *l);

/* The temperature that the next step begins with; of individual ones that of unvisited samples. */
double loss_temperature_now(const struct loss *l);

/* State that is not per sample (xi of nuclr, learned temperatures and their moments), to save and
 * to load by name. */
struct loss_scalar {
    const char *name;
    double *value; /* the loss's own */
};
int32_t loss_scalars(struct loss *l, const struct loss_scalar **out);

#endif
