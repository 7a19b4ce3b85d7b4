/*
 * The rest of the JSON keeps its bytes: the new member is written in front of it.
 */
#include "pack/run/metadata_internal.h"

#include <string.h>

#include "formats/json/json_reader.h"

/* Whether the row's JSON takes a member of this name. *count: of its members now. */
static bool takes_member(const struct source_row *row, const char *name, size_t *count) {
    struct json_document *document = NULL;
    *count = 0;
    if (row->json.size_bytes == 0) {
        return true;
    }
    if (json_document_parse(&document, ".json", row->json.data, row->json.size_bytes, NULL) !=
        STATUS_OK) {
        return false;
    }
    const struct json_value *root = json_document_root(document);
    bool takes = json_value_is_object(root) && !json_value_get(root, name);
    *count = json_value_count(root);
    json_document_destroy(document);
    return takes;
}

enum status pack_metadata_add(struct source_row *row,
                              const char *name,
                              const char *text,
                              struct json_writer *w,
                              struct error *err) {
    size_t count = 0;
    if (!takes_member(row, name, &count)) {
        return STATUS_OK;
    }
    struct byte_buffer *json = &row->json;
    const uint8_t *brace = json->size_bytes > 0 ? memchr(json->data, '{', json->size_bytes) : NULL;
    size_t at = brace ? (size_t)(brace - json->data) : 0;
    json_writer_reset(w);
    json_open_object(w, NULL);
    json_string(w, name, text);
    json_close_object(w);
    TRY(json_writer_status(w, err));
    /* Replaces the brace by the object without its closing brace, or with it where there is none.
     */
    size_t added = w->out.size_bytes - (brace ? 2 : 0) + (count > 0);
    enum status s = byte_buffer_reserve(json, added, NULL);
    if (s != STATUS_OK) {
        return s == STATUS_LIMIT ? STATUS_OK : error_set(err, s, "out of memory for metadata");
    }
    memmove(json->data + at + added, json->data + at, json->size_bytes - at);
    memcpy(json->data + at, w->out.data, w->out.size_bytes - (brace ? 1 : 0));
    if (count > 0) {
        json->data[at + added] = ',';
    }
    json->size_bytes += added;
    return STATUS_OK;
}
