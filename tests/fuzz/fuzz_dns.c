/*
 * The first byte chooses a half: the rest as an answer of a DNS server, whose addresses are within
 * their limit; or as a name, whose question is read back as an answer without records.
 */
#include <stdlib.h>
#include <string.h>

#include "net/dns_message_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void try_name(const uint8_t *data, size_t size_bytes, enum dns_type type) {
    uint8_t message[DNS_QUESTION_BYTES];
    struct dns_answer a;
    char *name = malloc(size_bytes + 1);
    demand(name != NULL);
    memcpy(name, data, size_bytes);
    name[size_bytes] = '\0';
    const size_t written = dns_question(message, name, type);
    demand(written <= sizeof message);
    if (written > 0) {
        demand(written >= strlen(name) + 12 + 1 + 4);
        message[2] |= 0x80; /* an answer */
        demand(dns_answer_parse(&a, message, written, type) && a.count == 0);
    }
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    if (size_bytes == 0) {
        return 0;
    }
    const enum dns_type type = (data[0] & 2) != 0 ? DNS_A : DNS_AAAA;
    if ((data[0] & 1) != 0) {
        try_name(data + 1, size_bytes - 1, type);
        return 0;
    }
    struct dns_answer a;
    (void)dns_answer_parse(&a, data + 1, size_bytes - 1, type);
    demand(a.count <= DNS_MAX_ADDRESSES && a.code <= 15);
    return 0;
}
