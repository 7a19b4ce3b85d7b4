/*
 * The remembered choices of convolutions: keys differ in everything that matters, the file survives
 * a round trip, and a damaged or hostile file only causes new searches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "tests/support/test.h"

static const struct conv_problem base = {.pass = CONV_FORWARD,
                                         .dtype = DTYPE_BF16,
                                         .n = 512,
                                         .h = 56,
                                         .w = 56,
                                         .c = 64,
                                         .k = 64,
                                         .r = 3,
                                         .s = 3,
                                         .oh = 56,
                                         .ow = 56,
                                         .stride = 1,
                                         .pad = 1};

static void write_file(const char *folder, const char *text, size_t size) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/conv-plans.txt", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static struct conv_choices *open_choices(const char *folder, int32_t *skipped) {
    struct conv_choices *c;
    struct error err = {0};
    assert_ok(conv_choices_open(&c, folder, skipped, &err), err);
    return c;
}

TEST(keys_differ_in_everything_that_matters) {
    enum { VARIANTS = 17 };
    const struct conv_gpu h200 = {.sm = 90, .name = "NVIDIA H200"};
    const struct conv_gpu a100 = {.sm = 80, .name = "NVIDIA A100-SXM4-80GB"};
    struct device_options opt;
    char keys[VARIANTS][CONV_KEY_CHARS];
    int count = 0;
    device_options_default(&opt);
    for (int i = 0; i < 13; i++) {
        struct conv_problem p = base;
        int64_t *const sizes[] = {&p.n, &p.h, &p.w, &p.c, &p.k, &p.r, &p.s};
        if (i < 7) {
            *sizes[i] += 1;
        }
        p.stride += i == 7;
        p.pad += i == 8;
        p.pass = i == 9 ? CONV_DATA : p.pass;
        p.dtype = i == 10 ? DTYPE_F32 : p.dtype;
        p.add = i == 11;
        conv_key(keys[count++], &p, &h200, &opt);
    }
    conv_key(keys[count++], &base, &a100, &opt);
    for (int i = 0; i < 3; i++) {
        struct device_options other = opt;
        other.deterministic = i != 0;
        other.tf32 = i == 1;
        other.autotune = i == 2;
        conv_key(keys[count++], &base, &h200, &other);
    }
    assert_int_equal(count, VARIANTS);
    for (int i = 0; i < count; i++) {
        assert_null(strpbrk(keys[i], "\t\n"));
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(keys[i], keys[j]);
        }
    }
}

TEST(a_gpu_name_cannot_break_a_line) {
    const struct conv_gpu gpu = {.sm = 90, .name = "evil\nname\twith \x01 all"};
    struct device_options opt;
    char key[CONV_KEY_CHARS];
    device_options_default(&opt);
    conv_key(key, &base, &gpu, &opt);
    assert_null(strpbrk(key, "\t\n\x01"));
    assert_non_null(strstr(key, "evil_name_with___all"));
}

TEST(choices_survive_a_round_trip) {
    const char *folder = test_temp_dir();
    struct conv_choice choice = {.engine = 62, .knobs_count = CONV_MAX_KNOBS};
    struct error err = {0};
    int32_t skipped;
    for (int i = 0; i < CONV_MAX_KNOBS; i++) {
        choice.knobs[i].type = i;
        choice.knobs[i].value = (int64_t)1 << i;
    }
    const struct conv_choice plain = {.engine = 0};
    struct conv_choices *c = open_choices(folder, &skipped);
    assert_int_equal(skipped, 0); /* a missing file is not an error */
    assert_null(conv_choices_find(c, "a"));
    assert_ok(conv_choices_put(c, "a", &plain, &err), err);
    assert_ok(conv_choices_put(c, "b with words", &choice, &err), err);
    assert_ok(conv_choices_put(c, "a", &choice, &err), err); /* replaced */
    assert_ok(conv_choices_put(c, "c", &plain, &err), err);
    assert_ok(conv_choices_save(c, folder, &err), err);
    conv_choices_close(c);

    c = open_choices(folder, &skipped);
    assert_int_equal(skipped, 0);
    assert_memory_equal(conv_choices_find(c, "a"), &choice, sizeof choice);
    assert_memory_equal(conv_choices_find(c, "b with words"), &choice, sizeof choice);
    assert_memory_equal(conv_choices_find(c, "c"), &plain, sizeof plain);
    assert_null(conv_choices_find(c, "d"));
    conv_choices_close(c);
}

TEST(hostile_lines_are_skipped) {
    static const char *const lines[] = {"no tab",
                                        "\t5",
                                        "key\t",
                                        "key\t-1",
                                        "key\t1 ",
                                        "key\t1 2",
                                        "key\t1 2=",
                                        "key\t1 =3",
                                        "key\t1 2=3x",
                                        "key\t1  2=3",
                                        "key\t1\t2=3",
                                        "key\t99999999999999999999",
                                        "key\t1 2=99999999999999999999",
                                        "key\t1 99999999999=1",
                                        "ke\x01y\t1",
                                        "k\xc3\xa9y\t1"};
    enum { LINES = sizeof lines / sizeof lines[0] };
    const char *folder = test_temp_dir();
    char text[4096] = "ccstream-conv-plans 1\n";
    int32_t skipped;
    for (int i = 0; i < LINES; i++) {
        strcat(text, lines[i]);
        strcat(text, "\n");
    }
    strcat(text, "good\t7 1=2\n");
    write_file(folder, text, strlen(text));
    struct conv_choices *c = open_choices(folder, &skipped);
    assert_int_equal(skipped, LINES);
    assert_null(conv_choices_find(c, "key"));
    const struct conv_choice *good = conv_choices_find(c, "good");
    assert_non_null(good);
    assert_int_equal(good->engine, 7);
    assert_int_equal(good->knobs[0].value, 2);
    conv_choices_close(c);
}

TEST(knobs_beyond_the_limit_and_long_keys_are_skipped) {
    const char *folder = test_temp_dir();
    static char text[8192];
    int32_t skipped;
    (void)snprintf(text, sizeof text, "ccstream-conv-plans 1\nknobs\t1");
    for (int i = 0; i <= CONV_MAX_KNOBS; i++) {
        (void)snprintf(text + strlen(text), 16, " %d=1", i);
    }
    strcat(text, "\n");
    memset(text + strlen(text), 'x', CONV_KEY_CHARS); /* the rest of text is zeros */
    strcat(text, "\t1\n");
    write_file(folder, text, strlen(text));
    struct conv_choices *c = open_choices(folder, &skipped);
    assert_int_equal(skipped, 2);
    assert_null(conv_choices_find(c, "knobs"));
    conv_choices_close(c);
}

TEST(a_file_of_another_kind_is_skipped) {
    const char *folder = test_temp_dir();
    static const char binary[] = "ccstream-conv-plans 1\nkey\t1\n\0key2\t1\n";
    static const char *const files[] = {"", "ccstream-conv-plans 2\nkey\t1\n", "PK\x03\x04"};
    int32_t skipped;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        write_file(folder, files[i], strlen(files[i]));
        struct conv_choices *c = open_choices(folder, &skipped);
        assert_int_equal(skipped, 1);
        assert_null(conv_choices_find(c, "key"));
        conv_choices_close(c);
    }
    write_file(folder, binary, sizeof binary); /* what follows a zero byte is not read */
    struct conv_choices *c = open_choices(folder, &skipped);
    assert_non_null(conv_choices_find(c, "key"));
    assert_null(conv_choices_find(c, "key2"));
    conv_choices_close(c);
}

TEST(a_file_too_large_is_skipped) {
    const char *folder = test_temp_dir();
    const size_t size = (size_t)CONV_CHOICES_MAX_BYTES + 1;
    char *text = malloc(size);
    int32_t skipped;
    assert_non_null(text);
    memset(text, 'x', size);
    write_file(folder, text, size);
    free(text);
    struct conv_choices *c = open_choices(folder, &skipped);
    assert_int_equal(skipped, 1);
    conv_choices_close(c);
}

TEST(more_choices_than_the_limit_are_refused) {
    const char *folder = test_temp_dir();
    struct conv_choice choice = {.engine = 1};
    struct error err = {0};
    int32_t skipped;
    char key[32];
    struct conv_choices *c = open_choices(folder, &skipped);
    for (int i = 0; i < CONV_MAX_CHOICES; i++) {
        (void)snprintf(key, sizeof key, "key %d", i);
        assert_ok(conv_choices_put(c, key, &choice, &err), err);
    }
    assert_status(conv_choices_put(c, "one more", &choice, &err), STATUS_LIMIT, err);
    assert_ok(conv_choices_put(c, "key 0", &choice, &err), err);
    conv_choices_close(c);
}
