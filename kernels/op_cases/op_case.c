/*
 * op_case: one row of op_rows at one size: memory with guards, values, the call.
 *
 *     raw -> | guard | shift | data ... | guard |
 *
 * Guards hold a pattern; tests/support/op_cases.h reports the operand next to one that has changed.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/op_cases/op_rows.h"

enum { ALIGNMENT_BYTES = 64 };

const struct op_row *op_row_find(const char *name) {
    for (int i = 0; i < op_rows_count; i++) {
        if (strcmp(op_rows[i].name, name) == 0) {
            return &op_rows[i];
        }
    }
    return NULL;
}

static struct tensor shape_of(const struct op_case *c, const struct operand *o) {
    struct tensor t = {.dtype = operand_dtype(o, c->real)};
    const char *shape = o->shape;
    int64_t factor;
    char letter;
    if (o->shape[0] == '*') {
        return tensor_1d(NULL, t.dtype, c->sizes['F']);
    }
    while (operand_next_dimension(&shape, &factor, &letter)) {
        t.shape[t.ndim++] = factor * (letter != 0 ? c->sizes[(unsigned char)letter] : 1);
    }
    return t;
}

static bool is_alone(const struct op_info *info, const struct operand *o) {
    for (int32_t i = 0; i < info->operands_count; i++) {
        const struct operand *other = &info->operands[i];
        if (other != o && operand_is_tensor(other) && other->shape[0] == '*') {
            return false;
        }
    }
    return o->shape[0] == '*';
}

/* Whether no other dimension has the letter of an operand's last size. */
static bool is_last_alone(const struct op_info *info, const struct operand *o) {
    const char last = o->shape[strlen(o->shape) - 1];
    int found = 0;
    for (int32_t i = 0; i < info->operands_count; i++) {
        const struct operand *other = &info->operands[i];
        for (const char *at = operand_is_tensor(other) ? other->shape : ""; *at != 0; at++) {
            found += *at == last;
        }
    }
    return found == 1 && strlen(o->shape) > 1;
}

/* Step values and sample ids: numbers in separate memory. */
static void add_numbers(struct op_operand *o) {
    const int64_t count = (int64_t)(sizeof(struct step_values) / sizeof(double));
    const bool values = o->of->type == TYPE_VALUES;
    o->plain = true;
    o->content = values ? CONTENT_VALUES : CONTENT_IDS;
    o->shape =
        values ? tensor_1d(NULL, DTYPE_F64, count) : tensor_1d(NULL, DTYPE_U64, OP_MAX_SAMPLES);
}

static void add_tensor(const struct op_case *c, struct op_operand *o, bool captions) {
    o->shape = shape_of(c, o->of);
    o->free_shape = is_alone(op_info(c->row->op), o->of);
    o->free_last = is_last_alone(op_info(c->row->op), o->of);
    o->by_caption =
        captions && o->role == ROLE_IN && o->of->shape[0] == 'R' && o->of->type == TYPE_REAL;
    if (strcmp(o->name, "starts") == 0 || strcmp(o->name, "lengths") == 0) {
        o->content = o->name[0] == 's' ? CONTENT_START : CONTENT_LENGTH;
        o->limit = (int32_t)c->sizes['T'];
    } else if (o->of->type == TYPE_I32) {
        o->content = CONTENT_INDEX;
        o->limit = (int32_t)c->sizes[(unsigned char)o->of->below];
    } else if (o->of->type == TYPE_U8) {
        o->content = CONTENT_BYTE;
    }
}

void op_add_operands(struct op_case *c) {
    const struct op_info *info = op_info(c->row->op);
    const enum write_mode mode = (c->flags & OP_ADD) != 0 ? WRITE_ADD : WRITE_SET;
    bool captions = false;
    for (int32_t i = 0; i < info->operands_count; i++) {
        captions = captions || strcmp(info->operands[i].name, "starts") == 0;
    }
    for (int32_t i = 0; i < info->operands_count; i++) {
        const struct operand *of = &info->operands[i];
        struct op_operand *o = &c->operands[c->count++];
        *o = (struct op_operand){
            .of = of, .name = of->name, .role = of->role, .optional = of->optional, .alias = -1};
        if (c->row->forward != NULL && of->role == ROLE_OUT) {
            o->gradient_of = of->name + 1; /* after the d */
        }
        if (of->mode_offset != 0) {
            memcpy((char *)&c->args + of->mode_offset, &mode, sizeof mode);
            o->role = mode == WRITE_ADD ? ROLE_BOTH : o->role;
            o->added = mode == WRITE_ADD && o->gradient_of != NULL;
        }
        if (operand_is_tensor(of)) {
            add_tensor(c, o, captions);
        } else {
            add_numbers(o);
        }
    }
}

void op_describe(struct op_case *c,
                 const struct op_row *row,
                 const struct op_size *size,
                 unsigned flags,
                 enum dtype real) {
    memset(c, 0, sizeof *c);
    c->row = row;
    c->size = *size;
    c->flags = flags;
    c->real = real;
    c->values = (struct step_values){.step = 77, .lr = 1e-3, .grad_scale = 0.5, .sound = 1};
    for (size_t i = 0; row->letters[i] != '\0'; i++) {
        c->sizes[(unsigned char)row->letters[i]] = size->v[i];
    }
    if (row->describe != NULL) {
        row->describe(c, c->size.v);
    } else {
        op_add_operands(c);
    }
}

void op_case_args(union op_args *out, const struct op_case *c, const struct tensor *t) {
    *out = c->args;
    for (int i = 0; i < c->count; i++) {
        char *to = (char *)out + c->operands[i].of->offset;
        if (c->operands[i].plain) {
            memcpy(to, &t[i].data, sizeof t[i].data);
        } else {
            memcpy(to, &t[i], sizeof t[i]);
        }
    }
}

int op_operand_find(const struct op_case *c, const char *name) {
    for (int i = 0; i < c->count; i++) {
        if (strcmp(c->operands[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static size_t rounded(size_t size_bytes) {
    return (size_bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
}

enum status
op_data_create(struct op_data *d, const struct op_case *c, int shift, struct error *err) {
    memset(d, 0, sizeof *d);
    for (int i = 0; i < c->count; i++) {
        const struct op_operand *o = &c->operands[i];
        d->t[i] = o->shape;
        if (o->shape.ndim == 0 || o->alias >= 0) {
            continue;
        }
        const size_t size = tensor_size_bytes(&o->shape);
        const size_t lead = OP_GUARD_BYTES + (size_t)shift * dtype_size_bytes(o->shape.dtype);
        const size_t total = rounded(lead + size + OP_GUARD_BYTES);
        d->raw[i] = aligned_alloc(ALIGNMENT_BYTES, total);
        if (d->raw[i] == NULL) {
            op_data_destroy(d);
            return error_set(err, STATUS_NOMEM, "no memory for operand %s", o->name);
        }
        memset(d->raw[i], OP_GUARD_BYTE, total);
        d->raw_bytes[i] = total;
        d->t[i].data = d->raw[i] + lead;
    }
    for (int i = 0; i < c->count; i++) {
        if (c->operands[i].alias >= 0) {
            d->t[i].data = d->t[c->operands[i].alias].data;
        }
    }
    return STATUS_OK;
}

void op_data_destroy(struct op_data *d) {
    for (int i = 0; i < OP_MAX_OPERANDS; i++) {
        free(d->raw[i]);
    }
    memset(d, 0, sizeof *d);
}

/* SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators"). */
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) {
    return (double)(draw(state) >> 11) * 0x1p-53;
}

static void fill_indices(int32_t *out, int64_t count, const struct op_operand *o, uint64_t *state) {
    const uint64_t limit = (uint64_t)o->limit;
    /* Distinct: a walk around the range from a random start. */
    const uint64_t start = draw(state) % limit;
    for (int64_t i = 0; i < count; i++) {
        switch (o->content) {
        case CONTENT_LENGTH:
            out[i] = 1 + (int32_t)(draw(state) % limit);
            break;
        case CONTENT_DISTINCT:
            out[i] = (int32_t)((start + (uint64_t)i) % limit);
            break;
        default:
            out[i] = (int32_t)(draw(state) % limit);
            break;
        }
    }
}

static void fill_operand(const struct tensor *t,
                         const struct op_operand *o,
                         const struct op_case *c,
                         uint64_t *state) {
    const int64_t count = tensor_count(t);
    if (o->content == CONTENT_VALUES) {
        memcpy(t->data, &c->values, sizeof c->values);
        return;
    }
    if (t->dtype == DTYPE_I32) {
        struct op_operand known = *o;
        known.limit = o->limit > 0 ? o->limit : 1;
        fill_indices(t->data, count, &known, state);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const double shift = o->content == CONTENT_POSITIVE ? 0.5 : -2.0;
        const double width = o->content == CONTENT_POSITIVE ? 2.0 : 4.0;
        const double value = shift + width * uniform(state);
        if (t->dtype == DTYPE_U8) {
            ((uint8_t *)t->data)[i] = (uint8_t)draw(state);
        } else if (t->dtype == DTYPE_U64) {
            ((uint64_t *)t->data)[i] = 1000003 * (uint64_t)i + ((uint64_t)i << 33);
        } else if (t->dtype == DTYPE_F64) {
            ((double *)t->data)[i] = value;
        } else if (t->dtype == DTYPE_BF16) {
            ((uint16_t *)t->data)[i] = bf16_from_f32((float)value);
        } else {
            ((float *)t->data)[i] = (float)value;
        }
    }
}

/* Starts are computed from the lengths, the next operand. */
static void place_captions(struct op_data *d, const struct op_case *c) {
    const int at = op_operand_find(c, "starts");
    if (at < 0) {
        return;
    }
    int32_t *starts = d->t[at].data;
    const int32_t *lengths = d->t[at + 1].data;
    const bool packed = (c->flags & OP_PACKED) != 0;
    int32_t next = 0;
    for (int64_t n = 0; n < d->t[at].shape[0]; n++) {
        starts[n] = next;
        next += packed ? lengths[n] : c->operands[at].limit;
    }
}

/* Rows between captions must not be read: they are filled with NaN, or with -1 for tokens. */
static void spoil_padding(struct op_data *d, const struct op_case *c) {
    const int at = op_operand_find(c, "starts");
    for (int i = 0; at >= 0 && i < c->count; i++) {
        const bool tokens = c->operands[i].content == CONTENT_INDEX;
        if (!c->operands[i].by_caption && !tokens) {
            continue;
        }
        const struct tensor *t = &d->t[i];
        const int32_t *starts = d->t[at].data;
        const int32_t *lengths = d->t[at + 1].data;
        const size_t row_bytes = tensor_size_bytes(t) / (size_t)t->shape[0];
        int64_t end = 0;
        for (int64_t n = 0; n <= d->t[at].shape[0]; n++) {
            const bool beyond = n == d->t[at].shape[0];
            const int64_t next = beyond ? t->shape[0] : starts[n];
            /* all bits set: no number in any real type, -1 as a token */
            memset((unsigned char *)t->data + (size_t)end * row_bytes, 0xff,
                   (size_t)(next - end) * row_bytes);
            end = beyond ? next : next + lengths[n];
        }
    }
}

static enum status take_from_forward(struct op_data *d,
                                     const struct op_case *c,
                                     uint64_t seed,
                                     struct device *dev,
                                     struct error *err) {
    struct op_case forward;
    struct op_data kept;
    op_describe(&forward, op_row_find(c->row->forward), &c->size, c->flags & ~(unsigned)OP_ALIAS,
                c->real);
    TRY(op_data_create(&kept, &forward, 0, err));
    enum status s = op_data_fill(&kept, &forward, seed, dev, err);
    THEN(s, op_run(dev, &forward, &kept, err));
    for (int i = 0; s == STATUS_OK && i < c->count; i++) {
        const int from = op_operand_find(&forward, c->operands[i].name);
        if (from >= 0 && d->t[i].data != NULL && c->operands[i].role == ROLE_IN) {
            memcpy(d->t[i].data, kept.t[from].data, tensor_size_bytes(&d->t[i]));
        }
    }
    op_data_destroy(&kept);
    return s;
}

enum status op_data_fill(struct op_data *d,
                         const struct op_case *c,
                         uint64_t seed,
                         struct device *dev,
                         struct error *err) {
    uint64_t state = seed * 7919 + (c->row->forward != NULL ? 104729 : 0);
    for (int i = 0; i < c->count; i++) {
        if (d->raw[i] != NULL) {
            fill_operand(&d->t[i], &c->operands[i], c, &state);
        }
    }
    if (c->row->forward != NULL) {
        TRY(take_from_forward(d, c, seed, dev, err));
    } else {
        place_captions(d, c);
    }
    spoil_padding(d, c);
    return STATUS_OK;
}

/* ---- on a device ---- */

enum status op_place(struct op_placed *p,
                     struct device *dev,
                     const struct op_case *c,
                     const struct op_data *d,
                     struct error *err) {
    memset(p, 0, sizeof *p);
    for (int i = 0; i < c->count; i++) {
        p->t[i] = d->t[i];
        if (d->raw[i] == NULL) {
            continue;
        }
        enum status s = dev->ops->alloc(dev, d->raw_bytes[i], &p->raw[i], err);
        THEN(s, dev->ops->upload(dev, p->raw[i], d->raw[i], d->raw_bytes[i], err));
        if (s != STATUS_OK) {
            op_placed_free(p, dev);
            return s;
        }
        const unsigned char *data = d->t[i].data;
        p->t[i].data = d->t[i].data == NULL ? NULL : (char *)p->raw[i] + (data - d->raw[i]);
    }
    for (int i = 0; i < c->count; i++) {
        if (c->operands[i].alias >= 0 && d->t[i].data != NULL) {
            p->t[i].data = p->t[c->operands[i].alias].data;
        }
    }
    return dev->ops->sync(dev, err); /* what was uploaded may change now */
}

/* Copies operands back, guards and all. */
static enum status fetch(const struct op_placed *p,
                         struct device *dev,
                         const struct op_case *c,
                         const struct op_data *d,
                         struct error *err) {
    for (int i = 0; i < c->count; i++) {
        if (p->raw[i] != NULL) {
            TRY(dev->ops->download(dev, d->raw[i], p->raw[i], d->raw_bytes[i], err));
        }
    }
    return STATUS_OK;
}

void op_placed_free(struct op_placed *p, struct device *dev) {
    for (int i = 0; i < OP_MAX_OPERANDS; i++) {
        if (p->raw[i] != NULL) {
            dev->ops->free(dev, p->raw[i]);
        }
    }
    memset(p, 0, sizeof *p);
}

enum status
op_run(struct device *dev, const struct op_case *c, const struct op_data *d, struct error *err) {
    union op_args args;
    if (dev->ops->alloc == ops_cpu_ref()->alloc) { /* the host's memory */
        op_case_args(&args, c, d->t);
        return op_call(dev, c->row->op, &args, err);
    }
    struct op_placed p;
    TRY(op_place(&p, dev, c, d, err));
    op_case_args(&args, c, p.t);
    enum status s = op_call(dev, c->row->op, &args, err);
    if (s == STATUS_OK || s == STATUS_INVALID || s == STATUS_UNSUPPORTED) {
        struct error lost = {0};
        const enum status back = fetch(&p, dev, c, d, s == STATUS_OK ? err : &lost);
        s = s == STATUS_OK ? back : s;
    }
    op_placed_free(&p, dev);
    return s;
}
