/*
 * The conditions of ccpack subset --where.
 */
#include "tools/ccpack/where.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/pack_case.h"
#include "tests/support/test.h"

static const struct sample_facts image = {.id = 7,
                                          .image_hash = 0xab,
                                          .caption_count = 2,
                                          .image_bytes = 1000,
                                          .width_px = 300,
                                          .height_px = 200,
                                          .format = IMAGE_FORMAT_JPEG,
                                          .label = 3,
                                          .class_name = "red car"};
static const struct sample_facts unknown = {.id = 8, .label = SHARD_NO_LABEL};

static bool fits(const char *text, const struct sample_facts *f) {
    struct error err = {0};
    struct where *w = NULL;
    bool good = false;
    assert_ok(where_parse(&w, text, NULL, &err), err);
    assert_ok(where_fits(&good, w, NULL, f, &err), err);
    where_destroy(w);
    return good;
}

TEST(comparisons_of_numbers) {
    assert_true(fits("id = 7", &image) && fits("id == 7", &image) && !fits("id=8", &image));
    assert_true(fits("id != 8", &image) && !fits("id != 7", &image));
    assert_true(fits("width > 299.5", &image) && !fits("width > 300", &image));
    assert_true(fits("width >= 300", &image) && fits("width<=3e2", &image));
    assert_true(fits("height < 201", &image) && !fits("height < 200", &image));
    assert_true(fits("shorter = 200", &image) && fits("longer = 300", &image));
    assert_true(fits("aspect = 1.5", &image) && fits("captions = 2", &image));
    assert_true(fits("image_bytes = 1000", &image) && fits("label = 3", &image));
    assert_true(fits("id > -1", &image));
}

TEST(texts) {
    assert_true(fits("format = jpeg", &image) && fits("format != png", &image));
    assert_true(fits("class = 'red car'", &image) && fits("class ~ \"red*\"", &image));
    assert_true(fits("class ~ *car", &image) && !fits("class ~ car", &image));
    assert_true(fits("class != blue", &image) && !fits("class != 'red car'", &image));
    assert_true(fits("hash = 00000000000000ab", &image));
    assert_true(fits("format = unknown", &unknown));
}

TEST(a_comparison_with_what_a_sample_lacks_is_false) {
    assert_false(fits("width < 1", &unknown) || fits("width != 1", &unknown));
    assert_false(fits("aspect >= 0", &unknown) || fits("label < 1", &unknown));
    assert_false(fits("class != blue", &unknown));
    assert_true(fits("not width > 0", &unknown));
}

/* XXH64 of the text of the value, computed elsewhere. */
TEST(a_hash_divides_samples_once_and_for_all) {
    unsigned lower = 0;
    assert_true(fits("hash(id) % 1000000 = 622455", &image)); /* of "7" */
    assert_true(fits("hash(image)%1000000=92841", &image));   /* of "00000000000000ab" */
    for (uint64_t id = 0; id < 10000; id++) {
        const struct sample_facts f = {.id = id};
        const bool good = fits("hash(id) % 100 < 95", &f);
        assert_true(good != fits("hash(id) % 100 >= 95", &f));
        lower += good;
    }
    assert_in_range(lower, 9400, 9600);
}

TEST(and_binds_closer_than_or_and_not_closest) {
    assert_true(fits("id = 7 or id = 1 and id = 2", &image));
    assert_false(fits("(id = 7 or id = 1) and id = 2", &image));
    assert_false(fits("not id = 7 or id = 1", &image));
    assert_true(fits("not (id = 1 or id = 2)", &image));
    assert_true(fits("not not id = 7", &image));
    assert_true(fits("id=7 and(width=300)and not(id=1)", &image));
}

TEST(a_percentage_is_the_value_with_that_share_below) {
    struct error err = {0};
    struct where *w = NULL;
    assert_ok(where_parse(&w, "id < 50% and width >= 0% or id > 100%", NULL, &err), err);
    assert_true(where_has_ranks(w));
    struct sample_facts f = image;
    for (f.id = 0; f.id < 10; f.id++) {
        assert_ok(where_rank(w, NULL, &f, &err), err);
    }
    assert_ok(where_rank(w, NULL, &unknown, &err), err); /* has an id, 8, and no width */
    where_rank_end(w);
    int count = 0;
    for (f.id = 0; f.id < 10; f.id++) {
        bool good = false;
        assert_ok(where_fits(&good, w, NULL, &f, &err), err);
        count += good;
        assert_true(good == (f.id < 5));
    }
    assert_int_equal(count, 5);
    where_destroy(w);
    assert_ok(where_parse(&w, "label > 10%", NULL, &err), err);
    assert_ok(where_rank(w, NULL, &unknown, &err), err); /* nobody has a label */
    where_rank_end(w);
    bool good = true;
    assert_ok(where_fits(&good, w, NULL, &image, &err), err);
    assert_false(good);
    where_destroy(w);
}

TEST(captions_and_keys_are_read_from_the_dataset) {
    struct error err = {0};
    struct pack_summary sum;
    const char *tar = pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 4});
    struct pack_options o = pack_case_options(NULL, test_temp_path("data"), &tar, 1);
    assert_ok(pack_run(&o, &sum, &err), err);
    struct input *in = NULL;
    assert_ok(input_open(&in, o.directory, &err), err);
    struct sample_facts f;
    struct sample_content content;
    struct shard_text caption;
    assert_ok(input_at(in, &f, 2, &err), err);
    assert_ok(input_caption(in, &caption, 0, &err), err);
    char whole[300], start[8], key[100], key_start[8], length[8];
    snprintf(whole, sizeof(whole), "%.*s", (int)caption.size_bytes, caption.data);
    snprintf(start, sizeof(start), "%.3s", whole);
    snprintf(length, sizeof(length), "%zu", caption.size_bytes);
    assert_ok(input_read(in, &content, &err), err);
    snprintf(key, sizeof(key), "%s", content.key);
    snprintf(key_start, sizeof(key_start), "%.3s", key);
    const struct {
        const char *before, *value, *after;
        bool good;
    } cases[] = {{"caption ~ '", start, "'", true},
                 {"caption = '", whole, "'", true},
                 {"caption != '", whole, "'", false},
                 {"caption ~ '", whole, " and more'", false},
                 {"caption != '", whole, " and more'", true},
                 {"id = 0 or caption = '", whole, "'", true},
                 {"key = '", key, "'", true},
                 {"key != '", key, "'", false},
                 {"key ~ '", key_start, "*'", true},
                 {"caption_bytes = ", length, "", true},
                 {"caption_chars < ", length, "", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct where *w = NULL;
        bool good = !cases[i].good;
        char text[600];
        snprintf(text, sizeof(text), "%s%s%s", cases[i].before, cases[i].value, cases[i].after);
        assert_ok(where_parse(&w, text, NULL, &err), err);
        assert_ok(where_fits(&good, w, in, &f, &err), err);
        assert_true(good == cases[i].good);
        where_destroy(w);
    }
    input_close(in);
}

TEST(metadata_is_compared_as_numbers_or_texts) {
    static const char list[] = "{\"image\": \"1.jpg\", \"caption\": [\"a\", \"\xC3\xA9\xC3\xA9\"], "
                               "\"size\": 0.25, \"number\": \"007\", "
                               "\"by\": {\"name\": \"ann\"}, \"ok\": true, \"null\": null}\n";
    static const struct {
        const char *text;
        bool good;
    } cases[] = {{"caption_bytes = 4 and caption_chars = 2", true},
                 {"meta.size > 0.24 and meta.size < 0.26", true},
                 {"meta.size = '0.250' or meta.size != '0.25'", false},
                 {"meta.number = 7 and meta.number != '7' and meta.number = '007'", true},
                 {"meta.by.name ~ 'a*' and meta.by.name != bob", true},
                 {"meta.ok = true and not meta.ok = false", true},
                 {"meta.by.name < 5", false},
                 {"meta.none != 1 or meta.none = x or meta.null != x or meta.by.none = x", false},
                 {"hash(meta.none) % 9 >= 0", false},
                 {"hash(meta.number) % 1000000 = 941796 and hash(key) % 1 = 0", true}};
    struct error err = {0};
    struct pack_summary sum;
    struct byte_buffer jpeg;
    byte_buffer_init(&jpeg, 0);
    pack_case_jpeg(&jpeg, 1, 16, 16);
    test_write_file(test_temp_path("1.jpg"), jpeg.data, jpeg.size_bytes);
    byte_buffer_fini(&jpeg);
    const char *source = test_temp_path("list.jsonl");
    test_write_file(source, list, strlen(list));
    struct pack_options o = pack_case_options(NULL, test_temp_path("data"), &source, 1);
    assert_ok(pack_run(&o, &sum, &err), err);
    struct input *in = NULL;
    struct sample_facts f;
    assert_ok(input_open(&in, o.directory, &err), err);
    assert_ok(input_at(in, &f, 0, &err), err);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct where *w = NULL;
        bool good = !cases[i].good;
        assert_ok(where_parse(&w, cases[i].text, NULL, &err), err);
        assert_ok(where_fits(&good, w, in, &f, &err), err);
        if (good != cases[i].good) {
            fail_msg("%s", cases[i].text);
        }
        where_destroy(w);
    }
    input_close(in);
}

TEST(what_is_wrong_is_named_with_its_place) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "the condition ends where a name is expected"},
        {"id", "ends where one of < <= > >= = != ~ is expected"},
        {"id < ", "ends where a number"},
        {"id < red", "character 6 of the condition, 'red': a number"},
        {"id < 101%", "a percentage"},
        {"hash(width) % 2 = 0", "character 6 of the condition, 'width) % 2 = 0': id, key, image"},
        {"hash(id) < 2", "') % N'"},
        {"hash(id) % 0 = 0", "an integer from 1 on"},
        {"id < nan", "a number"},
        {"id ~ 5", "character 6 of the condition, '5': a comparison of numbers"},
        {"format < jpeg", "= or != before a text"},
        {"caption < dog", "one of = != ~ before a text"},
        {"caption ~ 'dog", "a text"},
        {"id = 1 id = 2", "character 8 of the condition, 'id = 2': 'and' or 'or' is expected"},
        {"(id = 1", "ends where 'and', 'or' or ')' is expected"},
        {"id = 1)", "character 7"},
        {"zeta < 1", "unknown field 'zeta'"},
        {"'id' = 1", "a name is expected"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        struct where *w = NULL;
        assert_status(where_parse(&w, cases[i].text, NULL, &err), STATUS_USAGE, err);
        if (!strstr(err.text, cases[i].message)) {
            fail_msg("'%s': %s", cases[i].text, err.text);
        }
    }
}

TEST(a_condition_beyond_the_limits_is_refused) {
    struct error err = {0};
    struct where *w = NULL;
    char text[WHERE_MAX_TEXT_BYTES + 2];
    memset(text, '(', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_status(where_parse(&w, text, NULL, &err), STATUS_LIMIT, err);
    text[1000] = '\0';
    assert_status(where_parse(&w, text, NULL, &err), STATUS_LIMIT, err);
    strcpy(text, "id=1");
    for (int i = 0; i < WHERE_MAX_NODES; i++) {
        strcat(text, " or id=1");
    }
    assert_status(where_parse(&w, text, NULL, &err), STATUS_LIMIT, err);
}
