/*
 * Conditions on the current sample: its values, percentiles, comparisons. where_parse.c creates the
 * nodes.
 */
#include "tools/ccpack/where_internal.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/sort.h"
#include "formats/json/json_reader.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_text.h"

/* NaN: unknown. */
static double number_of(const struct sample_facts *f, int32_t fact) {
    const double known = f->width_px > 0 && f->height_px > 0 ? 1.0 : (double)NAN;
    const double width = known * (double)f->width_px;
    const double height = known * (double)f->height_px;
    const double sides[] = {[NUMBER_WIDTH] = width,
                            [NUMBER_HEIGHT] = height,
                            [NUMBER_SHORTER] = width < height ? width : height,
                            [NUMBER_LONGER] = width < height ? height : width,
                            [NUMBER_ASPECT] = width < height ? height / width : width / height};
    switch (fact) {
    case NUMBER_ID:
        return (double)f->id;
    case NUMBER_CAPTIONS:
        return (double)f->caption_count;
    case NUMBER_IMAGE_BYTES:
        return (double)f->image_bytes;
    case NUMBER_LABEL:
        return f->label >= 0 ? (double)f->label : (double)NAN;
    default:
        return sides[fact];
    }
}

void where_destroy(struct where *w) {
    if (w) {
        for (int32_t i = 0; i < w->count; i++) {
            free(w->nodes[i].text);
            free(w->nodes[i].name);
            byte_buffer_fini(&w->ranks[i]);
        }
        free(w);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A field by its name, or nested, with dots between names. */
static const struct json_value *find_member(const struct json_value *v, const char *name) {
    char head[MAX_WORD_BYTES];
    const struct json_value *found = json_value_get(v, name);
    const char *dot = strchr(name, '.');
    if (found || !dot) {
        return found;
    }
    snprintf(head, sizeof(head), "%.*s", (int)(dot - name), name);
    return find_member(json_value_get(v, head), dot + 1);
}

/* The text of a metadata field: a string, or other values as JSON. The caller frees *out; NULL:
 * missing or null. */
static enum status member_text(char **out, const char *name, struct input *in, struct error *err) {
    struct sample_content content;
    struct json_document *document = NULL;
    *out = NULL;
    TRY(input_read(in, &content, err));
    if (!content.json.data || json_document_parse(&document, "metadata", content.json.data,
                                                  content.json.size_bytes, NULL) != STATUS_OK) {
        return STATUS_OK;
    }
    const struct json_value *v = find_member(json_document_root(document), name);
    const char *text = json_value_string(v, NULL);
    *out = text ? strdup(text) : json_value_text(v);
    if (!text && *out && strcmp(*out, "null") == 0) {
        free(*out);
        *out = NULL;
    }
    json_document_destroy(document);
    return STATUS_OK;
}

/* The XXH64 of hash()'s operand, as text. */
static enum status hash_of(double *out,
                           const struct node *n,
                           struct input *in,
                           const struct sample_facts *f,
                           struct error *err) {
    char original[INPUT_MAX_KEY_BYTES];
    struct sample_content content;
    char *member = NULL;
    const char *text = cli_format("%" PRIu64, f->id);
    if (strcmp(n->name, "image") == 0) {
        text = cli_format("%016" PRIx64, f->image_hash);
    } else if (strcmp(n->name, "key") == 0) {
        TRY(input_read(in, &content, err));
        text = sample_original_key(original, &content.json) ? original : content.key;
    } else if (strcmp(n->name, "id") != 0) {
        TRY(member_text(&member, n->name + strlen(META), in, err));
        text = member;
    }
    *out = text ? (double)(hash64(text, strlen(text)) % n->modulus) : (double)NAN;
    free(member);
    return STATUS_OK;
}

/* The length of the longest caption. */
static enum status caption_length(double *out,
                                  const struct node *n,
                                  struct input *in,
                                  const struct sample_facts *f,
                                  struct error *err) {
    for (uint32_t k = 0; k < f->caption_count; k++) {
        struct shard_text t;
        TRY(input_caption(in, &t, k, err));
        size_t length = 0;
        for (size_t i = 0; i < t.size_bytes; i++) { /* a character's other bytes are 10xxxxxx */
            length += n->fact == NUMBER_CAPTION_BYTES || ((unsigned char)t.data[i] & 0xC0) != 0x80;
        }
        *out = *out >= (double)length ? *out : (double)length;
    }
    return STATUS_OK;
}

/* NaN: unknown. */
static enum status value_of(double *out,
                            const struct where *w,
                            const struct node *n,
                            struct input *in,
                            const struct sample_facts *f,
                            struct error *err) {
    char *text = NULL;
    *out = (double)NAN;
    switch (n->fact) {
    case NUMBER_HASH:
        return hash_of(out, n, in, f, err);
    case NUMBER_CAPTION_BYTES:
    case NUMBER_CAPTION_CHARS:
        return caption_length(out, n, in, f, err);
    case NUMBER_META:
        TRY(member_text(&text, n->name, in, err));
        if (text) {
            char *end = NULL;
            const double value = strtod(text, &end);
            *out = end != text && *end == '\0' ? value : (double)NAN;
        }
        free(text);
        return STATUS_OK;
    default:
        *out = n->fact < NUMBER_COUNT ? number_of(f, n->fact)
                                      : columns_value(w->columns, n->fact - NUMBER_COUNT, f->id);
        return STATUS_OK;
    }
}

enum status where_value(double *out,
                        const struct where *w,
                        struct input *in,
                        const struct sample_facts *f,
                        struct error *err) {
    const struct node *n = &w->nodes[0];
    TRY(value_of(out, w, n, in, f, err));
    FAIL_IF(isnan(*out) && n->fact >= NUMBER_COUNT &&
                columns_has(w->columns, n->fact - NUMBER_COUNT, f->id),
            err, STATUS_USAGE,
            "the column has NaN for sample %" PRIu64 ", which has no order: attach it without that "
            "row, or exclude the sample by --where",
            f->id);
    return STATUS_OK;
}

/* ---- percentages ----------------------------------------------------------------------------- */

bool where_has_ranks(const struct where *w) {
    bool any = false;
    for (int32_t i = 0; i < w->count; i++) {
        any = any || w->nodes[i].ranked;
    }
    return any;
}

enum status
where_rank(struct where *w, struct input *in, const struct sample_facts *f, struct error *err) {
    for (int32_t i = 0; i < w->count; i++) {
        const struct node *n = &w->nodes[i];
        double value = (double)NAN;
        TRY(n->ranked ? value_of(&value, w, n, in, f, err) : STATUS_OK);
        if (!isnan(value)) {
            TRY(byte_buffer_append(&w->ranks[i], &value, sizeof(value), err));
        }
    }
    return STATUS_OK;
}

/* N% of n numbers is the one with floor(n N / 100) before it in sorted order; 100%: the last. */
void where_rank_end(struct where *w) {
    for (int32_t i = 0; i < w->count; i++) {
        struct node *n = &w->nodes[i];
        double *values = (double *)(void *)w->ranks[i].data;
        const size_t count = w->ranks[i].size_bytes / sizeof(*values);
        if (!n->ranked) {
            continue;
        }
        n->ranked = false;
        if (count == 0) {
            n->number = (double)NAN; /* no sample has a number: the comparison is false for all */
            continue;
        }
        qsort(values, count, sizeof(*values), compare_double);
        size_t at = (size_t)floor((double)count * n->number / 100);
        n->number = values[at < count ? at : count - 1];
        byte_buffer_fini(&w->ranks[i]);
    }
}

/* ---- samples --------------------------------------------------------------------------------- */

static bool compare_numbers(enum operator op, double a, double b) {
    if (isnan(a) || isnan(b)) {
        return false;
    }
    switch (op) {
    case OP_LESS:
        return a < b;
    case OP_AT_MOST:
        return a <= b;
    case OP_MORE:
        return a > b;
    case OP_AT_LEAST:
        return a >= b;
    case OP_EQUAL:
        return a == b;
    default:
        return a != b;
    }
}

/* text NULL: the sample has none. */
static bool compare_texts(const struct node *n, const char *text) {
    if (!text) {
        return false;
    }
    const bool equal =
        n->op == OP_LIKE ? fnmatch(n->text, text, 0) == 0 : strcmp(n->text, text) == 0;
    return n->op == OP_OTHER ? !equal : equal;
}

/* Whether any caption is or contains the text; "!=": whether none is. */
static enum status
fits_caption(bool *out, const struct node *n, struct input *in, uint32_t count, struct error *err) {
    bool found = false;
    for (uint32_t k = 0; !found && k < count; k++) {
        struct shard_text t;
        TRY(input_caption(in, &t, k, err));
        found = n->op == OP_LIKE
                    ? cli_text_holds(t.data, t.size_bytes, n->text)
                    : t.size_bytes == strlen(n->text) && memcmp(t.data, n->text, t.size_bytes) == 0;
    }
    *out = n->op == OP_OTHER ? !found : found;
    return STATUS_OK;
}

/* The key in the shard, or in the sample's source. */
static enum status fits_key(bool *out, const struct node *n, struct input *in, struct error *err) {
    struct sample_content content;
    char original[INPUT_MAX_KEY_BYTES];
    TRY(input_read(in, &content, err));
    struct node like = *n;
    like.op = n->op == OP_LIKE ? OP_LIKE : OP_EQUAL;
    bool found = compare_texts(&like, content.key) ||
                 (sample_original_key(original, &content.json) && compare_texts(&like, original));
    *out = n->op == OP_OTHER ? !found : found;
    return STATUS_OK;
}

static enum status fits_text(bool *out,
                             const struct node *n,
                             struct input *in,
                             const struct sample_facts *f,
                             struct error *err) {
    char *member;
    switch (n->fact) {
    case TEXT_CAPTION:
        return fits_caption(out, n, in, f->caption_count, err);
    case TEXT_KEY:
        return fits_key(out, n, in, err);
    case TEXT_META:
        TRY(member_text(&member, n->name, in, err));
        *out = compare_texts(n, member);
        free(member);
        return STATUS_OK;
    case TEXT_CLASS:
        *out = compare_texts(n, f->class_name);
        return STATUS_OK;
    case TEXT_HASH:
        *out = compare_texts(n, cli_format("%016" PRIx64, f->image_hash));
        return STATUS_OK;
    default:
        *out = compare_texts(n, image_format_name(f->format));
        return STATUS_OK;
    }
}

static enum status fits(bool *out,
                        const struct where *w,
                        int32_t node,
                        struct input *in,
                        const struct sample_facts *f,
                        struct error *err) {
    const struct node *n = &w->nodes[node];
    double value;
    switch (n->kind) {
    case NODE_NUMBER:
        TRY(value_of(&value, w, n, in, f, err));
        *out = compare_numbers(n->op, value, n->number);
        return STATUS_OK;
    case NODE_TEXT:
        return fits_text(out, n, in, f, err);
    case NODE_NOT:
        TRY(fits(out, w, n->left, in, f, err));
        *out = !*out;
        return STATUS_OK;
    default:
        TRY(fits(out, w, n->left, in, f, err));
        return *out == (n->kind == NODE_AND) ? fits(out, w, n->right, in, f, err) : STATUS_OK;
    }
}

enum status where_fits(bool *out,
                       const struct where *w,
                       struct input *in,
                       const struct sample_facts *f,
                       struct error *err) {
    return fits(out, w, w->count - 1, in, f, err);
}
