/*
 * Choosing samples: ranges of ids, and texts in captions.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"
#include "tools/cli/cli_text.h"
#include "tools/inspect/samples.h"

static struct error err;

static enum status
parse(const char *a, const char *b, struct sample_range **out, size_t *count, struct error *e) {
    struct cli_list list = {.count = b ? 2 : 1};
    list.items[0] = a;
    list.items[1] = b;
    return sample_ranges_parse(out, count, &list, e);
}

TEST(ranges_are_ascending_and_disjoint) {
    static const struct {
        const char *a, *b;
        size_t count;
        struct sample_range ranges[4];
    } cases[] = {
        {"7", NULL, 1, {{7, 7, true}}},
        {"3-9", NULL, 1, {{3, 9, false}}},
        {"9-9", NULL, 1, {{9, 9, false}}},
        {"100-", NULL, 1, {{100, UINT64_MAX, false}}},
        {"5,1", "3", 3, {{1, 1, true}, {3, 3, true}, {5, 5, true}}},
        {"5-8,1-", "3", 1, {{1, UINT64_MAX, false}}},
        {"1-5,4-6", "8,8", 2, {{1, 6, false}, {8, 8, true}}},
        {"2", "2-2", 1, {{2, 2, false}}},
        {"18446744073709551615", NULL, 1, {{UINT64_MAX, UINT64_MAX, true}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sample_range *ranges = NULL;
        size_t count = 0;
        assert_ok(parse(cases[i].a, cases[i].b, &ranges, &count, &err), err);
        assert_int_equal(count, cases[i].count);
        for (size_t k = 0; k < count; k++) {
            assert_true(ranges[k].first == cases[i].ranges[k].first);
            assert_true(ranges[k].last == cases[i].ranges[k].last);
            assert_int_equal(ranges[k].must_exist, cases[i].ranges[k].must_exist);
        }
        free(ranges);
    }
}

TEST(invalid_ranges_are_refused) {
    static const char *const wrong[] = {"",   "x",  "-",   "-1",  "3-2",  "1,",
                                        ",1", "1x", "1-x", "1 2", "1--2", "18446744073709551616"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct sample_range *ranges = NULL;
        size_t count = 0;
        assert_status(parse(wrong[i], NULL, &ranges, &count, &err), STATUS_USAGE, err);
        assert_null(ranges);
    }
}

TEST(texts_are_found_regardless_of_case) {
    static const char text[] = "A Red C\xC3\xA9p\xC3\x89 Ng\xC6\xB0\xE1\xBB\x9Di end";
    static const struct {
        const char *wanted;
        bool found;
    } cases[] = {
        {"red", true},
        {"RED c", true},
        {"", true},
        {"a red c\xC3\xA9", true}, /* é is itself */
        {"c\xC3\x89", false},      /* and not É */
        {"ng\xC6\xB0\xE1\xBB\x9Di", true},
        {"END", true},
        {"ends", false},
        {"redc", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(cli_text_holds(text, strlen(text), cases[i].wanted), cases[i].found);
    }
    assert_false(cli_text_holds(text, 4, "red"));
    assert_true(cli_text_holds("", 0, ""));
    assert_false(cli_text_holds("", 0, "a"));
}
