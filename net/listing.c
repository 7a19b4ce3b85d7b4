/*
 * What locations stand for: braces are expanded here, patterns match the names in a server's list
 * (listing_pages.c), and revisions of the Hub become commits.
 */
#include "net/listing.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "net/listing_internal.h"
#include "net/location.h"

enum { MAX_JOURNAL_BYTES = 512 << 20 };

bool listing_is_pattern(const char *text) {
    const bool web = strncmp(text, "http", 4) == 0;
    return location_is_remote(text) && strpbrk(text, web ? "*{" : "*?[{") != NULL &&
           !(web && strchr(text, '?') != NULL); /* a query */
}

static enum status add(struct byte_buffer *out, const char *text, size_t n, struct error *err) {
    TRY(byte_buffer_append(out, text, n, err));
    return byte_buffer_u8(out, 0, err);
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* The bytes of hf://datasets/OWNER/NAME, and those of @REVISION after it. 0: it is none. */
static size_t repository_bytes(const char *text, size_t *revision_bytes) {
    if (strncmp(text, "hf://datasets/", 14) != 0) {
        return 0;
    }
    const size_t owner = 14 + strcspn(text + 14, "/");
    const size_t name = text[owner] == '/' ? strcspn(text + owner + 1, "/@") : 0;
    *revision_bytes = name > 0 ? strcspn(text + owner + 1 + name, "/") : 0;
    return name > 0 ? owner + 1 + name : 0;
}

static enum status list_hub(struct listing *l, const char *text, struct error *err) {
    char commit[41];
    size_t revision_bytes;
    const size_t repository = repository_bytes(text, &revision_bytes);
    FAIL_IF(repository == 0, err, STATUS_USAGE, "'%.200s' has no repository", text);
    TRY(listing_ask_commit(l, commit, text, err));
    (void)snprintf(l->base, sizeof l->base, "%.*s@%s/", (int)repository, text, commit);
    return listing_get_tree(l, commit, true, err);
}

/* `pattern`: of keys. */
static enum status
list_s3(struct listing *l, const char *bucket, const char *pattern, struct error *err) {
    (void)snprintf(l->base, sizeof l->base, "%.*s", (int)(pattern - bucket), bucket);
    return listing_get_keys(l, pattern, strcspn(pattern, "*?["), false, err);
}

/* A commit of a repository. */
struct known_commit {
    char repository[256]; /* hf://datasets/OWNER/NAME, and @REVISION where it was written; "": none
                           */
    char commit[41];
};

/* Finds one that a file's text names. */
static void recall(struct known_commit *c, const char *path) {
    struct byte_buffer text = {0};
    size_t revision_bytes;
    if (file_read_all(file_posix(), &text, path, MAX_JOURNAL_BYTES, NULL) == STATUS_OK &&
        byte_buffer_u8(&text, 0, NULL) == STATUS_OK) {
        const char *at = strstr((const char *)text.data, "hf://datasets/");
        const size_t n = at != NULL ? repository_bytes(at, &revision_bytes) : 0;
        if (n > 0 && n < sizeof c->repository && at[n] == '@' && listing_is_commit(at + n + 1)) {
            (void)snprintf(c->repository, sizeof c->repository, "%.*s", (int)n, at);
            (void)snprintf(c->commit, sizeof c->commit, "%.40s", at + n + 1);
        }
    }
    byte_buffer_fini(&text);
}

/* Copies a location; one of the Hub whose revision is no commit gets its commit. */
static enum status
pin(char *out, size_t out_size_bytes, struct known_commit *c, const char *text, struct error *err) {
    size_t revision = 0;
    const size_t repository = repository_bytes(text, &revision);
    const size_t n = repository + revision;
    struct listing *l = NULL;
    FAIL_IF(strlen(text) + sizeof c->commit >= out_size_bytes, err, STATUS_LIMIT,
            "'%.100s...' is too long", text);
    strcpy(out, text);
    if (repository == 0 || n >= sizeof c->repository ||
        (text[repository] == '@' && listing_is_commit(text + repository + 1))) {
        return STATUS_OK;
    }
    if (strncmp(c->repository, text, n) != 0 || c->repository[n] != '\0') {
        (void)snprintf(c->repository, sizeof c->repository, "%.*s", (int)n, text);
        enum status s = listing_create(&l, c->repository, NULL, location_allows_private(), err);
        THEN(s, listing_ask_commit(l, c->commit, text, err));
        listing_destroy(l);
        TRY(s);
    }
    (void)snprintf(out, out_size_bytes, "%.*s@%s%s", (int)repository, text, c->commit, text + n);
    return STATUS_OK;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status take_matches(struct byte_buffer *out,
                                const struct listing *l,
                                const char *pattern,
                                const char *text,
                                struct error *err) {
    size_t count = 0;
    const char **found = calloc(LISTING_MAX_FILES, sizeof *found);
    TRY_MEMORY(found != NULL, err, "out of memory for a list of files");
    enum status s = STATUS_OK;
    const char *name;
    for (size_t at = 0; s == STATUS_OK && (name = listing_next(&l->names, &at, NULL)) != NULL;) {
        if (fnmatch(pattern, name, FNM_PATHNAME | FNM_NOESCAPE) == 0) {
            s = count < LISTING_MAX_FILES
                    ? STATUS_OK
                    : error_set(err, STATUS_LIMIT, "%.200s: more than %d files", text,
                                LISTING_MAX_FILES);
            found[s == STATUS_OK ? count++ : 0] = name;
        }
    }
    if (s == STATUS_OK && count == 0) {
        s = error_set(err, STATUS_NOTFOUND, "%.200s: no file there has such a name", text);
    }
    qsort(found, count, sizeof *found, compare);
    for (size_t i = 0; i < count && s == STATUS_OK; i++) {
        s = byte_buffer_append(out, l->base, strlen(l->base), err);
        THEN(s, add(out, found[i], strlen(found[i]), err));
    }
    free(found);
    return s;
}

static enum status expand_list(struct byte_buffer *out, const char *text, struct error *err) {
    const bool hub = strncmp(text, "hf://datasets/", 14) == 0;
    const char *at = text + (hub ? 14 : 5);
    const char *pattern = NULL;
    for (int slashes = hub ? 2 : 1; slashes > 0 && at != NULL; slashes--) {
        pattern = strchr(at, '/');
        at = pattern != NULL ? ++pattern : NULL;
    }
    FAIL_IF(pattern == NULL || (!hub && strncmp(text, "s3://", 5) != 0), err, STATUS_USAGE,
            "%.200s: web servers do not list files; use a range of numbers such as {0000..0575}",
            text);
    struct listing *l = NULL;
    char folder[LISTING_NAME_BYTES];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(pattern - text) - 1, text);
    enum status s = listing_create(&l, folder, NULL, location_allows_private(), err);
    THEN(s, hub ? list_hub(l, text, err) : list_s3(l, text, pattern, err));
    THEN(s, take_matches(out, l, pattern, text, err));
    listing_destroy(l);
    return s;
}

/* ---- braces --------------------------------------------------------------------------------- */

/* The item of the braces' text that begins at *at, or the number `i` of a range. False: none left.
 */
static bool next_item(char item[64], const char **at, const char *end, uint64_t i) {
    uint64_t first, last;
    int digits = 0;
    char close = '\0';
    if (sscanf(*at, "%19" SCNu64 "%n..%19" SCNu64 "%c", &first, &digits, &last, &close) == 3 &&
        close == '}') {
        (void)snprintf(item, 64, "%0*" PRIu64, (*at)[0] == '0' ? digits : 0, first + i);
        return first + i <= last;
    }
    if (*at > end) {
        return false;
    }
    const size_t n = strcspn(*at, ",}");
    (void)snprintf(item, 64, "%.*s", (int)n, *at);
    *at += n + 1;
    return true;
}

enum status listing_expand(struct byte_buffer *out, const char *text, struct error *err) {
    const char *open = strchr(text, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;
    char item[64], whole[LISTING_NAME_BYTES];
    size_t braces = 0;
    for (const char *c = text; *c != '\0'; c++) {
        braces += *c == '{';
    }
    FAIL_IF(strlen(text) >= sizeof whole || braces > 8, err, STATUS_LIMIT,
            "'%.100s...' is too long", text);
    if (open == NULL || close == NULL) {
        return strpbrk(text, strncmp(text, "http", 4) == 0 ? "*" : "*?[") != NULL
                   ? expand_list(out, text, err)
                   : add(out, text, strlen(text), err);
    }
    const char *at = open + 1;
    for (uint64_t i = 0; next_item(item, &at, close, i); i++) {
        FAIL_IF(i >= LISTING_MAX_FILES || out->size_bytes > (64 << 20), err, STATUS_LIMIT,
                "%.200s: stands for more than %d files", text, LISTING_MAX_FILES);
        (void)snprintf(whole, sizeof whole, "%.*s%s%s", (int)(open - text), text, item, close + 1);
        TRY(listing_expand(out, whole, err));
    }
    return STATUS_OK;
}

enum status listing_expand_all(const char ***out,
                               size_t *out_count,
                               const char *const *texts,
                               size_t count,
                               const char *recorded,
                               struct error *err) {
    static struct byte_buffer all;
    static struct byte_buffer items; /* of pointers into `all` */
    struct known_commit commit = {.repository = ""};
    char text[LISTING_NAME_BYTES];
    byte_buffer_init(&all, 256 << 20);
    byte_buffer_init(&items, 256 << 20);
    recall(&commit, recorded);
    for (size_t i = 0; i < count; i++) {
        TRY(pin(text, sizeof text, &commit, texts[i], err));
        TRY(listing_is_pattern(text) ? listing_expand(&all, text, err)
                                     : add(&all, text, strlen(text), err));
    }
    const char *const end = (const char *)all.data + all.size_bytes;
    for (const char *at = (const char *)all.data; at < end; at += strlen(at) + 1) {
        TRY(byte_buffer_append(&items, &at, sizeof at, err));
    }
    *out = (const char **)(void *)items.data;
    *out_count = items.size_bytes / sizeof **out;
    return STATUS_OK;
}
