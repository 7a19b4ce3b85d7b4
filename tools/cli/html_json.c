#include "tools/cli/html_json.h"

#include <stdio.h>
#include <string.h>

/* Any JSON value on one line. */
static void put_value(struct html_page *p, const struct json_value *v) {
    char text[64];
    double number;
    bool yes;
    const char *string = json_value_string(v, NULL);
    if (string != NULL) {
        html_text(p, string, strlen(string));
    } else if (json_value_bool(v, &yes)) {
        html_raw(p, yes ? "yes" : "no");
    } else if (json_value_double(v, &number)) {
        (void)snprintf(text, sizeof text, "%.12g", number);
        html_text(p, text, strlen(text));
    } else if (json_value_is_array(v)) {
        for (size_t i = 0; i < json_value_count(v); i++) {
            html_raw(p, i > 0 ? " " : "");
            put_value(p, json_value_at(v, i));
        }
    } else if (json_value_is_object(v)) {
        void *position = NULL;
        const char *name;
        const struct json_value *member;
        const char *comma = "";
        while (json_value_next_member(v, &position, &name, &member)) {
            html_raw(p, comma);
            html_text(p, name, strlen(name));
            html_raw(p, " ");
            put_value(p, member);
            comma = ", ";
        }
    }
}

void html_json_facts(struct html_page *p, const struct json_value *object) {
    void *position = NULL;
    const char *name;
    const struct json_value *v;
    html_raw(p, "<dl>\n");
    while (json_value_next_member(object, &position, &name, &v)) {
        html_raw(p, "<div><dt>");
        html_text(p, name, strlen(name));
        html_raw(p, "<dd>");
        put_value(p, v);
        html_raw(p, "</div>\n");
    }
    html_raw(p, "</dl>\n");
}
