/*
 * A condition: what parses, and contains no caption and no key, which need a dataset, can be tested
 * on a sample; and the same condition in parentheses and with "not" before them has the other
 * result.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccpack/where.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static bool test(bool *good, const char *text) {
    const struct sample_facts f = {.id = 3, .width_px = 5, .height_px = 4, .class_name = "a"};
    struct where *w = NULL;
    if (where_parse(&w, text, NULL, NULL) != STATUS_OK) {
        return false;
    }
    if (where_has_ranks(w)) {
        if (where_rank(w, NULL, &f, NULL) != STATUS_OK) {
            abort();
        }
        where_rank_end(w);
    }
    if (where_fits(good, w, NULL, &f, NULL) != STATUS_OK) {
        abort();
    }
    where_destroy(w);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    char text[1024];
    char negated[sizeof(text) + 8];
    bool good = false;
    bool other = false;
    if (size_bytes >= sizeof(text)) {
        return 0;
    }
    memcpy(text, data, size_bytes);
    text[size_bytes] = '\0';
    if (strstr(text, "caption") || strstr(text, "key") || strstr(text, "meta")) {
        return 0;
    }
    snprintf(negated, sizeof(negated), "not (%s)", text);
    if (test(&good, text) && test(&other, negated) && good == other) {
        abort();
    }
    return 0;
}
