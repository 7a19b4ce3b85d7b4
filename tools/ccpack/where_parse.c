/*
 * Parses the text of a condition to nodes by recursive descent.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccpack/where_internal.h"
#include "tools/cli/cli.h"

enum { MAX_DEPTH = 64 };

static const char *const operators[OP_COUNT] = {"<", "<=", ">", ">=", "=", "!=", "~"};

/* The last ones are not single words. */
static const char *const numbers[NUMBER_COUNT] = {
    "id",          "width", "height",        "shorter",       "longer", "aspect", "captions",
    "image_bytes", "label", "caption_bytes", "caption_chars", "meta.",  "hash()"};

static const char *const texts[TEXT_COUNT] = {"format", "class", "key", "caption", "hash", "meta."};

struct parser {
    struct where *w;
    const char *text;
    const char *at;
    int depth;
    char word[MAX_WORD_BYTES]; /* the last one taken */
    bool quoted;
};

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

/* Takes a word or a text in quotes. False: none, or too long. */
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

/* hash(NAME) % N: parses it from the parenthesis on. */
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

/* A metadata field is compared as a number if a number is given. */
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

/* The field's name has been parsed; *name: the part stored in a node. */
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
