/*
 * Readable JSON: a member per line, nested ones indented, texts wrapped, without control sequences
 * for the terminal.
 */
#include <stdio.h>
#include <string.h>

#include "formats/json/json_reader.h"
#include "tools/cli/cli_text.h"
#include "tools/inspect/samples.h"

enum { STEP = 2, MAX_INDENT = 40 };

struct printer {
    size_t columns;
    bool fresh; /* the cursor is at the indent already */
};

static void begin_line(struct printer *p, size_t indent) {
    if (!p->fresh) {
        printf("%*s", (int)(indent < MAX_INDENT ? indent : MAX_INDENT), "");
    }
    p->fresh = false;
}

/* Numbers, true, false and null, written as JSON. */
static void put_word(const struct json_value *v, size_t at, size_t columns) {
    struct json_writer w;
    uint64_t u = 0;
    int64_t i = 0;
    double d = 0;
    bool b = false;
    json_writer_init(&w, 0);
    if (json_value_u64(v, &u)) {
        json_u64(&w, NULL, u);
    } else if (json_value_i64(v, &i)) {
        json_i64(&w, NULL, i);
    } else if (json_value_double(v, &d)) {
        json_double(&w, NULL, d);
    } else if (json_value_bool(v, &b)) {
        json_bool(&w, NULL, b);
    } else {
        json_null(&w, NULL);
    }
    cli_text_wrap(stdout, (const char *)w.out.data, w.out.size_bytes, at, columns);
    json_writer_fini(&w);
}

static void put_value(struct printer *p, const struct json_value *v, size_t indent, size_t at);

/* `head` is the member's name or a dash; the value follows on the same line or below. */
static void put_member(struct printer *p,
                       const char *head,
                       const char *colon,
                       const struct json_value *v,
                       size_t indent) {
    begin_line(p, indent);
    size_t shown = indent < MAX_INDENT ? indent : MAX_INDENT;
    size_t at = shown + cli_text_put(stdout, head, strlen(head), 0) + strlen(colon);
    fputs(colon, stdout);
    if ((json_value_is_object(v) || json_value_is_array(v)) && json_value_count(v) > 0) {
        putchar('\n');
        put_value(p, v, indent + STEP, 0);
    } else {
        putchar(' ');
        put_value(p, v, indent, at + 1);
    }
}

/* A scalar or an empty list starts at column `at`; other values have lines of their own. */
static void put_value(struct printer *p, const struct json_value *v, size_t indent, size_t at) {
    size_t size_bytes = 0;
    const char *text = json_value_string(v, &size_bytes);
    if (json_value_is_object(v)) {
        void *position = NULL;
        const char *key = NULL;
        const struct json_value *member = NULL;
        while (json_value_next_member(v, &position, &key, &member)) {
            put_member(p, key, ":", member, indent);
        }
    } else if (json_value_is_array(v)) {
        for (size_t i = 0; i < json_value_count(v); i++) {
            put_member(p, "-", "", json_value_at(v, i), indent);
        }
    } else if (text && size_bytes > 0) {
        cli_text_wrap(stdout, text, size_bytes, at, p->columns);
        return;
    } else if (text) {
        puts("\"\"");
        return;
    } else {
        put_word(v, at, p->columns);
        return;
    }
    if (json_value_count(v) == 0) {
        puts(json_value_is_object(v) ? "{}" : "[]");
    }
}

void meta_print(const char *text, size_t size_bytes, size_t indent, size_t columns) {
    struct json_document *document = NULL;
    if (json_document_parse(&document, "meta", text, size_bytes, NULL) != STATUS_OK) {
        cli_text_wrap(stdout, text, size_bytes, indent, columns);
        return;
    }
    struct printer p = {.columns = columns, .fresh = true};
    put_value(&p, json_document_root(document), indent, indent);
    json_document_destroy(document);
}
