/*
 * device_loss: contrastive losses as kernels, for devices that have them (`device.losses`). The
 * specification is train/loss, which runs on the host. The same step runs here on the device, next
 * to the similarities: values, gradients, per-sample state and learned scalars; in double where the
 * host uses double, and with a fixed order of additions.
 *
 * With several ranks (device_ranks.h) each has all similarities and computes the whole step, so
 * decisions and scalars agree without messages. Per-sample state is divided: rank r of W keeps the
 * entries of the ids with id mod W = r, at index id / W. A step reads its own entries, merges them
 * with those of the other ranks, and writes its own back.
 *
 * The device can access all memory of a step, so nothing is copied to the host within a step. The
 * launches depend only on the struct, so a step can be captured once and replayed.
 *
 * Threading : as the device.
 * Ownership : every pointer is borrowed until the step is done; memory of alloc is freed by free.
 * Untrusted : ids at or beyond id_space are not used as indices; such a step is not sound.
 */
#ifndef KERNELS_DEVICE_LOSS_H
#define KERNELS_DEVICE_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum device_loss_kind {
    DEVICE_LOSS_NONE, /* no kernels: the loss runs on the host */
    DEVICE_LOSS_CLIP, /* with two views: simclr */
    DEVICE_LOSS_SIGLIP,
    DEVICE_LOSS_CYCLIP,
    DEVICE_LOSS_DEBIASED, /* dcl (beta 0) and hcl */
    DEVICE_LOSS_RINCE,
    DEVICE_LOSS_SOGCLR,
    DEVICE_LOSS_ISOGCLR,
    DEVICE_LOSS_NUCLR,
    DEVICE_LOSS_FASTCLIP, /* v0 to v3 and scent, by the constants */
    DEVICE_LOSS_EMC2
};

/* The f32 columns that losses keep, one per anchor side (for two views only the image side's). */
enum device_loss_column {
    DEVICE_LOSS_LOG_U,
    DEVICE_LOSS_ZETA,
    DEVICE_LOSS_ZETA_MOMENTUM,
    DEVICE_LOSS_TAU,
    DEVICE_LOSS_TAU_GRADIENT,
    DEVICE_LOSS_TAU_SQUARE, /* fastclip: Adam's second moment; TAU_GRADIENT is the first */
    DEVICE_LOSS_CHAIN,
    DEVICE_LOSS_COLUMN_COUNT
};

enum { DEVICE_LOSS_IMAGE, DEVICE_LOSS_TEXT, DEVICE_LOSS_SIDES };

/* Values of struct loss_options, with defaults filled in. */
struct device_loss_constants {
    double samples_count; /* n, live samples of the dataset */
    double tau, tau_min, tau_max, tau_lr, tau_momentum, rho;
    double gamma, zeta_momentum;
    uint64_t zeta_freeze_epochs;
    double gamma_log_alpha, gamma_slope; /* scent */
    double u_eps;    /* fastclip, scent: added to every estimate before it enters u */
    double slow_tau; /* at or below it the learning rate of a global tau is divided by 3 */
    double tau_plus, beta, q, lambda;
    double cyclic_self, cyclic_cross;
    double burn_in;
    double adam_beta1, adam_beta2, adam_eps;
    uint64_t seed;
    uint64_t gamma_epochs; /* cosine schedule of gamma: 1 in epoch 0, `gamma` from this epoch on;
                              0: constant */
    bool global_tau;       /* one learned temperature */
    bool own_tau;          /* fastclip: one learned temperature per sample and side */
    bool times_tau;        /* fastclip: its v3 */
    bool anchor_gamma;     /* scent: gamma depends on the anchor's u */
    bool zeta_unbiased;    /* nuclr */
    bool zeta_by_visit;    /* nuclr: zeta's learning rate is scaled by tau and falls with visits */
    bool zeta_frozen;      /* nuclr: zeta is never updated */
    bool own_xi;           /* nuclr: the anchor's own zeta instead of xi */
};

/* A scalar learned by Adam, with its moments. */
struct device_loss_learned {
    double value, m, v;
};

struct device_loss_scalars {
    struct device_loss_learned scale; /* log(1/tau) */
    struct device_loss_learned bias;  /* siglip */
    double learned_steps;
    double xi[DEVICE_LOSS_SIDES];
};

/* Why a step was not sound. */
enum device_loss_fault {
    DEVICE_LOSS_SOUND,
    DEVICE_LOSS_BAD_SIMILARITY, /* a similarity that is not finite */
    DEVICE_LOSS_BAD_ID,         /* an id outside the id space */
    DEVICE_LOSS_BAD_GRADIENT    /* a gradient, value or new state that is not finite */
};

/* One step. "On the device" below is memory that its kernels reach: that of ops->alloc or of
 * losses->alloc. */
struct device_loss {
    enum device_loss_kind kind;
    bool views;          /* two views of images: N = 2 B; else N = B */
    int64_t batch_count; /* B in [2, 32768] */
    uint64_t id_space;   /* ids are below it; at least 1 */
    int32_t rank, world; /* the ranks that share the state: rank in [0, world) */
    struct device_loss_constants constants;

    /* On the device: */
    const float *similarity;                         /* (N, N) */
    float *gradient;                                 /* (N, N) */
    const float *image_similarity, *text_similarity; /* (B, B), cyclip; NULL otherwise */
    float *image_gradient, *text_gradient;           /* the same */
    const uint64_t *sample_ids;                      /* (B) */
    /* Read: step, epoch, lr, zeta_lr_image, zeta_lr_text. Written: loss, objective, tau,
     * batch_log_u, batch_zeta (as struct loss_output; NaN if not sound), and sound = 0 in case of a
     * fault: then state and scalars are unchanged and the gradients are not usable. The same holds
     * if sound was 0 before. */
    struct step_values *values;
    int32_t *fault; /* enum device_loss_fault of this step; unchanged if sound was 0 before it */
    struct device_loss_scalars *scalars;
    /* One entry per id with id mod world = rank; NULL: the loss has no such column */
    float *columns[DEVICE_LOSS_COLUMN_COUNT][DEVICE_LOSS_SIDES];
    uint64_t *chain_id[DEVICE_LOSS_SIDES];
    uint64_t *visits;
    void *workspace; /* workspace_bytes, aligned to 16; contents are not kept between steps */
};

/* Memory that kernels reach. */
enum device_memory {
    DEVICE_MEMORY_OWN,   /* the device's; the host reads it by download */
    DEVICE_MEMORY_PINNED /* pinned host memory, which kernels access over the bus */
};

struct device_losses {
    /* Depends only on batch_count, kind and views. */
    size_t (*workspace_bytes)(const struct device_loss *);
    /* Starts the step and returns. The launches depend only on kind, views, batch_count and
     * constants; with world > 1 one of them may be device_ranks.merge. Returns OK, INVALID (a
     * pointer or column is missing, a size is out of range), NOMEM or DEVICE. */
    enum status (*step)(struct device *, const struct device_loss *, struct error *);

    /* Zeroed memory for columns. *out is the address for kernels, *host the address for the host or
     * NULL. Returns OK, NOMEM or DEVICE. */
    enum status (*alloc)(struct device *,
                         enum device_memory,
                         size_t size_bytes,
                         void **out,
                         void **host,
                         struct error *);
    /* Accepts NULL for both pointers. Waits for the device. */
    void (*free)(struct device *, enum device_memory, void *data, void *host);
    /* Free memory of the device. Returns OK or DEVICE. */
    enum status (*free_bytes)(struct device *, size_t *out, struct error *);
};

#ifdef __cplusplus
}
#endif

#endif
