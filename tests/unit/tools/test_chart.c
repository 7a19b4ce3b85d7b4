/*
 * Figures: where areas, ridges and numbers of a chart end up in its markup.
 */
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/chart.h"

static const double steps[] = {0.0, 10.0};
static const double low[] = {25.0, 25.0};
static const double high[] = {75.0, 75.0};

static const struct chart_series series[] = {
    {.name = "a", .x = steps, .y = low, .count = 2, .plain = true},
    {.name = "b<", .x = steps, .y = high, .count = 2, .plain = true},
};

/* The markup of a figure; the caller frees it. */
static char *drawn(const struct chart *c, const struct chart_ridges *r) {
    struct html_page p;
    html_init(&p, "page");
    const size_t from = p.out.size_bytes;
    if (c != NULL) {
        chart_lines(&p, c);
    } else {
        chart_ridges(&p, r);
    }
    assert_int_equal(p.status, STATUS_OK);
    const size_t n = p.out.size_bytes - from;
    char *out = calloc(n + 1, 1);
    assert_non_null(out);
    memcpy(out, p.out.data + from, n);
    html_fini(&p);
    return out;
}

static void assert_has(const char *text, const char *wanted) {
    if (strstr(text, wanted) == NULL) {
        fail_msg("no %s in %s", wanted, text);
    }
}

static size_t count_of(const char *text, const char *part) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        n++;
    }
    return n;
}

/* The picture is 640 x 400: the axes reach from 80 to 624, and from 348 up to 40. */
TEST(stacked_areas_stand_on_each_other) {
    const struct chart c = {.title = "t",
                            .x_label = "step",
                            .y_label = "%",
                            .stacked = true,
                            .series = series,
                            .series_count = 2};
    char *text = drawn(&c, NULL);
    assert_has(text, "d=\"M80.0 271.0L624.0 271.0L624.0 348.0L80.0 348.0\"");
    assert_has(text, "d=\"M80.0 40.0L624.0 40.0L624.0 271.0L80.0 271.0\"");
    assert_has(text, "data-name=\"b&lt;\" data-values=\"0,75 10,75 \""); /* its own height */
    free(text);
}

TEST(a_filled_outline_begins_at_the_axis) {
    struct chart_series one = series[0];
    one.filled = true;
    const struct chart c = {
        .title = "t", .x_label = "x", .y_label = "y", .series = &one, .series_count = 1};
    char *text = drawn(&c, NULL);
    assert_has(text, " 348.0\"/>"); /* back along the axis, where 0 is */
    assert_has(text, ">0</text>");
    free(text);
}

TEST(every_ridge_has_its_label_and_the_same_height) {
    static const double few[] = {1.0, 3.0};
    static const double many[] = {100.0, 300.0};
    const struct chart_ridge ridges[] = {
        {.label = 7, .low = 0, .width = 1, .heights = few, .count = 2},
        {.label = 12, .low = 0, .width = 1, .heights = many, .count = 2}};
    const struct chart_ridges r = {
        .title = "t", .x_label = "zeta", .label = "step", .ridges = ridges, .count = 2};
    char *text = drawn(NULL, &r);
    assert_has(text, ">7</text>");
    assert_has(text, ">12</text>");
    assert_has(text, "<title>7: from 0 to 2, mean about 1.25</title>");
    /* Rows of 308 / 3 units: the bases are at 245.3 and 348, the tops two rows above them. */
    assert_int_equal(count_of(text, "V40.0H"), 2);
    assert_int_equal(count_of(text, "V142.7H"), 2);
    free(text);
}

TEST(many_lines_share_the_rows_of_a_table) {
    enum { POINTS = 100 };
    double x[POINTS];
    struct chart_series lines[5];
    for (int i = 0; i < POINTS; i++) {
        x[i] = i;
    }
    for (int i = 0; i < 5; i++) {
        lines[i] =
            (struct chart_series){.name = "l", .x = x, .y = x, .count = POINTS, .plain = true};
    }
    struct chart c = {.title = "t",
                      .x_label = "x",
                      .y_label = "y",
                      .series = lines,
                      .series_count = 4,
                      .table = true};
    char *text = drawn(&c, NULL);
    assert_int_equal(count_of(text, "<td>99</td>"), 2 * 4); /* the last point is in it */
    assert_int_equal(count_of(text, "<tr>"), 1 + CHART_TABLE_ROWS);
    free(text);
    c.series_count = 5;
    text = drawn(&c, NULL);
    assert_int_equal(count_of(text, "<tr>"), 1 + CHART_TABLE_ROWS / 2);
    free(text);
}
