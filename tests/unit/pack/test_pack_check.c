/*
 * Images are checked at an eighth of their size. That finds the damage that a whole decode finds:
 * all of a JPEG's data is read either way, only fewer pixels are made of it.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "formats/image/image_codec.h"
#include "tests/support/test.h"

enum { MAX_BYTES = 200 << 10 };

static unsigned good, bad;

static void check_same(struct image_decoder *d, const char *name, const uint8_t *p, size_t n) {
    static const struct image_decode_options whole = {0};
    static const struct image_decode_options eighth = {.min_width_px = 1, .min_height_px = 1};
    struct image_view view;
    struct error err = {0};
    enum status a = image_decode(d, &view, NULL, p, n, &whole, &err);
    enum status b = image_decode(d, &view, NULL, p, n, &eighth, NULL);
    if (a != b) {
        fail_msg("%s: %s whole (%s), %s at an eighth", name, status_name(a), err.text,
                 status_name(b));
    }
    good += a == STATUS_OK;
    bad += a != STATUS_OK;
}

/* The file as it is, with bytes changed, and cut. */
static void check_variants(struct image_decoder *d, const char *path, int variants) {
    size_t size_bytes;
    uint8_t *data = test_read_file(path, &size_bytes);
    uint8_t *copy = malloc(size_bytes + 1);
    struct rng rng;
    assert_non_null(copy);
    rng_init(&rng, test_seed(), RNG_INIT, size_bytes, 0);
    check_same(d, path, data, size_bytes);
    for (int i = 0; i < variants && size_bytes > 16 && size_bytes < MAX_BYTES; i++) {
        memcpy(copy, data, size_bytes);
        size_t n = size_bytes;
        if (i % 4 == 0) {
            n = rng_below(&rng, (uint32_t)size_bytes);
        }
        for (uint32_t k = rng_below(&rng, 4); k-- > 0;) {
            copy[rng_below(&rng, (uint32_t)size_bytes)] = (uint8_t)rng_below(&rng, 256);
        }
        check_same(d, path, copy, n);
    }
    free(copy);
    free(data);
}

static void check_folder(const char *folder, int variants) {
    struct image_decoder *d = NULL;
    struct error err = {0};
    char path[1024];
    assert_ok(image_decoder_create(&d, NULL, &err), err);
    snprintf(path, sizeof(path), "%s", folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            check_variants(d, path, variants);
        }
    }
    closedir(dir);
    image_decoder_destroy(d);
    assert_true(good > 100 && bad > 100);
}

TEST(an_eighth_finds_the_damage_that_a_whole_decode_finds) {
    check_folder(test_source_path("tests/fuzz/corpus/image"), 400 / (int)test_step(8));
}
