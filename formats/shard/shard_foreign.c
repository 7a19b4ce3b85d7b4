/*
 * Tars that are not ours: an index is made of them, and single samples are read out of them. Both
 * walk over the members of one sample in the same way:
 *
 *     frame offset                  image offset                         frame offset + frame size
 *     | header 00012.jpg             | image .. | header 00012.txt | .. | header 00012.json | ..
 * |
 *
 * The image is the member whose body begins at the image offset; its stem gives the key, and the
 * first STEM.json is the JSON text. Captions come from the index alone, because which text is the
 * caption was the packer's choice.
 */
#include "formats/shard/shard_foreign.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_internal.h"
#include "formats/shard/tar.h"

struct shard_foreign {
    char name[SHARD_MAX_NAME_BYTES + 1];
    struct index_builder index;
    uint64_t end_bytes; /* of the last members: the tar is at least so long */
};

/* ---- members ----------------------------------------------------------------------------------
 */

/* Finds the image that begins `image_start` bytes from the beginning. Its name stays good. */
static enum status find_image(struct tar_walk *w,
                              struct tar_walk_member *out,
                              size_t image_start,
                              size_t image_bytes,
                              struct error *err) {
    bool found = false;
    while (!found) {
        enum status s = tar_walk_next(w, out, err);
        FAIL_IF(s == STATUS_END, err, STATUS_CORRUPT,
                "no member contains the image at the indexed position");
        TRY(s);
        found = out->is_file && out->body_offset == image_start && out->size_bytes == image_bytes;
    }
    return STATUS_OK;
}

/* The first STEM.json of the piece; data NULL when there is none that a sample can have. */
static enum status find_json(const void *members,
                             size_t size_bytes,
                             const char *stem,
                             size_t stem_bytes,
                             struct shard_text *out,
                             struct error *err) {
    struct tar_walk w;
    struct tar_walk_member m;
    enum status s;
    *out = (struct shard_text){0};
    tar_walk_init(&w, members, size_bytes);
    while ((s = tar_walk_next(&w, &m, err)) == STATUS_OK) {
        if (tar_member_is(&m, stem, stem_bytes, "json")) {
            struct shard_text json = {(const char *)m.body, m.size_bytes};
            if (shard_check_json(&json, NULL) == STATUS_OK) {
                *out = json;
            }
            return STATUS_OK;
        }
    }
    return s == STATUS_END ? STATUS_OK : s;
}

enum status shard_foreign_take(struct shard_reader *r,
                               uint32_t index,
                               struct sample_view *v,
                               struct error *err) {
    const struct shard_record *record = &v->record;
    struct tar_walk w;
    struct tar_walk_member image;
    struct error why = {0};
    tar_walk_init(&w, r->content.data, r->content.size_bytes);
    enum status s = find_image(&w, &image, (size_t)(record->image_offset - record->frame_offset),
                               record->image_bytes, &why);
    if (s == STATUS_OK) {
        size_t stem_bytes = tar_stem_bytes(image.name, image.name_bytes,
                                           (record->flags & SHARD_FLAG_LAST_DOT) != 0);
        shard_safe_key(r->key, image.name, stem_bytes);
        s = find_json(r->content.data, r->content.size_bytes, image.name, stem_bytes, &v->json,
                      &why);
    }
    RETURN_IF(s != STATUS_OK, shard_sample_bad(r, record, why.text, err));
    TRY(shard_sample_reserve_captions(r, record->text_count, err));
    for (uint32_t k = 0; k < record->text_count; k++) { /* all in one chunk: it stays */
        TRY(caption_chunk_get(&r->chunk, &r->index, index, record, k, &r->captions[k], err));
    }
    v->key = r->key;
    v->captions = r->captions;
    v->caption_count = record->text_count;
    v->image = image.body;
    v->image_bytes = image.size_bytes;
    return STATUS_OK;
}

/* ---- an index ---------------------------------------------------------------------------------
 */

enum status
shard_foreign_create(struct shard_foreign **out, const char *name, int level, struct error *err) {
    REQUIRE(out && name && shard_name_is_valid(name));
    REQUIRE(level >= SHARD_LEVEL_MIN && level <= SHARD_LEVEL_MAX);
    *out = NULL;
    struct shard_foreign *x = calloc(1, sizeof(*x));
    TRY_MEMORY(x, err, "%s: out of memory for its index", name);
    memcpy(x->name, name, strlen(name));
    enum status s = index_builder_init(&x->index, x->name, level, err);
    RETURN_CREATED(s, out, x, shard_foreign_destroy);
}

void shard_foreign_destroy(struct shard_foreign *x) {
    if (x) {
        index_builder_fini(&x->index);
        free(x);
    }
}

static enum status check_place(const struct shard_frame *frame,
                               const struct shard_foreign_place *p,
                               struct error *err) {
    struct tar_walk w;
    struct tar_walk_member image;
    struct shard_text json;
    size_t start = (size_t)(p->image_offset - p->offset);
    tar_walk_init(&w, p->members, p->size_bytes);
    TRY(find_image(&w, &image, start, frame->record.image_bytes, err));
    FAIL_IF(hash64(image.body, image.size_bytes) != frame->record.image_hash, err, STATUS_CORRUPT,
            "the image is not stored contiguously in the tar");
    return find_json(p->members, p->size_bytes, image.name,
                     tar_stem_bytes(image.name, image.name_bytes,
                                    (frame->record.flags & SHARD_FLAG_LAST_DOT) != 0),
                     &json, err);
}

enum status shard_foreign_add(struct shard_foreign *x,
                              const struct shard_frame *frame,
                              const struct shard_foreign_place *p,
                              struct error *err) {
    REQUIRE(x && frame && p && p->members && p->size_bytes <= SHARD_MAX_FRAME_BYTES);
    REQUIRE(p->image_offset >= p->offset && p->offset <= (uint64_t)INT64_MAX / 4);
    FAIL_IF(!index_builder_fits(&x->index, frame), err, STATUS_LIMIT,
            "%s: has more samples or captions than a shard can hold", x->name);
    TRY(check_place(frame, p, err));
    TRY(index_builder_reserve(&x->index, frame, err));
    struct shard_record record = frame->record;
    record.frame_offset = p->offset;
    record.frame_bytes = (uint32_t)p->size_bytes;
    record.image_offset = p->image_offset;
    index_builder_add(&x->index, frame, &record, (uint32_t)hash64(p->members, p->size_bytes));
    if (p->offset + p->size_bytes > x->end_bytes) {
        x->end_bytes = p->offset + p->size_bytes;
    }
    return STATUS_OK;
}

uint32_t shard_foreign_sample_count(const struct shard_foreign *x) {
    return x->index.totals.sample_count;
}

enum status shard_foreign_finish(struct shard_foreign *x,
                                 struct byte_buffer *out,
                                 struct shard_summary *summary,
                                 uint64_t file_bytes,
                                 uint64_t file_hash,
                                 uint64_t add_to_ids,
                                 struct error *err) {
    REQUIRE(x && out && summary && x->index.totals.sample_count > 0);
    byte_buffer_init(out, 0);
    FAIL_IF(file_bytes < x->end_bytes, err, STATUS_CORRUPT, "%s: became shorter while it was read",
            x->name);
    TRY(index_builder_finish(&x->index, out, SHARD_CONTAINER_TAR_FOREIGN, file_bytes, add_to_ids,
                             err));
    *summary = x->index.totals;
    memcpy(summary->name, x->name, sizeof(summary->name));
    summary->size_bytes = file_bytes;
    summary->hash = file_hash;
    return STATUS_OK;
}
