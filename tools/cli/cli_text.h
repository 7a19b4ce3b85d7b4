/*
 * cli_text: prints untrusted text on a terminal: measures, truncates and wraps it, and removes
 * control sequences.
 *
 * Control characters become spaces, and so do the invisible ones that change the direction of
 * writing; bytes that are not UTF-8 become U+FFFD. A character is 0, 1 or 2 columns wide.
 *
 * Threading : pure functions, except that they write to the FILE.
 * Untrusted : the text.
 */
#ifndef TOOLS_CLI_CLI_TEXT_H
#define TOOLS_CLI_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Columns of stdout: the variable COLUMNS, or the terminal's width; 0: not a terminal. */
size_t cli_columns(void);

/* Columns of the whole text. */
size_t cli_text_columns(const char *text, size_t size_bytes);

/* Writes at most max_columns of the text (0: no limit). A longer text is truncated, and an ellipsis
 * fills the last column. Returns the columns written. */
size_t cli_text_put(FILE *out, const char *text, size_t size_bytes, size_t max_columns);

/* Writes the text and a line feed, broken at spaces so that no line is wider than `columns` (0: one
 * line). The cursor is at column `indent`, where later lines begin too. A word that is too long for
 * a line is broken after a bar if it has one ("a|b|c"), else anywhere. */
void cli_text_wrap(FILE *out, const char *text, size_t size_bytes, size_t indent, size_t columns);

/* Whether the text contains `wanted`; a-z equal A-Z, and other bytes are compared as they are. */
bool cli_text_holds(const char *text, size_t size_bytes, const char *wanted);

#endif
