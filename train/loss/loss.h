/*
 * loss: contrastive losses over a batch of B image-text pairs, one file per loss (NAME.c): value,
 * gradient with respect to the similarity matrix, and per-sample state.
 *
 * S_ij = <image i, text j> of L2-normalised embeddings, rows images, columns texts. "Row side":
 * image i is the anchor, its positive is text i, and all texts are its candidates, those of other
 * samples its negatives; "column side": text j is the anchor. Delta is S_ij minus the positive's.
 * With two views of B images each of the 2B is an anchor, its positive is the other view, its
 * negatives the 2B - 2 views of other images. Sums of exponentials are in log space in double, so
 * tau = 0.005 neither overflows nor underflows; state is stored in f32.
 *
 * Threading : single-owner.
 * Ownership : a loss owns its workspace and the columns it added to the sample state it borrows.
 */
#ifndef TRAIN_LOSS_LOSS_H
#define TRAIN_LOSS_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "train/state/sample_state.h"

/* Maximum batch size; with the whole similarity matrix; positives. */
enum { LOSS_MAX_BATCH = 1 << 20, LOSS_MAX_WHOLE = 32768, LOSS_MAX_POSITIVES = 8 };

/* How the temperature tau is determined. */
enum loss_temperature {
    LOSS_TEMPERATURE_OWN,        /* as the loss was published */
    LOSS_TEMPERATURE_CONSTANT,   /* tau is constant */
    LOSS_TEMPERATURE_GLOBAL,     /* one tau, learned */
    LOSS_TEMPERATURE_INDIVIDUAL, /* one per sample and side, learned */
};

/* How gamma changes over the run. */
enum loss_gamma_schedule {
    LOSS_GAMMA_OWN,      /* as the loss was published */
    LOSS_GAMMA_CONSTANT, /* gamma is constant */
    LOSS_GAMMA_COSINE,   /* from 1 down to gamma, see schedule_gamma */
};

enum loss_zeta_gradient {
    LOSS_ZETA_PAPER,    /* as published */
    LOSS_ZETA_UNBIASED, /* unbiased given that the sample is in the batch */
};

/* How nuclr updates xi; see nuclr.c. */
enum loss_xi {
    LOSS_XI_SIGNED, /* the largest zeta so far: the sign of the published code */
    LOSS_XI_NORM,   /* the largest |zeta| so far: ICLR's Algorithm 1, line 7 */
    LOSS_XI_ALL, /* the largest zeta that samples have now: the workshop's Algorithm 1, step 10 */
};

/* How emc2 treats a chain whose state is an off-batch sample; see emc2.c. */
enum loss_emc2_carry {
    LOSS_EMC2_VIEW,   /* the sample is re-encoded as the same view: Algorithm 1 */
    LOSS_EMC2_ENCODE, /* the sample is re-encoded without augmentation */
    LOSS_EMC2_SKIP,   /* not recorded until the chain accepts a proposal */
};

/* Value of an option that loss_resolve_auto replaces (loss_option_row.automatic). */
#define LOSS_AUTO (-1.0)

enum loss_parity {
    LOSS_PARITY_ALGORITHM, /* the published algorithm */
    LOSS_PARITY_REFERENCE, /* the published code, quirks included */
};

/* What a user chooses. Names, ranges, defaults and meanings are in the table loss_option_rows; a
 * loss's row (loss_row.h) has the options that it reads, and its own defaults. In its copy options
 * that it does not read are 0; a field that is 0 becomes its own default, if any.
 */
struct loss_options {
    const char *name;        /* see loss_names */
    bool views;              /* two views of images instead of images with texts */
    enum loss_parity parity; /* default LOSS_PARITY_ALGORITHM */

    double tau;
    enum loss_temperature temperature;
    double tau_min, tau_max, tau_lr, tau_momentum, rho;
    double gamma;
    enum loss_gamma_schedule gamma_schedule;
    uint64_t gamma_epochs;                          /* 0: 1 */
    double gamma_log_alpha, gamma_slope;            /* scent */
    double margin;                                  /* hgcl */
    double false_negative_share, false_negative_lr; /* glofnd */
    uint64_t false_negative_start;
    double u_eps; /* added to every estimate before it enters u */
    double zeta0, xi0;
    enum loss_xi xi;
    /* From these the trainer computes loss_input.zeta_lr_text and zeta_lr_image. LOSS_AUTO: see
     * loss_resolve_auto */
    double zeta_lr, zeta_lr_image_ratio;
    uint64_t zeta_freeze_epochs;
    bool zeta_by_visit; /* zeta's rate is relative to tau and falls with visits, see nuclr.c; set by
                           --zeta-lr auto; default false */
    double zeta_momentum;
    enum loss_zeta_gradient zeta_gradient;
    double tau_plus, beta;
    uint64_t beta_stairs; /* 0: beta is constant */
    uint64_t beta_epochs; /* 0: 1 */
    double q, lambda;
    double cyclic_self, cyclic_cross;
    double bias0;
    double burn_in;
    uint64_t positives; /* m: consecutive rows per sample; 0: 1 */
    enum loss_emc2_carry emc2_carry;
    double cache_refresh;
    uint64_t seed; /* random seed of the loss */
    /* Epochs at the beginning of a run in which weights are frozen and state recovers: gamma is 1 /
     * (epoch + 1), so u is the mean of all visits, and temperatures stay. Host only. */
    uint64_t recover_epochs;
    /* Adam for temperatures and siglip's bias, as the model's; default 0.9, 0.999, 1e-8
     */
    double beta1, beta2, eps;
};

/* Defaults of the table, for loss nuclr. */
void loss_options_default(struct loss_options *opt);

/* Replaces LOSS_AUTO. zeta_lr: 1 by visits, or the published code's 5e-6; the ratio: 1 by visits,
 * else the published code's 0.1. */
void loss_resolve_auto(struct loss_options *opt);

struct loss_input {
    /* (B, B); with two views (2B, 2B), all views by all views: rows 0 to B - 1 are the first views,
     * then the second ones in the same order; the diagonal is then not used. */
    const float *similarity;
    /* (B, B) of images with images and texts with texts; read if loss_uses_self. */
    const float *image_similarity, *text_similarity;
    /* (B); with m positives, rows jm to jm + m - 1 are pairs of one sample and have its id: a
     * sample whose rows have different ids (one was replaced) is ignored; of a repeated id only the
     * first occurrence counts. */
    const uint64_t *sample_ids;
    /* (B) entries of the rows' captions in the caption state (loss_create_by_caption), distinct if
     * the ids are; read if there is such a state. */
    const uint64_t *caption_ids;
    /* Off-batch samples, one per anchor, for losses that need them: (2, B), images then texts, or
     * first views then second views. carried_ids: from loss_carried or feature_cache_draw, or
     * SAMPLE_STATE_NO_ID if the caller has no such sample. carried_similarity: the anchor's with
     * its sample. */
    const uint64_t *carried_ids;
    const float *carried_similarity;
    /* (B) finite, >= 0: factors of each anchor's terms in value, objective and gradient; in siglip
     * a pair's term belongs half to its image and half to its text. They are not normalised: a mean
     * of 1 keeps the size of steps. u, zeta, xi and individual temperatures ignore them. NULL: all
     * 1; must be NULL unless loss_takes_weights. */
    const float *weights;
    int64_t batch_count;  /* B, a multiple of m, in [2, the maximum given at creation] */
    uint64_t step, epoch; /* from 0 */
    double lr;            /* of the model in this step; also of learned scalars without their own */
    /* nuclr: learning rate of zeta in this step; with zeta_by_visit eta of nuclr.c; 0: frozen */
    double zeta_lr_text, zeta_lr_image;
};

/* Means over the batch's distinct samples of their state after a step, per side, images first. NaN
 * if the loss has no such state. */
struct loss_batch_state {
    double log_u[2]; /* log of the moving averages u */
    double zeta[2];
};

struct loss_output {
    /* G = dL/dS, shaped as similarity, the caller's storage. With two views S_ij and S_ji are
     * separate variables: the embeddings' gradient is (G + G^T) X. */
    float *gradient;
    /* (B, B) dL/d(image_similarity) and dL/d(text_similarity), symmetric: the embeddings' gradient
     * is 2 G X. The caller's storage, written if loss_uses_self. */
    float *image_gradient, *text_gradient;
    /* (B) the caller's storage, or NULL: the part of `value` with each row's image and text (with
     * two views: both views) as anchors; their sum is `value`. NaN: an ignored row. */
    double *row_values;
    float *carried_gradient; /* (2, B) dL/d(carried_similarity), written if there are carried_ids */
    double value; /* the function whose gradient `gradient` is. With loss_row.surrogate its weights
                     are constants: normally slightly negative, and no sign of convergence */
    double objective; /* an estimate of the loss over the whole dataset, from the moving averages:
                         sogclr GCL and nuclr NUCLR of train/eval/objective.h, isogclr and fastclip
                         as in their files; without moving averages the value itself, for emc2 and
                         negcache the batch's loss */
    double tau;       /* temperature in this step; if individual: the mean over the batch */
    struct loss_batch_state batch;
};

struct loss;

/* Names of the losses, each once, NULL at the end. */
const char *const *loss_names(void);

/* Adds the loss's columns to `state` (borrowed until loss_destroy), and "visits": the number of
 * steps in which a sample took part. samples_count: live samples n of the dataset, at least 2.
 * Returns OK, NOMEM, USAGE (unknown name, value out of range, a choice that the loss does not
 * have). */
enum status loss_create(struct loss **out,
                        const struct loss_options *opt,
                        struct sample_state *state,
                        uint64_t samples_count,
                        int64_t max_batch_count,
                        struct error *err);
/* The same with the columns of texts, and their visits ("text.visits"), in a separate state with
 * one entry per caption: for images with several captions, one of which is sampled each time.
 * captions: borrowed likewise, of the same ranks; NULL: loss_create. Must be NULL unless
 * loss_keeps_texts. */
enum status loss_create_by_caption(struct loss **out,
                                   const struct loss_options *opt,
                                   struct sample_state *state,
                                   struct sample_state *captions,
                                   uint64_t samples_count,
                                   int64_t max_batch_count,
                                   struct error *err);
void loss_destroy(struct loss *l); /* accepts NULL */

/* Whether the loss with these options has state of texts that can be kept by caption: not with two
 * views, several positives (each pair has its own), or chains of samples (emc2). */
bool loss_keeps_texts(const struct loss_options *opt);

/* Computes value and gradient, and updates the state of the batch's samples and the learned
 * scalars. If the state is divided among ranks: collective, with the same input on all of them, and
 * the same output. Returns OK, INVALID, CORRUPT if similarities are not finite (the state is then
 * unchanged), or what comm returns. INVALID also if a loss needs an off-batch sample and gets no
 * carried_ids. */
enum status
loss_step(struct loss *l, const struct loss_input *in, struct loss_output *out, struct error *err);

/* Rows per sample in a batch: m if the loss with these options has several positives, else 1. */
uint32_t loss_positives(const struct loss_options *opt);
/* Whether the loss ever needs off-batch samples (emc2, unless it skips them; negcache). */
bool loss_carries(const struct loss *l);

/* Fraction of samples re-encoded per step, in (0, 1], for losses with a feature cache
 * (feature_cache.h); else 0. */
double loss_cache_refresh(const struct loss *l);

/* Other losses with off-batch samples: the samples that the step with these (batch_count) ids
 * needs, as in loss_input.carried_ids; SAMPLE_STATE_NO_ID: none. views (may be NULL), as `out`:
 * which view each of them was, 2 epoch + view (pairs: 0); LOSS_EMC2_VIEW requires this one.
 * Collective as loss_step. Returns OK, INVALID or what comm returns. */
enum status loss_carried(struct loss *l,
                         uint64_t *out,
                         uint64_t *views,
                         const uint64_t *sample_ids,
                         int64_t batch_count,
                         struct error *err);

/* Whether the value is a sum over anchors, which can be weighted: not cyclip, whose consistency
 * terms compare pairs, nor the published code. */
bool loss_takes_weights(const struct loss *l);

/* Whether similarities may be differences to a reference model's, S - R: the loss then keeps a
 * moving average u of exp((Delta - Delta of R) / tau), as DRRho-CLIP (Wei, ICML 2025). Not
 * glofnd. */
bool loss_takes_reference(const struct loss *l);

/* A teacher's similarities, see distill.c. */
struct distill {
    double weight;                     /* W, in [0, 1] */
    double tau, teacher_tau;           /* > 0 */
    const float *similarity, *teacher; /* (B, B) finite: S and T */
};
/* Adds the KL to the results of loss_step(in) of pairs: value, objective and gradients. A sample's
 * weight multiplies its KL too. tau is a constant here: the KL does not train a learned one.
 * Returns K. */
double distill_add(const struct distill *d, const struct loss_input *in, struct loss_output *out);

/* Whether loss_input.image_similarity and text_similarity are needed (cyclip). */
bool loss_uses_self(const struct loss *l);

/* The temperature at the start of the next step; if individual, the one of unvisited samples. */
double loss_temperature_now(const struct loss *l);

/* Whether loss_output.objective estimates a loss over the whole dataset, from moving averages.
 * Otherwise it is the batch's loss. */
bool loss_estimates_global(const struct loss *l);

/* State that is not per sample (xi of nuclr, learned temperatures and their moments), saved and
 * loaded by name. */
struct loss_scalar {
    const char *name;
    double *value; /* the loss's own */
};
int32_t loss_scalars(struct loss *l, const struct loss_scalar **out);

#endif
