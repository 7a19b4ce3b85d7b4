/*
 * A recursive descent to nodes in one array; a node's operands stand before it.
 */
#include "tools/ccpack/where.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/base/sort.h"
#include "formats/json/json_reader.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_text.h"

enum { MAX_DEPTH = 64, MAX_WORD_BYTES = 512 };

enum node_kind { NODE_OR, NODE_AND, NODE_NOT, NODE_NUMBER, NODE_TEXT };
enum operator{ OP_LESS, OP_AT_MOST, OP_MORE, OP_AT_LEAST, OP_EQUAL, OP_OTHER, OP_LIKE, OP_COUNT };

static const char *const operators[OP_COUNT] = {"<", "<=", ">", ">=", "=", "!=", "~"};

/* ---- facts ----------------------------------------------------------------------------------- */

enum number_fact {
    NUMBER_ID,
    NUMBER_WIDTH,
    NUMBER_HEIGHT,
    NUMBER_SHORTER,
    NUMBER_LONGER,
    NUMBER_ASPECT,
    NUMBER_CAPTIONS,
    NUMBER_IMAGE_BYTES,
    NUMBER_LABEL,
    NUMBER_CAPTION_BYTES,
    NUMBER_CAPTION_CHARS,
    NUMBER_META, /* of node.name */
    NUMBER_HASH, /* likewise, modulo node.modulus */
    NUMBER_COUNT
};
/* The last ones have no name of one word. */
static const char *const numbers[NUMBER_COUNT] = {
    "id",          "width", "height",        "shorter",       "longer", "aspect", "captions",
    "image_bytes", "label", "caption_bytes", "caption_chars", "meta.",  "hash()"};

/* NaN: not known. */
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

enum text_fact {
    TEXT_FORMAT,
    TEXT_CLASS,
    TEXT_KEY,
    TEXT_CAPTION,
    TEXT_HASH,
    TEXT_META,
    TEXT_COUNT
};
static const char *const texts[TEXT_COUNT] = {"format", "class", "key", "caption", "hash", "meta."};
static const char META[] = "meta.";

/* ---- the expression -------------------------------------------------------------------------- */

struct node {
    enum node_kind kind;
    int32_t left, right; /* of OR, AND and NOT (left alone): indices of nodes */
    int32_t fact;        /* NUMBER: of `numbers`, then of columns; TEXT: enum text_fact */
    enum operator op;
    double number; /* to compare with; a percentage until where_rank_end */
    bool ranked;
    uint64_t modulus;
    char *text, *name; /* owned; name: of a member of the metadata, or what hash() is of */
};

struct where {
    struct columns *columns;
    struct node nodes[WHERE_MAX_NODES];
    int32_t count;                             /* the last one is the root */
    struct byte_buffer ranks[WHERE_MAX_NODES]; /* of ranked nodes: doubles */
};

struct parser {
    struct where *w;
    const char *text;
    const char *at;
    int depth;
    char word[MAX_WORD_BYTES]; /* the last one taken */
    bool quoted;
};

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

static void skip_space(struct parser *p) {
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n') {
        p->at++;
    }
}

static enum status wrong(struct parser *p, const char *expected, struct error *err) {
    skip_space(p);
    FAIL_IF(*p->at == '\0', err, STATUS_USAGE, "the condition ends where %s is expected", expected);
    return error_set(err, STATUS_USAGE, "character %zu of the condition, '%.20s': %s is expected",
                     (size_t)(p->at - p->text) + 1, p->at, expected);
}

static bool is_word_byte(char c) {
    return isalnum((unsigned char)c) || strchr("_.+-*?[]%", c) || (unsigned char)c >= 0x80;
}

/* Takes a word or a text in quotes. False: there is none, or it is too long. */
static bool take_word(struct parser *p) {
    skip_space(p);
    const char *begin = p->at;
    const char *end;
    const char quote = *p->at;
    p->quoted = quote == '"' || quote == '\'';
    if (p->quoted) {
        end = strchr(++begin, quote);
    } else {
        for (end = begin; *end != '\0' && is_word_byte(*end);) {
            end++;
        }
    }
    if (!end || (!p->quoted && end == begin) || (size_t)(end - begin) >= sizeof(p->word)) {
        return false;
    }
    memcpy(p->word, begin, (size_t)(end - begin));
    p->word[end - begin] = '\0';
    p->at = end + p->quoted;
    return true;
}

/* Takes the word if it comes next. */
static bool take_keyword(struct parser *p, const char *keyword) {
    const char *before = p->at;
    if (take_word(p) && !p->quoted && strcmp(p->word, keyword) == 0) {
        return true;
    }
    p->at = before;
    return false;
}

static bool take_operator(struct parser *p, enum operator* out) {
    skip_space(p);
    size_t longest = 0;
    for (int i = 0; i < OP_COUNT; i++) {
        const size_t size = strlen(operators[i]);
        if (size > longest && strncmp(p->at, operators[i], size) == 0) {
            *out = (enum operator)i;
            longest = size;
        }
    }
    p->at += longest;
    p->at += longest == 1 && p->at[-1] == '=' && *p->at == '='; /* "==" as in programs */
    return longest > 0;
}

static enum status
add_node(struct parser *p, const struct node *n, int32_t *out, struct error *err) {
    struct where *w = p->w;
    if (w->count == WHERE_MAX_NODES) {
        free(n->text);
        free(n->name);
        return error_set(err, STATUS_LIMIT, "the condition has more than %d parts",
                         WHERE_MAX_NODES);
    }
    *out = w->count;
    byte_buffer_init(&w->ranks[w->count], 0);
    w->nodes[w->count++] = *n;
    return STATUS_OK;
}

static int find_name(const char *const *names, int count, const char *name) {
    int i = 0;
    while (i < count && strcmp(names[i], name) != 0) {
        i++;
    }
    return i < count ? i : -1;
}

/* A number, or a percentage. */
static bool parse_number(struct node *n, const char *word) {
    char *end = NULL;
    n->number = strtod(word, &end);
    n->ranked = end != word && strcmp(end, "%") == 0;
    return end != word && (n->ranked || *end == '\0') && isfinite(n->number) &&
           (!n->ranked || (n->number >= 0 && n->number <= 100));
}

static enum status parse_number_comparison(struct parser *p, struct node *n, struct error *err) {
    if (n->op == OP_LIKE) {
        return wrong(p, "a comparison of numbers, < <= > >= = or !=,", err);
    }
    const char *before = p->at;
    if (!take_word(p) || p->quoted || !parse_number(n, p->word)) {
        p->at = before;
        return wrong(p, "a number, or a percentage such as 90%,", err);
    }
    return STATUS_OK;
}

static enum status parse_text_comparison(struct parser *p, struct node *n, struct error *err) {
    const bool like = n->fact != TEXT_FORMAT && n->fact != TEXT_HASH;
    if (n->op != OP_EQUAL && n->op != OP_OTHER && !(like && n->op == OP_LIKE)) {
        return wrong(p, like ? "one of = != ~ before a text" : "= or != before a text", err);
    }
    if (!take_word(p)) {
        return wrong(p, "a text, in quotes unless it is one word,", err);
    }
    n->text = strdup(p->word);
    return n->text ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory for the condition");
}

static bool is_meta(const char *name) {
    return strncmp(name, META, strlen(META)) == 0 && name[strlen(META)] != '\0';
}

static bool take_byte(struct parser *p, char c) {
    skip_space(p);
    const bool there = *p->at == c;
    p->at += there;
    return there;
}

/* hash(NAME) % N: takes it from the parenthesis on. */
static enum status
parse_hash(struct parser *p, struct node *n, char name[MAX_WORD_BYTES], struct error *err) {
    static const char *const hashed[] = {"id", "key", "image"};
    const char *before = ++p->at;
    n->fact = NUMBER_HASH;
    if (!take_word(p) || (find_name(hashed, 3, p->word) < 0 && !is_meta(p->word))) {
        p->at = before;
        return wrong(p, "id, key, image or meta.NAME", err);
    }
    memcpy(name, p->word, MAX_WORD_BYTES);
    if (!take_byte(p, ')') || !take_byte(p, '%')) {
        return wrong(p, "') % N'", err);
    }
    before = p->at;
    if (!take_word(p) || !cli_parse_u64(p->word, CLI_UNIT_NONE, &n->modulus) || n->modulus == 0) {
        p->at = before;
        return wrong(p, "an integer from 1 on", err);
    }
    return STATUS_OK;
}

/* A member of the metadata is compared as a number if a number is given. */
static enum status parse_meta_comparison(struct parser *p, struct node *n, struct error *err) {
    const char *before = p->at;
    if (n->op != OP_LIKE && take_word(p) && !p->quoted && parse_number(n, p->word)) {
        return STATUS_OK;
    }
    p->at = before;
    n->kind = NODE_TEXT;
    n->fact = TEXT_META;
    return parse_text_comparison(p, n, err);
}

/* The field's name has been taken; *name: what a node keeps of it. */
static enum status
parse_field(struct parser *p, struct node *n, char name[MAX_WORD_BYTES], struct error *err) {
    n->fact = find_name(numbers, NUMBER_COUNT, name);
    const int text = find_name(texts, TEXT_COUNT, name);
    skip_space(p);
    if (strcmp(name, "hash") == 0 && *p->at == '(') {
        return parse_hash(p, n, name, err);
    }
    if (is_meta(name)) {
        n->fact = NUMBER_META;
    } else if (text >= 0 && text != TEXT_META) {
        n->kind = NODE_TEXT;
        n->fact = text;
    } else if ((n->fact < 0 || n->fact == NUMBER_META) && p->w->columns) {
        int32_t column = 0;
        TRY(columns_find(&column, p->w->columns, name, err));
        n->fact = NUMBER_COUNT + column;
    } else if (n->fact < 0 || n->fact == NUMBER_META) {
        return error_set(err, STATUS_USAGE,
                         "unknown field '%.40s'; fields are %s; per-sample state needs --state "
                         "RUN, and a column col.NAME",
                         name, WHERE_FACTS);
    }
    return STATUS_OK;
}

static enum status parse_comparison(struct parser *p, int32_t *out, struct error *err) {
    struct node n = {.kind = NODE_NUMBER};
    char name[MAX_WORD_BYTES];
    const char *before = p->at;
    if (!take_word(p) || p->quoted) {
        p->at = before;
        return wrong(p, "a name", err);
    }
    memcpy(name, p->word, sizeof(name));
    TRY(parse_field(p, &n, name, err));
    if (!take_operator(p, &n.op)) {
        return wrong(p, "one of < <= > >= = != ~", err);
    }
    const bool meta = n.kind == NODE_NUMBER && n.fact == NUMBER_META;
    TRY(meta                  ? parse_meta_comparison(p, &n, err)
        : n.kind == NODE_TEXT ? parse_text_comparison(p, &n, err)
                              : parse_number_comparison(p, &n, err));
    if (meta || (n.kind == NODE_NUMBER && n.fact == NUMBER_HASH)) {
        n.name = strdup(meta ? name + strlen(META) : name);
        if (!n.name) {
            free(n.text);
            return error_set(err, STATUS_NOMEM, "out of memory for the condition");
        }
    }
    return add_node(p, &n, out, err);
}

static enum status parse_or(struct parser *p, int32_t *out, struct error *err);

static enum status parse_factor(struct parser *p, int32_t *out, struct error *err) {
    enum status s;
    FAIL_IF(++p->depth > MAX_DEPTH, err, STATUS_LIMIT, "the condition is nested more than %d deep",
            MAX_DEPTH);
    skip_space(p);
    if (*p->at == '(') {
        p->at++;
        TRY(parse_or(p, out, err));
        skip_space(p);
        if (*p->at != ')') {
            return wrong(p, "'and', 'or' or ')'", err);
        }
        p->at++;
        s = STATUS_OK;
    } else if (take_keyword(p, "not")) {
        struct node n = {.kind = NODE_NOT};
        TRY(parse_factor(p, &n.left, err));
        s = add_node(p, &n, out, err);
    } else {
        s = parse_comparison(p, out, err);
    }
    p->depth--;
    return s;
}

/* Operands of `kind`, each read by `operand`. */
static enum status parse_chain(struct parser *p,
                               int32_t *out,
                               enum node_kind kind,
                               const char *keyword,
                               enum status (*operand)(struct parser *, int32_t *, struct error *),
                               struct error *err) {
    TRY(operand(p, out, err));
    while (take_keyword(p, keyword)) {
        struct node n = {.kind = kind, .left = *out};
        TRY(operand(p, &n.right, err));
        TRY(add_node(p, &n, out, err));
    }
    return STATUS_OK;
}

static enum status parse_and(struct parser *p, int32_t *out, struct error *err) {
    return parse_chain(p, out, NODE_AND, "and", parse_factor, err);
}

static enum status parse_or(struct parser *p, int32_t *out, struct error *err) {
    return parse_chain(p, out, NODE_OR, "or", parse_and, err);
}

enum status
where_parse(struct where **out, const char *text, struct columns *columns, struct error *err) {
    REQUIRE(out && text);
    *out = NULL;
    FAIL_IF(strlen(text) > WHERE_MAX_TEXT_BYTES, err, STATUS_LIMIT,
            "the condition is longer than %d bytes", WHERE_MAX_TEXT_BYTES);
    struct where *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "out of memory for the condition");
    w->columns = columns;
    struct parser p = {.w = w, .text = text, .at = text};
    int32_t root = 0;
    enum status s = parse_or(&p, &root, err);
    skip_space(&p);
    if (s == STATUS_OK && *p.at != '\0') {
        s = wrong(&p, "'and' or 'or'", err);
    }
    RETURN_CREATED(s, out, w, where_destroy);
}

enum status
where_parse_name(struct where **out, const char *name, struct columns *columns, struct error *err) {
    REQUIRE(out && name);
    *out = NULL;
    struct where *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "out of memory for the order");
    w->columns = columns;
    struct parser p = {.w = w, .text = name, .at = name};
    struct node n = {.kind = NODE_NUMBER};
    char field[MAX_WORD_BYTES];
    int32_t root = 0;
    enum status s = take_word(&p) && !p.quoted ? STATUS_OK : wrong(&p, "a name", err);
    if (s == STATUS_OK) {
        memcpy(field, p.word, sizeof(field));
        s = parse_field(&p, &n, field, err);
    }
    skip_space(&p);
    if (s == STATUS_OK && (n.kind != NODE_NUMBER || n.fact == NUMBER_HASH || *p.at != '\0')) {
        s = error_set(err, STATUS_USAGE, "'%.80s' is not the name of a number", name);
    }
    if (s == STATUS_OK && n.fact == NUMBER_META) {
        n.name = strdup(field + strlen(META));
        s = n.name ? s : error_set(err, STATUS_NOMEM, "out of memory for the order");
    }
    THEN(s, add_node(&p, &n, &root, err));
    RETURN_CREATED(s, out, w, where_destroy);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A member by its name, or below others with dots between their names. */
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

/* The text of a member of the metadata: a string, or other values as JSON. *out is to be freed;
 * NULL: there is none, or null. */
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

/* The XXH64 of what hash() names, as a text. */
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

/* NaN: not known. */
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

/* N% of n numbers is the one with floor(n N / 100) smaller ones in their order; 100% the last. */
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

/* The key in the shard, or the one that the sample had in its source. */
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
