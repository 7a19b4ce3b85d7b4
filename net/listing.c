/*
 * Of a list only the names are taken: strings after "path": in JSON, what is between <Key> and
 * </Key> in XML, which is asked for with names in URL encoding. The hub's next page is a link,
 * which must lead to the hub; S3's is a token.
 */
#include "net/listing.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "net/location.h"

enum {
    MAX_PAGE_BYTES = 32 << 20,
    MAX_JOURNAL_BYTES = 512 << 20,
    MAX_BRACES_BYTES = 4096,
    MAX_PAGES = 1000,
    WAIT_MS = 100,
};

bool listing_is_pattern(const char *text) {
    const bool web = strncmp(text, "http", 4) == 0;
    return location_is_remote(text) && strpbrk(text, web ? "*{" : "*?[{") != NULL &&
           !(web && strchr(text, '?') != NULL); /* a query */
}

static enum status add(struct byte_buffer *out, const char *text, size_t n, struct error *err) {
    TRY(byte_buffer_append(out, text, n, err));
    return byte_buffer_u8(out, 0, err);
}

/* ---- names in a page ------------------------------------------------------------------------ */

static bool put_utf8(char **to, const char *hex) {
    char digits[5] = {hex[0], hex[1], hex[2], hex[3], '\0'};
    char *end;
    const unsigned long c = strtoul(digits, &end, 16);
    if (end != digits + 4 || c == 0 || (c >= 0xD800 && c < 0xE000)) {
        return false; /* names beyond the first plane come as UTF-8 */
    }
    if (c < 0x80) {
        *(*to)++ = (char)c;
    } else if (c < 0x800) {
        *(*to)++ = (char)(0xC0 | c >> 6);
        *(*to)++ = (char)(0x80 | (c & 63));
    } else {
        *(*to)++ = (char)(0xE0 | c >> 12);
        *(*to)++ = (char)(0x80 | (c >> 6 & 63));
        *(*to)++ = (char)(0x80 | (c & 63));
    }
    return true;
}

/* Decodes a JSON string from after its quote on; NULL if it is none, or too long. */
static const char *read_string(char name[MAX_BRACES_BYTES], const char *at) {
    char *to = name;
    for (; *at != '"'; at++) {
        if (*at == '\0' || to - name > MAX_BRACES_BYTES - 8) {
            return NULL;
        }
        if (*at != '\\') {
            *to++ = *at;
        } else if (*++at == 'u' && strnlen(at, 5) == 5 && put_utf8(&to, at + 1)) {
            at += 4;
        } else if (*at != '\0' && strchr("\"\\/", *at) != NULL) {
            *to++ = *at;
        } else {
            return NULL;
        }
    }
    *to = '\0';
    return at;
}

static int digit(char c) {
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* Decodes %XX up to the end; false if there is a NUL. */
static bool decode(char *name) {
    char *to = name;
    for (const char *at = name; *at != '\0'; at++) {
        const int high = *at == '%' ? digit(at[1]) : -1;
        const int low = high >= 0 ? digit(at[2]) : -1;
        *to = low >= 0 ? (char)(high * 16 + low) : *at == '+' ? ' ' : *at;
        at += low >= 0 ? 2 : 0;
        if (*to++ == '\0') {
            return false;
        }
    }
    *to = '\0';
    return true;
}

static bool read_key(char name[MAX_BRACES_BYTES], const char *at, const char *end) {
    const char *stop = strstr(at, end);
    if (stop == NULL || stop - at >= MAX_BRACES_BYTES) {
        return false;
    }
    memcpy(name, at, (size_t)(stop - at));
    name[stop - at] = '\0';
    return decode(name);
}

enum status
listing_parse(struct byte_buffer *out, const char *page, bool is_s3, struct error *err) {
    static const char *const marks[] = {"\"path\":", "<Key>"};
    const char *mark = marks[is_s3];
    char name[MAX_BRACES_BYTES];
    for (const char *at = page; (at = strstr(at, mark)) != NULL;) {
        at += strlen(mark);
        at += strspn(at, " ");
        const bool ok =
            is_s3 ? read_key(name, at, "</Key>") : *at == '"' && read_string(name, at + 1);
        FAIL_IF(!ok, err, STATUS_CORRUPT, "a list of files has a name that cannot be read");
        TRY(add(out, name, strlen(name), err));
    }
    return STATUS_OK;
}

/* ---- a page --------------------------------------------------------------------------------- */

struct page {
    struct byte_buffer text; /* ends with a NUL */
    char link[1024];
    enum status status;
    struct error error;
    bool done;
};

static bool on_head(void *cookie, const struct http_response *r) {
    struct page *p = cookie;
    (void)snprintf(p->link, sizeof p->link, "%s", r->link);
    return true;
}

static bool on_body(void *cookie, const void *bytes, size_t size_bytes) {
    return byte_buffer_append(&((struct page *)cookie)->text, bytes, size_bytes, NULL) == STATUS_OK;
}

static void on_done(void *cookie, const struct http_result *r) {
    struct page *p = cookie;
    const int status = r->response->status;
    p->done = true;
    p->status = r->outcome == HTTP_OK
                    ? byte_buffer_u8(&p->text, 0, &p->error)
                    : error_set(&p->error,
                                status >= 400 && status < 500 && status != 429 ? STATUS_NOTFOUND
                                                                               : STATUS_IO,
                                "no list of files: %.400s%s", r->message,
                                status == 401   ? "; a token may be needed (HF_TOKEN)"
                                : status == 403 ? "; the server gives you no access to it"
                                                : "");
}

static enum status get_page(struct page *p,
                            struct http *http,
                            struct location *l,
                            const char *url,
                            struct error *err) {
    struct http_request request = {.url = url,
                                   .max_bytes = MAX_PAGE_BYTES,
                                   .compressed = true,
                                   .cookie = p,
                                   .on_head = on_head,
                                   .on_body = on_body,
                                   .on_done = on_done};
    p->text.size_bytes = 0;
    p->done = false;
    TRY(location_authorize(l, &request, err));
    request.compressed = request.signature == NULL;
    TRY(http_start(http, &request, err));
    while (!p->done) {
        TRY(http_run(http, WAIT_MS, err));
    }
    return p->status == STATUS_OK ? STATUS_OK : error_pass(err, p->status, &p->error);
}

/* ---- lists ---------------------------------------------------------------------------------- */

struct list {
    struct http *http;
    struct location *location; /* whose keys or token the requests carry */
    struct page page;
    struct byte_buffer names;
    char url[HTTP_MAX_URL_BYTES], api[HTTP_MAX_URL_BYTES], file[HTTP_MAX_URL_BYTES];
    char base[HTTP_MAX_URL_BYTES]; /* before the names: hf://datasets/O/N@COMMIT/, s3://BUCKET/ */
};

static void list_destroy(struct list *l) {
    if (l != NULL) {
        http_destroy(l->http);
        location_destroy(l->location);
        byte_buffer_fini(&l->names);
        byte_buffer_fini(&l->page.text);
        free(l);
    }
}

/* list_destroy is due in any case. */
static enum status list_create(struct list **out, const char *folder, struct error *err) {
    struct list *l = *out = calloc(1, sizeof *l);
    struct http_options opt;
    TRY_MEMORY(l != NULL, err, "out of memory for a list of files");
    byte_buffer_init(&l->names, 256 << 20);
    byte_buffer_init(&l->page.text, MAX_PAGE_BYTES + 1);
    http_options_default(&opt);
    opt.allow_named = opt.keep_https = true;
    opt.allow_private = location_allows_private();
    opt.user_agent = "ccstream/" CCSTREAM_VERSION " (ccpack)";
    TRY(location_create(&l->location, folder, NULL, err));
    return http_create(&l->http, &opt, err);
}

/* The next page of the hub. It must be at the hub, which gets the token: a list that continues
 * where it is not followed would be a part of the dataset. Returns OK, END (there is none) or
 * CORRUPT. */
static enum status
next_link(char url[HTTP_MAX_URL_BYTES], const char *link, const char *api, struct error *err) {
    const char *end = strchr(link, '>');
    const size_t n = link[0] == '<' && end != NULL ? (size_t)(end - link) - 1 : 0;
    RETURN_IF(link[0] == '\0' || (n > 0 && strstr(end, "rel=\"next\"") == NULL), STATUS_END);
    FAIL_IF(n == 0 || strncmp(link + 1, api, strlen(api)) != 0, err, STATUS_CORRUPT,
            "%.200s: the list of files continues at another place (%.200s)", api, link);
    (void)snprintf(url, HTTP_MAX_URL_BYTES, "%.*s", (int)n, link + 1);
    return STATUS_OK;
}

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

static bool is_commit(const char *text) {
    return strspn(text, "0123456789abcdef") == 40;
}

/* The commit of the location's revision. l->api: of the repository, with a slash at the end. The
 * URL of the location is ENDPOINT/datasets/O/N/resolve/REV/... */
static enum status
ask_commit(struct list *l, char commit[41], const char *text, struct error *err) {
    char *const url = l->url, *const file = l->file;
    TRY(location_file_url(l->location, file, err));
    char *repository = strstr(file, "/datasets/");
    char *resolve = repository != NULL ? strstr(repository, "/resolve/") : NULL;
    FAIL_IF(resolve == NULL, err, STATUS_USAGE, "'%.200s' has no repository", text);
    const char *revision = resolve + strlen("/resolve/");
    (void)snprintf(l->api, HTTP_MAX_URL_BYTES, "%.*s/api%.*s/", (int)(repository - file), file,
                   (int)(resolve - repository), repository);
    if (is_commit(revision)) {
        (void)snprintf(commit, 41, "%.40s", revision);
        return STATUS_OK;
    }
    (void)snprintf(url, HTTP_MAX_URL_BYTES, "%.4000srevision/%.*s", l->api,
                   (int)strcspn(revision, "/"), revision);
    TRY(get_page(&l->page, l->http, l->location, url, err));
    const char *sha = strstr((const char *)l->page.text.data, "\"sha\":");
    sha = sha != NULL ? strchr(sha + 6, '"') : NULL;
    FAIL_IF(sha == NULL || !is_commit(sha + 1), err, STATUS_IO,
            "%.200s: the hub does not say which commit the revision is", url);
    (void)snprintf(commit, 41, "%.40s", sha + 1);
    return STATUS_OK;
}

static enum status list_hub(struct list *l, const char *text, struct error *err) {
    char commit[41];
    size_t revision_bytes;
    const size_t repository = repository_bytes(text, &revision_bytes);
    char *const url = l->url;
    FAIL_IF(repository == 0, err, STATUS_USAGE, "'%.200s' has no repository", text);
    TRY(ask_commit(l, commit, text, err));
    (void)snprintf(l->base, sizeof l->base, "%.*s@%s/", (int)repository, text, commit);
    (void)snprintf(url, HTTP_MAX_URL_BYTES, "%.4000stree/%s?recursive=true", l->api, commit);
    for (int i = 0; i < MAX_PAGES; i++) {
        TRY(get_page(&l->page, l->http, l->location, url, err));
        TRY(listing_parse(&l->names, (const char *)l->page.text.data, false, err));
        const enum status s = next_link(url, l->page.link, l->api, err);
        if (s != STATUS_OK) {
            return s == STATUS_END ? STATUS_OK : s;
        }
    }
    return error_set(err, STATUS_LIMIT, "%.200s: more than %d pages of files", l->api, MAX_PAGES);
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
        if (n > 0 && n < sizeof c->repository && at[n] == '@' && is_commit(at + n + 1)) {
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
    struct list *l = NULL;
    FAIL_IF(strlen(text) + sizeof c->commit >= out_size_bytes, err, STATUS_LIMIT,
            "'%.100s...' is too long", text);
    strcpy(out, text);
    if (repository == 0 || n >= sizeof c->repository ||
        (text[repository] == '@' && is_commit(text + repository + 1))) {
        return STATUS_OK;
    }
    if (strncmp(c->repository, text, n) != 0 || c->repository[n] != '\0') {
        (void)snprintf(c->repository, sizeof c->repository, "%.*s", (int)n, text);
        enum status s = list_create(&l, c->repository, err);
        THEN(s, ask_commit(l, c->commit, text, err));
        list_destroy(l);
        TRY(s);
    }
    (void)snprintf(out, out_size_bytes, "%.*s@%s%s", (int)repository, text, c->commit, text + n);
    return STATUS_OK;
}

static void encode(char *to, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to += sprintf(to, "%%%02X", (unsigned char)text[i]);
    }
    *to = '\0';
}

/* `pattern`: of keys. Parameters are in the order in which they are signed. */
static enum status
list_s3(struct list *l, const char *bucket, const char *pattern, struct error *err) {
    char prefix[3 * 1024 + 1], token[3 * 1024 + 1] = "";
    char *const url = l->url, *const base = l->file;
    const size_t fixed = strcspn(pattern, "*?[");
    FAIL_IF(fixed > 1024, err, STATUS_LIMIT, "'%.100s...' is too long", pattern);
    encode(prefix, pattern, fixed);
    TRY(location_file_url(l->location, base, err));
    (void)snprintf(l->base, sizeof l->base, "%.*s", (int)(pattern - bucket), bucket);
    for (int i = 0; i < MAX_PAGES; i++) {
        (void)snprintf(url, HTTP_MAX_URL_BYTES,
                       "%.1500s/?%s%s%sencoding-type=url&list-type=2&max-keys=1000&prefix=%s", base,
                       token[0] != '\0' ? "continuation-token=" : "", token,
                       token[0] != '\0' ? "&" : "", prefix);
        TRY(get_page(&l->page, l->http, l->location, url, err));
        const char *page = (const char *)l->page.text.data;
        TRY(listing_parse(&l->names, page, true, err));
        const char *more = strstr(page, "<NextContinuationToken>");
        if (strstr(page, "<IsTruncated>true") == NULL) {
            return STATUS_OK;
        }
        const char *stop = more != NULL ? strchr(more + 23, '<') : NULL;
        const size_t n = stop != NULL ? (size_t)(stop - more - 23) : 0;
        FAIL_IF(n == 0 || n > 1024, err, STATUS_CORRUPT, "%.200s: a list without its continuation",
                base);
        encode(token, more + 23, n);
    }
    return error_set(err, STATUS_LIMIT, "%.200s: more than %d pages of files", base, MAX_PAGES);
}

static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status take_matches(struct byte_buffer *out,
                                const struct list *l,
                                const char *pattern,
                                const char *text,
                                struct error *err) {
    size_t count = 0;
    const char **found = calloc(LISTING_MAX_FILES, sizeof *found);
    TRY_MEMORY(found != NULL, err, "out of memory for a list of files");
    enum status s = STATUS_OK;
    const char *names = (const char *)l->names.data;
    for (size_t at = 0; at < l->names.size_bytes && s == STATUS_OK; at += strlen(names + at) + 1) {
        if (fnmatch(pattern, names + at, FNM_PATHNAME | FNM_NOESCAPE) == 0) {
            s = count < LISTING_MAX_FILES
                    ? STATUS_OK
                    : error_set(err, STATUS_LIMIT, "%.200s: more than %d files", text,
                                LISTING_MAX_FILES);
            found[s == STATUS_OK ? count++ : 0] = names + at;
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
            "%.200s: web servers have no lists of files: {0000..0575} stands for numbers", text);
    struct list *l = NULL;
    char folder[MAX_BRACES_BYTES];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(pattern - text) - 1, text);
    enum status s = list_create(&l, folder, err);
    THEN(s, hub ? list_hub(l, text, err) : list_s3(l, text, pattern, err));
    THEN(s, take_matches(out, l, pattern, text, err));
    list_destroy(l);
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
    char item[64], whole[MAX_BRACES_BYTES];
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
    char text[MAX_BRACES_BYTES];
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
