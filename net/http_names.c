/*
 * Names are looked up here where http_options.resolvers says who knows them, and by libcurl
 * otherwise. libcurl speaks DNS over HTTPS itself, but several of its versions crash when a request
 * is cancelled meanwhile (curl's issue 14207: 8.5 to 8.8, Ubuntu 24.04's among them), it asks again
 * for every request that runs at the same time, and it knows one server. So questions are ordinary
 * requests of ours, and libcurl is given the addresses (CURLOPT_RESOLVE).
 *
 *      host's queue --> http_names_resolve --> known: on the wire
 *                            |
 *                            v waits for its name
 *               two questions, A and AAAA, to a resolver --> no answer: to the next resolver
 *                            |
 *                            v
 *          http_names_take_ready: with addresses or with the reason why there are none
 *
 * The resolver is chosen by a hash of the name, so each has its share and a warm cache. One that
 * failed to answer is not the first choice for half a minute. What is known is kept for ten
 * minutes, and for at most MAX_KNOWN names; that a name has no address is not kept.
 */
#include <arpa/inet.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "net/dns_message_internal.h"
#include "net/http_internal.h"

#define NS_PER_S INT64_C(1000000000)

enum {
    MAX_QUESTIONS = 100, /* on the wire at a time: what servers allow of HTTP/2 at least */
    MAX_ANSWER_BYTES = 4096,
    MAX_KNOWN = 65536,
    KNOWN_S = 600,
    AVOIDED_S = 30,
    WHY_BYTES = 240,
    ADDRESSES_BYTES = 2 * DNS_MAX_ADDRESSES * (INET6_ADDRSTRLEN + 3),
};

/* One of the two questions about a name. */
struct question {
    struct lookup *lookup;
    enum dns_type type;
    uint8_t answer[MAX_ANSWER_BYTES];
    size_t answer_bytes;
};

/* What is only needed while a name is not known. */
struct lookup {
    struct http_names *names;
    struct name *name;
    struct question questions[2];
    unsigned running; /* questions to the resolver at hand */
    size_t resolver;
    uint32_t tried;  /* a bit for each resolver */
    bool unanswered; /* by the resolver at hand, to one of the questions */
    bool cancelled;
    char why[WHY_BYTES]; /* there is no address */
    char addresses[ADDRESSES_BYTES];
    struct transfer *first, *last; /* that wait */
};

struct name {
    char *host;
    struct lookup *lookup; /* NULL: known */
    char *addresses;       /* "192.0.2.1,[2001:db8::1]" */
    int64_t forgotten_ns;
    struct name *next; /* known after this one */
};

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct name *)a)->host, ((const struct name *)b)->host);
}

/* ---- the list of resolvers ------------------------------------------------------------------ */

/* An address of IPv4 or IPv6, perhaps with a port: 192.0.2.1:53, [2001:db8::1]:53. */
static bool is_address(const char *text) {
    char host[INET6_ADDRSTRLEN];
    const bool bracket = text[0] == '[';
    text += bracket;
    const char *end = bracket ? strchr(text, ']') : text + strcspn(text, ":");
    uint8_t bytes[16];
    if (inet_pton(AF_INET6, text, bytes) == 1) {
        return true;
    }
    if (end == NULL || (size_t)(end - text) >= sizeof host) {
        return false;
    }
    (void)snprintf(host, sizeof host, "%.*s", (int)(end - text), text);
    end += bracket;
    const bool has_port = end[0] == ':' && end[1] != '\0' && strlen(end) <= 6;
    return inet_pton(bracket ? AF_INET6 : AF_INET, host, bytes) == 1 &&
           (*end == '\0' || (has_port && end[1 + strspn(end + 1, "0123456789")] == '\0'));
}

/* The URL up to the question: what RFC 8484 calls a template may end with {?dns}. */
static enum status take_url(char **out, const char *text, struct error *err) {
    static const char template[] = "{?dns}";
    const size_t size = strlen(text);
    const size_t ending = sizeof template - 1;
    char *plain = strdup(text);
    if (plain == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for resolvers");
    }
    if (size > ending && strcmp(text + size - ending, template) == 0) {
        plain[size - ending] = '\0';
    }
    struct url u;
    enum status s = url_init(&u, plain, NULL, err);
    free(plain);
    if (s == STATUS_INVALID || (s == STATUS_OK && strncmp(u.text, "https://", 8) != 0)) {
        s = error_set(err, STATUS_USAGE,
                      "resolver '%.100s': neither a URL of https nor an IP address", text);
    } else if (s == STATUS_OK &&
               asprintf(out, "%s%cdns=", u.text, strchr(u.path, '?') != NULL ? '&' : '?') < 0) {
        *out = NULL;
        s = error_set(err, STATUS_NOMEM, "no memory for resolvers");
    }
    url_fini(&u);
    return s;
}

static enum status add_resolver(struct http_names *n, const char *text, struct error *err) {
    const bool address = is_address(text);
    if (n->resolver_count == HTTP_MAX_RESOLVERS) {
        return error_set(err, STATUS_USAGE, "resolvers: more than %d", HTTP_MAX_RESOLVERS);
    }
    if (n->resolver_count > 0 && address != n->asks_curl) {
        return error_set(err, STATUS_USAGE,
                         "resolvers: either URLs of https or IP addresses, not both");
    }
    n->asks_curl = address;
    struct resolver *r = &n->resolvers[n->resolver_count];
    if (!address) {
        TRY(take_url(&r->text, text, err));
    } else if ((r->text = strdup(text)) == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for resolvers");
    }
    n->resolver_count++;
    return STATUS_OK;
}

/* By its hash, so that each resolver has its share of the hosts. */
static size_t choose_first(const struct http_names *n, const char *host) {
    return (size_t)(hash64(host, strlen(host)) % n->resolver_count);
}

/* All addresses, beginning with the one at `first`. */
static char *join_addresses(const struct http_names *n, size_t first) {
    size_t size = 1;
    for (size_t i = 0; i < n->resolver_count; i++) {
        size += strlen(n->resolvers[i].text) + 1;
    }
    char *all = calloc(1, size);
    for (size_t i = 0; all != NULL && i < n->resolver_count; i++) {
        const char *text = n->resolvers[(first + i) % n->resolver_count].text;
        strcat(strcat(all, i > 0 ? "," : ""), text);
    }
    return all;
}

/* Only a libcurl with c-ares asks name servers by their addresses. */
static enum status check_curl(const struct http_names *n, struct error *err) {
    const struct curl_library *curl = n->http->curl;
    CURL *easy = curl->easy_init();
    char *all = join_addresses(n, 0);
    CURLcode code = CURLE_OUT_OF_MEMORY;
    if (easy != NULL && all != NULL) {
        code = curl->easy_setopt(easy, CURLOPT_DNS_SERVERS, all);
    }
    curl->easy_cleanup(easy);
    free(all);
    if (code == CURLE_OK) {
        return STATUS_OK;
    }
    if (code == CURLE_OUT_OF_MEMORY) {
        return error_set(err, STATUS_NOMEM, "no memory for resolvers");
    }
    return error_set(
        err, STATUS_UNSUPPORTED,
        "resolver %.60s: libcurl %s cannot ask name servers by address, as it is "
        "built without c-ares; a URL of DNS over HTTPS works (https://HOST/dns-query), "
        "or let /etc/resolv.conf name the server",
        n->resolvers[0].text, curl->version_info(CURLVERSION_NOW)->version);
}

static enum status read_list(struct http_names *n, const char *list, struct error *err) {
    char *copy = strdup(list);
    if (copy == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for resolvers");
    }
    enum status s = STATUS_OK;
    char *rest = copy;
    for (char *text; s == STATUS_OK && (text = strsep(&rest, ",")) != NULL;) {
        s = add_resolver(n, text, err);
    }
    free(copy);
    return s;
}

enum status
http_names_init(struct http_names *n, struct http *h, const char *list, struct error *err) {
    *n = (struct http_names){.http = h};
    if (list == NULL) {
        return STATUS_OK;
    }
    const char *proxy = proxies_variable();
    if (proxy != NULL) {
        return error_set(err, STATUS_USAGE,
                         "resolvers have no effect behind a proxy, which looks names up itself: "
                         "unset %s, or give none",
                         proxy);
    }
    TRY(read_list(n, list, err));
    return n->asks_curl ? check_curl(n, err) : STATUS_OK;
}

enum status http_check_resolvers(const char *list, struct error *err) {
    struct http h = {0};
    TRY(curl_library_get(&h.curl, err));
    const enum status s = http_names_init(&h.names, &h, list, err);
    http_names_fini(&h.names);
    return s;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static void append(struct transfer **first, struct transfer **last, struct transfer *t) {
    t->next = NULL;
    *(*first == NULL ? first : &(*last)->next) = t;
    *last = t;
}

static struct transfer *take_first(struct transfer **first) {
    struct transfer *t = *first;
    if (t != NULL) {
        *first = t->next;
        t->next = NULL;
    }
    return t;
}

static void name_destroy(struct name *name) {
    if (name != NULL) {
        free(name->lookup);
        free(name->host);
        free(name->addresses);
        free(name);
    }
}

static void forget(struct http_names *n, struct name *name) {
    (void)tdelete(name, &n->by_host, compare_names);
    name_destroy(name);
}

static void forget_oldest(struct http_names *n) {
    struct name *name = n->oldest;
    n->oldest = name->next;
    n->known_count--;
    forget(n, name);
}

void http_names_fini(struct http_names *n) {
    while (n->oldest != NULL) {
        forget_oldest(n);
    }
    for (size_t i = 0; i < n->resolver_count; i++) {
        free(n->resolvers[i].text);
    }
    *n = (struct http_names){0};
}

/* ---- questions ------------------------------------------------------------------------------ */

static void on_answered(void *cookie, const struct http_result *r);

static bool on_answer(void *cookie, const void *bytes, size_t size_bytes) {
    struct question *q = cookie; /* max_bytes is its size */
    memcpy(q->answer + q->answer_bytes, bytes, size_bytes);
    q->answer_bytes += size_bytes;
    return true;
}

static void encode_base64_url(char *out, const uint8_t *data, size_t size_bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0;
    unsigned count = 0;
    for (size_t i = 0; i < size_bytes; i++) {
        bits = bits << 8 | data[i];
        for (count += 8; count >= 6; count -= 6) {
            *out++ = digits[bits >> (count - 6) & 63];
        }
    }
    if (count > 0) {
        *out++ = digits[bits << (6 - count) & 63];
    }
    *out = '\0';
}

/* Queues the question to the lookup's resolver. */
static bool ask(struct http_names *n, struct question *q) {
    static const char *const headers[] = {"Accept: application/dns-message"};
    uint8_t message[DNS_QUESTION_BYTES];
    char encoded[DNS_QUESTION_BYTES * 4 / 3 + 3];
    char *text = NULL;
    struct url url;
    const size_t size = dns_question(message, q->lookup->name->host, q->type);
    encode_base64_url(encoded, message, size);
    q->answer_bytes = 0;
    if (asprintf(&text, "%s%s", n->resolvers[q->lookup->resolver].text, encoded) < 0) {
        return false;
    }
    const struct http_request request = {
        .url = text,
        .headers = headers,
        .header_count = 1,
        .max_bytes = MAX_ANSWER_BYTES,
        .cookie = q,
        .on_body = on_answer,
        .on_done = on_answered,
    };
    struct transfer *t = NULL;
    if (url_init(&url, text, NULL, NULL) == STATUS_OK) {
        t = transfer_create(&request, &url);
        url_fini(&url);
    }
    free(text);
    if (t == NULL) {
        return false;
    }
    t->is_question = true;
    append(&n->asking, &n->asking_last, t);
    q->lookup->running++;
    return true;
}

/* Notes why there is no address. What a resolver failed to say weighs more than that there is none.
 */
static void note(struct lookup *l, bool unanswered, const char *why) {
    const char *resolver = l->names->resolvers[l->resolver].text;
    if (unanswered || l->why[0] == '\0') {
        (void)snprintf(l->why, sizeof l->why, "%.*s: %.120s", (int)strcspn(resolver, "?"), resolver,
                       why);
    }
    l->unanswered = l->unanswered || unanswered;
}

/* The resolver to try next: the name's first one, then those after it; those that failed lately
 * come last. Requires that one is left. */
static size_t choose_resolver(const struct http_names *n, const struct lookup *l, int64_t now_ns) {
    const size_t first = choose_first(n, l->name->host);
    size_t chosen = SIZE_MAX;
    for (size_t i = 0; i < n->resolver_count; i++) {
        const size_t at = (first + i) % n->resolver_count;
        if ((l->tried >> at & 1) != 0) {
            continue;
        }
        if (n->resolvers[at].avoided_until_ns <= now_ns) {
            return at;
        }
        chosen = chosen == SIZE_MAX ? at : chosen;
    }
    return chosen;
}

/* Asks the next resolver for both kinds of addresses. Returns whether a question is on its way. */
static bool ask_next(struct http_names *n, struct lookup *l, int64_t now_ns) {
    l->resolver = choose_resolver(n, l, now_ns);
    l->tried |= UINT32_C(1) << l->resolver;
    l->unanswered = false;
    l->why[0] = '\0';
    for (size_t i = 0; i < 2; i++) {
        if (!ask(n, &l->questions[i])) {
            note(l, true, "out of memory");
        }
    }
    return l->running > 0;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void add_addresses(struct lookup *l, const struct dns_answer *a, enum dns_type type) {
    size_t at = strlen(l->addresses);
    for (size_t i = 0; i < a->count; i++) {
        char text[INET6_ADDRSTRLEN];
        const int family = type == DNS_A ? AF_INET : AF_INET6;
        if (inet_ntop(family, a->addresses[i], text, sizeof text) != NULL) {
            at += (size_t)snprintf(l->addresses + at, sizeof l->addresses - at,
                                   type == DNS_A ? "%s%s" : "%s[%s]", at > 0 ? "," : "", text);
        }
    }
}

/* A resolver that cannot be used now, unlike one that cannot find this name. */
static void note_failure(struct lookup *l, const char *why) {
    note(l, true, why);
    l->names->resolvers[l->resolver].avoided_until_ns = clock_now_ns() + AVOIDED_S * NS_PER_S;
}

static void read_answer(struct question *q, const struct http_result *r) {
    struct lookup *l = q->lookup;
    struct dns_answer a;
    char text[64];
    if (r->outcome == HTTP_CANCELLED) {
        l->cancelled = true;
    } else if (r->outcome != HTTP_OK) { /* its message begins with the URL */
        const char *why = strstr(r->message, ": ");
        note_failure(l, why != NULL ? why + 2 : http_outcome_name(r->outcome));
    } else if (!dns_answer_parse(&a, q->answer, q->answer_bytes, q->type)) {
        note_failure(l, "its answer is no DNS message");
    } else if (a.code == DNS_NO_SUCH_NAME) {
        note(l, false, "no such name");
    } else if (a.code != DNS_NO_ERROR) {
        (void)snprintf(text, sizeof text, "it cannot find the name (code %u%s)", a.code,
                       a.code == DNS_SERVER_FAILURE ? ", SERVFAIL"
                       : a.code == DNS_REFUSED      ? ", REFUSED"
                                                    : "");
        note(l, true, text);
    } else {
        add_addresses(l, &a, q->type);
        note(l, false, "the name has no address");
    }
}

/* What libcurl is given: "+HOST:PORT:ADDRESSES", with the host as the URL has it. */
static char *pair_of(const struct transfer *t, const char *host, const char *addresses) {
    struct url u;
    char *pair = NULL;
    if (url_init(&u, t->url, NULL, NULL) == STATUS_OK) {
        if (asprintf(&pair, "+%s%s:%s", host, strrchr(u.origin, ':'), addresses) < 0) {
            pair = NULL;
        }
        url_fini(&u);
    }
    return pair;
}

/* The transfer may go on, with addresses or the reason why there are none. */
static void give(struct transfer *t, const char *host, const char *addresses, const char *why) {
    if (addresses != NULL && addresses[0] != '\0') {
        t->addresses = pair_of(t, host, addresses);
        t->is_unresolved = t->addresses == NULL;
    } else {
        t->unresolved = strdup(why);
        t->is_unresolved = true;
    }
}

static void end_lookup(struct http_names *n, struct lookup *l, int64_t now_ns) {
    struct name *name = l->name;
    for (struct transfer *t; (t = take_first(&l->first)) != NULL;) {
        give(t, name->host, l->addresses, l->why);
        append(&n->ready, &n->ready_last, t);
    }
    name->addresses = l->addresses[0] != '\0' ? strdup(l->addresses) : NULL;
    if (name->addresses == NULL) {
        forget(n, name);
        return;
    }
    free(l);
    name->lookup = NULL;
    name->forgotten_ns = now_ns + KNOWN_S * NS_PER_S;
    name->next = NULL;
    *(n->oldest == NULL ? &n->oldest : &n->newest->next) = name;
    n->newest = name;
    if (++n->known_count > MAX_KNOWN) {
        forget_oldest(n);
    }
}

static void on_answered(void *cookie, const struct http_result *r) {
    struct question *q = cookie;
    struct lookup *l = q->lookup;
    struct http_names *n = l->names;
    const uint32_t all = (UINT32_C(1) << n->resolver_count) - 1;
    const int64_t now_ns = clock_now_ns();
    n->running--;
    l->running--;
    read_answer(q, r);
    if (l->running > 0) {
        return;
    }
    const bool ask_again = l->addresses[0] == '\0' && l->unanswered && !l->cancelled;
    if (!ask_again || l->tried == all || !ask_next(n, l, now_ns)) {
        end_lookup(n, l, now_ns);
    }
}

/* ---- transfers ------------------------------------------------------------------------------ */

static struct name *add_name(struct http_names *n, const char *host) {
    struct name *name = calloc(1, sizeof *name);
    struct lookup *l = calloc(1, sizeof *l);
    if (name != NULL) {
        name->host = strdup(host);
        name->lookup = l;
    } else {
        free(l);
    }
    if (name == NULL || l == NULL || name->host == NULL ||
        tsearch(name, &n->by_host, compare_names) == NULL) {
        name_destroy(name);
        return NULL;
    }
    l->names = n;
    l->name = name;
    l->questions[0] = (struct question){.lookup = l, .type = DNS_A};
    l->questions[1] = (struct question){.lookup = l, .type = DNS_AAAA};
    return name;
}

/* Returns whether the transfer is ready. */
static bool find_name(struct http_names *n, struct transfer *t, char *host, int64_t now_ns) {
    while (n->oldest != NULL && n->oldest->forgotten_ns <= now_ns) {
        forget_oldest(n);
    }
    void *found = tfind(&(struct name){.host = host}, &n->by_host, compare_names);
    struct name *name = found != NULL ? *(struct name **)found : NULL;
    if (name != NULL && name->lookup == NULL) {
        give(t, host, name->addresses, "");
        return true;
    }
    if (name == NULL) {
        name = add_name(n, host);
        if (name == NULL || !ask_next(n, name->lookup, now_ns)) {
            if (name != NULL) {
                forget(n, name);
            }
            give(t, host, NULL, "out of memory");
            return true;
        }
    }
    append(&name->lookup->first, &name->lookup->last, t);
    return false;
}

bool http_names_resolve(struct http_names *n, struct transfer *t, int64_t now_ns) {
    struct url u;
    uint8_t address[4];
    uint8_t question[DNS_QUESTION_BYTES];
    if (n->resolver_count == 0 || url_init(&u, t->url, NULL, NULL) != STATUS_OK) {
        return true; /* a URL that is none ends on the wire */
    }
    bool ready = true;
    if (u.host[0] == '[' || inet_pton(AF_INET, u.host, address) == 1 || url_host_is_private(&u)) {
        /* an address already, or localhost */
    } else if (dns_question(question, u.host, DNS_A) == 0) {
        give(t, u.host, NULL, "the host's name cannot be one of the DNS");
    } else if (n->asks_curl) {
        t->name_servers = join_addresses(n, choose_first(n, u.host));
        t->is_unresolved = t->name_servers == NULL;
    } else {
        ready = find_name(n, t, u.host, now_ns);
    }
    url_fini(&u);
    return ready;
}

struct transfer *http_names_take_question(struct http_names *n) {
    struct transfer *t = n->running < MAX_QUESTIONS ? take_first(&n->asking) : NULL;
    n->running += t != NULL;
    return t;
}

struct transfer *http_names_take_ready(struct http_names *n) {
    return take_first(&n->ready);
}

void http_names_cancel(struct http_names *n) {
    struct transfer *t;
    const struct http_response none = {.url = ""};
    const struct http_result cancelled = {.outcome = HTTP_CANCELLED, .response = &none};
    while ((t = take_first(&n->asking)) != NULL) {
        n->running++;
        t->request.on_done(t->request.cookie, &cancelled);
        transfer_destroy(t);
    }
}
