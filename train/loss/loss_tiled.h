/*
 * loss_tiled: a step of a loss of pairs from embeddings to their gradients, by tiles of the
 * similarities: equal to loss_step and the products around it up to rounding, in memory that grows
 * with B instead of B^2, with four matrix products instead of three. Ranks divide the work; results
 * are bit-identical to one rank's.
 *
 * Threading : as the device.
 * Ownership : loss and device are borrowed until destroy.
 */
#ifndef TRAIN_LOSS_LOSS_TILED_H
#define TRAIN_LOSS_LOSS_TILED_H

#include "kernels/ops.h"
#include "train/comm/comm.h"
#include "train/loss/loss.h"

struct loss_tiled;

/* Rows and columns of a tile (16 MiB). A step of more than LOSS_WHOLE samples uses tiles if it can:
 * a third of the CPU time (`ccbench loss`). */
enum { LOSS_TILE = 2048, LOSS_MAX_TILE = 32768, LOSS_WHOLE = 1024 };

/* Whether the loss with its options supports tiles; if not, *why has the reason in one line. */
bool loss_has_tiles(const struct loss *l, struct error *why);

/* For batches of batch_count; tile in [1, LOSS_MAX_TILE]. comm: the ranks, each with the samples
 * [rank b, (rank + 1) b), b = batch_count / world; borrowed until destroy; NULL: one rank. Requires
 * loss_has_tiles and dev->contrasts, on a device whose memory is the host's. Returns OK or NOMEM.
 */
enum status loss_tiled_create(struct loss_tiled **out,
                              struct loss *l,
                              struct device *dev,
                              int64_t batch_count,
                              int64_t tile,
                              struct comm *comm,
                              struct error *err);
void loss_tiled_destroy(struct loss_tiled *t); /* accepts NULL */

/* Bytes that create allocates. */
size_t loss_tiled_bytes(int64_t batch_count, int64_t tile);

/* As loss_step, from the embeddings x of images and texts, (B, E) F32, instead of the similarities
 * of `in` and `out`. dx: their gradients, overwritten; with several ranks only this rank's samples,
 * other rows are undefined. With several ranks collective, with the same x and in. */
enum status loss_tiled_step(struct loss_tiled *t,
                            const struct tensor x[2],
                            const struct tensor dx[2],
                            const struct loss_input *in,
                            struct loss_output *out,
                            struct error *err);

#endif
