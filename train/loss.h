/*
 * loss: contrastive losses over a batch of B image-text pairs, each one file (loss_NAME.c): value,
 * gradient with respect to the similarity matrix, and the per-sample state it keeps.
 *
 * S_ij = <image i, text j> of L2-normalised embeddings, rows images, columns texts. "Row side":
 * image i is the anchor and texts are its contrasts; "column side": text j is the anchor. Delta is
 * S_ij minus the anchor's own pair. All sums of exponentials are taken in log space in double, so
 * tau = 0.005 neither overflows nor mutes easy samples; state is stored in f32.
 *
 * Threading : single-owner.
 * Ownership : a loss owns its scratch and the columns it added to the sample state it borrows.
 */
#ifndef TRAIN_LOSS_H
#define TRAIN_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "train/sample_state.h"

enum { LOSS_MAX_BATCH = 32768 };

struct loss_options {
    const char *name;     /* "clip", "sogclr", "nuclr" */
    double tau;           /* temperature > 0; 0.01 */
    double gamma;         /* weight of the new value in the running sums u, (0, 1]; 0.8 */
    double zeta0;         /* nuclr: first zeta of every sample; -0.05 */
    double xi0;           /* nuclr: first xi; 0 */
    double zeta_momentum; /* nuclr: weight of the NEW gradient in zeta's momentum, (0, 1]; 0.9 */
    bool zeta_unbiased;   /* nuclr: unbiased zeta gradient instead of the paper's; false */
};

void loss_options_default(struct loss_options *opt);

struct loss_input {
    const float *similarity;    /* (B, B) */
    const uint64_t *sample_ids; /* (B); an id met again counts in its first place only */
    int64_t batch_count;  /* B in [2, the maximum given at creation, at most LOSS_MAX_BATCH] */
    double zeta_lr_text;  /* nuclr: step size of zeta of texts and images in this step; */
    double zeta_lr_image; /*        0 = frozen */
};

struct loss_output {
    float *gradient;  /* (B, B) dL/dS, the caller's storage */
    double value;     /* what `gradient` is the gradient of. For sogclr and nuclr a surrogate whose
                         weights are constants: normally slightly negative, no test of convergence */
    double objective; /* an estimate of the loss over the whole dataset, from the running sums; for
                         clip the value itself */
};

struct loss;

/* Names of the losses, NULL at the end. */
const char *const *loss_names(void);

/* `state` (borrowed for the life of the loss) gets the loss's columns. samples_count: live samples
 * n of the dataset, at least 2. Returns OK, NOMEM, USAGE (unknown name, value out of range). */
enum status loss_create(struct loss **out,
                        const struct loss_options *opt,
                        struct sample_state *state,
                        uint64_t samples_count,
                        int64_t max_batch_count,
                        struct error *err);
void loss_destroy(struct loss *l); /* accepts NULL */

/* Value, gradient, and the state of the batch's samples updated. Returns OK, INVALID, or CORRUPT
 * when similarities are not finite (the state is then untouched). */
enum status
loss_step(struct loss *l, const struct loss_input *in, struct loss_output *out, struct error *err);

/* State that is not per sample (nuclr: xi of both sides), to save and to load by name. */
struct loss_scalar {
    const char *name;
    double *value; /* the loss's own */
};
int32_t loss_scalars(struct loss *l, const struct loss_scalar **out);

#endif
