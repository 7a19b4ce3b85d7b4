/*
 * The pages of a list of files. The Hub's are JSON, and the next page is a link, which must lead to
 * the hub. S3's are XML, with names in URL encoding, and what is after them is asked for with a
 * token.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/listing_internal.h"
#include "net/location.h"

enum { MAX_PAGE_BYTES = 32 << 20, WAIT_MS = 100 };

/* ---- names ---------------------------------------------------------------------------------- */

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
static const char *read_string(char name[LISTING_NAME_BYTES], const char *at) {
    char *to = name;
    for (; *at != '"'; at++) {
        if (*at == '\0' || to - name > LISTING_NAME_BYTES - 8) {
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

static bool read_key(char name[LISTING_NAME_BYTES], const char *at, const char *end) {
    const char *stop = strstr(at, end);
    if (stop == NULL || stop - at >= LISTING_NAME_BYTES) {
        return false;
    }
    memcpy(name, at, (size_t)(stop - at));
    name[stop - at] = '\0';
    return decode(name);
}

/* ---- a page's files ------------------------------------------------------------------------- */

/* Of a file: three texts with NULs, as listing_next takes them. */
static enum status add_file(struct byte_buffer *out,
                            const char *name,
                            const char *size,
                            const char *etag,
                            struct error *err) {
    TRY(byte_buffer_append(out, name, strlen(name) + 1, err));
    TRY(byte_buffer_append(out, size, strlen(size) + 1, err));
    return byte_buffer_append(out, etag, strlen(etag) + 1, err);
}

/* Copies what of a text is made of `accepted`, up to what there is room for. */
static void copy_span(char *out, size_t out_bytes, const char *text, const char *accepted) {
    const size_t n = strspn(text, accepted);
    (void)snprintf(out, out_bytes, "%.*s", (int)(n < out_bytes ? n : 0), text);
}

static enum status bad_name(struct error *err) {
    return error_set(err, STATUS_CORRUPT, "a list of files has a name that cannot be read");
}

/* What the page says of one file. */
struct entry {
    char name[LISTING_NAME_BYTES], size[24], oid[72];
    bool named, in_lfs; /* the last key of the object was "lfs" */
};

static bool is_key(const char *at, const char *key) {
    const size_t n = strlen(key);
    return strncmp(at, key, n) == 0 && at[n] == '"';
}

/* The member whose key begins at `key`, and its value at `value`, in an object of this depth. */
static bool take_member(struct entry *e, int depth, const char *key, const char *value) {
    if (depth == 1) {
        e->in_lfs = is_key(key, "lfs");
    }
    if (depth == 1 && is_key(key, "path")) {
        e->named = *value == '"' && read_string(e->name, value + 1) != NULL;
        return e->named;
    }
    if (depth == 1 && is_key(key, "size")) {
        copy_span(e->size, sizeof e->size, value, "0123456789");
    } else if (depth == 2 && e->in_lfs && is_key(key, "oid") && *value == '"') {
        copy_span(e->oid, sizeof e->oid, value + 1, "0123456789abcdef");
    }
    return true;
}

/* [{"path":"a.tar","size":3,"lfs":{"oid":"SHA-256"}},...]: the ETag of a file in LFS is its hash.
 */
static enum status parse_tree(struct byte_buffer *out, const char *page, struct error *err) {
    struct entry e = {.named = false};
    char etag[80];
    int depth = 0;
    for (const char *at = page; *at != '\0'; at++) {
        if (*at == '{' && depth++ == 0) {
            e.named = e.in_lfs = false;
            e.name[0] = e.size[0] = e.oid[0] = '\0';
        } else if (*at == '}' && depth > 0 && --depth == 0 && e.named) {
            (void)snprintf(etag, sizeof etag, "\"%s\"", e.oid);
            TRY(add_file(out, e.name, e.size, e.oid[0] != '\0' ? etag : "", err));
        } else if (*at == '"') {
            const char *const key = at + 1;
            for (at = key; *at != '"'; at++) {
                at += *at == '\\' && at[1] != '\0';
                RETURN_IF(*at == '\0', bad_name(err));
            }
            const char *value = at + 1 + strspn(at + 1, " \t\r\n");
            if (*value == ':') {
                value += 1 + strspn(value + 1, " \t\r\n");
                RETURN_IF(!take_member(&e, depth, key, value), bad_name(err));
            }
        }
    }
    FAIL_IF(depth > 0, err, STATUS_CORRUPT, "a list of files is not whole");
    return STATUS_OK;
}

/* The text of <NAME> between two places; "" without one, or if it is too long. */
static void
copy_element(char *out, size_t out_bytes, const char *at, const char *end, const char *name) {
    const char *found = strstr(at, name);
    copy_span(out, out_bytes, found != NULL && found < end ? found + strlen(name) : "",
              "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-&;#\"");
}

/* <Contents><Key>a.tar</Key><ETag>&quot;X&quot;</ETag><Size>3</Size></Contents> */
static enum status parse_keys(struct byte_buffer *out, const char *page, struct error *err) {
    char name[LISTING_NAME_BYTES], size[24], text[80], etag[84];
    for (const char *at = page; (at = strstr(at, "<Key>")) != NULL;) {
        at += 5;
        RETURN_IF(!read_key(name, at, "</Key>"), bad_name(err));
        const char *end = strstr(at, "</Contents>");
        const char *next = strstr(at, "<Key>");
        end = end == NULL ? at : next != NULL && next < end ? next : end;
        copy_element(size, sizeof size, at, end, "<Size>");
        copy_element(text, sizeof text, at, end, "<ETag>");
        const bool quoted = strncmp(text, "&quot;", 6) == 0;
        const char *mark = quoted ? text + 6 : text[0] == '"' ? text + 1 : "";
        (void)snprintf(etag, sizeof etag, "\"%.*s\"", (int)strcspn(mark, "&\""), mark);
        TRY(add_file(out, name, size, mark[0] != '\0' ? etag : "", err));
    }
    return STATUS_OK;
}

enum status
listing_parse(struct byte_buffer *out, const char *page, bool is_s3, struct error *err) {
    return is_s3 ? parse_keys(out, page, err) : parse_tree(out, page, err);
}

const char *listing_next(const struct byte_buffer *names, size_t *at, struct listing_file *out) {
    if (*at >= names->size_bytes) {
        return NULL;
    }
    const char *const name = (const char *)names->data + *at;
    const char *const size = name + strlen(name) + 1;
    const char *const etag = size + strlen(size) + 1;
    *at += (size_t)(etag - name) + strlen(etag) + 1;
    if (out != NULL) {
        *out = (struct listing_file){name, etag,
                                     size[0] != '\0' ? strtoull(size, NULL, 10) : HTTP_UNKNOWN};
    }
    return name;
}

/* ---- a page --------------------------------------------------------------------------------- */

static bool on_head(void *cookie, const struct http_response *r) {
    struct listing_page *p = cookie;
    (void)snprintf(p->link, sizeof p->link, "%s", r->link);
    return true;
}

static bool on_body(void *cookie, const void *bytes, size_t size_bytes) {
    return byte_buffer_append(&((struct listing_page *)cookie)->text, bytes, size_bytes, NULL) ==
           STATUS_OK;
}

static void on_done(void *cookie, const struct http_result *r) {
    struct listing_page *p = cookie;
    const int status = r->response->status;
    p->done = true;
    p->status = r->outcome == HTTP_OK
                    ? byte_buffer_u8(&p->text, 0, &p->error)
                    : error_set(&p->error,
                                status >= 400 && status < 500 && status != 429 ? STATUS_NOTFOUND
                                                                               : STATUS_IO,
                                "cannot list the files: %.400s%s", r->message,
                                status == 401   ? "; a token may be needed (HF_TOKEN)"
                                : status == 403 ? "; the server denies you access to it"
                                                : "");
}

static enum status get_page(struct listing *l, struct error *err) {
    struct listing_page *p = &l->page;
    struct http_request request = {.url = l->url,
                                   .max_bytes = MAX_PAGE_BYTES,
                                   .compressed = true,
                                   .cookie = p,
                                   .on_head = on_head,
                                   .on_body = on_body,
                                   .on_done = on_done};
    p->text.size_bytes = 0;
    p->done = false;
    TRY(location_authorize(l->location, &request, err));
    request.compressed = request.signature == NULL;
    TRY(http_start(l->http, &request, err));
    while (!p->done) {
        TRY(http_run(l->http, WAIT_MS, err));
    }
    return p->status == STATUS_OK ? STATUS_OK : error_pass(err, p->status, &p->error);
}

/* ---- lists ---------------------------------------------------------------------------------- */

void listing_destroy(struct listing *l) {
    if (l != NULL) {
        http_destroy(l->http);
        location_destroy(l->location);
        byte_buffer_fini(&l->names);
        byte_buffer_fini(&l->page.text);
        free(l->files);
        free(l);
    }
}

enum status listing_create(struct listing **out,
                           const char *folder,
                           const struct location_options *how,
                           bool allow_private,
                           struct error *err) {
    struct listing *l = *out = calloc(1, sizeof *l);
    struct http_options opt;
    TRY_MEMORY(l != NULL, err, "out of memory for a list of files");
    l->max_pages = LISTING_MAX_PAGES;
    byte_buffer_init(&l->names, 256 << 20);
    byte_buffer_init(&l->page.text, MAX_PAGE_BYTES + 1);
    http_options_default(&opt);
    opt.allow_named = opt.keep_https = true;
    opt.allow_private = allow_private;
    opt.user_agent = "ccstream/" CCSTREAM_VERSION;
    TRY(location_create(&l->location, folder, how, err));
    return http_create(&l->http, &opt, err);
}

static enum status too_many(const struct listing *l, const char *place, struct error *err) {
    return error_set(err, STATUS_LIMIT, "%.200s: more than %u pages of files", place, l->max_pages);
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

bool listing_is_commit(const char *text) {
    return strspn(text, "0123456789abcdef") == 40;
}

/* The URL of a location is ENDPOINT/datasets/O/N/resolve/REVISION[/FOLDER]: sets l->api, and
 * *place to what is after resolve/ in l->file. */
static enum status
find_api(struct listing *l, const char **place, const char *text, struct error *err) {
    char *const file = l->file;
    TRY(location_file_url(l->location, file, err));
    char *repository = strstr(file, "/datasets/");
    char *resolve = repository != NULL ? strstr(repository, "/resolve/") : NULL;
    FAIL_IF(resolve == NULL, err, STATUS_USAGE, "'%.200s' has no repository", text);
    *place = resolve + strlen("/resolve/");
    (void)snprintf(l->api, HTTP_MAX_URL_BYTES, "%.*s/api%.*s/", (int)(repository - file), file,
                   (int)(resolve - repository), repository);
    return STATUS_OK;
}

enum status
listing_ask_commit(struct listing *l, char commit[41], const char *text, struct error *err) {
    const char *revision;
    TRY(find_api(l, &revision, text, err));
    if (listing_is_commit(revision)) {
        (void)snprintf(commit, 41, "%.40s", revision);
        return STATUS_OK;
    }
    (void)snprintf(l->url, HTTP_MAX_URL_BYTES, "%.4000srevision/%.*s", l->api,
                   (int)strcspn(revision, "/"), revision);
    TRY(get_page(l, err));
    const char *sha = strstr((const char *)l->page.text.data, "\"sha\":");
    sha = sha != NULL ? strchr(sha + 6, '"') : NULL;
    FAIL_IF(sha == NULL || !listing_is_commit(sha + 1), err, STATUS_IO,
            "%.200s: the hub does not report the revision's commit", l->url);
    (void)snprintf(commit, 41, "%.40s", sha + 1);
    return STATUS_OK;
}

enum status
listing_get_tree(struct listing *l, const char *place, bool recursive, struct error *err) {
    (void)snprintf(l->url, HTTP_MAX_URL_BYTES, "%.2000stree/%.2000s%s", l->api, place,
                   recursive ? "?recursive=true" : "");
    for (uint32_t i = 0; i < l->max_pages; i++) {
        TRY(get_page(l, err));
        TRY(listing_parse(&l->names, (const char *)l->page.text.data, false, err));
        const enum status s = next_link(l->url, l->page.link, l->api, err);
        if (s != STATUS_OK) {
            return s == STATUS_END ? STATUS_OK : s;
        }
    }
    return too_many(l, l->api, err);
}

static void encode(char *to, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to += sprintf(to, "%%%02X", (unsigned char)text[i]);
    }
    *to = '\0';
}

/* Parameters are in the order in which they are signed. */
enum status listing_get_keys(struct listing *l,
                             const char *prefix,
                             size_t prefix_bytes,
                             bool flat,
                             struct error *err) {
    char encoded[3 * 1024 + 1], token[3 * 1024 + 1] = "";
    char *const base = l->file;
    FAIL_IF(prefix_bytes > 1024, err, STATUS_LIMIT, "'%.100s...' is too long", prefix);
    encode(encoded, prefix, prefix_bytes);
    TRY(location_file_url(l->location, base, err));
    for (uint32_t i = 0; i < l->max_pages; i++) {
        (void)snprintf(l->url, HTTP_MAX_URL_BYTES,
                       "%.1500s/?%s%s%s%sencoding-type=url&list-type=2&max-keys=1000&prefix=%s",
                       base, token[0] != '\0' ? "continuation-token=" : "", token,
                       token[0] != '\0' ? "&" : "", flat ? "delimiter=%2F&" : "", encoded);
        TRY(get_page(l, err));
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
    return too_many(l, base, err);
}

/* ---- a folder ------------------------------------------------------------------------------- */

static int compare_files(const void *a, const void *b) {
    return strcmp(((const struct listing_file *)a)->name, ((const struct listing_file *)b)->name);
}

/* Names in the list begin with the folder's, of so many bytes. */
static enum status sort_files(struct listing *l, size_t folder_bytes, struct error *err) {
    struct listing_file file;
    size_t count = 0;
    for (size_t at = 0; listing_next(&l->names, &at, NULL) != NULL;) {
        count++;
    }
    l->files = calloc(count + 1, sizeof *l->files);
    TRY_MEMORY(l->files != NULL, err, "out of memory for a list of files");
    for (size_t at = 0; listing_next(&l->names, &at, &file) != NULL;) {
        if (strlen(file.name) > folder_bytes) {
            file.name += folder_bytes;
            l->files[l->file_count++] = file;
        }
    }
    qsort(l->files, l->file_count, sizeof *l->files, compare_files);
    return STATUS_OK;
}

/* The path of a folder in its repository, or the prefix of its keys; with a slash at its end unless
 * it is empty. */
static void path_in(char *out, size_t out_bytes, const char *path) {
    const size_t n = strlen(path);
    (void)snprintf(out, out_bytes, "%s%s", path, n > 0 && path[n - 1] != '/' ? "/" : "");
}

enum status listing_read(struct listing **out,
                         const char *folder,
                         const struct location_options *how,
                         bool allow_private,
                         uint32_t max_pages,
                         struct error *err) {
    const bool hub = strncmp(folder, "hf://", 5) == 0;
    char place[LISTING_NAME_BYTES], path[LISTING_NAME_BYTES];
    const char *at = strchr(folder + 5, '/'); /* after the bucket, or `datasets` */
    *out = NULL;
    FAIL_IF(!hub && strncmp(folder, "s3://", 5) != 0, err, STATUS_UNSUPPORTED,
            "%.200s: web servers have no lists of files", folder);
    FAIL_IF(strlen(folder) >= sizeof path - 1, err, STATUS_LIMIT, "'%.100s...' is too long",
            folder);
    for (int slashes = hub ? 2 : 0; slashes > 0 && at != NULL; slashes--) {
        at = strchr(at + 1, '/'); /* after the name, with its revision */
    }
    path_in(path, sizeof path, at != NULL ? at + 1 : "");
    (void)snprintf(place, sizeof place, "%.*s", at != NULL ? (int)(at - folder) : (int)sizeof place,
                   folder);
    struct listing *l = NULL;
    const char *tree = NULL;
    enum status s = listing_create(&l, hub ? folder : place, how, allow_private, err);
    if (s == STATUS_OK) {
        l->max_pages = max_pages;
    }
    THEN(s, hub ? find_api(l, &tree, folder, err) : STATUS_OK);
    if (hub && s == STATUS_OK) {
        (void)snprintf(place, sizeof place, "%s", tree);
    }
    THEN(s, hub ? listing_get_tree(l, place, false, err)
                : listing_get_keys(l, path, strlen(path), true, err));
    THEN(s, sort_files(l, strlen(path), err));
    RETURN_CREATED(s, out, l, listing_destroy);
}

const struct listing_file *listing_find(const struct listing *l, const char *name) {
    const struct listing_file key = {.name = name};
    return bsearch(&key, l->files, l->file_count, sizeof *l->files, compare_files);
}

void listing_measure(uint64_t *bytes,
                     size_t *found,
                     const char *const *locations,
                     size_t count,
                     bool allow_private) {
    struct listing *files = NULL;
    char folder[LISTING_NAME_BYTES] = "";
    size_t folder_bytes = 0;
    *bytes = *found = 0;
    for (size_t i = 0; i < count; i++) {
        const char *slash = strrchr(locations[i], '/');
        const size_t n = slash != NULL ? (size_t)(slash - locations[i]) : 0;
        if (n == 0 || n >= sizeof folder) {
            continue;
        }
        if (n != folder_bytes || strncmp(folder, locations[i], n) != 0) {
            listing_destroy(files);
            files = NULL;
            folder_bytes = n;
            (void)snprintf(folder, sizeof folder, "%.*s", (int)n, locations[i]);
            (void)listing_read(&files, folder, NULL, allow_private, LISTING_MAX_PAGES, NULL);
        }
        const struct listing_file *f = files != NULL ? listing_find(files, slash + 1) : NULL;
        if (f != NULL && f->size_bytes != HTTP_UNKNOWN) {
            *bytes += f->size_bytes;
            ++*found;
        }
    }
    listing_destroy(files);
}
