/* What ccdump verify demands of a sample whose bytes and hashes are right. */
#include <string.h>

#include "formats/shard/shard.h"
#include "tests/support/test.h"
#include "tools/ccdump/verify.h"

static struct error err;

static void make_view(struct sample_view *v, struct byte_buffer *jpeg) {
    static uint8_t pixels[40 * 30 * 3];
    struct image_view view = {pixels, 40, 30, 40 * 3};
    byte_buffer_init(jpeg, 0);
    assert_ok(image_encode_jpeg(jpeg, &view, 90, &err), err);
    *v = (struct sample_view){
        .record = {.image_bytes = (uint32_t)jpeg->size_bytes,
                   .width_px = 40,
                   .height_px = 30,
                   .format = IMAGE_FORMAT_JPEG,
                   .label = 2},
        .image = jpeg->data,
        .image_bytes = jpeg->size_bytes,
    };
}

TEST(format_and_size_in_the_record_must_be_those_of_the_image) {
    struct image_decoder *d = NULL;
    struct byte_buffer jpeg;
    struct sample_view v;
    make_view(&v, &jpeg);
    assert_ok(image_decoder_create(&d, NULL, &err), err);
    assert_ok(verify_sample(d, &v, 0, &err), err);
    v.record.width_px = 30;
    v.record.height_px = 40;
    assert_ok(verify_sample(NULL, &v, 0, &err), err);
    assert_status(verify_sample(d, &v, 0, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "records 30 x 40 pixels, the image has 40 x 30"));
    v.record.width_px = 40;
    v.record.height_px = 0;
    assert_status(verify_sample(d, &v, 0, &err), STATUS_CORRUPT, err);
    v.record.width_px = 0; /* both 0: not known */
    assert_ok(verify_sample(d, &v, 0, &err), err);
    v.record.format = IMAGE_FORMAT_PNG;
    assert_status(verify_sample(d, &v, 0, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "records png, the image is jpeg"));
    image_decoder_destroy(d);
    byte_buffer_fini(&jpeg);
}

TEST(labels_must_be_below_the_number_of_classes) {
    struct byte_buffer jpeg;
    struct sample_view v;
    make_view(&v, &jpeg);
    assert_ok(verify_sample(NULL, &v, 3, &err), err);
    assert_status(verify_sample(NULL, &v, 2, &err), STATUS_CORRUPT, err);
    assert_string_equal(err.text, "its label is 2, there are 2 classes");
    assert_ok(verify_sample(NULL, &v, 0, &err), err); /* classes without names */
    v.record.label = SHARD_NO_LABEL;
    assert_ok(verify_sample(NULL, &v, 1, &err), err);
    byte_buffer_fini(&jpeg);
}
