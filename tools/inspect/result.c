/*
 * Prints results of commands, which are JSON, as readable text: one field per line with aligned
 * values, texts wrapped, numbers of a list on one line, objects with the same fields as the rows of
 * a table, "edges" with "counts" as a histogram; no terminal control sequences.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/json/json_reader.h"
#include "tools/cli/cli_text.h"
#include "tools/inspect/samples.h"

enum {
    STEP = 2,
    MAX_INDENT = 40,
    MOST_COLUMNS = 16,
    MOST_ITEMS = 100, /* printed rows of a table, and items of a list */
    CELL_BYTES = 100,
    BAR_COLUMNS = 40,
};

static bool is_block(const struct json_value *v) {
    return (json_value_is_object(v) || json_value_is_array(v)) && json_value_count(v) > 0;
}

static bool is_numbers(const struct json_value *v) {
    double unused;
    bool all = json_value_is_array(v) && json_value_count(v) > 0;
    for (size_t i = 0; all && i < json_value_count(v); i++) {
        all = json_value_double(json_value_at(v, i), &unused);
    }
    return all;
}

static double number_at(const struct json_value *list, size_t i) {
    double d = 0;
    (void)json_value_double(json_value_at(list, i), &d);
    return d;
}

static const char *number_text(double d) {
    return cli_format(d == floor(d) && fabs(d) < 1e15 ? "%.0f" : "%.6g", d);
}

static double largest(const struct json_value *list) {
    double most = 0;
    for (size_t i = 0; i < json_value_count(list); i++) {
        most = fmax(most, number_at(list, i));
    }
    return most;
}

static void put_more(const struct json_value *v, size_t indent) {
    if (json_value_count(v) > MOST_ITEMS) {
        printf("%*sand %zu more (--json has them all)\n", (int)indent, "",
               json_value_count(v) - MOST_ITEMS);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Element or field i; NULL after the last. *name: a field's name; "" for an element. */
static const struct json_value *row_at(const struct json_value *v, size_t i, const char **name) {
    const struct json_value *row = json_value_at(v, i);
    void *position = NULL;
    *name = "";
    for (size_t k = 0; json_value_is_object(v) && k <= i; k++) {
        if (!json_value_next_member(v, &position, name, &row)) {
            return NULL;
        }
    }
    return row;
}

/* Whether all are objects of scalars and lists of numbers. */
static bool is_table(const struct json_value *v) {
    const char *key;
    const struct json_value *row;
    const struct json_value *x;
    bool is = json_value_count(v) > 0;
    for (size_t i = 0; is && (row = row_at(v, i, &key)) != NULL; i++) {
        void *position = NULL;
        is = json_value_is_object(row) && json_value_count(row) <= MOST_COLUMNS;
        while (is && json_value_next_member(row, &position, &key, &x)) {
            is = !is_block(x) || is_numbers(x);
        }
    }
    return is;
}

/* Numbers as bars of one character each. */
static void draw_bars(char room[CELL_BYTES], const struct json_value *v) {
    const double most = largest(v);
    size_t used = 0;
    for (size_t i = 0; used + 4 < CELL_BYTES && i < json_value_count(v); i++) {
        const double part = most > 0 ? number_at(v, i) / most : 0;
        used += (size_t)sprintf(room + used, "\xE2\x96%c", 0x81 + (int)(7 * fmax(part, 0)));
    }
}

/* A value that is not a list, or a list of numbers. */
static struct shard_text cell_text(char room[CELL_BYTES], const struct json_value *v) {
    size_t size_bytes;
    uint64_t u;
    double d;
    bool b;
    const char *text = json_value_string(v, &size_bytes);
    if (text != NULL) {
        return (struct shard_text){text, size_bytes};
    }
    if (is_numbers(v)) {
        draw_bars(room, v);
    } else if (json_value_u64(v, &u)) { /* all digits: it may be an id */
        snprintf(room, CELL_BYTES, "%" PRIu64, u);
    } else {
        strcpy(room, json_value_double(v, &d)  ? number_text(d)
                     : !json_value_bool(v, &b) ? "-"
                     : b                       ? "yes"
                                               : "no");
    }
    return (struct shard_text){room, strlen(room)};
}

/* Measures the columns of a table, or writes it. Column 0 has the rows' names, if any. */
static void table_pass(size_t columns,
                       const struct json_value *v,
                       const char *const *keys,
                       size_t *widths,
                       size_t indent,
                       bool writes) {
    for (size_t i = 0; i <= json_value_count(v) && i <= MOST_ITEMS; i++) { /* 0: the head */
        char room[CELL_BYTES];
        const char *name = "";
        const struct json_value *row = i > 0 ? row_at(v, i - 1, &name) : NULL;
        size_t used = indent;
        printf("%*s", writes ? (int)indent : 0, "");
        for (size_t k = 0; keys[k] != NULL; k++) {
            const char *head = k == 0 ? name : keys[k];
            const struct shard_text text = i == 0 || k == 0
                                               ? (struct shard_text){head, strlen(head)}
                                               : cell_text(room, json_value_get(row, head));
            const size_t width = cli_text_columns(text.data, text.size_bytes);
            if (!writes) {
                widths[k] = width + 2 > widths[k] && width > 0 ? width + 2 : widths[k];
                continue;
            }
            const bool last = keys[k + 1] == NULL;
            cli_text_put(stdout, text.data, text.size_bytes,
                         last && columns > used + 24 ? columns - used : 0);
            printf("%*s", last || widths[k] == 0 ? 0 : (int)(widths[k] - width), "");
            used += widths[k];
        }
        fputs(writes ? "\n" : "", stdout);
    }
}

static void put_table(size_t columns, const struct json_value *v, size_t indent) {
    const char *keys[MOST_COLUMNS + 2] = {""};
    size_t widths[MOST_COLUMNS + 2] = {0};
    const char *name;
    const struct json_value *longest = NULL;
    const struct json_value *x;
    void *position = NULL;
    for (size_t i = 0; (x = row_at(v, i, &name)) != NULL; i++) {
        longest = json_value_count(x) > json_value_count(longest) ? x : longest;
    }
    for (size_t k = 1; json_value_next_member(longest, &position, &keys[k], &x); k++) {
    }
    table_pass(columns, v, keys, widths, indent, false);
    table_pass(columns, v, keys, widths, indent, true);
    put_more(v, indent);
}

/* ---- members --------------------------------------------------------------------------------- */

/* A bar of `part` (0 to 1) of `width` columns, to an eighth of a column; never empty for a part
 * above 0. Ends with a line feed. */
static void print_bar(double part, size_t width) {
    static const char *const eighths[] = {"",
                                          "\xE2\x96\x8F",
                                          "\xE2\x96\x8E",
                                          "\xE2\x96\x8D",
                                          "\xE2\x96\x8C",
                                          "\xE2\x96\x8B",
                                          "\xE2\x96\x8A",
                                          "\xE2\x96\x89"};
    size_t units = (size_t)(part * (double)(8 * width) + 0.5);
    units = units == 0 && part > 0 ? 1 : units;
    for (size_t i = 0; i < units / 8; i++) {
        fputs("\xE2\x96\x88", stdout);
    }
    puts(eighths[units % 8]);
}

/* Bin i has counts[i] values from edges[i] up to edges[i + 1]. */
static void put_histogram(const struct json_value *edges,
                          const struct json_value *counts,
                          size_t columns,
                          size_t indent) {
    enum { BESIDE = 43, NARROWEST = 8 };
    const size_t beside = indent + BESIDE;
    const size_t width = columns == 0                   ? BAR_COLUMNS
                         : columns > beside + NARROWEST ? columns - beside
                                                        : NARROWEST;
    const double most = largest(counts);
    double total = 0;
    for (size_t i = 0; i < json_value_count(counts); i++) {
        total += number_at(counts, i);
    }
    for (size_t i = 0; i < json_value_count(counts); i++) {
        const double count = number_at(counts, i);
        printf("%*s%9s to %-9s  %9s %5.1f%%  ", (int)indent, "", number_text(number_at(edges, i)),
               number_text(number_at(edges, i + 1)), number_text(count), 100 * count / total);
        print_bar(count / most, width);
    }
}

static void put_value(const struct json_value *v, size_t columns, size_t indent, size_t at);

/* `head` is the field's name or a dash; the value follows on the same line, at least `width`
 * columns after the indent, or below. */
static void put_member(const char *head,
                       const struct json_value *v,
                       size_t columns,
                       size_t indent,
                       size_t width) {
    const size_t shown = indent < MAX_INDENT ? indent : MAX_INDENT;
    printf("%*s", (int)shown, "");
    const size_t at = shown + cli_text_put(stdout, head, strlen(head), 0);
    uint64_t bytes = 0;
    if (is_block(v) && !is_numbers(v)) {
        putchar('\n');
        put_value(v, columns, shown + STEP, 0);
        return;
    }
    const size_t gap = at + 1 < shown + width ? shown + width - at : 1;
    printf("%*s", (int)gap, "");
    if (strstr(head, "bytes") != NULL && json_value_u64(v, &bytes) && bytes >= 10000) {
        printf("%" PRIu64 " (%s)\n", bytes, cli_format_bytes(bytes));
    } else {
        put_value(v, columns, shown, at + gap);
    }
}

static void put_members(const struct json_value *v, size_t columns, size_t indent) {
    const struct json_value *edges = json_value_get(v, "edges");
    const struct json_value *counts = edges != NULL ? json_value_get(v, "counts") : NULL;
    void *position = NULL;
    const char *key;
    const struct json_value *x;
    size_t width = 0;
    while (json_value_next_member(v, &position, &key, &x)) {
        width = strlen(key) + 2 > width && !is_block(x) ? strlen(key) + 2 : width;
    }
    position = NULL;
    while (json_value_next_member(v, &position, &key, &x)) {
        if (counts == NULL || (x != edges && x != counts)) {
            put_member(cli_format("%s:", key), x, columns, indent, width);
        }
    }
    put_histogram(edges, counts, columns, indent);
}

/* A value that is not a block starts at column `at`; others have separate lines. */
static void put_value(const struct json_value *v, size_t columns, size_t indent, size_t at) {
    char room[CELL_BYTES];
    if (is_table(v)) {
        put_table(columns, v, indent);
    } else if (is_numbers(v)) {
        for (size_t i = 0; i < json_value_count(v); i++) {
            printf("%s%s", i > 0 ? " " : "", number_text(number_at(v, i)));
        }
        putchar('\n');
    } else if (json_value_is_object(v) && is_block(v)) {
        put_members(v, columns, indent);
    } else if (is_block(v)) {
        for (size_t i = 0; i < json_value_count(v) && i < MOST_ITEMS; i++) {
            put_member("-", json_value_at(v, i), columns, indent, 0);
        }
        put_more(v, indent);
    } else {
        const struct shard_text text = cell_text(room, v);
        cli_text_wrap(stdout, text.data, text.size_bytes, at, columns);
    }
}

enum status put_result(struct json_writer *w, bool json, struct error *err) {
    struct json_document *document = NULL;
    if (json) {
        return cli_put_json(w, err);
    }
    TRY(json_writer_status(w, err));
    TRY(json_document_parse(&document, "result", w->out.data, w->out.size_bytes, err));
    put_value(json_document_root(document), cli_columns(), 0, 0);
    json_document_destroy(document);
    return STATUS_OK;
}

enum status end_result(struct json_writer *w, bool json, struct error *err) {
    json_close_object(w);
    const enum status s = put_result(w, json, err);
    json_writer_fini(w);
    return s;
}
