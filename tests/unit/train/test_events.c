#include "train/run/events.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "tests/support/test.h"

/* RFC 3720, appendix B.4, and the check value of the CRC catalogue. */
TEST(crc_is_that_of_castagnoli) {
    uint8_t bytes[32] = {0};
    assert_int_equal(events_crc32c("123456789", 9), 0xE3069283u);
    assert_int_equal(events_crc32c(bytes, 32), 0x8A9136AAu);
    memset(bytes, 0xFF, sizeof bytes);
    assert_int_equal(events_crc32c(bytes, 32), 0x62A8AB43u);
    for (uint8_t i = 0; i < 32; i++) {
        bytes[i] = i;
    }
    assert_int_equal(events_crc32c(bytes, 32), 0x46DD794Eu);
    assert_int_equal(events_crc32c("", 0), 0);
    assert_int_equal(events_masked_crc("", 0), 0xa282ead8u);
}

TEST(a_line_without_step_is_refused_and_leaves_no_record) {
    struct events *e = NULL;
    struct error err = {0};
    static const char *const lines[] = {"{\"loss\":1}", "[]", "{\"step\":-1}", "{\"step\":1", ""};
    assert_ok(events_open(&e, test_temp_path("a/b"), 0, &err), err);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_status(events_line(e, lines[i], strlen(lines[i]), &err), STATUS_CORRUPT, err);
    }
    events_close(e);
    DIR *d = opendir(test_temp_path("a/b"));
    assert_non_null(d);
    const struct dirent *entry;
    char path[4096] = "";
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%s", test_temp_path("a/b/%s", entry->d_name));
        }
    }
    closedir(d);
    /* Version and start: 16 bytes around 9 + 2 + 15, and around 9 + 2 + 4. */
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    assert_int_equal(ftell(f), 16 + 9 + 2 + 15 + 16 + 9 + 2 + 4);
    fclose(f);
}

TEST(two_files_of_a_second_have_two_names) {
    struct events *a = NULL;
    struct events *b = NULL;
    struct error err = {0};
    assert_ok(events_open(&a, test_temp_path("e"), 0, &err), err);
    assert_ok(events_open(&b, test_temp_path("e"), 0, &err), err);
    events_close(a);
    events_close(b);
}

TEST(a_folder_that_cannot_be_made_is_an_error) {
    struct events *e = NULL;
    struct error err = {0};
    test_write_file(test_temp_path("file"), "x", 1);
    assert_true(events_open(&e, test_temp_path("file/e"), 0, &err) < STATUS_OK);
    assert_null(e);
    assert_non_null(strstr(err.text, "file"));
}
