#include "net/dns_message_internal.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"

/* What precedes the records: the header with so many, and the question for a.test. */
#define HEAD(flags, records) "\0\0" flags "\0\1\0" records "\0\0\0\0\1a\4test\0"
#define FOUND                "\x81\x80"
#define OF_HEAD              "\xc0\x0c" /* a pointer to the name in the question */
#define ADDRESS              OF_HEAD "\0\1\0\1\0\0\0\x3c\0\4"
#define ALIAS                OF_HEAD "\0\5\0\1\0\0\0\x3c\0\4\1b\xc0\x0e"
#define AND_SIZE(text)       (const uint8_t *)(text), sizeof(text) - 1

TEST(questions_are_those_of_the_standard) {
    uint8_t q[DNS_QUESTION_BYTES];
    static const char expected[] = "\0\0\1\0\0\1\0\0\0\0\0\0\3www\7example\3org\0\0\x1c\0\1";
    assert_int_equal(dns_question(q, "www.example.org", DNS_AAAA), sizeof expected - 1);
    assert_memory_equal(q, expected, sizeof expected - 1);
    assert_int_equal(dns_question(q, "www.example.org.", DNS_AAAA), sizeof expected - 1);
}

TEST(names_that_cannot_be_have_no_question) {
    uint8_t q[DNS_QUESTION_BYTES];
    static const char *const wrong[] = {"",  ".",    "a..b", ".a", "a..", "m\xc3\xbcnchen.de",
                                        "*", "a b.c"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(dns_question(q, wrong[i], DNS_A), 0);
    }
    char label[66];
    memset(label, 'a', sizeof label);
    label[63] = '\0';
    assert_int_equal(dns_question(q, label, DNS_A), 12 + 65 + 4);
    label[63] = 'a';
    label[64] = '\0';
    assert_int_equal(dns_question(q, label, DNS_A), 0);
}

TEST(the_longest_name_fits_and_one_more_byte_does_not) {
    uint8_t q[DNS_QUESTION_BYTES];
    char name[260] = "";
    for (int i = 0; i < 63; i++) {
        strcat(name, "abc.");
    }
    strcat(name, "a");
    assert_int_equal(dns_question(q, name, DNS_A), 12 + 63 * 4 + 3 + 4);
    strcat(name, "b");
    assert_int_equal(dns_question(q, name, DNS_A), 0);
}

TEST(addresses_are_read_through_aliases) {
    struct dns_answer a;
    assert_true(dns_answer_parse(
        &a, AND_SIZE(HEAD(FOUND, "\3") "\0\1\0\1" ALIAS ADDRESS "\xc0\0\2\1" ADDRESS "\xc0\0\2\2"),
        DNS_A));
    assert_int_equal(a.code, DNS_NO_ERROR);
    assert_int_equal(a.count, 2);
    assert_memory_equal(a.addresses[0], "\xc0\0\2\1", 4);
    assert_memory_equal(a.addresses[1], "\xc0\0\2\2", 4);
}

TEST(an_answer_may_have_a_code_and_no_address) {
    struct dns_answer a;
    assert_true(dns_answer_parse(&a, AND_SIZE(HEAD("\x81\x83", "\0") "\0\1\0\1"), DNS_A));
    assert_int_equal(a.code, DNS_NO_SUCH_NAME);
    assert_int_equal(a.count, 0);
    assert_true(dns_answer_parse(&a, AND_SIZE(HEAD(FOUND, "\1") "\0\1\0\1" ALIAS), DNS_A));
    assert_int_equal(a.count, 0);
}

TEST(more_addresses_than_are_kept_are_dropped) {
    struct dns_answer a;
    uint8_t message[12 + 8 + 4 + 20 * 16];
    memcpy(message, HEAD(FOUND, "\x14") "\0\1\0\1", 24);
    for (size_t i = 0; i < 20; i++) {
        memcpy(message + 24 + 16 * i, ADDRESS "\xc0\0\2\1", 16);
    }
    assert_true(dns_answer_parse(&a, message, sizeof message, DNS_A));
    assert_int_equal(a.count, DNS_MAX_ADDRESSES);
}

TEST(what_is_no_answer_is_malformed) {
    struct dns_answer a;
    assert_false(dns_answer_parse(&a, AND_SIZE(""), DNS_A));
    assert_false(dns_answer_parse(&a, AND_SIZE("<!DOCTYPE html>"), DNS_A));
    assert_false(dns_answer_parse(&a, AND_SIZE(HEAD("\1\0", "\0") "\0\1\0\1"), DNS_A));
    assert_false(dns_answer_parse(&a, AND_SIZE(HEAD("\xa1\x80", "\0") "\0\1\0\1"), DNS_A));
    /* to another question; an address of another size */
    assert_false(dns_answer_parse(&a, AND_SIZE(HEAD(FOUND, "\0") "\0\x1c\0\1"), DNS_A));
    assert_false(dns_answer_parse(
        &a, AND_SIZE(HEAD(FOUND, "\1") "\0\1\0\1" OF_HEAD "\0\1\0\1\0\0\0\x3c\0\3\xc0\0\2"),
        DNS_A));
}

TEST(an_answer_that_is_cut_anywhere_is_malformed) {
    struct dns_answer a;
    static const char whole[] = HEAD(FOUND, "\2") "\0\1\0\1" ALIAS ADDRESS "\xc0\0\2\1";
    for (size_t size = 0; size < sizeof whole - 1; size++) {
        assert_false(dns_answer_parse(&a, (const uint8_t *)whole, size, DNS_A));
    }
    assert_true(dns_answer_parse(&a, AND_SIZE(whole), DNS_A));
}
