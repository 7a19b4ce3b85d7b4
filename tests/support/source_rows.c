#include "tests/support/source_rows.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"

void source_reading_open(struct source_reading *r,
                         const char *path,
                         const struct source_options *how) {
    static const struct source_options plain;
    memset(r, 0, sizeof(*r));
    source_row_init(&r->row);
    assert_ok(source_open(&r->source, path, how ? how : &plain, &r->err), r->err);
}

void source_reading_open_text(struct source_reading *r,
                              const char *name,
                              const char *text,
                              const struct source_options *how) {
    const char *path = test_temp_path("%s", name);
    test_write_file(path, text, strlen(text));
    source_reading_open(r, path, how);
}

const char *source_row_captions(const struct source_row *row) {
    static char joined[8192];
    const char *text = (const char *)row->text.data;
    size_t at = 0;
    joined[0] = '\0';
    for (uint32_t i = 0; i < row->caption_count; i++) {
        size_t n = row->caption_size_bytes[i];
        at += (size_t)snprintf(joined + at, sizeof(joined) - at, "%s%.*s", i > 0 ? "|" : "", (int)n,
                               text);
        assert_true(at < sizeof(joined));
        text += n;
    }
    return joined;
}

const char *source_reading_next(struct source_reading *r) {
    enum status s = source_next(r->source, &r->row, &r->err);
    if (s == STATUS_END) {
        return NULL;
    }
    assert_ok(s, r->err);
    return source_row_captions(&r->row);
}

void source_reading_close(struct source_reading *r) {
    source_close(r->source);
    source_row_fini(&r->row);
}

const char *path_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

uint64_t ignored_files(const struct source *s) {
    const struct source_ignored counts = source_ignored(s);
    return source_ignored_total(&counts);
}
