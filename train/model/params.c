/*
 * Every tensor belongs to one of five classes: decayed, undecayed, buffer, and locked tensors that
 * would be decayed or undecayed. In a class tensors are in reverse order of addition, and the
 * classes follow each other in the value block:
 *
 *   value  | decayed | undecayed | buffers | locked |      grad, m, v  | decayed | undecayed |
 *
 * Working copies exist for the two decayed classes, which have all matrices.
 *
 * An offset is counted in elements from the start of its class, so one offset serves all four
 * slots.
 */
#include "train/model/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"

enum {
    CLASS_DECAYED,
    CLASS_UNDECAYED,
    CLASS_BUFFER,
    CLASS_LOCKED, /* and the class: */
    CLASS_LOCKED_DECAYED = CLASS_LOCKED + CLASS_DECAYED,
    CLASS_LOCKED_UNDECAYED = CLASS_LOCKED + CLASS_UNDECAYED,
    CLASS_COUNT
};
enum { SLOT_COUNT = 5, BLOCK_ALIGN_BYTES = 64 };

struct entry {
    char name[PARAM_MAX_NAME_BYTES];
    struct param_spec spec; /* its names are not used */
    int32_t class, ndim;
    float rate;
    int64_t count;
    int64_t offset; /* elements from the start of the class; set by params_alloc */
};

enum { WORKING_BYTES = 2 }; /* of a BF16 number */

struct params {
    struct entry *entries;
    int32_t count, capacity;
    char prefix[PARAM_MAX_NAME_BYTES];

    struct device *dev; /* NULL before params_alloc */
    enum dtype dtype;   /* of the blocks */
    bool training;
    int32_t moments;
    bool averages;
    int64_t class_count[CLASS_COUNT]; /* elements, with the gaps */
    uint8_t *block[SLOT_COUNT];
    uint8_t *gradients; /* block of params_grad: block[PARAM_GRAD], or the caller's */
    uint8_t *buffers;   /* the caller's block of running statistics; NULL: the table's own */
    uint8_t *working;   /* BF16; NULL: none */
    enum dtype working_dtype;
};

enum status params_create(struct params **out, struct error *err) {
    *out = calloc(1, sizeof(**out));
    TRY_MEMORY(*out != NULL, err, "out of memory for the parameter table");
    (*out)->moments = 2;
    return STATUS_OK;
}

void params_set_moments(struct params *p, int32_t count) {
    p->moments = count;
}

int32_t params_moments(const struct params *p) {
    return p->moments;
}

void params_destroy(struct params *p) {
    if (p == NULL) {
        return;
    }
    for (int32_t s = 0; s < SLOT_COUNT && p->dev != NULL; s++) {
        p->dev->ops->free(p->dev, p->block[s]);
    }
    if (p->dev != NULL) {
        p->dev->ops->free(p->dev, p->working);
    }
    free(p->entries);
    free(p);
}

enum status params_set_prefix(struct params *p, const char *prefix, struct error *err) {
    FAIL_IF(strlen(prefix) >= sizeof(p->prefix), err, STATUS_LIMIT,
            "parameter prefix '%.32s...' is too long", prefix);
    strcpy(p->prefix, prefix);
    return STATUS_OK;
}

static bool ends_with(const char *s, const char *suffix) {
    size_t n = strlen(s);
    size_t k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static int32_t class_of(const struct param_spec *spec) {
    if (spec->kind == PARAM_BUFFER) {
        return CLASS_BUFFER;
    }
    const bool vector = spec->shape[0] > 0 && spec->shape[1] == 0;
    const bool bias = strcmp(spec->name, "bias") == 0 || ends_with(spec->name, ".bias");
    return vector || bias ? CLASS_UNDECAYED : CLASS_DECAYED;
}

static bool has_class(const struct params *p, int32_t class) {
    for (int32_t i = 0; i < p->count; i++) {
        if (p->entries[i].class == class) {
            return true;
        }
    }
    return false;
}

static enum status grow(struct params *p, struct error *err) {
    if (p->count < p->capacity) {
        return STATUS_OK;
    }
    int32_t capacity = p->capacity == 0 ? 64 : 2 * p->capacity;
    struct entry *entries = realloc(p->entries, (size_t)capacity * sizeof(*entries));
    TRY_MEMORY(entries != NULL, err, "out of memory for %d parameters", (int)capacity);
    p->entries = entries;
    p->capacity = capacity;
    return STATUS_OK;
}

enum status
params_add(struct params *p, int32_t *index, const struct param_spec *spec, struct error *err) {
    REQUIRE(p->dev == NULL && (!spec->conv || spec->shape[3] > 0));
    REQUIRE(!spec->transposed || (spec->shape[1] > 0 && spec->shape[2] == 0));
    REQUIRE(!spec->adjacent || has_class(p, class_of(spec)));
    TRY(grow(p, err));
    struct entry *e = &p->entries[p->count];
    int n = snprintf(e->name, sizeof(e->name), "%s%s%s%s", p->prefix,
                     spec->module != NULL ? spec->module : "", spec->module != NULL ? "." : "",
                     spec->name);
    FAIL_IF(n < 0 || (size_t)n >= sizeof(e->name), err, STATUS_LIMIT,
            "parameter name '%.60s...' is longer than %d bytes", e->name, PARAM_MAX_NAME_BYTES - 1);
    FAIL_IF(params_find(p, e->name) >= 0, err, STATUS_EXISTS, "parameter '%s' is there already",
            e->name);
    e->spec = *spec;
    e->class = class_of(spec);
    e->rate = 1.0f;
    e->spec.module = e->spec.name = NULL;
    e->count = 1;
    for (e->ndim = 0; e->ndim < TENSOR_MAX_DIMS && spec->shape[e->ndim] != 0; e->ndim++) {
        REQUIRE(spec->shape[e->ndim] > 0);
        e->count *= spec->shape[e->ndim];
    }
    e->offset = 0;
    *index = p->count++;
    return STATUS_OK;
}

void params_keep_average(struct params *p, bool keep) {
    p->averages = keep;
}

bool params_has_average(const struct params *p) {
    return p->averages;
}

/* out = (1 - share) out + share values */
static enum status move_average(struct params *p, double share, struct error *err) {
    int64_t count = 0;
    for (int32_t c = 0; c < CLASS_COUNT; c++) {
        count += p->class_count[c];
    }
    const struct tensor average = tensor_1d(p->block[PARAM_AVERAGE], p->dtype, count);
    const struct add fade = {.out = average, .in = average, .alpha = (float)-share};
    const struct add move = {.out = average,
                             .in = tensor_1d(p->block[PARAM_VALUE], p->dtype, count),
                             .alpha = (float)share};
    TRY(p->dev->ops->add(p->dev, &fade, err));
    return p->dev->ops->add(p->dev, &move, err);
}

enum status params_begin_average(struct params *p, struct error *err) {
    return p->averages ? move_average(p, 1.0, err) : STATUS_OK;
}

enum status params_average(struct params *p, double decay, struct error *err) {
    return p->averages ? move_average(p, 1.0 - decay, err) : STATUS_OK;
}

void params_lock(struct params *p, int32_t index) {
    struct entry *e = &p->entries[index];
    e->class += e->class < CLASS_BUFFER ? CLASS_LOCKED : 0;
    e->spec.kind = e->class >= CLASS_LOCKED ? PARAM_LOCKED : e->spec.kind;
}

void params_set_rate(struct params *p, int32_t index, float rate) {
    p->entries[index].rate = rate;
}

/* Elements of each class, gaps included; before params_alloc also computes each tensor's offset. */
static void place(const struct params *p, enum dtype dtype, int64_t total[CLASS_COUNT]) {
    int64_t align = (int64_t)(BLOCK_ALIGN_BYTES / dtype_size_bytes(dtype));
    memset(total, 0, CLASS_COUNT * sizeof(*total));
    for (int32_t i = p->count - 1; i >= 0; i--) {
        const struct entry *first = &p->entries[i];
        if (first->spec.adjacent) {
            continue; /* placed together with the tensor that it follows */
        }
        int64_t *end = &total[first->class];
        *end = (*end + align - 1) / align * align;
        for (int32_t j = i; j < p->count; j++) {
            struct entry *e = &p->entries[j];
            if (e->class != first->class) {
                continue;
            }
            if (j > i && !e->spec.adjacent) {
                break;
            }
            e->offset = p->dev == NULL ? *end : e->offset;
            *end += e->count;
        }
    }
    for (int32_t c = 0; c < CLASS_COUNT; c++) {
        total[c] = (total[c] + align - 1) / align * align;
    }
}

/* The type of the blocks of a model with `dtype`. */
static enum dtype stored_dtype(enum dtype dtype) {
    return dtype == DTYPE_BF16 ? DTYPE_F32 : dtype;
}

struct params_bytes params_plan(const struct params *p, enum dtype dtype, bool training) {
    int64_t total[CLASS_COUNT];
    const bool working = dtype == DTYPE_BF16;
    dtype = stored_dtype(dtype);
    place(p, dtype, total);
    size_t trained = (size_t)(total[CLASS_DECAYED] + total[CLASS_UNDECAYED]);
    size_t size = dtype_size_bytes(dtype);
    const size_t locked = (size_t)(total[CLASS_LOCKED_DECAYED] + total[CLASS_LOCKED_UNDECAYED]);
    struct params_bytes b = {.value_bytes = (trained + (size_t)total[CLASS_BUFFER] + locked) * size,
                             .buffer_bytes = (size_t)total[CLASS_BUFFER] * size};
    if (training) {
        b.grad_bytes = trained * size;
        b.moments_bytes = (size_t)p->moments * trained * size;
    }
    b.average_bytes = p->averages ? b.value_bytes : 0;
    if (working) {
        b.working_bytes =
            (size_t)(total[CLASS_DECAYED] + total[CLASS_LOCKED_DECAYED]) * WORKING_BYTES;
    }
    return b;
}

enum status params_alloc(struct params *p,
                         struct device *dev,
                         enum dtype dtype,
                         bool training,
                         struct error *err) {
    REQUIRE(p->dev == NULL && (dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16));
    struct params_bytes b = params_plan(p, dtype, training);
    p->working_dtype = dtype;
    dtype = stored_dtype(dtype);
    place(p, dtype, p->class_count);
    p->dev = dev;
    p->dtype = dtype;
    p->training = training;
    size_t sizes[SLOT_COUNT] = {b.value_bytes, b.grad_bytes, b.grad_bytes,
                                p->moments == 2 ? b.grad_bytes : 0, b.average_bytes};
    for (int32_t s = 0; s < SLOT_COUNT; s++) {
        if (sizes[s] > 0) {
            void *block = NULL;
            TRY(dev->ops->alloc(dev, sizes[s], &block, err));
            p->block[s] = block;
        }
    }
    p->gradients = p->block[PARAM_GRAD];
    if (b.working_bytes > 0) {
        void *block = NULL;
        TRY(dev->ops->alloc(dev, b.working_bytes, &block, err));
        p->working = block;
    }
    return STATUS_OK;
}

int32_t params_count(const struct params *p) {
    return p->count;
}

int32_t params_find(const struct params *p, const char *name) {
    for (int32_t i = 0; i < p->count; i++) {
        if (strcmp(p->entries[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

struct param_info params_info(const struct params *p, int32_t index) {
    const struct entry *e = &p->entries[index];
    struct param_info info = {.name = e->name,
                              .ndim = e->ndim,
                              .count = e->count,
                              .kind = e->spec.kind,
                              .decay = e->class == CLASS_DECAYED};
    memcpy(info.shape, e->spec.shape, sizeof(info.shape));
    if (e->spec.conv) {
        info.shape[1] = e->spec.shape[3];
        info.shape[2] = e->spec.shape[1];
        info.shape[3] = e->spec.shape[2];
    } else if (e->spec.transposed) {
        info.shape[0] = e->spec.shape[1];
        info.shape[1] = e->spec.shape[0];
    }
    return info;
}

enum dtype params_dtype(const struct params *p) {
    return p->dtype;
}

int64_t params_element_count(const struct params *p, enum param_kind kind) {
    int64_t n = 0;
    for (int32_t i = 0; i < p->count; i++) {
        n += p->entries[i].spec.kind == kind ? p->entries[i].count : 0;
    }
    return n;
}

/* ---- views ---- */

/* Bytes from the start of a block to that of a class. */
static size_t class_start(const struct params *p, int32_t class) {
    int64_t before = 0;
    for (int32_t c = 0; c < class; c++) {
        before += p->class_count[c];
    }
    return (size_t)before * dtype_size_bytes(p->dtype);
}

static void *entry_in(const struct params *p, const struct entry *e, uint8_t *block) {
    return block + class_start(p, e->class) + (size_t)e->offset * dtype_size_bytes(p->dtype);
}

static void *entry_data(const struct params *p, const struct entry *e, enum param_slot slot) {
    return entry_in(p, e, p->block[slot]);
}

static bool has_working(const struct params *p, const struct entry *e) {
    return p->working != NULL && (e->class == CLASS_DECAYED || e->class == CLASS_LOCKED_DECAYED);
}

static void *working_data(const struct params *p, const struct entry *e) {
    const int64_t before = e->class == CLASS_DECAYED ? 0 : p->class_count[CLASS_DECAYED];
    return p->working + (size_t)(before + e->offset) * WORKING_BYTES;
}

struct tensor params_tensor(const struct params *p, int32_t index) {
    const struct entry *e = &p->entries[index];
    if (has_working(p, e)) {
        return tensor_view(working_data(p, e), p->working_dtype, e->ndim, e->spec.shape);
    }
    void *data = entry_data(p, e, PARAM_VALUE);
    if (e->class == CLASS_BUFFER && p->buffers != NULL) {
        data = p->buffers + (size_t)e->offset * dtype_size_bytes(p->dtype);
    }
    return tensor_view(data, p->dtype, e->ndim, e->spec.shape);
}

struct tensor params_grad(const struct params *p, int32_t index) {
    const struct entry *e = &p->entries[index];
    if (e->class >= CLASS_BUFFER || p->gradients == NULL) {
        return (struct tensor){0};
    }
    return tensor_view(entry_in(p, e, p->gradients), p->dtype, e->ndim, e->spec.shape);
}

struct tensor params_slot(const struct params *p, int32_t index, enum param_slot slot) {
    const struct entry *e = &p->entries[index];
    return tensor_view(entry_data(p, e, slot), p->dtype, e->ndim, e->spec.shape);
}

void params_redirect_buffers(struct params *p, void *block) {
    p->buffers = block;
}

float params_momentum(const struct params *p) {
    return p->buffers != NULL ? 1.0f : 0.1f;
}

struct tensor params_buffers(const struct params *p) {
    return tensor_1d(p->block[PARAM_VALUE] + class_start(p, CLASS_BUFFER), p->dtype,
                     p->class_count[CLASS_BUFFER]);
}

void params_redirect_gradients(struct params *p, void *block) {
    p->gradients = block != NULL ? block : p->block[PARAM_GRAD];
}

int64_t params_decayed_prefix(const struct params *p, int32_t index) {
    int64_t end = 0;
    for (int32_t i = index; i < p->count; i++) {
        const struct entry *e = &p->entries[i];
        if (e->class == CLASS_DECAYED && e->offset + e->count > end) {
            end = e->offset + e->count;
        }
    }
    return end;
}

struct tensor params_range(const struct params *p, enum param_slot slot, bool decayed) {
    int32_t class = decayed ? CLASS_DECAYED : CLASS_UNDECAYED;
    return tensor_1d(p->block[slot] + class_start(p, class), p->dtype, p->class_count[class]);
}

bool params_same_rate(const struct params *p,
                      bool decayed,
                      int64_t from,
                      int64_t *end,
                      float *rate) {
    const int32_t class = decayed ? CLASS_DECAYED : CLASS_UNDECAYED;
    int64_t last = -1;
    for (int32_t i = 0; i < p->count; i++) { /* of the tensor at `from` */
        const struct entry *e = &p->entries[i];
        if (e->class == class && e->offset <= from && e->offset > last) {
            last = e->offset;
            *rate = e->rate;
        }
    }
    *end = p->class_count[class];
    for (int32_t i = 0; i < p->count; i++) {
        const struct entry *e = &p->entries[i];
        if (e->class == class && e->offset > from && e->offset < *end && e->rate != *rate) {
            *end = e->offset;
        }
    }
    return from < *end;
}

struct tensor params_working(const struct params *p, bool decayed) {
    if (p->working == NULL || !decayed) {
        return (struct tensor){0};
    }
    return tensor_1d(p->working, p->working_dtype, p->class_count[CLASS_DECAYED]);
}

/* Updates the working copy of one tensor, if it has one. */
static enum status renew_working(struct params *p, const struct entry *e, struct error *err) {
    if (!has_working(p, e)) {
        return STATUS_OK;
    }
    const struct cast cast = {.out = tensor_1d(working_data(p, e), p->working_dtype, e->count),
                              .in = tensor_1d(entry_data(p, e, PARAM_VALUE), DTYPE_F32, e->count)};
    return p->dev->ops->cast(p->dev, &cast, err);
}

/* Elements copied from or to the host at a time. */
enum { PIECE = 1 << 20 };

/* ---- initial values ---- */

static double draw(struct rng *r, const struct param_spec *spec) {
    switch (spec->init) {
    case PARAM_INIT_ONES:
        return 1.0;
    case PARAM_INIT_NORMAL:
        return spec->init_scale * rng_normal(r);
    case PARAM_INIT_UNIFORM:
        return spec->init_scale * (2.0 * rng_uniform(r) - 1.0);
    case PARAM_INIT_ZEROS:
    default:
        return 0.0;
    }
}

/* The next `count` values of a tensor. */
static void fill_piece(void *host, struct rng *r, const struct entry *e, int64_t count, bool f64) {
    for (int64_t k = 0; k < count; k++) {
        const double value = draw(r, &e->spec);
        if (f64) {
            ((double *)host)[k] = value;
        } else {
            ((float *)host)[k] = (float)value;
        }
    }
}

/* Values are generated in memory order, through `host` of PIECE elements. */
static enum status
init_entry(struct params *p, int32_t index, uint64_t seed, void *host, struct error *err) {
    const struct entry *e = &p->entries[index];
    const size_t size = dtype_size_bytes(p->dtype);
    unsigned char *to = entry_data(p, e, PARAM_VALUE);
    struct rng r;
    rng_init(&r, seed, RNG_INIT, (uint64_t)index, 0);
    for (int64_t at = 0; at < e->count; at += PIECE) {
        const int64_t count = e->count - at < PIECE ? e->count - at : PIECE;
        fill_piece(host, &r, e, count, p->dtype == DTYPE_F64);
        TRY(p->dev->ops->upload(p->dev, to + (size_t)at * size, host, (size_t)count * size, err));
        TRY(p->dev->ops->sync(p->dev, err)); /* upload may still read `host` when it returns */
    }
    return renew_working(p, e, err);
}

enum status params_init(struct params *p, uint64_t seed, struct error *err) {
    REQUIRE(p->dev != NULL);
    const struct ops *ops = p->dev->ops;
    void *host = malloc(PIECE * dtype_size_bytes(p->dtype));
    TRY_MEMORY(host != NULL, err, "out of memory for initial values");
    enum status s = STATUS_OK;
    for (int32_t i = 0; i < p->count && s == STATUS_OK; i++) {
        s = init_entry(p, i, seed, host, err);
    }
    free(host);
    const int32_t last = p->moments == 2 ? PARAM_V : PARAM_M;
    for (int32_t slot = PARAM_GRAD; slot <= last && s == STATUS_OK && p->training; slot++) {
        for (int32_t decayed = 0; decayed < 2 && s == STATUS_OK; decayed++) {
            struct tensor range = params_range(p, (enum param_slot)slot, decayed != 0);
            if (range.shape[0] > 0) {
                s = ops->fill(p->dev, &(struct fill){.out = range}, err);
            }
        }
    }
    return s;
}

/* ---- to and from PyTorch's layout ---- */

/* Converts between our (O, K, I) and PyTorch's (O, I, K), K = KH KW; a transposed matrix has O = 1,
 * and its dimensions as the others. */
static void permute(uint8_t *out,
                    const uint8_t *in,
                    const struct param_spec *spec,
                    size_t size_bytes,
                    bool to_outside) {
    const int64_t rows = spec->conv ? spec->shape[0] : 1;
    const int64_t ours = spec->conv ? spec->shape[1] * spec->shape[2] : spec->shape[0];
    const int64_t theirs = spec->conv ? spec->shape[3] : spec->shape[1];
    const int64_t a = to_outside ? ours : theirs;
    const int64_t b = to_outside ? theirs : ours;
    for (int64_t o = 0; o < rows; o++) {
        for (int64_t y = 0; y < a; y++) {
            for (int64_t x = 0; x < b; x++) {
                uint8_t *to = out + (size_t)((o * b + x) * a + y) * size_bytes;
                const uint8_t *from = in + (size_t)((o * a + y) * b + x) * size_bytes;
                if (size_bytes ==
                    sizeof(float)) { /* a constant, which the compiler turns into one move */
                    memcpy(to, from, sizeof(float));
                } else {
                    memcpy(to, from, size_bytes);
                }
            }
        }
    }
}

/* Whether the layout in memory is not PyTorch's. */
static bool is_permuted(const struct entry *e) {
    return e->spec.transposed || (e->spec.conv && e->spec.shape[1] * e->spec.shape[2] > 1);
}

/* Begins to copy a tensor; *workspace: memory of its size if the layouts differ, else NULL. */
static enum status begin_copy(const struct params *p,
                              void **workspace,
                              int32_t index,
                              enum param_slot slot,
                              size_t size_bytes,
                              struct error *err) {
    REQUIRE(index >= 0 && index < p->count && p->block[slot] != NULL);
    const struct entry *e = &p->entries[index];
    REQUIRE(size_bytes == (size_t)e->count * dtype_size_bytes(p->dtype));
    REQUIRE(slot == PARAM_VALUE || slot == PARAM_AVERAGE || e->class < CLASS_BUFFER);
    const bool differ = is_permuted(e);
    *workspace = differ ? malloc(size_bytes) : NULL;
    TRY_MEMORY(!differ || *workspace != NULL, err, "out of memory for a copy of '%s'", e->name);
    return STATUS_OK;
}

enum status params_read(const struct params *p,
                        int32_t index,
                        enum param_slot slot,
                        void *host,
                        size_t size_bytes,
                        struct error *err) {
    void *workspace;
    TRY(begin_copy(p, &workspace, index, slot, size_bytes, err));
    const struct entry *e = &p->entries[index];
    void *target = workspace != NULL ? workspace : host;
    enum status s = p->dev->ops->download(p->dev, target, entry_data(p, e, slot), size_bytes, err);
    if (s == STATUS_OK && workspace != NULL) {
        permute(host, workspace, &e->spec, dtype_size_bytes(p->dtype), true);
    }
    free(workspace);
    return s;
}

int64_t params_piece_count(const struct params *p, int32_t index) {
    const struct entry *e = &p->entries[index];
    return e->count > PIECE && !is_permuted(e) ? PIECE : e->count;
}

enum status params_read_piece(const struct params *p,
                              int32_t index,
                              enum param_slot slot,
                              int64_t first,
                              int64_t count,
                              void *host,
                              struct error *err) {
    const struct entry *e = &p->entries[index];
    const size_t size = dtype_size_bytes(p->dtype);
    REQUIRE(first >= 0 && count > 0 && first + count <= e->count);
    if (is_permuted(e)) {
        REQUIRE(count == e->count);
        return params_read(p, index, slot, host, (size_t)count * size, err);
    }
    const unsigned char *from = entry_data(p, e, slot);
    return p->dev->ops->download(p->dev, host, from + (size_t)first * size, (size_t)count * size,
                                 err);
}

enum status params_write(struct params *p,
                         int32_t index,
                         enum param_slot slot,
                         const void *host,
                         size_t size_bytes,
                         struct error *err) {
    void *workspace;
    TRY(begin_copy(p, &workspace, index, slot, size_bytes, err));
    const struct entry *e = &p->entries[index];
    if (workspace != NULL) {
        permute(workspace, host, &e->spec, dtype_size_bytes(p->dtype), false);
    }
    enum status s = p->dev->ops->upload(p->dev, entry_data(p, e, slot),
                                        workspace != NULL ? workspace : host, size_bytes, err);
    if (s == STATUS_OK && workspace != NULL) {
        s = p->dev->ops->sync(p->dev, err); /* upload may still read the workspace */
    }
    free(workspace);
    if (s == STATUS_OK && slot == PARAM_VALUE) {
        s = renew_working(p, e, err);
    }
    return s;
}
