/*
 * run_config: options to JSON through the option table, and back through the command line's parser,
 * so that a stored option obeys the same rules as a typed one.
 */
#include "tools/run_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/json_reader.h"

enum { MAX_CONFIG_BYTES = 1 << 20, NUMBER_BYTES = 64 };

void run_config_words_fini(struct run_config_words *w) {
    for (int i = 1; i <= w->own_count; i++) {
        free(w->words[i]);
    }
    *w = (struct run_config_words){0};
}

/* "--key=value", or "--key" for a flag; NULL for what was not set (null, false). */
static enum status option_word(char **out,
                               const char *path,
                               const char *key,
                               const struct json_value *value,
                               struct error *err) {
    char number[NUMBER_BYTES] = "";
    const char *text = json_value_string(value, NULL);
    bool flag = false;
    uint64_t whole;
    double real;
    *out = NULL;
    if (text == NULL) {
        if (json_value_u64(value, &whole)) {
            (void)snprintf(number, sizeof number, "%" PRIu64, whole);
        } else if (json_value_double(value, &real)) {
            (void)snprintf(number, sizeof number, "%.17g", real);
        } else if (!json_value_bool(value, &flag) || !flag) {
            return STATUS_OK;
        }
        text = number;
    }
    const size_t size = strlen(key) + strlen(text) + sizeof "--=";
    *out = malloc(size);
    if (*out == NULL) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    if (flag) {
        (void)snprintf(*out, size, "--%s", key);
    } else {
        (void)snprintf(*out, size, "--%s=%s", key, text);
    }
    return STATUS_OK;
}

static enum status add_options(struct run_config_words *w,
                               const char *path,
                               const struct json_value *options,
                               struct error *err) {
    void *position = NULL;
    const char *key;
    const struct json_value *value;
    while (json_value_next_member(options, &position, &key, &value)) {
        char *word;
        TRY(option_word(&word, path, key, value, err));
        if (word != NULL) {
            w->words[w->count++] = word;
            w->own_count++;
        }
    }
    return STATUS_OK;
}

enum status run_config_read(struct run_config_words *out,
                            const char *run,
                            int argc,
                            char **argv,
                            struct error *err) {
    REQUIRE(out != NULL && run != NULL && argc >= 1 && argv != NULL);
    *out = (struct run_config_words){0};
    char path[PATH_MAX_BYTES];
    bool there = false;
    struct byte_buffer text;
    struct json_document *document = NULL;
    const struct file_system *fs = file_posix();
    TRY(path_join(path, sizeof path, run, "config.json", err));
    TRY(fs->exists(fs->context, path, &there, err));
    if (!there) {
        return error_set(err, STATUS_NOTFOUND, "%s is no run of ccstream-train: there is no %s",
                         run, path);
    }
    TRY(file_read_all(fs, &text, path, MAX_CONFIG_BYTES, err));
    enum status s = json_document_parse(&document, path, text.data, text.size_bytes, err);
    byte_buffer_fini(&text);
    if (s == STATUS_OK) {
        const struct json_value *options = json_value_get(json_document_root(document), "options");
        if (!json_value_is_object(options) || json_value_count(options) > CLI_MAX_OPTIONS) {
            s = error_set(err, STATUS_CORRUPT, "%s holds no object \"options\"", path);
        } else if (argc > CLI_MAX_OPTIONS) {
            s = error_set(err, STATUS_USAGE, "more than %d words on the command line",
                          CLI_MAX_OPTIONS);
        } else {
            out->words[out->count++] = argv[0];
            s = add_options(out, path, options, err);
        }
    }
    json_document_destroy(document);
    if (s != STATUS_OK) {
        run_config_words_fini(out);
        return s;
    }
    for (int i = 1; i < argc; i++) {
        out->words[out->count++] = argv[i];
    }
    return STATUS_OK;
}

static enum status append_text(struct byte_buffer *b, const char *text, struct error *err) {
    return byte_buffer_append(b, text, strlen(text), err);
}

enum status run_config_write(const struct cli_program *program,
                             const void *options,
                             const char *run,
                             struct error *err) {
    REQUIRE(program != NULL && options != NULL && run != NULL);
    char path[PATH_MAX_BYTES];
    struct byte_buffer text;
    byte_buffer_init(&text, MAX_CONFIG_BYTES);
    enum status s;
    TRY_OR_FAIL(s, path_join(path, sizeof path, run, "config.json", err));
    TRY_OR_FAIL(s, append_text(&text, "{\"program\":\"", err));
    TRY_OR_FAIL(s, append_text(&text, program->name, err));
    TRY_OR_FAIL(s, append_text(&text, "\",\"options\":", err));
    TRY_OR_FAIL(s, cli_config_json(program, options, &text, err));
    TRY_OR_FAIL(s, append_text(&text, "}\n", err));
    s = file_write_atomic(file_posix(), path, text.data, text.size_bytes, err);
fail:
    byte_buffer_fini(&text);
    return s;
}
