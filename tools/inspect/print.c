/*
 * One sample as JSON, and as one readable line.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/json/json_reader.h"
#include "tools/cli/cli_text.h"
#include "tools/inspect/samples.h"

void samples_signals(void) {
    cli_signals_install();
    signal(SIGPIPE, SIG_DFL);
}

/* JSON text on one line: line feeds occur only between tokens. */
static void write_line(struct json_writer *w, const struct shard_text *json) {
    char *line = malloc(json->size_bytes);
    for (size_t i = 0; line && i < json->size_bytes; i++) {
        char c = json->data[i];
        line[i] = c == '\n' || c == '\r' ? ' ' : c;
    }
    if (line) {
        json_raw(w, "meta", line, json->size_bytes);
    } else {
        json_null(w, "meta");
    }
    free(line);
}

/* The sample's metadata: JSON unchanged, other text as a string, null if there is none. */
static void write_meta(struct json_writer *w, const struct shard_text *json) {
    struct json_document *document = NULL;
    if (!json->data) {
        json_null(w, "meta");
    } else if (json_document_parse(&document, "meta", json->data, json->size_bytes, NULL) ==
               STATUS_OK) {
        write_line(w, json);
    } else {
        json_string_n(w, "meta", json->data, json->size_bytes);
    }
    json_document_destroy(document);
}

static enum status write_captions(struct json_writer *w,
                                  struct input *in,
                                  const struct sample_facts *f,
                                  const struct sample_content *content,
                                  struct error *err) {
    json_open_array(w, "captions");
    for (uint32_t k = 0; k < f->caption_count; k++) {
        struct shard_text text;
        if (content) {
            text = content->captions[k];
        } else {
            TRY(input_caption(in, &text, k, err));
        }
        json_string_n(w, NULL, text.data, text.size_bytes);
    }
    json_close_array(w);
    return STATUS_OK;
}

enum status sample_write(struct json_writer *w,
                         struct input *in,
                         const struct sample_facts *f,
                         const struct sample_content *content,
                         struct error *err) {
    json_open_object(w, NULL);
    json_u64(w, "id", f->id);
    if (content) {
        json_string(w, "key", content->key);
    }
    TRY(write_captions(w, in, f, content, err));
    json_u64(w, "width", f->width_px);
    json_u64(w, "height", f->height_px);
    json_string(w, "format", image_format_name(f->format));
    json_u64(w, "image_bytes", f->image_bytes);
    if (content) {
        write_meta(w, &content->json);
    }
    if (f->label == SHARD_NO_LABEL) {
        json_null(w, "label");
    } else {
        json_i64(w, "label", f->label);
    }
    json_string(w, "class", f->class_name);
    json_string(w, "shard", f->file);
    json_u64(w, "offset", f->offset);
    json_hex64(w, "hash", f->image_hash);
    json_u64(w, "position", f->position);
    if (f->first_text_id == INPUT_UNKNOWN) {
        json_null(w, "text_id");
    } else {
        json_u64(w, "text_id", f->first_text_id);
    }
    json_bool(w, "reencoded", (f->flags & SHARD_FLAG_REENCODED) != 0);
    json_bool(w, "checked", in->kind != INPUT_TAR && (f->flags & SHARD_FLAG_UNCHECKED) == 0);
    if (f->problem) {
        json_string(w, "problem", f->problem);
    }
    TRY(content ? input_put_columns(in, w, f->id, err) : STATUS_OK);
    json_close_object(w);
    return STATUS_OK;
}

/* The last column: why the row cannot be packed, the first caption, or the class. */
static enum status about(struct shard_text *out,
                         char room[256],
                         struct input *in,
                         const struct sample_facts *f,
                         struct error *err) {
    *out = (struct shard_text){"", 0};
    if (f->problem) {
        *out = (struct shard_text){f->problem, strlen(f->problem)};
    } else if (f->caption_count > 0) {
        return input_caption(in, out, 0, err);
    } else if (f->class_name) {
        snprintf(room, 256, "[%.250s]", f->class_name);
        *out = (struct shard_text){room, strlen(room)};
    }
    return STATUS_OK;
}

/* Writes what fits into the remaining columns; `columns` 0: all of it. */
static void put_column(size_t *used, size_t columns, const char *text, size_t size_bytes) {
    if (columns == 0 || *used < columns) {
        *used += cli_text_put(stdout, text, size_bytes, columns == 0 ? 0 : columns - *used);
    }
}

static enum status print_line(struct input *in,
                              const struct sample_facts *f,
                              const char *key,
                              size_t columns,
                              struct error *err) {
    char text[256];
    struct shard_text last;
    size_t used = 0;
    const char *size =
        f->width_px > 0 ? cli_format("%" PRIu32 "x%" PRIu32, f->width_px, f->height_px) : "?";
    const char *bytes = f->image_bytes > 0 ? cli_format_bytes(f->image_bytes) : "-";
    snprintf(text, sizeof(text), "%9" PRIu64 "  ", f->id);
    put_column(&used, columns, text, strlen(text));
    if (key) {
        put_column(&used, columns, key, strlen(key));
        put_column(&used, columns, "  ", 2);
    }
    snprintf(text, sizeof(text), "%9s  %9s  %-4s  %2" PRIu32 "  ", size, bytes,
             f->image_bytes > 0 ? image_format_name(f->format) : "-", f->caption_count);
    put_column(&used, columns, text, strlen(text));
    TRY(about(&last, text, in, f, err));
    put_column(&used, columns, last.data, last.size_bytes);
    return cli_put("\n", 1, err);
}

enum status sample_list(struct input *in,
                        const struct sample_facts *f,
                        const struct sample_list_how *how,
                        struct json_writer *w,
                        struct error *err) {
    struct sample_content content;
    bool with_key = how->keys || in->kind == INPUT_TAR;
    if (with_key) {
        TRY(input_read(in, &content, err));
    }
    if (!how->json) {
        return print_line(in, f, with_key ? content.key : NULL, how->columns, err);
    }
    TRY(sample_write(w, in, f, with_key ? &content : NULL, err));
    return cli_put_json(w, err);
}

enum status sample_write_image(const char *path,
                               const struct sample_facts *f,
                               const struct sample_content *content,
                               struct error *err) {
    FAIL_IF(f->image_bytes == 0, err, STATUS_NOTFOUND, "sample %" PRIu64 " has no image: %s", f->id,
            f->problem ? f->problem : "");
    if (strcmp(path, "-") == 0) {
        return cli_put(content->image, f->image_bytes, err);
    }
    TRY(file_make_parents(file_posix(), path, err));
    return file_write_atomic(file_posix(), path, content->image, f->image_bytes, err);
}
