/*
 * The samples selected by "--id 5,7-9 --from 6 --count 2": ranges of ids, visited in order.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/inspect/samples.h"

#include "formats/base/sort.h"

#define FIELD(name) CLI_FIELD(struct sample_choice, name)

static const struct cli_option choice_rows[] = {
    {"id", 0, CLI_LIST, FIELD(ids), .metavar = "N",
     .help = "only these ids: 7, 3-9, 100- or several with commas", .group = "Which samples"},
    {"from", 0, CLI_U64, FIELD(from), .default_text = "0", .metavar = "ID",
     .help = "start at the first sample with this id or a larger one"},
    {"count", 'n', CLI_U64, FIELD(count), .default_text = "0", .metavar = "N",
     .help = "at most this many; 0: all"},
    CLI_REMOTE_ROWS(struct sample_choice, remote),
};

const struct cli_rows sample_choice_rows[] = {CLI_ROWS(choice_rows), {NULL, 0}};

/* Reads a number at *text and moves *text past it. */
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
static bool take_range(const char **text, struct sample_range *out) {
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

/* Merges adjacent ranges. */
static size_t merge(struct sample_range *ranges, size_t count) {
    size_t kept = 0;
    if (count > 1) {
        qsort(ranges, count, sizeof(*ranges), compare_u64);
    }
    for (size_t i = 0; i < count; i++) {
        struct sample_range *last = &ranges[kept > 0 ? kept - 1 : 0];
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

enum status sample_ranges_parse(struct sample_range **out,
                                size_t *count,
                                const struct cli_list *texts,
                                struct error *err) {
    size_t wanted = 0;
    *out = NULL;
    *count = 0;
    for (size_t i = 0; i < texts->count; i++) {
        wanted += count_commas(texts->items[i]) + 1;
    }
    FAIL_IF(wanted > SAMPLE_MAX_RANGES, err, STATUS_USAGE,
            "--id names %zu ids and ranges; the limit is %d", wanted, SAMPLE_MAX_RANGES);
    struct sample_range *ranges = calloc(wanted + 1, sizeof(*ranges));
    TRY_MEMORY(ranges, err, "out of memory for %zu ids", wanted);
    size_t filled = 0;
    for (size_t i = 0; i < texts->count; i++) {
        const char *text = texts->items[i];
        bool more = true;
        while (more) {
            if (!take_range(&text, &ranges[filled])) {
                free(ranges);
                return error_set(
                    err, STATUS_USAGE,
                    "--id requires ids and ranges such as 7, 3-9, 100- or 1,5,7-9, not "
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

enum status sample_walk_init(struct sample_walk *w,
                             struct input *in,
                             const struct sample_choice *choice,
                             bool quiet,
                             struct error *err) {
    const struct cli_list all = {.items = {"0-"}, .count = 1};
    *w = (struct sample_walk){.input = in,
                              .left = choice->count > 0 ? choice->count : UINT64_MAX,
                              .chosen = choice->from > 0 || choice->ids.count > 0};
    cli_progress_init(&w->progress, "samples", quiet);
    TRY(sample_ranges_parse(&w->ranges, &w->range_count,
                            choice->ids.count > 0 ? &choice->ids : &all, err));
    while (w->range_at < w->range_count && w->ranges[w->range_at].last < choice->from) {
        w->range_at++;
    }
    struct sample_range *r = &w->ranges[w->range_at];
    if (w->range_at < w->range_count && r->first < choice->from) {
        r->first = choice->from;
    }
    return STATUS_OK;
}

void sample_walk_fini(struct sample_walk *w) {
    cli_progress_clear(&w->progress);
    free(w->ranges);
    memset(w, 0, sizeof(*w));
}

static enum status next(struct sample_walk *w, struct sample_facts *out, struct error *err) {
    while (w->left > 0 && w->range_at < w->range_count) {
        const struct sample_range *r = &w->ranges[w->range_at];
        if (r->must_exist) {
            w->range_at++;
            return input_find(w->input, out, r->first, err);
        }
        if (!w->inside) {
            TRY(input_from(w->input, r->first, err));
            w->inside = true;
        }
        enum status s = input_next(w->input, out, err);
        if (s != STATUS_END && (s != STATUS_OK || out->id <= r->last)) {
            return s;
        }
        w->inside = false;
        w->range_at++;
    }
    return STATUS_END;
}

enum status sample_walk_next(struct sample_walk *w, struct sample_facts *out, struct error *err) {
    const bool whole = w->range_count == 1 && w->ranges[0].last == UINT64_MAX &&
                       w->input->sample_count != INPUT_UNKNOWN;
    if (w->done > 0) {
        cli_progress_update(&w->progress, w->done, whole ? w->input->sample_count : 0, w->bytes,
                            NULL);
    }
    if (cli_interrupted()) {
        return error_set(err, STATUS_INTERRUPTED, "interrupted after %s",
                         cli_format_counted(w->done, "sample"));
    }
    const enum status s = next(w, out, err);
    if (s == STATUS_OK) {
        w->left--;
        w->done++;
    }
    FAIL_IF(s == STATUS_END && w->done == 0 && w->chosen, err, STATUS_NOTFOUND,
            "%s: no sample has such an id", w->input->path);
    return s;
}
