/*
 * Examples of retrieval: ranks and order counted by hand on two images of two captions each.
 */
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

#include "train/eval/examples.h"

/* The images lie along the axes; caption 1 of image 0 is nearer to image 1. */
static float images[] = {1.0f, 0.0f, 0.0f, 1.0f};
static float texts[] = {0.96f, 0.28f, 0.6f, 0.8f, 0.28f, 0.96f, 0.0f, 1.0f};
static int32_t owner[] = {0, 0, 1, 1};
static uint64_t ids[] = {5, 9};

static struct embeddings two_images(void) {
    return (struct embeddings){.images = images,
                               .texts = texts,
                               .images_count = 2,
                               .texts_count = 4,
                               .embed_dim = 2,
                               .owner = owner,
                               .sample_ids = ids};
}

TEST(a_caption_ranks_images) {
    struct error err = {0};
    struct device *dev = NULL;
    struct examples x;
    const struct embeddings e = two_images();
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(examples_find(&x, dev, &e, true, 6, &err), err);
    assert_true(x.count == 4 && x.found_count == 2);
    static const int64_t queries[] = {0, 2, 3, 1}; /* the one that is missed comes last */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(x.items[i].query, queries[i]);
        assert_int_equal(x.items[i].rank, i < 3 ? 1 : 2);
    }
    assert_true(x.items[3].found[0] == 1 && x.items[3].found[1] == 0);
    assert_true(fabsf(x.items[3].scores[0] - 0.8f) < 1e-6f);
    assert_int_equal(examples_caption_of(&e, 3), 1);
    examples_fini(&x);
    device_close(dev);
}

TEST(an_image_ranks_captions_and_is_written) {
    struct error err = {0};
    struct device *dev = NULL;
    struct examples x;
    struct json_writer w;
    const struct embeddings e = two_images();
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(examples_find(&x, dev, &e, false, 1, &err), err);
    assert_true(x.count == 1 && x.found_count == 4 && x.items[0].rank == 1);
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    examples_write_json(&w, "i2t", &x, &e);
    json_close_object(&w);
    static const char wanted[] =
        "{\"i2t\":[{\"id\":5,\"rank\":1,\"found\":[{\"id\":5,\"caption\":0,"
        "\"score\":0.9";
    assert_true(w.out.size_bytes > sizeof wanted);
    assert_int_equal(strncmp((const char *)w.out.data, wanted, sizeof wanted - 1), 0);
    json_writer_fini(&w);
    examples_fini(&x);
    device_close(dev);
}
