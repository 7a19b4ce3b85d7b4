/*
 * margin_model: margins of a linear classifier on fixed features, normalised by how concentrated
 * each class is (Chuang et al., "Measuring generalization with optimal transport", NeurIPS 2021;
 * Chuang's thesis, chapter 8). With rho the margin f_y - max_{y' != y} f_y' of an image and g the
 * norm of its gradient in the features:
 *
 *   margin        rho
 *   GN-margin     rho / (g + 1e-6)
 *   kV-margin     rho / E_c[Var_c Lip_c]
 *   kV-GN-margin  rho / (g + 1e-6) / E_c[Var_c]
 *
 * Var_c is the k-variance of class c: the Wasserstein-1 distance between two disjoint random sets
 * of k = floor(m_c / 2) of its m_c images; Lip_c the largest g of its images. Each number is the
 * median over random training images, min(200 classes, all) of them, averaged over such subsets.
 *
 * Threading : pure functions. Ownership: everything is borrowed for the call.
 */
#ifndef TOOLS_CCSTUDY_MARGIN_MODEL_H
#define TOOLS_CCSTUDY_MARGIN_MODEL_H

#include <stdint.h>

#include "formats/base/status.h"
#include "train/eval/classify.h"

enum margin_kind { MARGIN_PLAIN, MARGIN_GN, MARGIN_KV, MARGIN_KV_GN, MARGIN_KINDS };

/* f_c(z) = <weight_c, z> + bias_c. */
struct margin_classifier {
    const float *weight; /* (class_count, dim) */
    const float *bias;   /* (class_count) */
    int32_t class_count; /* at least 2 */
};

struct margin_result {
    double median[MARGIN_KINDS];
    double variance;  /* E_c[Var_c] */
    double lipschitz; /* E_c[Lip_c] */
};

/* Rows with a label outside [0, class_count) are skipped; a class with one image in a subset does
 * not count in E_c. Returns OK, NOMEM or USAGE (no class has two images). */
enum status margin_measure(struct margin_result *out,
                           const struct classify_set *set,
                           const struct margin_classifier *f,
                           uint64_t subset_count,
                           uint64_t seed,
                           struct error *err);

#endif
