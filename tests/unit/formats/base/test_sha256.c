/* The examples of FIPS 180-4 and of NIST's vectors, and updates of every size. */
#include "formats/base/sha256.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

static void expect(const void *data, size_t size_bytes, size_t step, const char *hex) {
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];
    char text[SHA256_HEX_BYTES];
    sha256_init(&h);
    for (size_t at = 0; at < size_bytes; at += step) {
        const size_t left = size_bytes - at;
        sha256_update(&h, (const uint8_t *)data + at, left < step ? left : step);
    }
    sha256_final(&h, digest);
    sha256_hex(text, digest);
    assert_string_equal(text, hex);
}

TEST(digests_are_those_of_the_standard) {
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static char many[1000000];
    expect("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    memset(many, 'a', sizeof many);
    for (size_t step = 1; step < 130; step++) {
        expect(two, 56, step, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
    for (size_t step = 60; step < 70; step++) {
        expect(many, sizeof many, step,
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}
