/*
 * sample_state: an array per column, indexed by id / W, and the window: one block of words for all
 * columns, u64 columns first (so that each is aligned), each of `count` entries:
 *
 *   | u64 column ... | u64 column ... | f32 column ... | f32 column ... |
 *
 * Each rank writes the entries that it holds and zeros elsewhere; the sum over ranks is the
 * complete window.
 */
#include "train/state/sample_state.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"
#include "formats/base/host_memory.h"
#include "kernels/device_loss.h"
#include "train/comm/comm.h"

struct column {
    char name[SAMPLE_STATE_NAME_BYTES];
    enum sample_state_kind kind;
    float initial;       /* f32 */
    size_t window_bytes; /* bytes per id of the columns before this one in the window */
    void *values;        /* (held count) of float or uint64_t */
    void *on_device;     /* the kernels' address; NULL: not placed */
};

struct window {
    int64_t max_count, count; /* of ids */
    size_t entry_bytes;       /* of one id, in all columns */
    void *data;               /* (count) entries of one column after another */
    /* (held count) the batch's ids that this rank holds: their positions in the batch and in
     * columns. */
    int64_t held_count;
    int64_t *places;
    uint64_t *entries;
    double *of_ranks;   /* (world), of sample_state_largest */
    struct error fault; /* its failure in this batch */
};

struct sample_state {
    uint64_t id_space_count;
    struct comm *comm; /* NULL: one rank */
    uint64_t rank, world;
    uint64_t held_count; /* ids of this rank */
    int32_t column_count;
    struct device *dev; /* NULL: on the host only */
    enum sample_state_place place;
    struct column columns[SAMPLE_STATE_MAX_COLUMNS];
    struct window window;
};

static size_t entry_bytes(enum sample_state_kind kind) {
    return kind == SAMPLE_STATE_F32 ? sizeof(float) : sizeof(uint64_t);
}

enum status sample_state_create(struct sample_state **out,
                                uint64_t id_space_count,
                                struct comm *comm,
                                struct error *err) {
    REQUIRE(out != NULL && id_space_count > 0);
    *out = NULL;
    struct sample_state *s = calloc(1, sizeof *s);
    TRY_MEMORY(s != NULL, err, "sample state: out of memory");
    s->id_space_count = id_space_count;
    s->comm = comm;
    s->rank = comm != NULL ? (uint64_t)comm_rank(comm) : 0;
    s->world = comm != NULL ? (uint64_t)comm_world(comm) : 1;
    s->held_count = id_space_count / s->world + (s->rank < id_space_count % s->world ? 1 : 0);
    *out = s;
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
            host_memory_default().release(NULL, c->values);
        }
    }
    free(s->window.of_ranks);
    free(s->window.data);
    free(s->window.places);
    free(s->window.entries);
    free(s);
}

enum status sample_state_add(struct sample_state *s,
                             const char *name,
                             enum sample_state_kind kind,
                             float initial,
                             int32_t *out_column,
                             struct error *err) {
    REQUIRE(s != NULL && name != NULL && out_column != NULL && s->window.data == NULL &&
            strlen(name) < SAMPLE_STATE_NAME_BYTES);
    FAIL_IF(sample_state_find(s, name) >= 0, err, STATUS_EXISTS,
            "sample state: column %s is there already", name);
    FAIL_IF(s->column_count == SAMPLE_STATE_MAX_COLUMNS, err, STATUS_LIMIT,
            "sample state: more than %d columns", SAMPLE_STATE_MAX_COLUMNS);
    size_t count;
    size_t size_bytes;
    void *values = NULL;
    if (checked_size(s->held_count, &count) &&
        checked_mul_size(count, entry_bytes(kind), &size_bytes)) {
        /* Large pages: steps read and write it at random. */
        values = host_memory_default().alloc(NULL, size_bytes);
    }
    TRY_MEMORY(values != NULL, err, "sample state: no memory for column %s of %llu ids", name,
               (unsigned long long)s->held_count);
    struct column *c = &s->columns[ *out_column = s->column_count++];
    memcpy(c->name, name, strlen(name) + 1);
    c->kind = kind;
    c->initial = initial;
    c->values = values;
    for (size_t i = 0; i < count; i++) {
        if (kind == SAMPLE_STATE_F32) {
            ((float *)values)[i] = initial;
        } else {
            ((uint64_t *)values)[i] = kind == SAMPLE_STATE_COUNT ? 0 : SAMPLE_STATE_NO_ID;
        }
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

struct comm *sample_state_comm(const struct sample_state *s) {
    return s->comm;
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

float sample_state_initial(const struct sample_state *s, int32_t column) {
    return s->columns[column].initial;
}

enum sample_state_kind sample_state_kind(const struct sample_state *s, int32_t column) {
    return s->columns[column].kind;
}

size_t sample_state_bytes(const struct sample_state *s) {
    size_t sum = 0;
    for (int32_t i = 0; i < s->column_count; i++) {
        sum += (size_t)s->held_count * entry_bytes(s->columns[i].kind);
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
    *size_bytes = (size_t)s->held_count * entry_bytes(s->columns[column].kind);
    return s->columns[column].values;
}

/* ---- columns on a device ---- */

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
            host_memory_default().release(NULL, before);
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

/* ---- the window ---- */

enum status sample_state_reserve(struct sample_state *s, int64_t max_count, struct error *err) {
    REQUIRE(s != NULL && max_count > 0 && s->window.data == NULL);
    struct window *w = &s->window;
    for (int wide = 1; wide >= 0; wide--) {
        for (int32_t i = 0; i < s->column_count; i++) {
            struct column *c = &s->columns[i];
            if ((c->kind != SAMPLE_STATE_F32) == wide) {
                c->window_bytes = w->entry_bytes;
                w->entry_bytes += entry_bytes(c->kind);
            }
        }
    }
    w->max_count = max_count;
    w->data = calloc((size_t)max_count, w->entry_bytes + 1);
    w->places = calloc((size_t)max_count, sizeof *w->places);
    w->entries = calloc((size_t)max_count, sizeof *w->entries);
    w->of_ranks = calloc((size_t)s->world, sizeof *w->of_ranks);
    return w->data != NULL && w->places != NULL && w->entries != NULL && w->of_ranks != NULL
               ? STATUS_OK
               : error_set(err, STATUS_NOMEM, "sample state: no memory for a batch of %lld",
                           (long long)max_count);
}

static void *window_of(const struct sample_state *s, int32_t column) {
    return (char *)s->window.data + s->columns[column].window_bytes * (size_t)s->window.count;
}

float *sample_state_window(const struct sample_state *s, int32_t column) {
    assert(s->columns[column].kind == SAMPLE_STATE_F32);
    return window_of(s, column);
}

uint64_t *sample_state_window_u64(const struct sample_state *s, int32_t column) {
    assert(s->columns[column].kind != SAMPLE_STATE_F32);
    return window_of(s, column);
}

/* Copies the batch's entries that this rank holds from the column to the window, or back. */
static void move_held(const struct sample_state *s, int32_t column, bool back) {
    const struct window *w = &s->window;
    const size_t size = entry_bytes(s->columns[column].kind);
    char *in_window = window_of(s, column);
    char *in_column = s->columns[column].values;
    for (int64_t i = 0; i < w->held_count; i++) {
        char *place = in_window + (size_t)w->places[i] * size;
        char *entry = in_column + w->entries[i] * size;
        memcpy(back ? entry : place, back ? place : entry, size);
    }
}

enum status sample_state_begin_batch(struct sample_state *s,
                                     const uint64_t *ids,
                                     int64_t count,
                                     struct error *err) {
    REQUIRE(s != NULL && ids != NULL && count >= 0 && count <= s->window.max_count);
    struct window *w = &s->window;
    w->count = count;
    w->held_count = 0;
    w->fault.status = STATUS_OK;
    for (int64_t i = 0; i < count; i++) {
        w->places[w->held_count] = i;
        w->entries[w->held_count] = ids[i] / s->world;
        w->held_count += ids[i] % s->world == s->rank ? 1 : 0;
    }
    const size_t size_bytes = w->entry_bytes * (size_t)count;
    if (w->held_count < count) {
        memset(w->data, 0, size_bytes);
    }
    for (int32_t i = 0; i < s->column_count; i++) {
        move_held(s, i, false);
    }
    return s->world > 1
               ? comm_merge(s->comm, w->data, (int64_t)(size_bytes / sizeof(uint32_t)), err)
               : STATUS_OK;
}

double sample_state_largest(struct sample_state *s, int32_t column) {
    move_held(s, column, true);
    const float *values = sample_state_column(s, column);
    double largest = -HUGE_VAL;
    for (uint64_t i = 0; i < s->held_count; i++) {
        largest = fmax(largest, (double)values[i]);
    }
    if (s->world > 1) {
        double *own = &s->window.of_ranks[s->rank];
        *own = largest;
        struct error *fault = &s->window.fault;
        fault->status = comm_gather(s->comm, s->window.of_ranks, own, sizeof *own, fault);
        if (fault->status != STATUS_OK) {
            return -HUGE_VAL;
        }
        for (uint64_t r = 0; r < s->world; r++) {
            largest = fmax(largest, s->window.of_ranks[r]);
        }
    }
    return largest;
}

enum status sample_state_end_batch(struct sample_state *s, struct error *err) {
    REQUIRE(s != NULL);
    FAIL_IF(s->window.fault.status != STATUS_OK, err, s->window.fault.status, "%s",
            s->window.fault.text);
    for (int32_t i = 0; i < s->column_count; i++) {
        move_held(s, i, true);
    }
    s->window.held_count = 0;
    return STATUS_OK;
}

/* ---- whole columns, in id order ---- */

/* Entries per rank in a piece. */
static uint64_t piece_share(const struct sample_state *s) {
    const uint64_t most = (s->id_space_count + s->world - 1) / s->world;
    const uint64_t share = SAMPLE_STATE_PIECE_IDS / s->world;
    return share < most ? share : most;
}

/* Twice: by rank, and by id. */
size_t sample_state_piece_bytes(const struct sample_state *s) {
    return s->world > 1 ? (size_t)(2 * piece_share(s) * s->world) * sizeof(uint64_t) : 0;
}

/* out (count) = of_ranks (world, share), transposed. */
static void order_by_id(const struct sample_state *s,
                        size_t size,
                        char *out,
                        const char *of_ranks,
                        uint64_t share,
                        uint64_t count) {
    for (uint64_t i = 0, entry = 0; i < count; entry++) {
        for (uint64_t r = 0; r < s->world && i < count; r++, i++) {
            memcpy(out + i * size, of_ranks + (r * share + entry) * size, size);
        }
    }
}

enum status sample_state_piece(const struct sample_state *s,
                               int32_t column,
                               uint64_t first,
                               void *room,
                               const void **values,
                               uint64_t *count,
                               struct error *err) {
    REQUIRE(s != NULL && values != NULL && count != NULL && first < s->id_space_count);
    const size_t size = entry_bytes(s->columns[column].kind);
    const char *held = s->columns[column].values;
    *count = s->id_space_count - first;
    *values = held + first * size;
    if (s->world == 1) {
        return STATUS_OK;
    }
    const uint64_t share = piece_share(s);
    REQUIRE(room != NULL && first % (share * s->world) == 0);
    *count = *count < share * s->world ? *count : share * s->world;
    const uint64_t from = first / s->world;
    const uint64_t left = s->held_count - from; /* share or share - 1 in the last piece */
    char *of_ranks = room;
    char *by_id = of_ranks + share * s->world * size;
    char *own = of_ranks + s->rank * share * size;
    memset(own, 0, share * size);
    memcpy(own, held + from * size, (left < share ? left : share) * size);
    TRY(comm_gather(s->comm, of_ranks, own, share * size, err));
    order_by_id(s, size, by_id, of_ranks, share, *count);
    *values = by_id;
    return STATUS_OK;
}

void sample_state_put(struct sample_state *s,
                      int32_t column,
                      uint64_t first,
                      const void *values,
                      uint64_t count) {
    const size_t size = entry_bytes(s->columns[column].kind);
    const char *from = values;
    char *to = s->columns[column].values;
    if (s->world == 1) {
        memcpy(to + first * size, from, count * size);
        return;
    }
    uint64_t i = (s->rank + s->world - first % s->world) % s->world;
    for (; i < count; i += s->world) {
        memcpy(to + (first + i) / s->world * size, from + i * size, size);
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

/* Doubles the bins' width: each is the sum of two old ones. */
static void widen_bins(struct sample_state_summary *sum) {
    const double first = floor(sum->first / 2.0);
    uint64_t bins[SAMPLE_STATE_BINS] = {0};
    for (size_t i = 0; i < SAMPLE_STATE_BINS; i++) {
        bins[(size_t)(floor((sum->first + (double)i) / 2.0) - first)] += sum->bins[i];
    }
    memcpy(sum->bins, bins, sizeof bins);
    sum->first = first;
    sum->width *= 2.0;
}

/* Moves the bins up by `shift`, or widens them if the upper ones are in use. */
static void extend_below(struct sample_state_summary *sum, double shift) {
    size_t used = SAMPLE_STATE_BINS;
    while (used > 0 && sum->bins[used - 1] == 0) {
        used--;
    }
    if ((double)used + shift > SAMPLE_STATE_BINS) {
        widen_bins(sum);
        return;
    }
    memmove(sum->bins + (size_t)shift, sum->bins, used * sizeof *sum->bins);
    memset(sum->bins, 0, (size_t)shift * sizeof *sum->bins);
    sum->first -= shift;
}

static void add_to_bins(struct sample_state_summary *sum, double v, double least_width) {
    if (!isfinite(v)) {
        return;
    }
    if (sum->width == 0.0) {
        sum->width = least_width;
        sum->first = floor(v / sum->width);
    }
    double at;
    while ((at = floor(v / sum->width) - sum->first) < 0.0 || at >= SAMPLE_STATE_BINS) {
        if (at < 0.0) {
            extend_below(sum, -at);
        } else {
            widen_bins(sum);
        }
    }
    sum->bins[(size_t)at]++;
}

void sample_state_summarise(struct sample_state_summary *sum,
                            const void *values,
                            enum sample_state_kind kind,
                            uint64_t count) {
    const double least_width = kind == SAMPLE_STATE_F32 ? ldexp(1.0, -40) : 1.0;
    for (uint64_t i = 0; i < count; i++) {
        double v;
        if (!sample_state_entry(values, kind, i, &v)) {
            continue;
        }
        add_to_bins(sum, v, least_width);
        const bool first = sum->visited_count++ == 0;
        sum->at_min_count = first || v < sum->min ? 1 : sum->at_min_count + (v == sum->min);
        sum->at_max_count = first || v > sum->max ? 1 : sum->at_max_count + (v == sum->max);
        sum->min = first || v < sum->min ? v : sum->min;
        sum->max = first || v > sum->max ? v : sum->max;
        sum->origin = first ? v : sum->origin;
        sum->squares += (v - sum->origin) * (v - sum->origin);
        sum->sum += v;
    }
    const double n = sum->visited_count > 0 ? (double)sum->visited_count : 1.0;
    const double mean = sum->sum / n;
    sum->mean = mean;
    sum->deviation =
        sqrt(fmax(0.0, sum->squares / n - (mean - sum->origin) * (mean - sum->origin)));
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
    REQUIRE(to->column_count == from->column_count && from->world == 1);
    uint64_t *new_ids = malloc((size_t)from->id_space_count * sizeof *new_ids);
    TRY_MEMORY(new_ids != NULL, err, "sample state: no memory to renumber %llu ids",
               (unsigned long long)from->id_space_count);
    renumber(to, from, old_ids, new_ids);
    for (int32_t k = 0; k < to->column_count; k++) {
        const struct column *c = &to->columns[k];
        const struct column *old = &from->columns[k];
        assert(c->kind == old->kind && strcmp(c->name, old->name) == 0);
        const size_t size = entry_bytes(c->kind);
        for (uint64_t i = 0; i < to->held_count; i++) {
            const uint64_t old_id = old_ids[i * to->world + to->rank];
            if (old_id == SAMPLE_STATE_NO_ID) {
                continue;
            }
            memcpy((char *)c->values + i * size, (const char *)old->values + old_id * size, size);
            uint64_t *id = c->kind == SAMPLE_STATE_ID ? (uint64_t *)c->values + i : NULL;
            if (id != NULL && *id != SAMPLE_STATE_NO_ID) {
                *id = *id < from->id_space_count ? new_ids[*id] : SAMPLE_STATE_NO_ID;
            }
        }
    }
    free(new_ids);
    return STATUS_OK;
}
