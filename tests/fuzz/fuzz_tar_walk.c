/*
 * Any bytes as a piece of a user's tar: all members that the walk finds are within it. A member
 * that an index accepts as a sample's image is the one that readers find, and a change of any byte
 * is refused.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/shard/shard_foreign.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"
#include "formats/shard/tar.h"
#include "tests/support/file_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { MAX_BYTES = 64 << 10, MAX_IMAGES = 4 };

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void put_file(struct file_system *fs, const char *path, const void *data, size_t n) {
    demand(file_write_atomic(fs, path, data, n, NULL) == STATUS_OK);
}

static void check_reader(const uint8_t *data,
                         size_t size_bytes,
                         const struct byte_buffer *index,
                         const struct shard_summary *summary,
                         const struct tar_walk_member *image) {
    struct file_system *fs = NULL;
    struct shard_reader *r = NULL;
    struct sample_view v;
    struct shard_verify how = {.expected = summary};
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    put_file(fs, "a.tar", data, size_bytes);
    put_file(fs, "a.cci", index->data, index->size_bytes);
    demand(shard_verify(fs, "a.tar", &how, NULL) == STATUS_OK);
    demand(shard_reader_open(&r, fs, "a.tar", NULL) == STATUS_OK);
    demand(shard_reader_get(r, 0, &v, NULL) == STATUS_OK);
    demand(v.image_bytes == image->size_bytes && shard_key_is_valid(v.key));
    demand(memcmp(v.image, image->body, v.image_bytes) == 0);
    demand(r->content.size_bytes == size_bytes);
    demand(memcmp(r->content.data, data, size_bytes) == 0);
    demand(v.json.data == NULL || v.json.size_bytes > 0);
    shard_reader_close(r);

    uint8_t *other = malloc(size_bytes);
    demand(other != NULL);
    memcpy(other, data, size_bytes);
    other[hash64(data, size_bytes) % size_bytes] ^= 1;
    put_file(fs, "a.tar", other, size_bytes);
    demand(shard_reader_open(&r, fs, "a.tar", NULL) == STATUS_OK);
    demand(shard_reader_get(r, 0, &v, NULL) == STATUS_CORRUPT);
    shard_reader_close(r);
    free(other);
    file_memory_destroy(fs);
}

/* The member as the image of the one sample, which all of the bytes are. */
static void check_image(const uint8_t *data,
                        size_t size_bytes,
                        const struct tar_walk_member *image,
                        bool sound) {
    struct shard_frame_builder *b = NULL;
    struct shard_foreign *x = NULL;
    struct shard_frame frame = {0};
    const struct shard_text caption = {"a caption", 9};
    const struct shard_sample sample = {
        .key = "k",
        .image = image->body,
        .image_bytes = image->size_bytes,
        .format = IMAGE_FORMAT_JPEG,
        .label = SHARD_NO_LABEL,
        .captions = &caption,
        .caption_count = 1,
    };
    const struct shard_foreign_place place = {0, data, size_bytes, image->body_offset};
    demand(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR, 1, NULL) == STATUS_OK);
    demand(shard_foreign_create(&x, "a.tar", 1, NULL) == STATUS_OK);
    demand(shard_frame_build(b, &frame, &sample, NULL) == STATUS_OK);
    enum status added = shard_foreign_add(x, &frame, &place, NULL);
    demand(added == STATUS_OK || (added == STATUS_CORRUPT && !sound));
    if (added == STATUS_OK) {
        struct byte_buffer index;
        struct shard_summary summary;
        demand(shard_foreign_finish(x, &index, &summary, size_bytes, hash64(data, size_bytes), 0,
                                    NULL) == STATUS_OK);
        check_reader(data, size_bytes, &index, &summary, image);
        byte_buffer_fini(&index);
    }
    shard_foreign_destroy(x);
    shard_frame_builder_destroy(b);
    shard_frame_fini(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct tar_walk w;
    struct tar_walk_member m, images[MAX_IMAGES];
    size_t image_count = 0;
    size_t before = 0;
    enum status s;
    if (size_bytes == 0 || size_bytes > MAX_BYTES) {
        return 0;
    }
    tar_walk_init(&w, data, size_bytes);
    while ((s = tar_walk_next(&w, &m, NULL)) == STATUS_OK) {
        demand(m.body_offset >= before + 512 && m.body_offset <= size_bytes);
        demand(m.size_bytes <= size_bytes - m.body_offset && m.body == data + m.body_offset);
        demand(tar_stem_bytes(m.name, m.name_bytes, false) <= m.name_bytes);
        before = m.body_offset + m.size_bytes;
        if (m.is_file && m.size_bytes > 0 && image_count < MAX_IMAGES) {
            images[image_count++] = m;
        }
    }
    demand(s == STATUS_END || s == STATUS_CORRUPT);
    for (size_t i = 0; i < image_count; i++) {
        check_image(data, size_bytes, &images[i], s == STATUS_END);
    }
    return 0;
}
