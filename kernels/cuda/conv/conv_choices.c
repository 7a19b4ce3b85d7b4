/*
 * conv_choices: the best engine and settings for each convolution, in a text file:
 *
 *     ccstream-conv-plans 1
 *     <key>\t<engine>[ <knob type>=<value>]...
 *
 * The key has every number that affects the choice (pass, types, shape, options, GPU, cuDNN's
 * version), so a file may serve several machines. Lines that do not parse are skipped; their
 * convolutions are searched for again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "kernels/cuda/conv/conv_plan_internal.h"

static const char header[] = "ccstream-conv-plans 1\n";
static const char file_name[] = "conv-plans.txt";

struct entry {
    char key[CONV_KEY_CHARS];
    struct conv_choice choice;
};

struct conv_choices {
    struct entry *entries;
    int32_t count, room;
    bool changed;
};

void conv_key(char out[CONV_KEY_CHARS],
              const struct conv_problem *p,
              const struct conv_gpu *gpu,
              const struct device_options *opt) {
    static const char *const passes[] = {"fprop", "dgrad", "wgrad"};
    char gpu_name[48];
    (void)snprintf(gpu_name, sizeof gpu_name, "%s", gpu->name != NULL ? gpu->name : "");
    for (char *c = gpu_name; *c != '\0'; c++) { /* one word, of printable letters */
        *c = (unsigned char)*c <= ' ' || (unsigned char)*c > '~' ? '_' : *c;
    }
    (void)snprintf(out, CONV_KEY_CHARS,
                   "%s%s %s x%lld,%lld,%lld,%lld k%lld,%lld,%lld s%d p%d %s%s%s sm%d %s cudnn%zu",
                   passes[p->pass], p->add ? "+" : "", dtype_name(p->dtype), (long long)p->n,
                   (long long)p->h, (long long)p->w, (long long)p->c, (long long)p->k,
                   (long long)p->r, (long long)p->s, p->stride, p->pad,
                   opt->deterministic ? "det" : "any", opt->tf32 ? ",tf32" : "",
                   opt->autotune ? ",timed" : "", gpu->sm, gpu_name, cudnnGetVersion());
}

/* Reads at most 18 decimal digits at *at and advances it; -1: none. */
static int64_t parse_number(const char **at) {
    int64_t value = 0;
    int digits = 0;
    for (; **at >= '0' && **at <= '9' && digits < 19; ++*at, digits++) {
        value = value * 10 + (**at - '0');
        if (digits == 18) {
            return -1;
        }
    }
    return digits > 0 ? value : -1;
}

/* "<engine>[ <type>=<value>]..." up to the end of the string. */
static bool parse_choice(const char *text, struct conv_choice *out) {
    memset(out, 0, sizeof *out);
    out->engine = parse_number(&text);
    if (out->engine < 0) {
        return false;
    }
    while (*text != '\0') {
        if (*text++ != ' ' || out->knobs_count == CONV_MAX_KNOBS) {
            return false;
        }
        const int64_t type = parse_number(&text);
        if (type < 0 || type > INT32_MAX || *text++ != '=') {
            return false;
        }
        const int64_t value = parse_number(&text);
        if (value < 0) {
            return false;
        }
        out->knobs[out->knobs_count].type = type;
        out->knobs[out->knobs_count++].value = value;
    }
    return true;
}

static bool parse_line(char *line, struct entry *out) {
    char *tab = strchr(line, '\t');
    if (tab == NULL || tab == line || (size_t)(tab - line) >= sizeof out->key) {
        return false;
    }
    *tab = '\0';
    for (const char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') {
            return false;
        }
    }
    memset(out, 0, sizeof *out);
    memcpy(out->key, line, (size_t)(tab - line));
    return parse_choice(tab + 1, &out->choice);
}

static struct entry *find(const struct conv_choices *c, const char *key) {
    for (int32_t i = 0; i < c->count; i++) {
        if (strcmp(c->entries[i].key, key) == 0) {
            return &c->entries[i];
        }
    }
    return NULL;
}

const struct conv_choice *conv_choices_find(const struct conv_choices *c, const char *key) {
    const struct entry *e = find(c, key);
    return e != NULL ? &e->choice : NULL;
}

enum status conv_choices_put(struct conv_choices *c,
                             const char *key,
                             const struct conv_choice *choice,
                             struct error *err) {
    REQUIRE(strlen(key) < CONV_KEY_CHARS);
    struct entry *e = find(c, key);
    FAIL_IF(e == NULL && c->count == CONV_MAX_CHOICES, err, STATUS_LIMIT,
            "%s holds %d convolutions already", file_name, CONV_MAX_CHOICES);
    if (e == NULL && c->count == c->room) {
        const int32_t room = c->room > 0 ? 2 * c->room : 64;
        struct entry *grown = realloc(c->entries, (size_t)room * sizeof *grown);
        TRY_MEMORY(grown != NULL, err, "no memory for %d remembered convolutions", room);
        c->entries = grown;
        c->room = room;
    }
    if (e == NULL) {
        e = &c->entries[c->count++];
        memset(e, 0, sizeof *e);
        memcpy(e->key, key, strlen(key));
    }
    e->choice = *choice;
    c->changed = true;
    return STATUS_OK;
}

static enum status
parse_file(struct conv_choices *c, char *text, int32_t *skipped, struct error *err) {
    struct entry e;
    if (strncmp(text, header, sizeof header - 1) != 0) {
        *skipped = 1;
        return STATUS_OK;
    }
    char *save = NULL;
    for (char *line = strtok_r(text + sizeof header - 1, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        if (!parse_line(line, &e) || c->count == CONV_MAX_CHOICES) {
            ++*skipped;
            continue;
        }
        TRY(conv_choices_put(c, e.key, &e.choice, err));
    }
    c->changed = false;
    return STATUS_OK;
}

enum status conv_choices_open(struct conv_choices **out,
                              const char *folder,
                              int32_t *skipped,
                              struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text;
    *out = NULL;
    *skipped = 0;
    TRY(folder != NULL ? path_join(path, sizeof path, folder, file_name, err) : STATUS_OK);
    struct conv_choices *c = calloc(1, sizeof *c);
    TRY_MEMORY(c != NULL, err, "no memory for the plan cache");
    if (folder == NULL) {
        *out = c;
        return STATUS_OK;
    }
    byte_buffer_init(&text, CONV_CHOICES_MAX_BYTES);
    enum status s = file_read_all(file_posix(), &text, path, CONV_CHOICES_MAX_BYTES, err);
    if (s == STATUS_OK) {
        s = parse_file(c, (char *)text.data, skipped, err);
    } else if (s == STATUS_LIMIT || s == STATUS_NOTFOUND) {
        *skipped = s == STATUS_LIMIT ? 1 : 0;
        s = STATUS_OK;
    }
    byte_buffer_fini(&text);
    RETURN_CREATED(s, out, c, conv_choices_close);
}

void conv_choices_close(struct conv_choices *c) {
    if (c != NULL) {
        free(c->entries);
        free(c);
    }
}

static enum status put_text(struct byte_buffer *b, const char *text, struct error *err) {
    return byte_buffer_append(b, text, strlen(text), err);
}

static enum status put_entry(struct byte_buffer *b, const struct entry *e, struct error *err) {
    char number[64];
    TRY(put_text(b, e->key, err));
    (void)snprintf(number, sizeof number, "\t%lld", (long long)e->choice.engine);
    TRY(put_text(b, number, err));
    for (int32_t k = 0; k < e->choice.knobs_count; k++) {
        (void)snprintf(number, sizeof number, " %lld=%lld", (long long)e->choice.knobs[k].type,
                       (long long)e->choice.knobs[k].value);
        TRY(put_text(b, number, err));
    }
    return put_text(b, "\n", err);
}

enum status conv_choices_save(struct conv_choices *c, const char *folder, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text;
    if (!c->changed) {
        return STATUS_OK;
    }
    TRY(path_join(path, sizeof path, folder, file_name, err));
    byte_buffer_init(&text, CONV_CHOICES_MAX_BYTES);
    enum status s = put_text(&text, header, err);
    for (int32_t i = 0; s == STATUS_OK && i < c->count; i++) {
        s = put_entry(&text, &c->entries[i], err);
    }
    THEN(s, file_posix()->make_directory(file_posix()->context, folder, err));
    THEN(s, file_write_atomic(file_posix(), path, text.data, text.size_bytes, err));
    byte_buffer_fini(&text);
    c->changed = c->changed && s != STATUS_OK;
    return s;
}

bool conv_same_problem(const struct conv_problem *a, const struct conv_problem *b) {
    return a->pass == b->pass && a->add == b->add && a->dtype == b->dtype && a->n == b->n &&
           a->h == b->h && a->w == b->w && a->c == b->c && a->k == b->k && a->r == b->r &&
           a->s == b->s && a->stride == b->stride && a->pad == b->pad;
}
