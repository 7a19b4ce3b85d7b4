/*
 * loss_device: a loss whose steps run on a device with loss kernels (kernels/device_loss.h).
 * Matrices, scalars and report are in its memory, the state's columns where sample_state_place puts
 * them. Results equal those of loss_step up to rounding.
 *
 * Threading : as the device.
 * Ownership : the loss, its state and the device are borrowed for the life and outlive it. Between
 *             loss_device_send and loss_device_fetch state and scalars of the host are out of date.
 */
#ifndef TRAIN_LOSS_LOSS_DEVICE_H
#define TRAIN_LOSS_LOSS_DEVICE_H

#include "kernels/device_loss.h"
#include "train/loss/loss.h"

struct loss_device;

/* Whether the loss with its options has kernels; if not, *why has the reason in one line.
 */
bool loss_has_kernels(const struct loss *l, struct error *why);

/* Whether the device can compute the loss's steps, which requires the whole state on one rank; if
 * not, *why has the reason in one line. */
bool loss_device_offered(const struct loss *l, const struct device *dev, struct error *why);

/* Allocates memory for batches of batch_count, and moves the state's columns to `place`. Requires
 * loss_device_offered. values (on the device, borrowed for the life): steps read step number and
 * learning rates from it, and write loss, objective, tau and sound to it. Returns OK, NOMEM or
 * DEVICE. */
enum status loss_device_create(struct loss_device **out,
                               struct loss *l,
                               struct sample_state *state,
                               struct device *dev,
                               enum sample_state_place place,
                               int64_t batch_count,
                               struct step_values *values,
                               struct error *err);
void loss_device_destroy(struct loss_device *d); /* accepts NULL */

/* Device memory without the columns: planned for a loss and batch_count, without the kernels'
 * workspace (some dozen numbers per pair; emc2 also two per pair of rows of the batch), and as
 * allocated, with it. */
size_t loss_device_planned_bytes(const struct loss *l, int64_t batch_count);
size_t loss_device_bytes(const struct loss_device *d);

/* A similarity matrix and the loss's gradient in it, both F32 on the device; shapes as in
 * loss_input and loss_output. The caller fills the first before a step. */
struct loss_device_matrix {
    struct tensor similarity, gradient;
};
enum loss_device_matrix_kind {
    LOSS_DEVICE_CROSS,
    LOSS_DEVICE_IMAGES, /* only if loss_uses_self */
    LOSS_DEVICE_TEXTS,
    LOSS_DEVICE_MATRIX_COUNT
};
const struct loss_device_matrix *loss_device_matrix(const struct loss_device *d,
                                                    enum loss_device_matrix_kind kind);

/* Copies the ids of the next step's batch (batch_count) to the device. Does not wait. Returns OK or
 * DEVICE.
 */
enum status
loss_device_put_ids(struct loss_device *d, const uint64_t *sample_ids, struct error *err);

/* Starts a step from matrices, ids and values: a fixed sequence of launches. Does not wait. Returns
 * OK or DEVICE. */
enum status loss_device_step(struct loss_device *d, struct error *err);

/* Call it if values->sound is 0. Waits. Returns OK (the loss is not the cause), CORRUPT with the
 * reason, or DEVICE. */
enum status loss_device_fault(struct loss_device *d, struct error *err);

/* Copy state and scalars: from the device before the host reads them, to the device after the host
 * changed them. Both wait. Return OK or DEVICE. */
enum status loss_device_fetch(struct loss_device *d, struct error *err);
enum status loss_device_send(struct loss_device *d, struct error *err);

#endif
