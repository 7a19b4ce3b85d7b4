/*
 * robots.txt of any bytes: the answers are those of a second matcher, which is written as the
 * definition (recursion over `*`, no order of rules), for each rule that stands alone; and a file
 * whose rules are all repeated answers the same.
 *
 * Input: the path up to the first LF, then the file.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/robots.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static bool allows(const void *text, size_t size_bytes, const char *path) {
    struct robots *r = NULL;
    struct error err = {0};
    const enum status s = robots_create(&r, text, size_bytes, "ccstream", &err);
    demand(s == STATUS_OK || (s == STATUS_LIMIT && r == NULL));
    demand(robots_memory_bytes(r) <= ROBOTS_MAX_KEPT_BYTES + 64);
    const bool allowed = robots_allows(r, path);
    robots_destroy(r);
    return allowed;
}

/* The definition, for patterns and paths without percent signs. */
static bool defined(const char *pattern, const char *path) {
    if (*pattern == '\0' || strcmp(pattern, "$") == 0) {
        return *pattern == '\0' || *path == '\0';
    }
    if (*pattern == '*' && pattern[1] == '*') {
        return defined(pattern + 1, path);
    }
    if (*pattern == '*') {
        return defined(pattern + 1, path) || (*path != '\0' && defined(pattern, path + 1));
    }
    return *pattern == *path && defined(pattern + 1, path + 1);
}

static void check_rule(const uint8_t *line, size_t size_bytes, const char *path) {
    char pattern[24];
    char text[64] = "user-agent:*\ndisallow:";
    if (size_bytes == 0 || size_bytes >= sizeof(pattern) || strlen(path) > 16) {
        return;
    }
    memcpy(pattern, line, size_bytes);
    pattern[size_bytes] = '\0';
    if ((*pattern != '/' && *pattern != '*') || strlen(pattern) != size_bytes ||
        strpbrk(pattern, "%# \t\r") || strpbrk(path, "%#") || strcmp(path, "/robots.txt") == 0) {
        return;
    }
    strcat(text, pattern);
    demand(allows(text, strlen(text), path) == !defined(pattern, path));
}

/* Twice the same file: not if a limit or a byte order mark makes it another one, or if its first
 * rules belong to no group, since they would join the last one. The empty rule ends a list of
 * agents. */
static void check_repeated(const uint8_t *text, size_t size_bytes, const char *path, bool allowed) {
    static const char between[] = "\ndisallow:\n";
    const size_t gap = sizeof(between) - 1;
    if (size_bytes < 11 || size_bytes > 8192 || memcmp(text, "user-agent:", 11) != 0) {
        return;
    }
    uint8_t *twice = malloc(2 * size_bytes + gap);
    demand(twice != NULL);
    memcpy(twice, text, size_bytes);
    memcpy(twice + size_bytes, between, gap);
    memcpy(twice + size_bytes + gap, text, size_bytes);
    demand(allows(twice, 2 * size_bytes + gap, path) == allowed);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    char path[256];
    const uint8_t *end = size_bytes ? memchr(data, '\n', size_bytes) : NULL;
    const size_t path_bytes = end ? (size_t)(end - data) : 0;
    if (end == NULL || path_bytes >= sizeof(path)) {
        return 0;
    }
    memcpy(path, data, path_bytes);
    path[path_bytes] = '\0';
    const uint8_t *text = end + 1;
    const size_t text_bytes = size_bytes - path_bytes - 1;
    const bool allowed = allows(text, text_bytes, path);
    check_repeated(text, text_bytes, path, allowed);
    for (const uint8_t *at = text; at < data + size_bytes;) {
        const uint8_t *next = memchr(at, '\n', (size_t)(data + size_bytes - at));
        next = next ? next : data + size_bytes;
        check_rule(at, (size_t)(next - at), path);
        at = next + 1;
    }
    return 0;
}
