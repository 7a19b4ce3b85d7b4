/*
 * A message is a header of six 16-bit numbers, the question, and records:
 *
 *      id  flags  questions  answers  authorities  further | name type class | name type class ttl
 * size data | ...
 *
 * Names of an answer are skipped, never followed: which alias led to an address does not matter,
 * and so no pointer can loop.
 */
#include "net/dns_message_internal.h"

#include <ctype.h>
#include <string.h>

enum {
    HEADER_BYTES = 12,
    MAX_LABEL_BYTES = 63,
    CLASS_INTERNET = 1,
    FLAG_ANSWER = 0x8000,
    FLAG_RECURSE = 0x0100,
    FLAGS_OPERATION = 0x7800,
};

static uint8_t *put_16(uint8_t *out, unsigned value) {
    out[0] = (uint8_t)(value >> 8);
    out[1] = (uint8_t)value;
    return out + 2;
}

size_t dns_question(uint8_t out[DNS_QUESTION_BYTES], const char *name, enum dns_type type) {
    uint8_t *at = out;
    const uint8_t *const end = out + HEADER_BYTES + DNS_NAME_BYTES;
    memset(out, 0, HEADER_BYTES);
    (void)put_16(out + 2, FLAG_RECURSE);
    (void)put_16(out + 4, 1);
    at += HEADER_BYTES;
    do {
        const size_t size = strcspn(name, ".");
        if (size == 0 || size > MAX_LABEL_BYTES || (size_t)(end - at) < size + 2) {
            return 0;
        }
        *at++ = (uint8_t)size;
        for (size_t i = 0; i < size; i++) {
            if (!isalnum((uint8_t)name[i]) && name[i] != '-' && name[i] != '_') {
                return 0;
            }
            *at++ = (uint8_t)name[i];
        }
        name += size + (name[size] == '.');
    } while (*name != '\0');
    *at++ = 0;
    at = put_16(at, type);
    at = put_16(at, CLASS_INTERNET);
    return (size_t)(at - out);
}

/* What is left of a message. `bad` stays set once something lay beyond its end. */
struct reading {
    const uint8_t *at;
    size_t left;
    bool bad;
};

static const uint8_t *take(struct reading *r, size_t size) {
    if (r->bad || r->left < size) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *taken = r->at;
    r->at += size;
    r->left -= size;
    return taken;
}

static unsigned take_16(struct reading *r) {
    const uint8_t *bytes = take(r, 2);
    return bytes != NULL ? (unsigned)bytes[0] << 8 | bytes[1] : 0;
}

/* Labels up to an empty one or a pointer to further ones. */
static void skip_name(struct reading *r) {
    for (;;) {
        const uint8_t *size = take(r, 1);
        if (size == NULL || *size == 0) {
            return;
        }
        if (*size >= 0xc0) {
            (void)take(r, 1);
            return;
        }
        if (*size > MAX_LABEL_BYTES) {
            r->bad = true;
            return;
        }
        (void)take(r, *size);
    }
}

static void take_record(struct dns_answer *out, struct reading *r, enum dns_type type) {
    const size_t address_bytes = type == DNS_A ? 4 : 16;
    skip_name(r);
    const unsigned its_type = take_16(r);
    const unsigned its_class = take_16(r);
    (void)take(r, 4); /* how long it may be kept */
    const size_t size = take_16(r);
    const uint8_t *data = take(r, size);
    if (data == NULL || its_type != (unsigned)type || its_class != CLASS_INTERNET) {
        return;
    }
    if (size != address_bytes) {
        r->bad = true;
    } else if (out->count < DNS_MAX_ADDRESSES) {
        memcpy(out->addresses[out->count++], data, size);
    }
}

bool dns_answer_parse(struct dns_answer *out,
                      const uint8_t *data,
                      size_t size_bytes,
                      enum dns_type type) {
    struct reading r = {data, size_bytes, false};
    *out = (struct dns_answer){0};
    (void)take_16(&r);
    const unsigned flags = take_16(&r);
    const unsigned questions = take_16(&r);
    const unsigned answers = take_16(&r);
    (void)take(&r, 4);
    out->code = flags & 15;
    if (r.bad || (flags & FLAG_ANSWER) == 0 || (flags & FLAGS_OPERATION) != 0) {
        return false;
    }
    for (unsigned i = 0; i < questions && !r.bad; i++) {
        skip_name(&r);
        r.bad = take_16(&r) != (unsigned)type || r.bad;
        (void)take_16(&r);
    }
    for (unsigned i = 0; i < answers && !r.bad; i++) {
        take_record(out, &r, type);
    }
    return !r.bad;
}
