/*
 * check: the arguments of an operator against its description (operands.c).
 *
 *     type of the call --> each operand: present? type? shape? (binds letters to sizes) --> rules
 *         --> with `indices`: captions, then indices
 */
#include <stdio.h>
#include <string.h>

#include "kernels/operands.h"

enum { LETTERS = 128, TEXT_CHARS = 96 };

struct checked {
    const struct op_info *info;
    const void *args;
    enum dtype real;
    int64_t sizes[LETTERS];   /* by letter; 0: not known yet */
    const struct tensor *any; /* the first operand of any shape */
};

bool operand_next_dimension(const char **shape, int64_t *factor, char *letter) {
    *factor = 1;
    *letter = 0;
    if (**shape == '\0') {
        return false;
    }
    if (**shape >= '0' && **shape <= '9') {
        *factor = *(*shape)++ - '0';
    }
    if (**shape != '\0') {
        *letter = *(*shape)++;
    }
    return true;
}

enum dtype operand_dtype(const struct operand *o, enum dtype real) {
    switch (o->type) {
    case TYPE_PARAM:
        return param_dtype(real);
    case TYPE_CAST:
        return DTYPE_F32;
    case TYPE_BF16:
        return DTYPE_BF16;
    case TYPE_F64:
        return DTYPE_F64;
    case TYPE_I32:
        return DTYPE_I32;
    case TYPE_U8:
        return DTYPE_U8;
    default:
        return real;
    }
}

/* ---- messages ---- */

/* "(2,3,4) f32"; '?' for a size that is not known yet. */
static void write_shape(char out[TEXT_CHARS], const struct tensor *t) {
    size_t used = (size_t)snprintf(out, TEXT_CHARS, "(");
    for (int32_t i = 0; i < t->ndim && i < TENSOR_MAX_DIMS && used < TEXT_CHARS; i++) {
        const char *comma = i > 0 ? "," : "";
        used += (size_t)(t->shape[i] == 0 ? snprintf(out + used, TEXT_CHARS - used, "%s?", comma)
                                          : snprintf(out + used, TEXT_CHARS - used, "%s%lld", comma,
                                                     (long long)t->shape[i]));
    }
    if (used < TEXT_CHARS) {
        (void)snprintf(out + used, TEXT_CHARS - used, ") %s", dtype_name(t->dtype));
    }
}

static enum status differs(const struct checked *c,
                           const struct operand *o,
                           const struct tensor *expected,
                           struct error *err) {
    char found_text[TEXT_CHARS];
    char expected_text[TEXT_CHARS];
    write_shape(found_text, operand_tensor(o, c->args));
    write_shape(expected_text, expected);
    return error_set(err, STATUS_INVALID, "%s: %s is %s, expected %s", c->info->name, o->name,
                     found_text, expected_text);
}

static enum status missing(const struct checked *c, const struct operand *o, struct error *err) {
    return error_set(err, STATUS_INVALID, "%s: %s is missing", c->info->name, o->name);
}

/* ---- types and shapes ---- */

/* The operand whose type is the type of the call: the first REAL one that is not optional, else the
 * first one if it is a PARAM. NULL: the call has no real type. */
static const struct operand *main_operand(const struct op_info *info) {
    for (int32_t i = 0; i < info->operands_count; i++) {
        if (info->operands[i].type == TYPE_REAL && !info->operands[i].optional) {
            return &info->operands[i];
        }
    }
    return info->operands[0].type == TYPE_PARAM ? &info->operands[0] : NULL;
}

static bool has_dtype(const struct operand *o, enum dtype found, enum dtype real) {
    return found == operand_dtype(o, real) ||
           (o->type == TYPE_REAL_OR_PARAM && found == param_dtype(real)) ||
           (o->type == TYPE_CAST && found == DTYPE_BF16);
}

/* Operands of any shape: all of one call have the same shape. */
static enum status
check_any(struct checked *c, const struct operand *o, const struct tensor *t, struct error *err) {
    struct tensor expected = c->any != NULL ? *c->any : *t;
    bool same = t->ndim >= 0 && t->ndim <= TENSOR_MAX_DIMS && t->ndim == expected.ndim &&
                has_dtype(o, t->dtype, c->real);
    for (int32_t i = 0; same && i < t->ndim; i++) {
        same = t->shape[i] >= 0 && t->shape[i] == expected.shape[i];
    }
    c->any = c->any != NULL ? c->any : t;
    expected.dtype = has_dtype(o, t->dtype, c->real) ? t->dtype : operand_dtype(o, c->real);
    return same ? STATUS_OK : differs(c, o, &expected, err);
}

static enum status
check_shape(struct checked *c, const struct operand *o, const struct tensor *t, struct error *err) {
    struct tensor expected = {.dtype = operand_dtype(o, c->real)};
    const char *shape = o->shape;
    bool same = has_dtype(o, t->dtype, c->real);
    int64_t factor;
    char letter;
    while (operand_next_dimension(&shape, &factor, &letter)) {
        const int32_t i = expected.ndim++;
        const int64_t size = t->ndim > i ? t->shape[i] : 0;
        int64_t *known = &c->sizes[(unsigned char)letter % LETTERS];
        if (letter == 0) {
            expected.shape[i] = factor;
        } else {
            *known = *known == 0 && size > 0 && size % factor == 0 ? size / factor : *known;
            expected.shape[i] = factor * *known;
        }
        same = same && size > 0 && size == expected.shape[i];
    }
    return same && t->ndim == expected.ndim ? STATUS_OK : differs(c, o, &expected, err);
}

static enum status check_operand(struct checked *c, const struct operand *o, struct error *err) {
    if (!operand_is_tensor(o)) {
        const void *address;
        memcpy(&address, (const char *)c->args + o->offset, sizeof address);
        return address != NULL || o->optional ? STATUS_OK : missing(c, o, err);
    }
    const struct tensor *t = operand_tensor(o, c->args);
    if (!tensor_present(t)) {
        return o->optional ? STATUS_OK : missing(c, o, err);
    }
    return o->shape[0] == '*' ? check_any(c, o, t, err) : check_shape(c, o, t, err);
}

/* ---- values in host memory ---- */

static enum status check_captions(const struct checked *c,
                                  const struct tensor *starts_of,
                                  const struct tensor *lengths_of,
                                  int64_t longest,
                                  struct error *err) {
    const char *op = c->info->name;
    const int32_t *starts = starts_of->data;
    const int32_t *lengths = lengths_of->data;
    const int64_t rows = c->sizes['R'];
    int64_t end = 0;
    for (int64_t n = 0; n < c->sizes['N']; n++) {
        FAIL_IF(lengths[n] < 1 || lengths[n] > longest, err, STATUS_INVALID,
                "%s: length %lld is %d, expected 1 to %lld", op, (long long)n, lengths[n],
                (long long)longest);
        FAIL_IF(starts[n] < end || starts[n] > rows - lengths[n], err, STATUS_INVALID,
                "%s: caption %lld of %d rows starts at %d, expected %lld to %lld", op, (long long)n,
                lengths[n], starts[n], (long long)end, (long long)(rows - lengths[n]));
        end = (int64_t)starts[n] + lengths[n];
    }
    return STATUS_OK;
}

static enum status check_index(const struct checked *c,
                               const struct operand *o,
                               int64_t begin,
                               int64_t end,
                               struct error *err) {
    const int32_t *values = operand_tensor(o, c->args)->data;
    const int64_t limit = c->sizes[(unsigned char)o->below];
    for (int64_t i = begin; i < end; i++) {
        FAIL_IF(values[i] < 0 || values[i] >= limit, err, STATUS_INVALID,
                "%s: %s[%lld] is %d, expected below %lld", c->info->name, o->name, (long long)i,
                values[i], (long long)limit);
    }
    return STATUS_OK;
}

/* Captions first: indices are checked only in rows of captions. */
static enum status check_values(const struct checked *c, struct error *err) {
    const struct tensor *starts = NULL;
    const struct tensor *lengths = NULL;
    for (int32_t i = 0; i < c->info->operands_count; i++) {
        const struct operand *o = &c->info->operands[i];
        if (strcmp(o->name, "lengths") == 0 && tensor_present(operand_tensor(o, c->args))) {
            starts = operand_tensor(o - 1, c->args);
            lengths = operand_tensor(o, c->args);
            TRY(check_captions(c, starts, lengths, c->sizes[(unsigned char)o->below], err));
        }
    }
    for (int32_t i = 0; i < c->info->operands_count; i++) {
        const struct operand *o = &c->info->operands[i];
        if (o->below == 0 || strcmp(o->name, "lengths") == 0 ||
            !tensor_present(operand_tensor(o, c->args))) {
            continue;
        }
        if (starts == NULL) {
            TRY(check_index(c, o, 0, tensor_count(operand_tensor(o, c->args)), err));
            continue;
        }
        for (int64_t n = 0; n < c->sizes['N']; n++) {
            const int32_t begin = ((const int32_t *)starts->data)[n];
            TRY(check_index(c, o, begin, (int64_t)begin + ((const int32_t *)lengths->data)[n],
                            err));
        }
    }
    return STATUS_OK;
}

/* ---- all of it ---- */

static enum status check_type(struct checked *c, struct device *dev, struct error *err) {
    const struct operand *o = main_operand(c->info);
    struct error why = {0};
    if (o == NULL) {
        return STATUS_OK;
    }
    const struct tensor *t = operand_tensor(o, c->args);
    if (!tensor_present(t)) {
        return missing(c, o, err);
    }
    c->real = t->dtype;
    const enum status s = dev->ops->supports(dev, c->real, &why);
    return s == STATUS_OK ? s : error_set(err, s, "%s: %s", c->info->name, why.text);
}

enum status
op_check(struct device *dev, enum op_id id, const void *args, bool indices, struct error *err) {
    struct checked c = {.info = op_info(id), .args = args};
    TRY(check_type(&c, dev, err));
    for (int32_t i = 0; i < c.info->operands_count; i++) {
        TRY(check_operand(&c, &c.info->operands[i], err));
    }
    if (c.info->rules != NULL) {
        TRY(c.info->rules(args, c.sizes, err));
    }
    return indices ? check_values(&c, err) : STATUS_OK;
}

/* ---- cost ---- */

/* The number of indices into the rows of a sparse operand: those limited by its first letter. */
static double rows_named(const struct op_info *info, const struct operand *o, const void *args) {
    for (int32_t i = 0; i < info->operands_count; i++) {
        if (info->operands[i].below == o->shape[0]) {
            return (double)tensor_count(operand_tensor(&info->operands[i], args));
        }
    }
    return 0.0;
}

double op_bytes(enum op_id id, const void *args) {
    const struct op_info *info = op_info(id);
    double bytes = 0.0;
    for (int32_t i = 0; i < info->operands_count; i++) {
        const struct operand *o = &info->operands[i];
        if (!operand_is_tensor(o) || !tensor_present(operand_tensor(o, args))) {
            continue;
        }
        const struct tensor *t = operand_tensor(o, args);
        const bool twice = o->role == ROLE_BOTH || operand_mode(o, args) == WRITE_ADD;
        const double size = (double)tensor_size_bytes(t);
        bytes += (twice ? 2.0 : 1.0) *
                 (o->is_sparse ? size / (double)t->shape[0] * rows_named(info, o, args) : size);
    }
    return bytes;
}

bool op_available(const struct device *dev, enum op_id id) {
    switch (id) {
#define CASE(name)                                                                                 \
    case OP_##name:                                                                                \
        return dev->ops->name != NULL;
        OPS_LIST(CASE)
#undef CASE
    case OPS_COUNT:
        break;
    }
    return false;
}

enum status op_call(struct device *dev, enum op_id id, const void *args, struct error *err) {
    FAIL_IF(id < OPS_COUNT && !op_available(dev, id), err, STATUS_UNSUPPORTED,
            "device %s has no %s", dev->ops->name, op_info(id)->name);
    switch (id) {
#define CASE(name)                                                                                 \
    case OP_##name:                                                                                \
        return dev->ops->name(dev, args, err);
        OPS_LIST(CASE)
#undef CASE
    case OPS_COUNT:
        break;
    }
    return error_set(err, STATUS_INVALID, "there is no operator %d", (int)id);
}
