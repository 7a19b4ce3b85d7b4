/*
 * dns_message: questions and answers of the DNS (RFC 1035), as DNS over HTTPS carries them.
 *
 * Threading : free of state.
 * Untrusted : every byte of an answer, and every name.
 */
#ifndef NET_DNS_MESSAGE_INTERNAL_H
#define NET_DNS_MESSAGE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DNS_NAME_BYTES = 255, /* of a name in a message */
    DNS_QUESTION_BYTES = 12 + DNS_NAME_BYTES + 4,
    DNS_MAX_ADDRESSES = 8, /* of one answer; further ones are dropped */
};

enum dns_type { DNS_A = 1, DNS_AAAA = 28 };

enum dns_code { DNS_NO_ERROR = 0, DNS_SERVER_FAILURE = 2, DNS_NO_SUCH_NAME = 3, DNS_REFUSED = 5 };

struct dns_answer {
    unsigned code; /* 0..15, some of them an enum dns_code */
    size_t count;
    uint8_t addresses[DNS_MAX_ADDRESSES][16]; /* of DNS_A the first 4 bytes */
};

/* Writes the question for the addresses of a host and returns its size, or 0 where its name cannot
 * be one: too long, with a label that is empty or above 63 bytes, or with other characters than
 * letters, digits, - and _. Its id is 0,
 * as RFC 8484 advises. */
size_t dns_question(uint8_t out[DNS_QUESTION_BYTES], const char *name, enum dns_type type);

/* Reads the answer to such a question: all addresses of the type, of whichever name the aliases led
 * to. Returns whether it is well-formed. */
bool dns_answer_parse(struct dns_answer *out,
                      const uint8_t *data,
                      size_t size_bytes,
                      enum dns_type type);

#endif
