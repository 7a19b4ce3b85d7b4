/*
 * The names of pieces follow from the merges: each is what its two parts are, and the 512 first
 * ones are the bytes, which GPT-2 writes as characters.
 */
#include "tests/support/clip_json.h"

#include <stdio.h>
#include <stdlib.h>

#include "formats/base/json_writer.h"
#include "formats/base/utf8.h"
#include "formats/tokenizer/tokenizer_bpe_internal.h"

enum { MAX_NAME_BYTES = 1024 };

static const char word_end[] = "</w>";

static bool stands_for_itself(int byte) {
    return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

/* CLIP's id of each byte, and the character that names it. */
static void make_byte_table(int32_t ids[256], uint32_t characters[256]) {
    int32_t id = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int byte = 0; byte < 256; byte++) {
            if (stands_for_itself(byte) == (pass == 0)) {
                characters[byte] = pass == 0 ? (uint32_t)byte : 0x100U + (uint32_t)id - 188;
                ids[byte] = id++;
            }
        }
    }
}

/* Appends the names of all pieces, each with a NUL; `at` (CLIP_BEGIN) gets their places. */
static enum status put_names(struct byte_buffer *out, size_t *at, struct error *err) {
    int32_t ids[256];
    uint32_t characters[256];
    char name[MAX_NAME_BYTES];
    make_byte_table(ids, characters);
    for (int byte = 0; byte < 256; byte++) {
        at[ids[byte]] = characters[byte]; /* until its turn comes */
    }
    for (uint32_t id = 0; id < CLIP_BEGIN; id++) {
        int n;
        if (id < 256) {
            n = (int)utf8_encode(name, (uint32_t)at[id]);
            name[n] = '\0';
        } else {
            const uint32_t pair =
                id < 512 ? 0
                         : load_u32(clip_merges + CLIP_TABLE_MAGIC_BYTES + (size_t)4 * (id - 512));
            const char *left = (const char *)out->data + at[id < 512 ? id - 256 : pair & 0xFFFF];
            const char *right = id < 512 ? word_end : (const char *)out->data + at[pair >> 16];
            n = snprintf(name, sizeof(name), "%s%s", left, right);
            FAIL_IF((size_t)n >= sizeof(name), err, STATUS_LIMIT,
                    "tokenizer: piece %u has %d bytes, the limit is %d", id, n, MAX_NAME_BYTES - 1);
        }
        at[id] = out->size_bytes;
        TRY(byte_buffer_append(out, name, (size_t)n + 1, err));
    }
    return STATUS_OK;
}

static enum status put_clip_model(struct json_writer *w, struct error *err) {
    struct byte_buffer names;
    size_t *at = malloc(CLIP_BEGIN * sizeof(*at));
    TRY_MEMORY(at, err, "tokenizer: out of memory");
    byte_buffer_init(&names, 0);
    enum status s = put_names(&names, at, err);
    json_open_object(w, "vocab");
    for (uint32_t id = 0; id < CLIP_BEGIN && s == STATUS_OK; id++) {
        json_u64(w, (const char *)names.data + at[id], id);
    }
    json_u64(w, "<|startoftext|>", CLIP_BEGIN);
    json_u64(w, "<|endoftext|>", CLIP_END);
    json_close_object(w);
    json_open_array(w, "merges");
    for (uint32_t r = 0; r < CLIP_MERGES && s == STATUS_OK; r++) {
        char merge[2 * MAX_NAME_BYTES];
        const uint32_t pair = load_u32(clip_merges + CLIP_TABLE_MAGIC_BYTES + (size_t)4 * r);
        const char *all = (const char *)names.data;
        (void)snprintf(merge, sizeof(merge), "%s %s", all + at[pair & 0xFFFF],
                       all + at[pair >> 16]);
        json_string(w, NULL, merge);
    }
    json_close_array(w);
    byte_buffer_fini(&names);
    free(at);
    return s;
}

enum status test_clip_json(struct byte_buffer *out, struct error *err) {
    static const char start[] =
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["
        "{\"id\":49406,\"content\":\"<|startoftext|>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":true,\"special\":true},"
        "{\"id\":49407,\"content\":\"<|endoftext|>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":true,\"special\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\" \"},"
        "{\"type\":\"Lowercase\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":\"'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{N}]|"
        "[^\\\\s\\\\p{L}\\\\p{N}]+\"},\"behavior\":\"Removed\",\"invert\":true},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
        "\"use_regex\":true}]},"
        "\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"<|endoftext|>\",49407],"
        "\"cls\":[\"<|startoftext|>\",49406],\"trim_offsets\":false,\"add_prefix_space\":false},"
        "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
        "\"use_regex\":true},"
        "\"model\":";
    struct json_writer w;
    json_writer_init(&w, TOKENIZER_MAX_MODEL_BYTES);
    json_open_object(&w, NULL);
    json_string(&w, "type", "BPE");
    json_null(&w, "dropout");
    json_string(&w, "unk_token", "<|endoftext|>");
    json_string(&w, "continuing_subword_prefix", "");
    json_string(&w, "end_of_word_suffix", word_end);
    json_bool(&w, "fuse_unk", false);
    enum status s = put_clip_model(&w, err);
    json_close_object(&w);
    THEN(s, json_writer_status(&w, err));
    THEN(s, byte_buffer_append(out, start, sizeof(start) - 1, err));
    THEN(s, byte_buffer_append(out, w.out.data, w.out.size_bytes, err));
    THEN(s, byte_buffer_u8(out, '}', err));
    json_writer_fini(&w);
    return s;
}
