/*
 * The captions of an archive's rows: STEM.txt, STEM.1.txt and so on in the order of their numbers,
 * and what several lines of one are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/location.h"
#include "pack/source/wds_internal.h"

/* Bytes of folder and base name up to its first dot, or its last; all of it without a dot. */
size_t wds_stem_bytes(const struct source_wds *w, const char *name) {
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    const char *dot = w->last_dot ? strrchr(base, '.') : strchr(base, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

enum status wds_add_name(struct byte_buffer *names, const char *name, struct error *err) {
    return byte_buffer_append(names, name, strlen(name) + 1, err);
}

void wds_swap_buffers(struct byte_buffer *a, struct byte_buffer *b) {
    struct byte_buffer c = *a;
    *a = *b;
    *b = c;
}

/* The number of a text in its row: 0 for STEM.txt, and k for STEM.k.txt, as in our own shards. */
bool wds_text_number(const char *extension, uint32_t *out) {
    size_t digits = strspn(extension, "0123456789");
    *out = 0;
    if (strcasecmp(extension, "txt") == 0) {
        return true;
    }
    if (digits == 0 || digits > 4 || extension[0] == '0' ||
        strcasecmp(extension + digits, ".txt") != 0) {
        return false;
    }
    *out = (uint32_t)strtoul(extension, NULL, 10);
    return true;
}

enum status wds_take_text(struct source_wds *w,
                          struct source_row *row,
                          struct row_parts *parts,
                          struct error *err) {
    const char *name = w->pending->name;
    uint32_t number = 0;
    wds_text_number(name + wds_stem_bytes(w, name) + 1, &number);
    if (number > 0 && w->text_name.size_bytes == 0) {
        TRY(wds_add_name(&w->text_name, name, err));
    }
    parts->text = parts->text || number == 0;
    if (parts->text_count == SOURCE_MAX_CAPTIONS) {
        source_row_reject(row, REASON_CAPTION_LIMIT, "more than %d", SOURCE_MAX_CAPTIONS);
        return STATUS_OK;
    }
    parts->numbers[parts->text_count++] = number;
    if (w->caption_member[0] != '\0') {
        w->base.ignored.by[IGNORED_UNUSED]++;
        return STATUS_OK;
    }
    bool fits;
    uint32_t before = row->caption_count;
    TRY(source_archive_read(w->archive, &w->text, SOURCE_MAX_TEXT_BYTES, &fits, err));
    if (!fits) {
        source_row_reject(row, REASON_CAPTION_LIMIT, "more than %d bytes", SOURCE_MAX_TEXT_BYTES);
        return STATUS_OK;
    }
    TRY(source_row_add_text(row, &w->base, (const char *)w->text.data, w->text.size_bytes, err));
    for (uint32_t k = before; k < row->caption_count; k++) {
        parts->caption_numbers[k] = number;
    }
    return STATUS_OK;
}

/* Whether the name is STEM.NUMBER.jpg, or of another image. */
static bool is_image_of(const struct source_wds *w, const char *name, uint32_t number) {
    char *end = NULL;
    const char *digits = name + wds_stem_bytes(w, name) + 1;
    return digits[0] >= '1' && digits[0] <= '9' && strtoul(digits, &end, 10) == number &&
           end[0] == '.' && source_is_image_extension(end + 1, strlen(end + 1));
}

/* Whether STEM.NUMBER.txt is the caption of an image of its own. */
static bool is_text_of_other(const struct source_wds *w, uint32_t number) {
    bool found = number > 0 && w->image_name.size_bytes > 0 &&
                 is_image_of(w, (const char *)w->image_name.data, number);
    for (size_t at = 0; number > 0 && !found && at < w->extras.size_bytes;) {
        const char *name = (const char *)w->extras.data + at;
        found = is_image_of(w, name, number);
        at += strlen(name) + 1;
    }
    return found;
}

/* Sorts captions by their numbers: a sorted tar has STEM.1.txt before STEM.txt. Without STEM.txt
 * the others are no captions. */
enum status wds_order_captions(struct source_wds *w,
                               struct source_row *row,
                               const struct row_parts *parts,
                               struct error *err) {
    enum { NOT_ONE = INT32_MAX }; /* larger than any number */
    uint32_t sizes[SOURCE_MAX_CAPTIONS];
    uint32_t numbers[SOURCE_MAX_CAPTIONS];
    const uint32_t all = parts->text || w->caption_member[0] != '\0' ? row->caption_count : 0;
    uint32_t count = 0;
    for (uint32_t k = 0; k < all; k++) {
        bool other = is_text_of_other(w, parts->caption_numbers[k]);
        numbers[k] = other ? NOT_ONE : parts->caption_numbers[k] * SOURCE_MAX_CAPTIONS + k;
        count += !other;
    }
    uint32_t number = 0; /* the next caption has this number or a larger one */
    w->text.size_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t at = 0, next_at = 0;
        uint32_t next = NOT_ONE;
        for (uint32_t k = 0; k < all; at += row->caption_size_bytes[k++]) {
            if (numbers[k] >= number && numbers[k] < next) {
                next = numbers[k];
                next_at = at;
                sizes[i] = row->caption_size_bytes[k];
            }
        }
        TRY(byte_buffer_append(&w->text, row->text.data + next_at, sizes[i], err));
        number = next + 1;
    }
    wds_swap_buffers(&w->text, &row->text);
    memcpy(row->caption_size_bytes, sizes, count * sizeof(sizes[0]));
    row->caption_count = count;
    return STATUS_OK;
}

bool wds_is_new_text(const struct row_parts *parts, const char *extension) {
    uint32_t number;
    wds_text_number(extension, &number);
    for (uint32_t i = 0; i < parts->text_count; i++) {
        if (parts->numbers[i] == number) {
            return false;
        }
    }
    return true;
}

/* Whether dataset_type.txt says that lines are captions. */
static bool is_retrieval(const char *path) {
    struct byte_buffer text = {0};
    bool found = source_read_near(&text, path, "dataset_type.txt", 64, NULL) == STATUS_OK &&
                 text.size_bytes >= 9 && memcmp(text.data, "retrieval", 9) == 0;
    byte_buffer_fini(&text);
    return found;
}

/* Reads the first texts of the archive, if the option leaves it to them. A failure is left to the
 * reading of the rows. */
void wds_decide_lines(struct source_wds *w, const struct source_options *opt) {
    struct source_options how = *opt;
    struct source_archive *a = NULL;
    struct error why = {0};
    size_t first = 0;
    size_t looked = 0;
    bool more = w->base.lines == SOURCE_LINES_AUTO && strcmp(w->base.path, "-") != 0 &&
                !location_is_remote(w->base.path) && w->caption_member[0] == '\0';
    if (more && is_retrieval(w->base.path)) {
        w->base.lines = SOURCE_LINES_EACH;
        return;
    }
    how.bytes = NULL;
    more = more && source_archive_open(&a, w->base.path, &how, &w->base.rows, &why) == STATUS_OK;
    while (more && source_archive_next(a, &why) == STATUS_OK) {
        const struct source_member *m = source_archive_view(a).member;
        const size_t stem = wds_stem_bytes(w, m->name);
        bool fits = false;
        if (m->is_file && strcasecmp(m->name + stem, ".txt") == 0 &&
            source_archive_read(a, &w->text, SOURCE_MAX_TEXT_BYTES, &fits, &why) == STATUS_OK) {
            const size_t lines = source_count_lines((const char *)w->text.data, w->text.size_bytes);
            more = source_look_at_lines(&w->base, &first, lines, ++looked);
        }
    }
    source_archive_close(a);
}
