/*
 * cli_text: text from outside on its way to a terminal: how wide it is, where it is cut or wrapped,
 * and nothing in it that a terminal would obey.
 *
 * Control characters, the invisible ones that turn the direction of writing included, become
 * spaces; bytes that are not UTF-8 become U+FFFD. A character is 0, 1 or 2 columns wide.
 *
 * Threading : pure functions but for the FILE.
 * Untrusted : the text.
 */
#ifndef TOOLS_CLI_CLI_TEXT_H
#define TOOLS_CLI_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Size of the terminal behind stdout. */
struct cli_screen {
    size_t columns; /* the variable COLUMNS, or what the terminal says; 0: stdout is none */
    size_t lines;   /* 0: not known */
};

struct cli_screen cli_screen(void);

/* Columns that a code point takes: 0 for combining marks, 2 for East Asian wide ones and emoji. */
size_t cli_character_columns(uint32_t code);

/* Columns of the whole text. */
size_t cli_text_columns(const char *text, size_t size_bytes);

/* Writes the text in at most max_columns (0: no limit); where it is longer, the last column holds
 * an ellipsis. Returns the columns written. */
size_t cli_text_put(FILE *out, const char *text, size_t size_bytes, size_t max_columns);

/* Writes the text and a line feed, broken at spaces so that no line goes beyond `columns` (0: one
 * line); the cursor stands at `indent`, later lines begin there. A word that is too long for a line
 * is broken anywhere. */
void cli_text_wrap(FILE *out, const char *text, size_t size_bytes, size_t indent, size_t columns);

#endif
