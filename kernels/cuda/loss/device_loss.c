/*
 * device_loss: kernels/device_loss.h on a GPU: checks the arguments of a step, whose launches are
 * in loss.cu, and allocates the columns in device memory or in pinned host memory.
 */
#include <string.h>

#include "kernels/cuda/device/cuda_internal.h"
#include "kernels/cuda/loss/loss_internal.h"

enum { MAX_BATCH = 32768 };

/* What a loss keeps per sample; f32 columns as bits of 1 << enum device_loss_column. */
static unsigned columns_of(const struct device_loss *l) {
    switch (l->kind) {
    case DEVICE_LOSS_SOGCLR:
        return 1u << DEVICE_LOSS_LOG_U;
    case DEVICE_LOSS_ISOGCLR:
        return 1u << DEVICE_LOSS_LOG_U | 1u << DEVICE_LOSS_TAU | 1u << DEVICE_LOSS_TAU_GRADIENT;
    case DEVICE_LOSS_NUCLR:
        return 1u << DEVICE_LOSS_LOG_U | 1u << DEVICE_LOSS_ZETA | 1u << DEVICE_LOSS_ZETA_MOMENTUM;
    case DEVICE_LOSS_FASTCLIP:
        return !l->constants.own_tau
                   ? 1u << DEVICE_LOSS_LOG_U
                   : 1u << DEVICE_LOSS_LOG_U | 1u << DEVICE_LOSS_TAU |
                         1u << DEVICE_LOSS_TAU_GRADIENT | 1u << DEVICE_LOSS_TAU_SQUARE;
    case DEVICE_LOSS_EMC2:
        return 1u << DEVICE_LOSS_CHAIN;
    default:
        return 0;
    }
}

/* With two views only the image side has columns. */
static bool has_columns(const struct device_loss *l) {
    const unsigned wanted = columns_of(l);
    bool ok = l->visits != NULL;
    for (int side = 0; side < DEVICE_LOSS_SIDES; side++) {
        const bool kept = side == DEVICE_LOSS_IMAGE || !l->views;
        for (int k = 0; k < DEVICE_LOSS_COLUMN_COUNT; k++) {
            ok = ok && (l->columns[k][side] != NULL) == (kept && (wanted >> k & 1u) != 0);
        }
        ok = ok && (l->chain_id[side] != NULL) == (kept && l->kind == DEVICE_LOSS_EMC2);
    }
    return ok;
}

/* Whether the loss is defined for two views; the others are for pairs only. */
static bool allows_views(enum device_loss_kind kind) {
    return kind != DEVICE_LOSS_SIGLIP && kind != DEVICE_LOSS_CYCLIP && kind != DEVICE_LOSS_NUCLR &&
           kind != DEVICE_LOSS_FASTCLIP;
}

static enum status check_loss(const struct device_loss *l, struct error *err) {
    const char *wrong = NULL;
    const bool self = l->kind == DEVICE_LOSS_CYCLIP;
    const bool has_self = l->image_similarity != NULL && l->text_similarity != NULL &&
                          l->image_gradient != NULL && l->text_gradient != NULL;
    if ((int)l->kind < DEVICE_LOSS_CLIP || (int)l->kind > DEVICE_LOSS_EMC2) {
        wrong = "there is no such loss";
    } else if (l->batch_count < 2 || l->batch_count > MAX_BATCH || l->id_space < 1) {
        wrong = "a batch of 2 to 32768 and an id space are required";
    } else if (l->rank < 0 || l->rank >= l->world) {
        wrong = "there is no such rank";
    } else if (l->views && !allows_views(l->kind)) {
        wrong = "it is not defined for two views";
    } else if (l->similarity == NULL || l->gradient == NULL || (self && !has_self) ||
               l->sample_ids == NULL || l->values == NULL || l->scalars == NULL ||
               l->fault == NULL || l->workspace == NULL) {
        wrong = "a pointer is missing";
    } else if (!has_columns(l)) {
        wrong = "its columns are not those that it keeps";
    }
    return wrong == NULL
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "loss %d on the device: %s", (int)l->kind, wrong);
}

static enum status
cuda_loss_step(struct device *device, const struct device_loss *l, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    uint32_t *window;
    int64_t window_count;
    TRY(check_loss(l, err));
    const cudaError_t code = launch_loss_examine(dev->stream, l, &window, &window_count);
    TRY(launched(dev, code, "loss", err));
    if (l->world > 1) {
        TRY(device->ranks->merge(device, window, window_count, err));
    }
    return launched(dev, launch_loss(dev->stream, l), "loss", err);
}

static enum status
cuda_contrast_sums(struct device *device, const struct contrast_tile *t, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    return launched(dev, launch_contrast_sums(dev->stream, t), "contrast", err);
}

static enum status
cuda_contrast_gradient(struct device *device, const struct contrast_tile *t, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    return launched(dev, launch_contrast_gradient(dev->stream, t), "contrast", err);
}

static enum status cuda_loss_alloc(struct device *device,
                                   enum device_memory where,
                                   size_t size_bytes,
                                   void **out,
                                   void **host,
                                   struct error *err) {
    *out = NULL;
    *host = NULL;
    if (where == DEVICE_MEMORY_OWN) {
        return device->ops->alloc(device, size_bytes, out, err);
    }
    void *pinned = NULL;
    const cudaError_t code =
        cudaHostAlloc(&pinned, size_bytes > 0 ? size_bytes : 1, cudaHostAllocMapped);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return error_set(err, STATUS_NOMEM,
                         "cannot allocate %.2f GiB of pinned host memory for per-sample state; use "
                         "--state-memory host",
                         (double)size_bytes / (1024.0 * 1024.0 * 1024.0));
    }
    TRY_CUDA(code);
    const cudaError_t mapped = cudaHostGetDevicePointer(out, pinned, 0);
    if (mapped != cudaSuccess) {
        (void)cudaFreeHost(pinned);
        return cuda_failed(mapped, "cudaHostGetDevicePointer", err);
    }
    memset(pinned, 0, size_bytes);
    *host = pinned;
    return STATUS_OK;
}

static void
cuda_loss_free(struct device *device, enum device_memory where, void *data, void *host) {
    if (where == DEVICE_MEMORY_OWN) {
        device->ops->free(device, data);
    } else {
        (void)cudaStreamSynchronize(cuda_of(device)->stream);
        (void)cudaFreeHost(host);
    }
}

static enum status cuda_free_bytes(struct device *device, size_t *out, struct error *err) {
    size_t total_bytes;
    (void)device;
    TRY_CUDA(cudaMemGetInfo(out, &total_bytes));
    return STATUS_OK;
}

const struct device_losses cuda_losses = {.workspace_bytes = launch_loss_workspace_bytes,
                                          .step = cuda_loss_step,
                                          .alloc = cuda_loss_alloc,
                                          .free = cuda_loss_free,
                                          .free_bytes = cuda_free_bytes};

const struct device_contrasts cuda_contrasts = {.sums = cuda_contrast_sums,
                                                .gradient = cuda_contrast_gradient};
