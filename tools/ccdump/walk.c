/*
 * Which samples are meant: "--id 5,7-9 --from 6 --count 2" as ranges of ids, walked in order.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccdump/ccdump_internal.h"

/* A number at *text, which is moved behind it. */
static bool take_number(const char **text, uint64_t *out) {
    size_t digits = strspn(*text, "0123456789");
    char copy[24];
    if (digits == 0 || digits >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, *text, digits);
    copy[digits] = '\0';
    *text += digits;
    return cli_parse_u64(copy, CLI_UNIT_NONE, out);
}

/* "7", "3-9" or "100-" at *text. */
static bool take_range(const char **text, struct ccdump_range *out) {
    if (!take_number(text, &out->first)) {
        return false;
    }
    out->last = out->first;
    out->must_exist = **text != '-';
    if (!out->must_exist) {
        (*text)++;
        out->last = UINT64_MAX;
        if (**text != ',' && **text != '\0' && !take_number(text, &out->last)) {
            return false;
        }
    }
    return out->first <= out->last && (**text == ',' || **text == '\0');
}

static int by_first(const void *a, const void *b) {
    uint64_t x = ((const struct ccdump_range *)a)->first;
    uint64_t y = ((const struct ccdump_range *)b)->first;
    return x < y ? -1 : x > y;
}

/* Ranges that touch become one. */
static size_t merge(struct ccdump_range *ranges, size_t count) {
    size_t kept = 0;
    if (count > 1) {
        qsort(ranges, count, sizeof(*ranges), by_first);
    }
    for (size_t i = 0; i < count; i++) {
        struct ccdump_range *last = &ranges[kept > 0 ? kept - 1 : 0];
        if (kept > 0 && (last->last == UINT64_MAX || ranges[i].first <= last->last)) {
            last->last = ranges[i].last > last->last ? ranges[i].last : last->last;
            last->must_exist = last->must_exist && ranges[i].must_exist;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    return kept;
}

static size_t count_commas(const char *text) {
    size_t n = 0;
    for (; *text != '\0'; text++) {
        n += *text == ',';
    }
    return n;
}

enum status ccdump_ranges_parse(struct ccdump_range **out,
                                size_t *count,
                                const struct cli_list *texts,
                                struct error *err) {
    size_t wanted = 0;
    *out = NULL;
    *count = 0;
    for (size_t i = 0; i < texts->count; i++) {
        wanted += count_commas(texts->items[i]) + 1;
    }
    if (wanted > CCDUMP_MAX_RANGES) {
        return error_set(err, STATUS_USAGE, "--id names %zu ids and ranges, at most %d can be",
                         wanted, CCDUMP_MAX_RANGES);
    }
    struct ccdump_range *ranges = calloc(wanted + 1, sizeof(*ranges));
    if (!ranges) {
        return error_set(err, STATUS_NOMEM, "out of memory for %zu ids", wanted);
    }
    size_t filled = 0;
    for (size_t i = 0; i < texts->count; i++) {
        const char *text = texts->items[i];
        bool more = true;
        while (more) {
            if (!take_range(&text, &ranges[filled])) {
                free(ranges);
                return error_set(err, STATUS_USAGE,
                                 "--id takes ids and ranges such as 7, 3-9, 100- or 1,5,7-9; not "
                                 "'%s'",
                                 texts->items[i]);
            }
            filled++;
            more = *text == ',';
            text += more;
        }
    }
    *count = merge(ranges, filled);
    *out = ranges;
    return STATUS_OK;
}

enum status ccdump_walk_init(struct ccdump_walk *w,
                             struct ccdump_input *in,
                             const struct ccdump_choice *choice,
                             struct error *err) {
    static const char *const everything[] = {"0-"};
    struct cli_list all = {.count = 1};
    all.items[0] = everything[0];
    *w = (struct ccdump_walk){.input = in, .left = choice->count > 0 ? choice->count : UINT64_MAX};
    TRY(ccdump_ranges_parse(&w->ranges, &w->range_count,
                            choice->ids.count > 0 ? &choice->ids : &all, err));
    while (w->range_at < w->range_count && w->ranges[w->range_at].last < choice->from) {
        w->range_at++;
    }
    struct ccdump_range *r = &w->ranges[w->range_at];
    if (w->range_at < w->range_count && r->first < choice->from) {
        r->first = choice->from;
    }
    return STATUS_OK;
}

void ccdump_walk_fini(struct ccdump_walk *w) {
    free(w->ranges);
    memset(w, 0, sizeof(*w));
}

enum status ccdump_walk_next(struct ccdump_walk *w, struct ccdump_facts *out, struct error *err) {
    while (w->left > 0 && w->range_at < w->range_count) {
        const struct ccdump_range *r = &w->ranges[w->range_at];
        if (r->must_exist) {
            w->range_at++;
            w->left--;
            return ccdump_input_find(w->input, out, r->first, err);
        }
        if (!w->inside) {
            TRY(ccdump_input_from(w->input, r->first, err));
            w->inside = true;
        }
        enum status s = ccdump_input_next(w->input, out, err);
        if (s == STATUS_OK && out->id <= r->last) {
            w->left--;
            return s;
        }
        if (s != STATUS_OK && s != STATUS_END) {
            return s;
        }
        w->inside = false;
        w->range_at++;
    }
    return STATUS_END;
}
