/*
 * run_config: writes options as JSON by the option table, and reads them with the command line's
 * parser, so that stored options obey the same rules as typed ones.
 */
#include "tools/inspect/run_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/base/redact.h"
#include "formats/json/json_reader.h"
#include "net/location.h"
#include "train/model/foreign.h"
#include "train/run/checkpoint.h"

enum { MAX_CONFIG_BYTES = 1 << 20, NUMBER_BYTES = 64 };

void run_config_words_fini(struct run_config_words *w) {
    for (int i = 0; i < w->count; i++) {
        free(w->words[i]);
    }
    *w = (struct run_config_words){0};
}

/* Takes ownership of the word. */
static enum status add_word(struct run_config_words *w, char *word, struct error *err) {
    if (w->count == RUN_CONFIG_MAX_WORDS) {
        free(word);
        return error_set(err, STATUS_USAGE, "more than %d options and words", RUN_CONFIG_MAX_WORDS);
    }
    w->words[w->count++] = word;
    return STATUS_OK;
}

enum status run_config_add_words(struct run_config_words *w,
                                 int count,
                                 const char *const *words,
                                 struct error *err) {
    for (int i = 0; i < count; i++) {
        char *copy = strdup(words[i]);
        TRY_MEMORY(copy, err, "out of memory for options");
        TRY(add_word(w, copy, err));
    }
    return STATUS_OK;
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
    TRY_MEMORY(*out, err, "%s: out of memory", path);
    if (flag) {
        (void)snprintf(*out, size, "--%s", key);
    } else {
        (void)snprintf(*out, size, "--%s=%s", key, text);
    }
    return STATUS_OK;
}

/* A repeated option is a list of its values. */
static enum status add_option(struct run_config_words *w,
                              const char *path,
                              const char *key,
                              const struct json_value *value,
                              struct error *err) {
    const bool list = json_value_is_array(value);
    const size_t count = list ? json_value_count(value) : 1;
    for (size_t i = 0; i < count; i++) {
        char *word;
        TRY(option_word(&word, path, key, list ? json_value_at(value, i) : value, err));
        if (word != NULL) {
            TRY(add_word(w, word, err));
        }
    }
    return STATUS_OK;
}

/* Whether a word is --option or --option=VALUE. */
static bool is_option(const char *word, const char *option) {
    const size_t length = strlen(option);
    return strncmp(word, "--", 2) == 0 && strncmp(word + 2, option, length) == 0 &&
           (word[2 + length] == '=' || word[2 + length] == '\0');
}

void run_config_drop(struct run_config_words *w, const char *option) {
    int kept = 0;
    for (int i = 0; i < w->count; i++) {
        char *word = w->words[i];
        if (is_option(word, option)) {
            free(word);
        } else {
            w->words[kept++] = word;
        }
    }
    w->count = kept;
}

static enum status add_options(struct run_config_words *w,
                               const char *path,
                               const struct json_value *options,
                               struct error *err) {
    void *position = NULL;
    const char *key;
    const struct json_value *value;
    while (json_value_next_member(options, &position, &key, &value)) {
        TRY(add_option(w, path, key, value, err));
    }
    return STATUS_OK;
}

enum status run_config_add_file(struct run_config_words *w, const char *path, struct error *err) {
    REQUIRE(w != NULL && path != NULL);
    struct byte_buffer text;
    struct json_document *document = NULL;
    TRY(file_read_all(file_posix(), &text, path, MAX_CONFIG_BYTES, err));
    enum status s = json_document_parse(&document, path, text.data, text.size_bytes, err);
    byte_buffer_fini(&text);
    if (s == STATUS_OK) {
        const struct json_value *options = json_value_get(json_document_root(document), "options");
        s = json_value_is_object(options) && json_value_count(options) <= CLI_MAX_OPTIONS
                ? add_options(w, path, options, err)
                : error_set(err, STATUS_CORRUPT, "%s holds no object \"options\"", path);
    }
    json_document_destroy(document);
    return s;
}

enum status run_config_add_run(struct run_config_words *w, const char *run, struct error *err) {
    char path[PATH_MAX_BYTES];
    bool there = false;
    const struct file_system *fs = file_posix();
    TRY(path_join(path, sizeof path, run, "config.json", err));
    TRY(fs->exists(fs->context, path, &there, err));
    FAIL_IF(!there, err, STATUS_NOTFOUND, "%s is not a run of ccstream-train: there is no %s", run,
            path);
    TRY(run_config_add_file(w, path, err));
    run_config_drop(w, "tensorboard"); /* of older runs: now an option of ccstream-report */
    return STATUS_OK;
}

/* Augmentation and crops of the run that contains a checkpoint; nothing if there is no such run.
 */
static enum status
add_augment(struct run_config_words *w, const char *checkpoint, struct error *err) {
    char at[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    struct json_document *document = NULL;
    struct byte_buffer text = {0};
    enum status s = STATUS_OK;
    TRY(path_join(at, sizeof at, "", checkpoint, err));
    for (int up = 0; up < 3 && text.size_bytes == 0; up++) { /* RUN, RUN/last, RUN/checkpoints/X */
        TRY(path_join(path, sizeof path, at, "config.json", err));
        (void)file_read_all(file_posix(), &text, path, MAX_CONFIG_BYTES, NULL);
        TRY(path_directory(at, sizeof at, at, err));
    }
    if (text.size_bytes > 0 &&
        json_document_parse(&document, path, text.data, text.size_bytes, NULL) == STATUS_OK) {
        static const char *const names[] = {"augment", "crop-scale"};
        for (size_t i = 0; i < CLI_COUNT(names) && s == STATUS_OK; i++) {
            const struct json_value *value =
                json_value_get(json_value_get(json_document_root(document), "options"), names[i]);
            s = json_value_string(value, NULL) != NULL ? add_option(w, path, names[i], value, err)
                                                       : STATUS_OK;
        }
    }
    json_document_destroy(document);
    byte_buffer_fini(&text);
    return s;
}

enum status
run_config_add_clip_word(struct run_config_words *w, const char *model, struct error *err) {
    char config[OPEN_CLIP_CONFIG_BYTES];
    char word[sizeof "--model=" + OPEN_CLIP_CONFIG_BYTES];
    const char *words = word;
    TRY(open_clip_config(config, model, err));
    (void)snprintf(word, sizeof word, "--model=%s", config);
    return run_config_add_words(w, 1, &words, err);
}

/* Adds the preprocessing of a file in open_clip's format. */
static enum status
add_preprocessing(struct run_config_words *w, const char *file, struct error *err) {
    enum image_norm_kind norm = IMAGE_NORM_COUNT;
    enum open_clip_resize resize = OPEN_CLIP_RESIZE_AUTO;
    char word[64];
    const char *words = word;
    TRY(foreign_read_images(&norm, &resize, file, err));
    if (norm < IMAGE_NORM_COUNT) {
        (void)snprintf(word, sizeof word, "--image-norm=%s", IMAGE_NORMS[norm].name);
        TRY(run_config_add_words(w, 1, &words, err));
    }
    if (resize != OPEN_CLIP_RESIZE_AUTO) {
        (void)snprintf(word, sizeof word, "--resize-mode=%s", OPEN_CLIP_RESIZE_NAMES[resize]);
        TRY(run_config_add_words(w, 1, &words, err));
    }
    return STATUS_OK;
}

enum status run_config_add_clip(struct run_config_words *w,
                                const char *model,
                                bool image_alone,
                                struct error *err) {
    enum { COUNT = 3, WORD_BYTES = 64 };
    bool is_file = false;
    char config[OPEN_CLIP_CONFIG_BYTES];
    char text[COUNT][WORD_BYTES];
    struct dual_encoder_options o;
    TRY(open_clip_config(config, model, err));
    TRY(open_clip_options(&o, config, err));
    if (model[0] != '{') {
        TRY(file_posix()->exists(file_posix()->context, model, &is_file, err));
        TRY(is_file ? add_preprocessing(w, model, err) : STATUS_OK);
    }
    (void)snprintf(text[0], WORD_BYTES, "--image-size=%d", (int)o.image.image_px);
    (void)snprintf(text[1], WORD_BYTES, "--max-tokens=%d", (int)o.text.max_tokens);
    (void)snprintf(text[2], WORD_BYTES, "--embed-dim=%d", (int)o.embed_dim);
    const char *const words[] = {text[0], text[1], text[2], "--dropout=0", "--no-clean"};
    TRY(run_config_add_words(w, image_alone ? 1 : 5, words, err));
    return run_config_add_clip_word(w, config, err);
}

enum status
run_config_add_model(struct run_config_words *w, const char *checkpoint, struct error *err) {
    REQUIRE(w != NULL && checkpoint != NULL);
    enum { COUNT = 13, WORD_BYTES = 64 };
    char text[COUNT][WORD_BYTES];
    const char *words[COUNT + 1];
    int count = 0;
    struct checkpoint *c;
    TRY(checkpoint_open(&c, file_posix(), checkpoint, err));
    const struct model_config m = *checkpoint_model(c);
    const double bias = checkpoint_is_foreign(c) ? checkpoint_bias(c) : (double)NAN;
    checkpoint_close(c);
#define WORD(...) ((void)snprintf(text[count], WORD_BYTES, __VA_ARGS__), count++)
    WORD("--task=%s", m.raw ? "blocks" : m.hidden_dim > 0 ? "two-views" : "pairs");
    if (m.open_clip[0] != '\0') {
        TRY(run_config_add_clip(w, m.open_clip, m.hidden_dim > 0, err));
    } else if (m.image_tower[0] != '\0') {
        WORD("--image-tower=%s", m.image_tower);
        WORD("--stem=%s", m.small_stem ? "small" : "standard");
        WORD("--norm-layer=%s", RESNET_NORM_NAMES[m.norm_layers]);
    } else {
        WORD("--block-of=captions");
    }
    if (m.image_tower[0] != '\0') {
        WORD("--image-size=%d", (int)m.image_size_px);
        WORD("--image-norm=%s", IMAGE_NORMS[m.image_norm].name);
        WORD("--resize-mode=%s", OPEN_CLIP_RESIZE_NAMES[m.resize]);
    }
    WORD("--embed-dim=%d", (int)m.embed_dim);
    if (!isnan(bias)) {
        WORD("--bias0=%.9g", bias);
    }
    if (m.hidden_dim > 0) {
        WORD("--hidden-dim=%d", (int)m.hidden_dim);
    } else {
        WORD("--max-tokens=%d", (int)m.max_tokens);
    }
    if (m.hidden_dim == 0 && m.open_clip[0] == '\0') {
        WORD("--text-tower=%s", m.text_tower);
        WORD("--text-pool=%s", TRANSFORMER_POOL_NAMES[m.text_pool]);
    }
#undef WORD
    for (int i = 0; i < count; i++) {
        words[i] = text[i];
    }
    if (m.hidden_dim == 0 && !m.clean_captions) {
        words[count++] = "--no-clean";
    }
    TRY(run_config_add_words(w, count, words, err));
    return m.image_tower[0] != '\0' ? add_augment(w, checkpoint, err) : STATUS_OK;
}

/* A random id, or if that fails the time. */
static void draw_id(char out[RUN_CONFIG_ID_BYTES]) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
        number = (uint64_t)clock_now_ns();
    }
    (void)snprintf(out, RUN_CONFIG_ID_BYTES, "%016" PRIx64, number);
}

/* NULL: none. */
static struct json_document *read_config(const char *run) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text = {0};
    struct json_document *document = NULL;
    if (path_join(path, sizeof path, run, "config.json", NULL) == STATUS_OK &&
        file_read_all(file_posix(), &text, path, MAX_CONFIG_BYTES, NULL) == STATUS_OK) {
        (void)json_document_parse(&document, path, text.data, text.size_bytes, NULL);
    }
    byte_buffer_fini(&text);
    return document;
}

static bool is_own(const char *run) {
    struct json_document *document = read_config(run);
    char path[PATH_MAX_BYTES];
    struct stat folder;
    struct stat file;
    uint64_t inode = 0;
    const bool own =
        document != NULL && path_join(path, sizeof path, run, "config.json", NULL) == STATUS_OK &&
        stat(run, &folder) == 0 && stat(path, &file) == 0 && folder.st_uid == geteuid() &&
        file.st_uid == geteuid() && ((folder.st_mode | file.st_mode) & (S_IWGRP | S_IWOTH)) == 0 &&
        json_value_u64(json_value_get(json_document_root(document), "folder"), &inode) &&
        inode == (uint64_t)folder.st_ino;
    json_document_destroy(document);
    return own;
}

enum status run_config_restrain(struct run_config_words *w,
                                const char *run,
                                const struct log_sink *log,
                                struct error *err) {
    static const char *const outside[] = {"endpoint", "instance-metadata", "allow-private", "cache",
                                          "plan-cache"};
    static const char *const read[] = {"data", "val", "zeroshot", "knn"};
    const bool own = is_own(run);
    for (int i = 0; i < w->count && !own; i++) {
        const char *value = strchr(w->words[i], '=');
        for (size_t k = 0; k < CLI_COUNT(read); k++) {
            FAIL_IF(is_option(w->words[i], read[k]) && location_is_remote(value + 1), err,
                    STATUS_USAGE,
                    "%s was copied, or others may write there, and names a server: to ask it, give "
                    "%.*s '%.150s' again, with --endpoint if it has one",
                    run, (int)(value - w->words[i]), w->words[i], value + 1);
        }
        for (size_t k = 0; k < CLI_COUNT(outside); k++) {
            if (is_option(w->words[i], outside[k])) {
                log_write(log, LOG_LEVEL_WARN,
                          "%s was copied, or others may write there, so its %s is not used; pass "
                          "it again if it is yours",
                          run, w->words[i]);
                run_config_drop(w, outside[k]);
                i--;
                break;
            }
        }
    }
    return STATUS_OK;
}

void run_config_id(char out[RUN_CONFIG_ID_BYTES], const char *run) {
    struct json_document *document = read_config(run);
    const char *id =
        document != NULL
            ? json_value_string(json_value_get(json_document_root(document), "run"), NULL)
            : NULL;
    if (id != NULL && strlen(id) == RUN_CONFIG_ID_BYTES - 1 &&
        strspn(id, "0123456789abcdef") == RUN_CONFIG_ID_BYTES - 1) {
        memcpy(out, id, RUN_CONFIG_ID_BYTES);
    } else {
        draw_id(out);
    }
    json_document_destroy(document);
}

/* Such a file is readable only by its owner. */
static bool holds_secrets(const char *text) {
    char *copy = strdup(text);
    const bool secret = copy == NULL || redact_locations(copy);
    free(copy);
    return secret;
}

static enum status append_text(struct byte_buffer *b, const char *text, struct error *err) {
    return byte_buffer_append(b, text, strlen(text), err);
}

enum status run_config_write(const struct cli_program *program,
                             const void *options,
                             const char *id,
                             const char *run,
                             struct error *err) {
    REQUIRE(program != NULL && options != NULL && id != NULL && run != NULL);
    char path[PATH_MAX_BYTES];
    char folder[64];
    struct stat there;
    struct byte_buffer text;
    byte_buffer_init(&text, MAX_CONFIG_BYTES);
    enum status s;
    TRY_OR_FAIL(s, path_join(path, sizeof path, run, "config.json", err));
    TRY_OR_FAIL(s, append_text(&text, "{\"program\":\"", err));
    TRY_OR_FAIL(s, append_text(&text, program->name, err));
    TRY_OR_FAIL(s, append_text(&text, "\",\"run\":\"", err));
    TRY_OR_FAIL(s, append_text(&text, id, err));
    (void)snprintf(folder, sizeof folder, "\",\"folder\":%" PRIu64 ",\"options\":",
                   stat(run, &there) == 0 ? (uint64_t)there.st_ino : 0);
    TRY_OR_FAIL(s, append_text(&text, folder, err));
    TRY_OR_FAIL(s, cli_config_json(program, options, &text, err));
    TRY_OR_FAIL(s, append_text(&text, "}\n", err));
    s = byte_buffer_append(&text, "", 1, err);
    const mode_t mask = umask(0);
    (void)umask(s == STATUS_OK && holds_secrets((const char *)text.data) ? mask | 077 : mask);
    THEN(s, file_write_atomic(file_posix(), path, text.data, text.size_bytes - 1, err));
    (void)umask(mask);
fail:
    byte_buffer_fini(&text);
    return s;
}
