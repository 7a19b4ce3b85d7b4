#include "train/model/running.h"

#include "train/comm/comm_device.h"

/* Weight of a micro-batch, as PyTorch's. */
static const float momentum = 0.1f;

int64_t running_rows(const struct comm *comm, int32_t part_count) {
    return (int64_t)part_count * (comm != NULL ? comm_world(comm) : 1);
}

enum status running_init(struct running *r,
                         struct params *p,
                         struct device *dev,
                         struct comm *comm,
                         int32_t part_count,
                         struct error *err) {
    const struct tensor values = params_buffers(p);
    const int64_t rows = running_rows(comm, part_count);
    void *data;
    *r = (struct running){.params = p, .dev = dev, .comm = comm};
    TRY(dev->ops->alloc(dev, (size_t)rows * tensor_size_bytes(&values), &data, err));
    r->rows = tensor_2d(data, values.dtype, rows, values.shape[0]);
    return STATUS_OK;
}

void running_fini(struct running *r) {
    if (r->dev != NULL) {
        r->dev->ops->free(r->dev, r->rows.data);
    }
}

static struct tensor row(const struct running *r, int64_t index) {
    const struct tensor first = tensor_1d(r->rows.data, r->rows.dtype, r->rows.shape[1]);
    return tensor_1d((char *)first.data + (size_t)index * tensor_size_bytes(&first), first.dtype,
                     first.shape[0]);
}

void running_begin(struct running *r, int32_t part_count) {
    r->own_count = part_count;
    r->part = -1;
}

void running_part(struct running *r) {
    const int64_t rank = r->comm != NULL ? comm_rank(r->comm) : 0;
    r->part++;
    params_redirect_buffers(r->params, row(r, rank * r->own_count + r->part).data);
}

enum status running_end(struct running *r, struct error *err) {
    const int64_t count = running_rows(r->comm, r->own_count);
    const struct tensor one = row(r, 0);
    params_redirect_buffers(r->params, NULL);
    if (count > r->own_count) {
        const size_t own_bytes = (size_t)r->own_count * tensor_size_bytes(&one);
        TRY(comm_device_gather(r->comm, r->dev, r->rows.data,
                               row(r, (int64_t)comm_rank(r->comm) * r->own_count).data, own_bytes,
                               err));
    }
    const struct tensor values = params_buffers(r->params);
    for (int64_t i = 0; i < count && values.shape[0] > 0; i++) {
        const struct tensor part = row(r, i);
        const struct add difference = {.out = part, .in = values, .alpha = -1.0f};
        const struct add move = {.out = values, .in = part, .alpha = momentum};
        TRY(r->dev->ops->add(r->dev, &difference, err));
        TRY(r->dev->ops->add(r->dev, &move, err));
    }
    return STATUS_OK;
}
