/*
 * The test vectors of formats/SHARD_FORMAT.md, section 14: the writer makes each row of the table
 * again and looks for it on the page.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_writer.h"
#include "tests/support/make_shards.h"
#include "tests/support/test.h"

static struct error err;

struct vector {
    size_t caption_bytes, image_bytes;
};

static const struct vector vectors[] = {{1, 512},    {1, 64000},   {1, 64512},
                                        {1, 131072}, {1, 131073},  {1, 300000},
                                        {131072, 1}, {1, 8387072}, {1, 8387073}};

/* The bytes of the vector's frame in the file; `frame` keeps the record. */
static void build(struct byte_buffer *out,
                  struct shard_frame *frame,
                  const struct vector *v,
                  enum shard_container container) {
    struct shard_frame_builder *b = NULL;
    char *caption = malloc(v->caption_bytes);
    uint8_t *image = malloc(v->image_bytes);
    assert_true(caption && image);
    for (size_t i = 0; i < v->caption_bytes; i++) {
        caption[i] = (char)(97 + i % 23);
    }
    for (size_t i = 0; i < v->image_bytes; i++) {
        image[i] = (uint8_t)(i % 251);
    }
    const struct shard_text text = {caption, v->caption_bytes};
    const struct shard_sample sample = {
        .sample_id = 1,
        .key = "v",
        .image = image,
        .image_bytes = v->image_bytes,
        .format = IMAGE_FORMAT_JPEG,
        .label = SHARD_NO_LABEL,
        .captions = &text,
        .caption_count = 1,
    };
    byte_buffer_init(out, 1 << 24);
    assert_ok(shard_frame_builder_create(&b, container, SHARD_LEVEL_DEFAULT, &err), err);
    assert_ok(shard_frame_build(b, frame, &sample, &err), err);
    assert_ok(made_frame_bytes(out, frame, &err), err);
    assert_int_equal(out->size_bytes, frame->record.frame_bytes);
    shard_frame_builder_destroy(b);
    free(caption);
    free(image);
}

/* "| 8,389,120 ", as in the table. */
static void put_number(char **at, uint64_t n) {
    char digits[32];
    int count = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
    *at += sprintf(*at, "| ");
    for (int i = 0; i < count; i++) {
        *at += sprintf(*at, "%s%c", i > 0 && (count - i) % 3 == 0 ? "," : "", digits[i]);
    }
    *at += sprintf(*at, " ");
}

/* "| `84 38 00` ". */
static void put_bytes(char **at, const uint8_t *bytes, size_t size_bytes) {
    *at += sprintf(*at, "| `");
    for (size_t i = 0; i < size_bytes; i++) {
        *at += sprintf(*at, "%s%02x", i > 0 ? " " : "", bytes[i]);
    }
    *at += sprintf(*at, "` ");
}

static void write_row(char *row,
                      const struct vector *v,
                      const struct shard_frame *frame,
                      const struct byte_buffer *bytes) {
    static const size_t header_bytes[] = {[FRAME_DESCRIPTOR_SHORT] = 7,
                                          [FRAME_DESCRIPTOR_SINGLE] = 9,
                                          [FRAME_DESCRIPTOR_WINDOWED] = 10};
    const struct shard_record *r = &frame->record;
    uint32_t span = shard_image_span_bytes(SHARD_CONTAINER_TAR_ZSTD, r->image_bytes);
    size_t last = (v->image_bytes - 1) / SHARD_BLOCK_BYTES * (SHARD_BLOCK_BYTES + 3);
    const uint8_t *image = bytes->data + r->image_offset;
    put_number(&row, v->caption_bytes);
    put_number(&row, v->image_bytes);
    put_number(&row, frame->content_bytes);
    put_bytes(&row, bytes->data + 4, header_bytes[bytes->data[4]] - 4);
    put_bytes(&row, image - 3, 3);
    put_bytes(&row, image + last - 3, 3);
    if (tar_padding(v->image_bytes) > 0) {
        put_bytes(&row, image + span, 4);
    } else {
        row += sprintf(row, "| none ");
    }
    put_number(&row, span);
    put_bytes(&row, bytes->data + bytes->size_bytes - 4, 4);
    sprintf(row, "|\n");
}

TEST(frames_are_those_of_the_page) {
    size_t page_bytes = 0;
    char *page = (char *)test_read_file(test_source_path("formats/SHARD_FORMAT.md"), &page_bytes);
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        struct byte_buffer bytes;
        struct shard_frame frame = {0};
        char row[400];
        build(&bytes, &frame, &vectors[i], SHARD_CONTAINER_TAR_ZSTD);
        write_row(row, &vectors[i], &frame, &bytes);
        if (!strstr(page, row)) {
            fail_msg("not on the page: %s", row);
        }
        shard_frame_fini(&frame);
        byte_buffer_fini(&bytes);
    }
    free(page);
}

TEST(a_frame_with_a_raw_head_has_the_bytes_of_the_page) {
    struct byte_buffer bytes;
    struct shard_frame frame = {0};
    build(&bytes, &frame, &vectors[6], SHARD_CONTAINER_TAR_ZSTD);
    assert_int_equal(frame.record.image_offset, 132114);
    assert_int_equal(bytes.size_bytes, 132123);
    assert_memory_equal(bytes.data + 9, "\x00\x00\x10", 3);
    assert_memory_equal(bytes.data + 9 + 3 + 131072, "\x00\x20\x00", 3);
    assert_int_equal(hash64(bytes.data, bytes.size_bytes), UINT64_C(0xbdeff058d771b34b));
    shard_frame_fini(&frame);
    byte_buffer_fini(&bytes);
}

TEST(a_plain_tar_has_the_same_content_and_check) {
    struct byte_buffer bytes, plain;
    struct shard_frame frame = {0};
    struct shard_frame members = {0};
    build(&bytes, &frame, &vectors[0], SHARD_CONTAINER_TAR_ZSTD);
    build(&plain, &members, &vectors[0], SHARD_CONTAINER_TAR);
    assert_int_equal(plain.size_bytes, 2048);
    assert_int_equal(members.record.image_offset, 1536);
    assert_int_equal((uint32_t)hash64(plain.data, plain.size_bytes),
                     load_u32(bytes.data + bytes.size_bytes - 4));
    shard_frame_fini(&frame);
    shard_frame_fini(&members);
    byte_buffer_fini(&bytes);
    byte_buffer_fini(&plain);
}
