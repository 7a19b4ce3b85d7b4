/*
 * The files that a byte-level BPE comes in. Each names its pieces by characters that stand for
 * bytes (GPT-2's table), so all of them are read by one piece of code: a map from names to ids, and
 * the merges as pairs of names.
 *
 *     merges.txt, bpe_simple_vocab_16e6.txt   a line for each merge; CLIP's ids follow from them
 *     the same by gzip                        unpacked first
 *     tokenizer.json                          names and ids, merges, special texts
 *     the table of clip/merges.bin            the pairs of ids themselves: magic, u16 left and
 * right
 *
 * CLIP's ids: bytes in the order of their characters, the same bytes at the end of a word, the
 * merges, begin and end. Every form of CLIP's becomes the table, which is what a dataset and a
 * checkpoint keep.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "formats/base/utf8.h"
#include "formats/json/json_reader.h"
#include "formats/tokenizer/tokenizer_bpe_internal.h"

static const char word_end[] = "</w>";

static const uint8_t table_magic[CLIP_TABLE_MAGIC_BYTES] = {'C', 'L', 'I', 'P', 'B', 'P', 'E', '1'};

enum { CLIP_TABLE_BYTES = CLIP_TABLE_MAGIC_BYTES + 4 * CLIP_MERGES, MAX_NAME_BYTES = 1024 };

/* ---- bytes and their characters ---- */

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

/* ---- merges ---- */

/* What is being read: the names so far, and where those that merges make are kept. */
struct loading {
    struct bpe *bpe;
    struct piece_map names;
    char *made; /* NULL: the vocabulary has all names */
    size_t made_bytes;
    int32_t next_id;
    uint32_t merges;
    uint8_t *table; /* of CLIP, where the pairs go; or NULL */
};

static enum status
no_piece(const struct loading *l, const char *name, size_t n, struct error *err) {
    return error_set(err, STATUS_CORRUPT,
                     "tokenizer: merge %u has '%.*s', which is not in the vocabulary",
                     l->merges + 1, (int)(n < 60 ? n : 60), name);
}

/* One more merge of the pieces with these names. */
static enum status add_merge(struct loading *l,
                             const char *left,
                             size_t left_bytes,
                             const char *right,
                             size_t right_bytes,
                             struct error *err) {
    char both[MAX_NAME_BYTES];
    const size_t n = left_bytes + right_bytes;
    FAIL_IF(n > sizeof(both), err, STATUS_LIMIT,
            "tokenizer: merge %u gives a piece of %zu bytes, the limit is %d", l->merges + 1, n,
            MAX_NAME_BYTES);
    const int32_t first = piece_map_find(&l->names, left, left_bytes);
    const int32_t second = piece_map_find(&l->names, right, right_bytes);
    if (first < 0 || second < 0) {
        return first < 0 ? no_piece(l, left, left_bytes, err)
                         : no_piece(l, right, right_bytes, err);
    }
    memcpy(both, left, left_bytes);
    memcpy(both + left_bytes, right, right_bytes);
    int32_t id = piece_map_find(&l->names, both, n);
    if (l->made) {
        FAIL_IF(id >= 0, err, STATUS_CORRUPT,
                "tokenizer: merge %u gives '%.*s', which exists already", l->merges + 1,
                (int)(n < 60 ? n : 60), both);
        id = l->next_id++;
        memcpy(l->made + l->made_bytes, both, n);
        piece_map_add(&l->names, l->made + l->made_bytes, n, id);
        l->made_bytes += n;
    } else if (id < 0) {
        return no_piece(l, both, n, err);
    }
    if (l->table) {
        const uint32_t pair = (uint32_t)first | (uint32_t)second << 16;
        store_u32(l->table + CLIP_TABLE_MAGIC_BYTES + (size_t)4 * l->merges, pair);
    }
    const struct bpe_merge merge = {(uint32_t)first, (uint32_t)second, l->merges, id};
    TRY(bpe_add_merge(l->bpe, &merge, err));
    l->merges++;
    return STATUS_OK;
}

/* A merge written as two names with a space between. */
static enum status
add_merge_text(struct loading *l, const char *text, size_t size_bytes, struct error *err) {
    const char *space = memchr(text, ' ', size_bytes);
    const size_t left = space ? (size_t)(space - text) : 0;
    FAIL_IF(left == 0 || left + 1 == size_bytes || memchr(space + 1, ' ', size_bytes - left - 1),
            err, STATUS_CORRUPT, "tokenizer: merge %u is '%.*s', expected two pieces with a space",
            l->merges + 1, (int)(size_bytes < 60 ? size_bytes : 60), text);
    return add_merge(l, text, left, space + 1, size_bytes - left - 1, err);
}

static enum status make_merge_table(struct bpe *b, size_t count, struct error *err) {
    size_t places = 16;
    while (places < 2 * count) {
        places *= 2;
    }
    b->merges = malloc(places * sizeof(*b->merges));
    TRY_MEMORY(b->merges, err, "tokenizer: out of memory");
    b->merge_mask = places - 1;
    memset(b->merges, 0xFF, places * sizeof(*b->merges)); /* id -1 */
    return STATUS_OK;
}

/* ---- CLIP ---- */

static void set_clip(struct bpe *b, struct tokenizer *t) {
    uint32_t characters[256];
    t->engine = &tokenizer_clip_bpe;
    t->vocab_count = CLIP_END + 1;
    t->cls_id = CLIP_BEGIN;
    t->sep_id = CLIP_END;
    t->pad_id = 0;
    make_byte_table(b->byte_ids, characters);
    for (int byte = 0; byte < 256; byte++) {
        b->last_ids[byte] = b->byte_ids[byte] + 256;
    }
}

static enum status load_table(struct bpe *b, struct tokenizer *t, struct error *err) {
    FAIL_IF(t->size_bytes != CLIP_TABLE_BYTES, err, STATUS_CORRUPT,
            "tokenizer: CLIP's table has %zu bytes, expected %d", t->size_bytes, CLIP_TABLE_BYTES);
    set_clip(b, t);
    TRY(make_merge_table(b, CLIP_MERGES, err));
    for (uint32_t r = 0; r < CLIP_MERGES; r++) {
        const uint32_t pair = load_u32(t->bytes + CLIP_TABLE_MAGIC_BYTES + (size_t)4 * r);
        const struct bpe_merge merge = {pair & 0xFFFF, pair >> 16, r, (int32_t)(512 + r)};
        FAIL_IF(merge.left >= 512 + r || merge.right >= 512 + r, err, STATUS_CORRUPT,
                "tokenizer: merge %u of CLIP's table refers to piece %u, but only %u exist so far",
                r + 1, merge.left >= 512 + r ? merge.left : merge.right, 512 + r);
        TRY(bpe_add_merge(b, &merge, err));
    }
    return STATUS_OK;
}

/* The lines of merges after the first line. CLIP's longer file has more, which are not for it. */
static enum status read_lines(struct loading *l, const char *text, size_t size, struct error *err) {
    const char *end = text + size;
    const char *p = text;
    (void)tokenizer_line(&p, end);
    while (p < end && l->merges < CLIP_MERGES) {
        const char *line = p;
        const size_t n = tokenizer_line(&p, end);
        TRY(add_merge_text(l, line, n, err));
    }
    FAIL_IF(l->merges < CLIP_MERGES, err, STATUS_CORRUPT,
            "tokenizer: %u merges, expected CLIP's %d; for another model pass its tokenizer.json",
            l->merges, CLIP_MERGES);
    return STATUS_OK;
}

/* Room for what CLIP's merges make, whose names have at most size_bytes, and CLIP's pieces before
 * them; their names lie in `room`. */
static enum status start_clip(struct loading *l,
                              struct tokenizer *t,
                              size_t size_bytes,
                              char room[256 * 8],
                              struct error *err) {
    int32_t ids[256];
    uint32_t characters[256];
    set_clip(l->bpe, t);
    l->next_id = 512;
    l->made = malloc(size_bytes);
    l->table = malloc(CLIP_TABLE_BYTES);
    TRY_MEMORY(l->made && l->table, err, "tokenizer: out of memory");
    TRY(piece_map_init(&l->names, CLIP_END + 1, err));
    TRY(make_merge_table(l->bpe, CLIP_MERGES, err));
    make_byte_table(ids, characters);
    for (int byte = 0; byte < 256; byte++, room += 8) {
        const size_t n = utf8_encode(room, characters[byte]);
        memcpy(room + n, word_end, sizeof(word_end) - 1);
        piece_map_add(&l->names, room, n, ids[byte]);
        piece_map_add(&l->names, room, n + sizeof(word_end) - 1, ids[byte] + 256);
    }
    return STATUS_OK;
}

static void finish_loading(struct loading *l, struct tokenizer *t, enum status s) {
    piece_map_fini(&l->names);
    free(l->made);
    if (s == STATUS_OK && l->table) {
        memcpy(l->table, table_magic, sizeof(table_magic));
        free(t->bytes);
        t->bytes = l->table;
        t->size_bytes = CLIP_TABLE_BYTES;
    } else {
        free(l->table);
    }
}

static enum status load_lines(struct bpe *b,
                              struct tokenizer *t,
                              const char *text,
                              size_t size_bytes,
                              struct error *err) {
    struct loading l = {.bpe = b};
    char byte_names[256 * 8];
    enum status s = start_clip(&l, t, size_bytes, byte_names, err);
    THEN(s, read_lines(&l, text, size_bytes, err));
    finish_loading(&l, t, s);
    return s;
}

static enum status load_gzip(struct bpe *b, struct tokenizer *t, struct error *err) {
    enum { GZIP_ONLY = 16, MAX_BYTES = 16 << 20 };
    z_stream z = {.next_in = t->bytes, .avail_in = (uInt)t->size_bytes};
    char *text = malloc(MAX_BYTES);
    if (!text || inflateInit2(&z, MAX_WBITS + GZIP_ONLY) != Z_OK) {
        free(text);
        return error_set(err, STATUS_NOMEM, "tokenizer: out of memory");
    }
    z.next_out = (Bytef *)text;
    z.avail_out = MAX_BYTES;
    const int code = inflate(&z, Z_FINISH);
    const size_t size = MAX_BYTES - z.avail_out;
    enum status s =
        code == Z_STREAM_END
            ? load_lines(b, t, text, size, err)
            : error_set(
                  err, STATUS_CORRUPT,
                  "tokenizer: the gzip file is truncated or damaged after %zu unpacked bytes (%s)",
                  size, z.msg ? z.msg : "no end found");
    inflateEnd(&z);
    free(text);
    return s;
}

/* ---- tokenizer.json ---- */

static const char *string_at(const struct json_value *v, const char *key) {
    return json_value_string(json_value_get(v, key), NULL);
}

/* What a member must be, for the message; "" and null are the same as none. */
static enum status
refuse(const char *member, const char *found, const char *expected, struct error *err) {
    return error_set(err, STATUS_UNSUPPORTED, "tokenizer.json: %s is %s, expected %s", member,
                     found ? found : "missing", expected);
}

static enum status check_members(const struct json_value *root, bool clip, struct error *err) {
    const struct json_value *model = json_value_get(root, "model");
    const char *type = string_at(model, "type");
    const struct json_value *split = json_value_get(root, "pre_tokenizer");
    const char *split_type = string_at(split, "type");
    const char *prefix = string_at(model, "continuing_subword_prefix");
    const char *suffix = string_at(model, "end_of_word_suffix");
    double dropout = 0;
    bool flag = false;
    if (!type || strcmp(type, "BPE") != 0) {
        return refuse("model.type", type, "\"BPE\"", err);
    }
    if (prefix && *prefix) {
        return refuse("model.continuing_subword_prefix", prefix, "none", err);
    }
    if (suffix && *suffix && strcmp(suffix, word_end) != 0) {
        return refuse("model.end_of_word_suffix", suffix, "none or </w>", err);
    }
    if ((json_value_bool(json_value_get(model, "ignore_merges"), &flag) && flag) ||
        (json_value_bool(json_value_get(model, "byte_fallback"), &flag) && flag)) {
        return refuse("model.ignore_merges or byte_fallback", "true", "false", err);
    }
    if (json_value_double(json_value_get(model, "dropout"), &dropout) && dropout > 0) {
        return refuse("model.dropout", "set", "null", err);
    }
    if (clip) {
        return STATUS_OK; /* cleaning and words are open_clip's */
    }
    if (!split_type || strcmp(split_type, "ByteLevel") != 0 ||
        (json_value_bool(json_value_get(split, "use_regex"), &flag) && !flag)) {
        return refuse("pre_tokenizer.type", split_type, "\"ByteLevel\" with use_regex", err);
    }
    if (json_value_is_object(json_value_get(root, "normalizer"))) {
        return refuse("normalizer", string_at(json_value_get(root, "normalizer"), "type"), "null",
                      err);
    }
    return STATUS_OK;
}

static enum status add_names(struct loading *l,
                             struct tokenizer *t,
                             const struct json_value *vocab,
                             struct error *err) {
    const char *name;
    const struct json_value *value;
    uint32_t id = 0;
    t->vocab_count = 0;
    for (void *position = NULL; json_value_next_member(vocab, &position, &name, &value);) {
        FAIL_IF(!json_value_u32(value, &id) || id >= TOKENIZER_MAX_VOCAB, err, STATUS_CORRUPT,
                "tokenizer.json: model.vocab has no id in [0, %d) for '%.60s'", TOKENIZER_MAX_VOCAB,
                name);
        piece_map_add(&l->names, name, strlen(name), (int32_t)id);
        t->vocab_count = id >= t->vocab_count ? id + 1 : t->vocab_count;
    }
    return STATUS_OK;
}

static enum status
find_byte_pieces(struct bpe *b, const struct piece_map *names, struct error *err) {
    int32_t ids[256];
    uint32_t characters[256];
    make_byte_table(ids, characters);
    for (int byte = 0; byte < 256; byte++) {
        char name[4];
        const size_t n = utf8_encode(name, characters[byte]);
        b->byte_ids[byte] = b->last_ids[byte] = piece_map_find(names, name, n);
        FAIL_IF(b->byte_ids[byte] < 0, err, STATUS_UNSUPPORTED,
                "tokenizer.json: model.vocab has no piece '%.*s' for the byte 0x%02X", (int)n, name,
                (unsigned)byte);
    }
    return STATUS_OK;
}

static enum status
add_json_merges(struct loading *l, const struct json_value *merges, struct error *err) {
    for (size_t i = 0; i < json_value_count(merges); i++) {
        const struct json_value *m = json_value_at(merges, i);
        size_t n = 0;
        size_t right_bytes = 0;
        const char *left = json_value_string(json_value_at(m, 0), &n);
        const char *right = json_value_string(json_value_at(m, 1), &right_bytes);
        if (left && right && json_value_count(m) == 2) {
            TRY(add_merge(l, left, n, right, right_bytes, err));
        } else {
            const char *text = json_value_string(m, &n);
            FAIL_IF(!text, err, STATUS_CORRUPT,
                    "tokenizer.json: model.merges[%zu] is neither two strings nor one", i);
            TRY(add_merge_text(l, text, n, err));
        }
    }
    return STATUS_OK;
}

/* CLIP's ids follow from the order of the merges: those of the file have to be the same. */
static enum status load_clip(struct loading *l,
                             struct tokenizer *t,
                             const struct json_value *vocab,
                             const struct json_value *merges,
                             struct error *err) {
    static const char *const ends[] = {"<|startoftext|>", "<|endoftext|>"};
    char byte_names[256 * 8];
    const char *name;
    const struct json_value *value;
    FAIL_IF(json_value_count(merges) != CLIP_MERGES || json_value_count(vocab) != CLIP_END + 1, err,
            STATUS_UNSUPPORTED,
            "tokenizer.json: %zu merges and %zu pieces with </w>, expected CLIP's %d and %d",
            json_value_count(merges), json_value_count(vocab), CLIP_MERGES, CLIP_END + 1);
    TRY(start_clip(l, t, t->size_bytes, byte_names, err));
    TRY(add_json_merges(l, merges, err));
    for (int i = 0; i < 2; i++) {
        piece_map_add(&l->names, ends[i], strlen(ends[i]), CLIP_BEGIN + i);
    }
    for (void *position = NULL; json_value_next_member(vocab, &position, &name, &value);) {
        const int32_t expected = piece_map_find(&l->names, name, strlen(name));
        uint32_t id = UINT32_MAX;
        FAIL_IF(expected < 0 || !json_value_u32(value, &id) || id != (uint32_t)expected, err,
                STATUS_UNSUPPORTED, "tokenizer.json: '%.60s' has the id %d, expected CLIP's %d",
                name, (int)id, (int)expected);
    }
    return STATUS_OK;
}

/* Texts that are ids of their own inside a text. */
static enum status add_specials(struct loading *l,
                                struct tokenizer *t,
                                const struct json_value *added,
                                struct error *err) {
    struct bpe *b = l->bpe;
    FAIL_IF(json_value_count(added) > BPE_MAX_SPECIALS, err, STATUS_UNSUPPORTED,
            "tokenizer.json: %zu added_tokens, the limit is %d", json_value_count(added),
            BPE_MAX_SPECIALS);
    for (size_t i = 0; i < json_value_count(added); i++) {
        const struct json_value *a = json_value_at(added, i);
        struct bpe_special s = {0};
        const char *text = json_value_string(json_value_get(a, "content"), &s.size_bytes);
        uint32_t id = 0;
        bool whole_word = false;
        (void)json_value_bool(json_value_get(a, "single_word"), &whole_word);
        FAIL_IF(!text || s.size_bytes == 0 || whole_word ||
                    !json_value_u32(json_value_get(a, "id"), &id) || id >= TOKENIZER_MAX_VOCAB,
                err, STATUS_UNSUPPORTED,
                "tokenizer.json: added_tokens[%zu] has no content or id, or single_word is true",
                i);
        (void)json_value_bool(json_value_get(a, "lstrip"), &s.strips_left);
        (void)json_value_bool(json_value_get(a, "rstrip"), &s.strips_right);
        s.id = (int32_t)id;
        s.text = strdup(text);
        TRY_MEMORY(s.text, err, "tokenizer: out of memory");
        b->specials[b->special_count++] = s;
        piece_map_add(&l->names, s.text, s.size_bytes, s.id);
        t->vocab_count = id >= t->vocab_count ? id + 1 : t->vocab_count;
    }
    return STATUS_OK;
}

static enum status find_ends(const struct loading *l, struct tokenizer *t, struct error *err) {
    const int32_t both = piece_map_find(&l->names, "<|endoftext|>", 13);
    t->cls_id = piece_map_find(&l->names, "<s>", 3);
    t->sep_id = piece_map_find(&l->names, "</s>", 4);
    t->pad_id = piece_map_find(&l->names, "<pad>", 5);
    if (t->cls_id < 0 || t->sep_id < 0) {
        t->cls_id = t->sep_id = both;
    }
    FAIL_IF(t->cls_id < 0, err, STATUS_UNSUPPORTED,
            "tokenizer.json: no pieces <s> and </s>, and no <|endoftext|>: a text needs begin and "
            "end tokens");
    t->pad_id = t->pad_id < 0 ? t->sep_id : t->pad_id;
    return STATUS_OK;
}

static enum status load_root(struct loading *l,
                             struct tokenizer *t,
                             const struct json_value *root,
                             struct error *err) {
    const struct json_value *model = json_value_get(root, "model");
    const struct json_value *vocab = json_value_get(model, "vocab");
    const struct json_value *merges = json_value_get(model, "merges");
    const struct json_value *added = json_value_get(root, "added_tokens");
    const char *suffix = string_at(model, "end_of_word_suffix");
    const bool clip = suffix && *suffix;
    TRY(check_members(root, clip, err));
    FAIL_IF(!json_value_is_object(vocab) || !json_value_is_array(merges), err, STATUS_CORRUPT,
            "tokenizer.json: model has no object vocab and array merges");
    const size_t names = json_value_count(vocab);
    const size_t count = json_value_count(merges);
    FAIL_IF(names > TOKENIZER_MAX_VOCAB || count > TOKENIZER_MAX_VOCAB, err, STATUS_LIMIT,
            "tokenizer.json: %zu pieces and %zu merges, the limit is %d", names, count,
            TOKENIZER_MAX_VOCAB);
    if (clip) {
        return load_clip(l, t, vocab, merges, err);
    }
    TRY(piece_map_init(&l->names, names + BPE_MAX_SPECIALS, err));
    TRY(make_merge_table(l->bpe, count, err));
    TRY(add_names(l, t, vocab, err));
    TRY(find_byte_pieces(l->bpe, &l->names, err));
    TRY(add_json_merges(l, merges, err));
    t->engine = &tokenizer_byte_bpe;
    (void)json_value_bool(json_value_get(json_value_get(root, "pre_tokenizer"), "add_prefix_space"),
                          &l->bpe->prefix_space);
    TRY(add_specials(l, t, added, err));
    return find_ends(l, t, err);
}

static enum status load_json(struct bpe *b, struct tokenizer *t, struct error *err) {
    struct json_document *d;
    struct loading l = {.bpe = b};
    TRY(json_document_parse(&d, "tokenizer.json", t->bytes, t->size_bytes, err));
    enum status s = load_root(&l, t, json_document_root(d), err);
    finish_loading(&l, t, s);
    json_document_destroy(d);
    return s;
}

/* ---- all forms ---- */

bool bpe_is_file(const uint8_t *bytes, size_t size_bytes) {
    static const char *const starts[] = {"CLIPBPE1", "\x1f\x8b", "\"bpe_simple_vocab", "#version",
                                         "{"};
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        const size_t n = strlen(starts[i]);
        if (size_bytes >= n && memcmp(bytes, starts[i], n) == 0) {
            return true;
        }
    }
    return false;
}

enum status bpe_load(struct bpe *b, struct tokenizer *t, struct error *err) {
    switch (t->bytes[0]) {
    case 'C':
        return load_table(b, t, err);
    case 0x1F:
        return load_gzip(b, t, err);
    case '{':
        return load_json(b, t, err);
    default:
        return load_lines(b, t, (const char *)t->bytes, t->size_bytes, err);
    }
}
