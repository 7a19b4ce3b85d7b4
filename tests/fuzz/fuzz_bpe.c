/*
 * The first byte chooses: the rest is a file of a byte-level BPE; or pairs (u24 place, byte) of
 * changes to CLIP's table, its merges.txt or its tokenizer.json; or a text for CLIP's tokenizer. A
 * file is refused or gives ids of its vocabulary; a shorter row has the same front, and the end
 * last.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_bpe_internal.h"
#include "tests/support/clip_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { MAX_TOKENS = 512 };

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check_text(const struct tokenizer *t, const void *text, size_t size_bytes) {
    int32_t ids[MAX_TOKENS];
    int32_t row[8];
    uint32_t count = 0;
    uint32_t row_count = 0;
    demand(tokenizer_encode(t, ids, &count, text, size_bytes, MAX_TOKENS, NULL) == STATUS_OK);
    demand(count >= 2 && count <= MAX_TOKENS && ids[count - 1] == tokenizer_end_id(t));
    for (uint32_t i = 0; i < count; i++) {
        demand(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_vocab_count(t));
    }
    demand(tokenizer_encode(t, row, &row_count, text, size_bytes, 8, NULL) == STATUS_OK);
    demand(row_count == (count < 8 ? count : 8));
    demand(memcmp(row, ids, (row_count - 1) * sizeof row[0]) == 0);
    demand(row[row_count - 1] == tokenizer_end_id(t));
}

static void check_file(const uint8_t *file, size_t size_bytes) {
    struct tokenizer *t = NULL;
    if (tokenizer_open(&t, file, size_bytes, NULL) != STATUS_OK) {
        demand(t == NULL);
        return;
    }
    if (tokenizer_kind(t) == TOKENIZER_CLIP_BPE || tokenizer_kind(t) == TOKENIZER_BYTE_BPE) {
        check_text(t, "a caf\xc3\xa9 isn't <mask> 2020 \xe4\xb8\xad\xff  the  ", 33);
    }
    tokenizer_close(t);
}

static void
check_changed(const uint8_t *form, size_t form_bytes, const uint8_t *changes, size_t size_bytes) {
    uint8_t *file = malloc(form_bytes);
    memcpy(file, form, form_bytes);
    for (; size_bytes >= 4; changes += 4, size_bytes -= 4) {
        file[((size_t)changes[0] | (size_t)changes[1] << 8 | (size_t)changes[2] << 16) %
             form_bytes] = changes[3];
    }
    check_file(file, size_bytes > 0 ? form_bytes / 256 * changes[0] : form_bytes);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static struct tokenizer *clip;
    static struct byte_buffer json, merges;
    if (!clip) {
        demand(tokenizer_open_clip(&clip, NULL) == STATUS_OK);
        demand(test_clip_json(&json, NULL) == STATUS_OK);
        demand(byte_buffer_append(&merges, "#version: 0.2\n", 14, NULL) == STATUS_OK);
        const uint8_t *p = memmem(json.data, json.size_bytes, "\"merges\":[", 10);
        for (p += 10; *p != ']'; p += p[1] == ',' ? 2 : 1) {
            for (p++; *p != '"'; p++) {
                p += *p == '\\';
                demand(byte_buffer_u8(&merges, *p, NULL) == STATUS_OK);
            }
            demand(byte_buffer_u8(&merges, '\n', NULL) == STATUS_OK);
        }
    }
    if (size_bytes == 0) {
        return 0;
    }
    switch (data[0]) {
    case 't':
        check_changed(clip_merges, clip_merges_bytes, data + 1, size_bytes - 1);
        break;
    case 'm':
        check_changed(merges.data, merges.size_bytes, data + 1, size_bytes - 1);
        break;
    case 'j':
        check_changed(json.data, json.size_bytes, data + 1, size_bytes - 1);
        break;
    case 'f':
        check_file(data + 1, size_bytes - 1);
        break;
    default:
        check_text(clip, data + 1, size_bytes - 1);
    }
    return 0;
}
