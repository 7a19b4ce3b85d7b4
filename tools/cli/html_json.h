/*
 * html_json: JSON values on a page.
 *
 * Threading : as the page.
 */
#ifndef TOOLS_CLI_HTML_JSON_H
#define TOOLS_CLI_HTML_JSON_H

#include "formats/json/json_reader.h"
#include "tools/cli/html.h"

/* Appends the members of an object as a list of definitions; values of values on one line. */
void html_json_facts(struct html_page *p, const struct json_value *object);

#endif
