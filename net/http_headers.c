/*
 * Values of headers that libcurl leaves to its callers.
 */
#include <string.h>
#include <strings.h>

#include "net/http_internal.h"

static bool read_number(const char **text, uint64_t *out) {
    const char *at = *text;
    uint64_t value = 0;
    if (*at < '0' || *at > '9') {
        return false;
    }
    for (; *at >= '0' && *at <= '9'; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX / 2 - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *text = at;
    *out = value;
    return true;
}

bool http_parse_content_range(const char *text, uint64_t *first, uint64_t *last, uint64_t *total) {
    if (strncasecmp(text, "bytes ", 6) != 0) {
        return false;
    }
    text += 6;
    if (!read_number(&text, first) || *text++ != '-' || !read_number(&text, last) ||
        *text++ != '/') {
        return false;
    }
    if (text[0] == '*') {
        *total = HTTP_UNKNOWN;
        text++;
    } else if (!read_number(&text, total)) {
        return false;
    }
    return *text == '\0' && *first <= *last && *last < *total;
}

int64_t http_parse_rate_limit(const char *text) {
    uint64_t seconds = 0;
    const char *at = strstr(text, ";t=");
    at = at != NULL ? at + 3 : at;
    return at != NULL && read_number(&at, &seconds) && seconds <= 86400 ? (int64_t)seconds * 1000
                                                                        : -1;
}

static bool word_is(const char *word, size_t size, const char *expected) {
    return size == strlen(expected) && strncasecmp(word, expected, size) == 0;
}

bool http_robots_tag_forbids(const char *text, const char *agent) {
    static const char *const forbidding[] = {"noai", "noimageai", "noindex", "noimageindex",
                                             "none"};
    bool is_for_us = true; /* until an agent is named: then for the rest of the line */
    while (*text != '\0') {
        text += strspn(text, " \t,");
        size_t size = strcspn(text, " \t,:");
        const size_t colon = size + strspn(text + size, " \t");
        if (text[colon] == ':' && !word_is(text, size, "unavailable_after") &&
            !word_is(text, size, "max-snippet") && !word_is(text, size, "max-image-preview") &&
            !word_is(text, size, "max-video-preview")) {
            is_for_us = word_is(text, size, agent) || word_is(text, size, "*");
            text += colon + 1;
            continue;
        }
        for (size_t i = 0; is_for_us && i < sizeof forbidding / sizeof forbidding[0]; i++) {
            if (word_is(text, size, forbidding[i])) {
                return true;
            }
        }
        text += strcspn(text, ",");
    }
    return false;
}
