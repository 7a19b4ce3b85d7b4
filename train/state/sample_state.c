/*
 * sample_state: an array per column, indexed by id.
 */
#include "train/state/sample_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"
#include "kernels/device_loss.h"

struct column {
    char name[SAMPLE_STATE_NAME_BYTES];
    enum sample_state_kind kind;
    void *values;    /* (id space) of float or uint64_t */
    void *on_device; /* the same for kernels; NULL: not placed */
};

struct sample_state {
    uint64_t id_space_count;
    int32_t column_count;
    struct device *dev; /* NULL: on the host alone */
    enum sample_state_place place;
    struct column columns[SAMPLE_STATE_MAX_COLUMNS];
};

static size_t entry_bytes(enum sample_state_kind kind) {
    return kind == SAMPLE_STATE_F32 ? sizeof(float) : sizeof(uint64_t);
}

enum status
sample_state_create(struct sample_state **out, uint64_t id_space_count, struct error *err) {
    REQUIRE(out != NULL && id_space_count > 0);
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return error_set(err, STATUS_NOMEM, "sample state: out of memory");
    }
    (*out)->id_space_count = id_space_count;
    return STATUS_OK;
}

static enum device_memory memory_of(enum sample_state_place place) {
    return place == SAMPLE_STATE_DEVICE ? DEVICE_MEMORY_OWN : DEVICE_MEMORY_PINNED;
}

static void release(struct device *dev, enum sample_state_place place, void *data, void *host) {
    dev->losses->free(dev, memory_of(place), data, place == SAMPLE_STATE_PINNED ? host : NULL);
}

void sample_state_destroy(struct sample_state *s) {
    if (s == NULL) {
        return;
    }
    for (int32_t i = 0; i < s->column_count; i++) {
        struct column *c = &s->columns[i];
        if (c->on_device != NULL) {
            release(s->dev, s->place, c->on_device, c->values);
        }
        if (c->on_device == NULL || s->place == SAMPLE_STATE_DEVICE) {
            free(c->values);
        }
    }
    free(s);
}

/* A column whose entries are not set yet. */
static enum status add_column(struct sample_state *s,
                              const char *name,
                              enum sample_state_kind kind,
                              int32_t *out_column,
                              struct error *err) {
    if (sample_state_find(s, name) >= 0) {
        return error_set(err, STATUS_EXISTS, "sample state: column %s is there already", name);
    }
    if (s->column_count == SAMPLE_STATE_MAX_COLUMNS) {
        return error_set(err, STATUS_LIMIT, "sample state: more than %d columns",
                         SAMPLE_STATE_MAX_COLUMNS);
    }
    size_t count;
    size_t size_bytes;
    void *values = NULL;
    if (checked_size(s->id_space_count, &count) &&
        checked_mul_size(count, entry_bytes(kind), &size_bytes)) {
        values = malloc(size_bytes);
    }
    if (values == NULL) {
        return error_set(err, STATUS_NOMEM, "sample state: no memory for column %s of %llu ids",
                         name, (unsigned long long)s->id_space_count);
    }
    struct column *c = &s->columns[ *out_column = s->column_count++];
    memcpy(c->name, name, strlen(name) + 1);
    c->kind = kind;
    c->values = values;
    return STATUS_OK;
}

enum status sample_state_add(struct sample_state *s,
                             const char *name,
                             float initial,
                             int32_t *out_column,
                             struct error *err) {
    REQUIRE(s != NULL && name != NULL && out_column != NULL &&
            strlen(name) < SAMPLE_STATE_NAME_BYTES);
    TRY(add_column(s, name, SAMPLE_STATE_F32, out_column, err));
    float *values = sample_state_column(s, *out_column);
    for (uint64_t i = 0; i < s->id_space_count; i++) {
        values[i] = initial;
    }
    return STATUS_OK;
}

enum status sample_state_add_u64(struct sample_state *s,
                                 const char *name,
                                 enum sample_state_kind kind,
                                 int32_t *out_column,
                                 struct error *err) {
    REQUIRE(s != NULL && name != NULL && out_column != NULL &&
            strlen(name) < SAMPLE_STATE_NAME_BYTES && kind != SAMPLE_STATE_F32);
    TRY(add_column(s, name, kind, out_column, err));
    uint64_t *values = sample_state_column_u64(s, *out_column);
    for (uint64_t i = 0; i < s->id_space_count; i++) {
        values[i] = kind == SAMPLE_STATE_COUNT ? 0 : SAMPLE_STATE_NO_ID;
    }
    return STATUS_OK;
}

int32_t sample_state_find(const struct sample_state *s, const char *name) {
    for (int32_t i = 0; i < s->column_count; i++) {
        if (strcmp(s->columns[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

uint64_t sample_state_id_space(const struct sample_state *s) {
    return s->id_space_count;
}

int32_t sample_state_count(const struct sample_state *s) {
    return s->column_count;
}

const char *sample_state_name(const struct sample_state *s, int32_t column) {
    return s->columns[column].name;
}

enum sample_state_kind sample_state_kind(const struct sample_state *s, int32_t column) {
    return s->columns[column].kind;
}

size_t sample_state_bytes(const struct sample_state *s) {
    size_t sum = 0;
    for (int32_t i = 0; i < s->column_count; i++) {
        sum += (size_t)s->id_space_count * entry_bytes(s->columns[i].kind);
    }
    return sum;
}

float *sample_state_column(const struct sample_state *s, int32_t column) {
    assert(s->columns[column].kind == SAMPLE_STATE_F32);
    return s->columns[column].values;
}

uint64_t *sample_state_column_u64(const struct sample_state *s, int32_t column) {
    assert(s->columns[column].kind != SAMPLE_STATE_F32);
    return s->columns[column].values;
}

void *sample_state_values(const struct sample_state *s, int32_t column, size_t *size_bytes) {
    *size_bytes = (size_t)s->id_space_count * entry_bytes(s->columns[column].kind);
    return s->columns[column].values;
}

/* ---- columns that kernels reach ---- */

enum status sample_state_choose_place(enum sample_state_place *out,
                                      const struct sample_state *s,
                                      struct device *dev,
                                      struct error *err) {
    size_t free_bytes;
    REQUIRE(out != NULL && s != NULL && dev != NULL && dev->losses != NULL);
    TRY(dev->losses->free_bytes(dev, &free_bytes, err));
    *out = sample_state_bytes(s) <= free_bytes / 10 ? SAMPLE_STATE_DEVICE : SAMPLE_STATE_PINNED;
    return STATUS_OK;
}

enum status sample_state_place(struct sample_state *s,
                               struct device *dev,
                               enum sample_state_place place,
                               struct error *err) {
    REQUIRE(s != NULL && dev != NULL && dev->losses != NULL && place != SAMPLE_STATE_HOST);
    REQUIRE(s->dev == NULL);
    void *data[SAMPLE_STATE_MAX_COLUMNS] = {0};
    void *host[SAMPLE_STATE_MAX_COLUMNS] = {0};
    for (int32_t i = 0; i < s->column_count; i++) {
        size_t size_bytes;
        (void)sample_state_values(s, i, &size_bytes);
        const enum status got =
            dev->losses->alloc(dev, memory_of(place), size_bytes, &data[i], &host[i], err);
        if (got != STATUS_OK) {
            while (i-- > 0) {
                release(dev, place, data[i], host[i]);
            }
            return got;
        }
    }
    for (int32_t i = 0; i < s->column_count; i++) {
        struct column *c = &s->columns[i];
        c->on_device = data[i];
        if (place == SAMPLE_STATE_PINNED) {
            size_t size_bytes;
            void *before = sample_state_values(s, i, &size_bytes);
            memcpy(host[i], before, size_bytes);
            c->values = host[i];
            free(before);
        }
    }
    s->dev = dev;
    s->place = place;
    return sample_state_send(s, err);
}

enum sample_state_place sample_state_where(const struct sample_state *s) {
    return s->place;
}

void *sample_state_on_device(const struct sample_state *s, int32_t column) {
    return s->columns[column].on_device;
}

enum status sample_state_send(struct sample_state *s, struct error *err) {
    for (int32_t i = 0; i < s->column_count && s->place == SAMPLE_STATE_DEVICE; i++) {
        size_t size_bytes;
        const void *values = sample_state_values(s, i, &size_bytes);
        TRY(s->dev->ops->upload(s->dev, s->columns[i].on_device, values, size_bytes, err));
    }
    return s->dev != NULL ? s->dev->ops->sync(s->dev, err) : STATUS_OK;
}

enum status sample_state_fetch(struct sample_state *s, struct error *err) {
    for (int32_t i = 0; i < s->column_count && s->place == SAMPLE_STATE_DEVICE; i++) {
        size_t size_bytes;
        void *values = sample_state_values(s, i, &size_bytes);
        TRY(s->dev->ops->download(s->dev, values, s->columns[i].on_device, size_bytes, err));
    }
    return s->dev != NULL ? s->dev->ops->sync(s->dev, err) : STATUS_OK;
}

/* ---- columns on the host ---- */

void sample_state_gather(const struct sample_state *s,
                         int32_t column,
                         float *values,
                         const uint64_t *ids,
                         int64_t count) {
    const float *from = sample_state_column(s, column);
    for (int64_t i = 0; i < count; i++) {
        values[i] = from[ids[i]];
    }
}

void sample_state_scatter(struct sample_state *s,
                          int32_t column,
                          const float *values,
                          const uint64_t *ids,
                          int64_t count) {
    float *to = sample_state_column(s, column);
    for (int64_t i = count - 1; i >= 0; i--) {
        to[ids[i]] = values[i];
    }
}

void sample_state_gather_u64(const struct sample_state *s,
                             int32_t column,
                             uint64_t *values,
                             const uint64_t *ids,
                             int64_t count) {
    const uint64_t *from = sample_state_column_u64(s, column);
    for (int64_t i = 0; i < count; i++) {
        values[i] = from[ids[i]];
    }
}

void sample_state_scatter_u64(struct sample_state *s,
                              int32_t column,
                              const uint64_t *values,
                              const uint64_t *ids,
                              int64_t count) {
    uint64_t *to = sample_state_column_u64(s, column);
    for (int64_t i = count - 1; i >= 0; i--) {
        to[ids[i]] = values[i];
    }
}

void sample_state_count_visits(struct sample_state *s,
                               int32_t column,
                               const uint64_t *ids,
                               int64_t count) {
    assert(s->columns[column].kind == SAMPLE_STATE_COUNT);
    uint64_t *counts = sample_state_column_u64(s, column);
    for (int64_t i = 0; i < count; i++) {
        counts[ids[i]]++;
    }
}

bool sample_state_entry(const void *values, enum sample_state_kind kind, uint64_t i, double *out) {
    if (kind == SAMPLE_STATE_F32) {
        const float value = ((const float *)values)[i];
        *out = (double)value;
        return sample_state_visited(value);
    }
    const uint64_t value = ((const uint64_t *)values)[i];
    *out = (double)value;
    return value != (kind == SAMPLE_STATE_COUNT ? 0 : SAMPLE_STATE_NO_ID);
}

struct sample_state_summary
sample_state_summarise(const void *values, enum sample_state_kind kind, uint64_t count) {
    struct sample_state_summary s = {0};
    double sum = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        double v;
        if (!sample_state_entry(values, kind, i, &v)) {
            continue;
        }
        s.min = s.visited_count == 0 || v < s.min ? v : s.min;
        s.max = s.visited_count == 0 || v > s.max ? v : s.max;
        sum += v;
        s.visited_count++;
    }
    s.mean = s.visited_count > 0 ? sum / (double)s.visited_count : 0.0;
    return s;
}

/* ---- another dataset ---- */

/* new_ids (id space of `from`): the first new id of each old one. */
static void renumber(const struct sample_state *to,
                     const struct sample_state *from,
                     const uint64_t *old_ids,
                     uint64_t *new_ids) {
    for (uint64_t i = 0; i < from->id_space_count; i++) {
        new_ids[i] = SAMPLE_STATE_NO_ID;
    }
    for (uint64_t i = to->id_space_count; i-- > 0;) {
        if (old_ids[i] != SAMPLE_STATE_NO_ID) {
            new_ids[old_ids[i]] = i;
        }
    }
}

enum status sample_state_remap(struct sample_state *to,
                               const struct sample_state *from,
                               const uint64_t *old_ids,
                               struct error *err) {
    REQUIRE(to != NULL && from != NULL && old_ids != NULL);
    REQUIRE(to->column_count == from->column_count);
    uint64_t *new_ids = malloc((size_t)from->id_space_count * sizeof *new_ids);
    if (new_ids == NULL) {
        return error_set(err, STATUS_NOMEM, "sample state: no memory to renumber %llu ids",
                         (unsigned long long)from->id_space_count);
    }
    renumber(to, from, old_ids, new_ids);
    for (int32_t k = 0; k < to->column_count; k++) {
        const struct column *c = &to->columns[k];
        const struct column *old = &from->columns[k];
        assert(c->kind == old->kind && strcmp(c->name, old->name) == 0);
        const size_t size = entry_bytes(c->kind);
        for (uint64_t i = 0; i < to->id_space_count; i++) {
            if (old_ids[i] == SAMPLE_STATE_NO_ID) {
                continue;
            }
            memcpy((char *)c->values + i * size, (const char *)old->values + old_ids[i] * size,
                   size);
            uint64_t *id = c->kind == SAMPLE_STATE_ID ? (uint64_t *)c->values + i : NULL;
            if (id != NULL && *id != SAMPLE_STATE_NO_ID) {
                *id = *id < from->id_space_count ? new_ids[*id] : SAMPLE_STATE_NO_ID;
            }
        }
    }
    free(new_ids);
    return STATUS_OK;
}
