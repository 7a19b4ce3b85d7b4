/*
 * gradient_net: the encoders of ccstudy gradient: rows of pixels to rows of length 1, and back to
 * the gradient of all parameters.
 *
 *   linear    pixels -> their first 64 principal components, variance 1 -> W x -> / norm: 32
 *   resnet18  the tower and head that ccstream-train has for two views: 512
 *
 * No batch norm: rows do not depend on what else is encoded with them.
 *
 * Threading : one owner; uses the threads of its device.
 */
#ifndef TOOLS_CCSTUDY_GRADIENT_NET_H
#define TOOLS_CCSTUDY_GRADIENT_NET_H

#include <stdint.h>

#include "formats/base/status.h"
#include "train/model/resnet.h"
#include "train/optim/optimizer.h"

enum gradient_network { GRADIENT_LINEAR, GRADIENT_RESNET18, GRADIENT_NETWORKS };

struct gradient_net_options {
    enum gradient_network network;
    enum resnet_norm norm; /* of resnet18: RESNET_NORM_NONE or RESNET_NORM_GROUP */
    int32_t size_px;
    int32_t max_rows; /* of one pass, even */
    uint64_t seed;    /* of the first values */
    struct optimizer_options optimizer;
};

struct gradient_net;

/* dev: a CPU device, borrowed. pixels u8 (max_rows, S, S, 3): those of which linear takes the
 * principal components, which stay. Returns OK, NOMEM, USAGE or what the device returns. */
enum status gradient_net_create(struct gradient_net **out,
                                struct device *dev,
                                const struct gradient_net_options *o,
                                const uint8_t *pixels,
                                struct error *err);
void gradient_net_destroy(struct gradient_net *n); /* accepts NULL */

int64_t gradient_net_dim(const struct gradient_net *n);             /* E */
int64_t gradient_net_parameter_count(const struct gradient_net *n); /* P */

/* The first values again, of the seed; moments 0. */
enum status gradient_net_restart(struct gradient_net *n, struct error *err);

/* x (rows, E) from pixels u8 (rows, S, S, 3); rows even, at most max_rows. */
enum status gradient_net_forward(struct gradient_net *n,
                                 float *x,
                                 const uint8_t *pixels,
                                 int32_t rows,
                                 struct error *err);

/* After forward of the same pixels: gradients of all parameters from dx (rows, E). */
enum status gradient_net_backward(struct gradient_net *n,
                                  const float *dx,
                                  const uint8_t *pixels,
                                  int32_t rows,
                                  struct error *err);

/* Gradients and values as the optimiser sees them (P). */
enum status gradient_net_read(const struct gradient_net *n,
                              enum param_slot slot,
                              float *out,
                              struct error *err);

/* One step of the optimiser along the gradients. */
enum status gradient_net_step(struct gradient_net *n, double lr, uint64_t step, struct error *err);

#endif
