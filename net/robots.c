/*
 * Two passes over the lines: one counts the rules of our groups and those of `*`, one collects the
 * rules that apply. They are kept as text, the most specific first, so that the first match
 * decides; percent-encodings are resolved while matching, on both sides, one unit at a time.
 */
#include "net/robots.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A unit of a path: an octet, or one of these. */
enum { UNIT_SLASH = 256, UNIT_QUESTION, UNIT_ANY, UNIT_PATH_END, UNIT_END };

struct text {
    const uint8_t *at, *end;
};

struct rule {
    struct text pattern;
    size_t octets;
    bool allow;
};

/* Records of two bytes (length, and allow in the highest bit) and the pattern. */
struct robots {
    size_t size_bytes;
    uint8_t records[];
};

enum { RECORD_ALLOW = 0x8000, PATTERN_MAX_BYTES = 0x7fff };

/* Units that are compared for one path, about 20 ms. Only rules made to be slow need more. */
enum { MAX_STEPS = 1 << 22 };

/* --- lines */

enum line_kind { LINE_AGENT, LINE_ALLOW, LINE_DISALLOW, LINE_OTHER };

static bool is_blank(uint8_t c) {
    return c == ' ' || c == '\t';
}

static struct text trimmed(struct text t) {
    while (t.at < t.end && is_blank(*t.at)) {
        t.at++;
    }
    while (t.at < t.end && is_blank(t.end[-1])) {
        t.end--;
    }
    return t;
}

static bool text_is(struct text t, const char *word) {
    const size_t n = strlen(word);
    return (size_t)(t.end - t.at) == n && strncasecmp((const char *)t.at, word, n) == 0;
}

static enum line_kind kind_of_key(struct text key) {
    static const struct {
        const char *word;
        enum line_kind kind;
    } keys[] = {{"user-agent", LINE_AGENT},  {"useragent", LINE_AGENT},
                {"user agent", LINE_AGENT},  {"allow", LINE_ALLOW},
                {"disallow", LINE_DISALLOW}, {"dissallow", LINE_DISALLOW},
                {"dissalow", LINE_DISALLOW}, {"disalow", LINE_DISALLOW},
                {"diasllow", LINE_DISALLOW}, {"disallaw", LINE_DISALLOW}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (text_is(key, keys[i].word)) {
            return keys[i].kind;
        }
    }
    return LINE_OTHER;
}

/* Removes the next line from `rest` and splits it. */
static enum line_kind next_line(struct text *rest, struct text *value) {
    struct text line = *rest;
    while (rest->at < rest->end && *rest->at != '\n' && *rest->at != '\r') {
        rest->at++;
    }
    line.end = rest->at;
    rest->at += rest->at < rest->end; /* CR LF: an empty line between the two changes nothing */
    const uint8_t *comment = memchr(line.at, '#', (size_t)(line.end - line.at));
    line.end = comment ? comment : line.end;
    line = trimmed(line);
    struct text key = line;
    const uint8_t *colon = memchr(line.at, ':', (size_t)(line.end - line.at));
    if (colon) {
        key.end = colon;
        value->at = colon + 1;
    } else { /* two words */
        for (key.end = key.at; key.end < line.end && !is_blank(*key.end);) {
            key.end++;
        }
        value->at = key.end;
    }
    value->end = line.end;
    *value = trimmed(*value);
    return kind_of_key(trimmed(key));
}

static bool is_token_octet(uint8_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

/* A file's value may go on after the token, as in `name/1.0`. */
static bool names_agent(struct text value, const char *agent) {
    struct text token = {value.at, value.at};
    while (token.end < value.end && is_token_octet(*token.end)) {
        token.end++;
    }
    return text_is(token, agent);
}

static bool names_all(struct text value) {
    return value.at < value.end && *value.at == '*' &&
           (value.at + 1 == value.end || is_blank(value.at[1]));
}

/* --- units */

static int hex_value(uint8_t c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next unit of a path, or of a pattern. */
static int next_unit(struct text *t, bool is_pattern) {
    if (t->at == t->end) {
        return UNIT_END;
    }
    const uint8_t c = *t->at++;
    if (is_pattern && c == '*') {
        return UNIT_ANY;
    }
    if (is_pattern && c == '$' && t->at == t->end) {
        return UNIT_PATH_END;
    }
    const int high = c == '%' && t->end - t->at >= 2 ? hex_value(t->at[0]) : -1;
    const int low = high >= 0 ? hex_value(t->at[1]) : -1;
    if (low < 0) {
        return c;
    }
    t->at += 2;
    const int octet = high << 4 | low;
    return octet == '/' ? UNIT_SLASH : octet == '?' ? UNIT_QUESTION : octet;
}

static int decoded(int unit) {
    return unit == UNIT_SLASH ? '/' : unit == UNIT_QUESTION ? '?' : unit;
}

/* Whether a pattern matches a path, whose query begins at `query`, from its start. After a mismatch
 * the last `*` takes one octet more: an earlier one never has to, so the time is at most the
 * product of the sizes; true where *steps_left do not suffice. */
static bool
matches(struct text pattern, struct text path, const uint8_t *query, uint32_t *steps_left) {
    struct text star_pattern = {NULL, NULL};
    struct text star_path = path;
    for (; *steps_left > 0; --*steps_left) {
        struct text here = path;
        const int wanted = next_unit(&pattern, true);
        if (wanted == UNIT_END) {
            return true;
        }
        if (wanted == UNIT_ANY) {
            star_pattern = pattern;
            star_path = path;
            continue;
        }
        const int found = next_unit(&here, false);
        if (wanted == UNIT_PATH_END && found == UNIT_END) {
            return true;
        }
        if (path.at > query ? decoded(found) == decoded(wanted) : found == wanted) {
            path = here;
        } else if (star_pattern.at == NULL || next_unit(&star_path, false) == UNIT_END) {
            return false;
        } else {
            pattern = star_pattern;
            path = star_path;
        }
    }
    return true;
}

bool robots_allows(const struct robots *r, const char *path) {
    if (r == NULL || strcmp(path, "/robots.txt") == 0) {
        return true;
    }
    const struct text whole = {(const uint8_t *)path, (const uint8_t *)path + strcspn(path, "#")};
    const uint8_t *query = whole.at + strcspn(path, "?#");
    const uint8_t *end = r->records + r->size_bytes;
    uint32_t steps_left = MAX_STEPS;
    for (const uint8_t *at = r->records; at < end;) {
        const int head = at[0] << 8 | at[1];
        const struct text pattern = {at + 2, at + 2 + (head & PATTERN_MAX_BYTES)};
        if (matches(pattern, whole, query, &steps_left)) {
            return (head & RECORD_ALLOW) != 0 && steps_left > 0;
        }
        at = pattern.end;
    }
    return true;
}

size_t robots_memory_bytes(const struct robots *r) {
    return r ? sizeof(*r) + r->size_bytes : 0;
}

/* --- groups */

/* The rules of the groups that name `agent`, or with NULL of those of `*`: writes them to `rules`
 * if that is not NULL. Returns how many there are; *group: whether there is such a group. */
static size_t collect(struct rule *rules, bool *group, struct text rest, const char *agent) {
    size_t count = 0;
    bool ours = false;    /* the present group applies */
    bool heading = false; /* no rule since the last user-agent line */
    *group = false;
    while (rest.at < rest.end) {
        struct text value;
        const enum line_kind kind = next_line(&rest, &value);
        if (kind == LINE_AGENT) {
            ours = (heading && ours) || (agent ? names_agent(value, agent) : names_all(value));
            *group = *group || ours;
            heading = true;
        } else if (kind != LINE_OTHER) {
            heading = false;
            /* A rule that begins otherwise matches no path. */
            if (ours && value.at < value.end && (*value.at == '/' || *value.at == '*')) {
                if (rules) {
                    rules[count] = (struct rule){.pattern = value, .allow = kind == LINE_ALLOW};
                }
                count++;
            }
        }
    }
    return count;
}

static int by_precedence(const void *x, const void *y) {
    const struct rule *a = x;
    const struct rule *b = y;
    if (a->octets != b->octets) {
        return a->octets > b->octets ? -1 : 1;
    }
    return (int)b->allow - (int)a->allow;
}

static enum status pack(struct robots **out, struct rule *rules, size_t count, struct error *err) {
    size_t size_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t pattern_bytes = (size_t)(rules[i].pattern.end - rules[i].pattern.at);
        size_bytes += 2 + pattern_bytes;
        if (pattern_bytes > PATTERN_MAX_BYTES || size_bytes > ROBOTS_MAX_KEPT_BYTES) {
            return error_set(err, STATUS_LIMIT, "robots.txt has more rules for us than %d bytes",
                             ROBOTS_MAX_KEPT_BYTES);
        }
        struct text t = rules[i].pattern;
        while (next_unit(&t, true) != UNIT_END) {
            rules[i].octets++;
        }
    }
    qsort(rules, count, sizeof(*rules), by_precedence);
    struct robots *r = malloc(sizeof(*r) + size_bytes);
    if (r == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the rules of a robots.txt");
    }
    r->size_bytes = size_bytes;
    uint8_t *at = r->records;
    for (size_t i = 0; i < count; i++) {
        const size_t n = (size_t)(rules[i].pattern.end - rules[i].pattern.at);
        *at++ = (uint8_t)(n >> 8 | (rules[i].allow ? RECORD_ALLOW >> 8 : 0));
        *at++ = (uint8_t)n;
        memcpy(at, rules[i].pattern.at, n);
        at += n;
    }
    *out = r;
    return STATUS_OK;
}

/* What is parsed: without a byte order mark, and at most ROBOTS_MAX_BYTES of whole lines. */
static struct text parsed_part(const void *text, size_t size_bytes) {
    struct text t = {text, text};
    if (size_bytes > ROBOTS_MAX_BYTES) {
        size_bytes = ROBOTS_MAX_BYTES;
        while (size_bytes > 0 && t.at[size_bytes] != '\n' && t.at[size_bytes] != '\r') {
            size_bytes--;
        }
    }
    t.end += size_bytes;
    if (size_bytes >= 3 && memcmp(t.at, "\xEF\xBB\xBF", 3) == 0) {
        t.at += 3;
    }
    return t;
}

enum status robots_create(struct robots **out,
                          const void *text,
                          size_t size_bytes,
                          const char *agent,
                          struct error *err) {
    *out = NULL;
    for (const char *c = agent; *c != '\0' || c == agent; c++) {
        if (!is_token_octet((uint8_t)*c)) {
            return error_set(
                err, STATUS_INVALID,
                "'%s' is not a valid crawler name for robots.txt: use only letters, - and _",
                agent);
        }
    }
    if (size_bytes == 0) {
        return STATUS_OK;
    }
    const struct text lines = parsed_part(text, size_bytes);
    bool group;
    size_t count = collect(NULL, &group, lines, agent);
    if (!group) {
        agent = NULL;
        count = collect(NULL, &group, lines, agent);
    }
    if (count == 0) {
        return STATUS_OK;
    }
    struct rule *rules = malloc(count * sizeof(*rules));
    if (rules == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for %zu rules of a robots.txt", count);
    }
    collect(rules, &group, lines, agent);
    const enum status s = pack(out, rules, count, err);
    free(rules);
    return s;
}

void robots_destroy(struct robots *r) {
    free(r);
}
