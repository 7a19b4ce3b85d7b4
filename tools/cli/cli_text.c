/*
 * One loop over the characters of a text: take() decides whether one is written as it is, as a
 * space, or as U+FFFD. Widths follow Unicode's East Asian Width, as terminals do.
 */
#include "tools/cli/cli_text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "formats/base/redact.h"
#include "formats/base/utf8.h"
#include "tools/cli/cli.h"

enum { MAX_COLUMNS = 10000 };

struct range {
    uint32_t first, last;
};

/* Combining marks, and characters without width. */
static const struct range zero_wide[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD},   {0x0610, 0x061A},   {0x064B, 0x065F},
    {0x06D6, 0x06DC}, {0x0E31, 0x0E31}, {0x0E34, 0x0E3A},   {0x0E47, 0x0E4E},   {0x1AB0, 0x1AFF},
    {0x1DC0, 0x1DFF}, {0x200B, 0x200D}, {0x20D0, 0x20FF},   {0x3099, 0x309A},   {0xFE00, 0xFE0F},
    {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0x1F3FB, 0x1F3FF}, {0xE0100, 0xE01EF},
};

static const struct range two_wide[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x25FD, 0x25FE},
    {0x2614, 0x2615},   {0x2648, 0x2653},   {0x26AA, 0x26AB},   {0x26BD, 0x26BE},
    {0x2705, 0x2705},   {0x2728, 0x2728},   {0x274C, 0x274C},   {0x2795, 0x2797},
    {0x2B1B, 0x2B1C},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97C},
    {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
    {0xFFE0, 0xFFE6},   {0x16FE0, 0x18CFF}, {0x1B000, 0x1B2FF}, {0x1F18E, 0x1F18E},
    {0x1F191, 0x1F19A}, {0x1F200, 0x1F320}, {0x1F32D, 0x1F335}, {0x1F337, 0x1F37C},
    {0x1F37E, 0x1F393}, {0x1F3A0, 0x1F3FA}, {0x1F400, 0x1F64F}, {0x1F680, 0x1F6FF},
    {0x1F7E0, 0x1F7EB}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD},
};

static bool within(uint32_t code, const struct range *ranges, size_t count) {
    for (size_t i = 0; i < count && code >= ranges[i].first; i++) {
        if (code <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

/* 0 for combining marks, 2 for East Asian wide ones and emoji. */
static size_t character_columns(uint32_t code) {
    if (code < 0x300) {
        return 1;
    }
    if (within(code, zero_wide, CLI_COUNT(zero_wide))) {
        return 0;
    }
    return within(code, two_wide, CLI_COUNT(two_wide)) ? 2 : 1;
}

struct character {
    const char *bytes; /* what is written for it */
    size_t size_bytes;
    size_t taken_bytes; /* of the text */
    size_t columns;
    bool space;
};

/* The character at the front. Requires size_bytes > 0. */
static struct character take(const char *text, size_t size_bytes) {
    unsigned char first = (unsigned char)text[0];
    if (first > ' ' && first < 0x7F) {
        return (struct character){text, 1, 1, 1, false};
    }
    size_t n = 0;
    const uint32_t code = utf8_decode(text, size_bytes, &n);
    if (code == UTF8_NO_CHARACTER) {
        return (struct character){"\xEF\xBF\xBD", 3, 1, 1, false};
    }
    if (code == ' ' || utf8_is_control(code)) {
        return (struct character){" ", 1, n, 1, true};
    }
    return (struct character){text, n, n, character_columns(code), false};
}

size_t cli_text_columns(const char *text, size_t size_bytes) {
    size_t columns = 0;
    while (size_bytes > 0) {
        struct character c = take(text, size_bytes);
        columns += c.columns;
        text += c.taken_bytes;
        size_bytes -= c.taken_bytes;
    }
    return columns;
}

size_t cli_text_put(FILE *out, const char *text, size_t size_bytes, size_t max_columns) {
    bool truncated = max_columns > 0 && cli_text_columns(text, size_bytes) > max_columns;
    size_t limit = truncated ? max_columns - 1 : SIZE_MAX;
    size_t columns = 0;
    const char *run = text; /* from here on, characters stay as they are */
    while (size_bytes > 0) {
        struct character c = take(text, size_bytes);
        if (c.columns > limit - columns) {
            break;
        }
        if (c.bytes != text && *text != ' ') {
            fwrite(run, 1, (size_t)(text - run), out);
            fwrite(c.bytes, 1, c.size_bytes, out);
            run = text + c.taken_bytes;
        }
        columns += c.columns;
        text += c.taken_bytes;
        size_bytes -= c.taken_bytes;
    }
    fwrite(run, 1, (size_t)(text - run), out);
    if (truncated) {
        fputs("\xE2\x80\xA6", out);
        columns++;
    }
    return columns;
}

void cli_print(FILE *out, const char *fmt, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    const int n = vasprintf(&text, fmt, args);
    va_end(args);
    (void)(n >= 0 && redact_locations(text));
    for (char *line = text; n >= 0 && *line != '\0';) {
        const size_t size_bytes = strcspn(line, "\n");
        const bool ends = line[size_bytes] == '\n';
        cli_text_put(out, line, size_bytes, 0);
        fputs(ends ? "\n" : "", out);
        line += size_bytes + (ends ? 1 : 0);
    }
    free(n >= 0 ? text : NULL);
}

static size_t space_bytes(const char *text, size_t size_bytes) {
    size_t at = 0;
    struct character c;
    while (at < size_bytes && (c = take(text + at, size_bytes - at)).space) {
        at += c.taken_bytes;
    }
    return at;
}

/* Bytes of the word at the front: up to a space, or with `bars` up to and including a bar. */
static size_t word_bytes(const char *text, size_t size_bytes, bool bars) {
    size_t at = 0;
    struct character c;
    while (at < size_bytes && !(c = take(text + at, size_bytes - at)).space) {
        at += c.taken_bytes;
        if (bars && *c.bytes == '|') {
            break;
        }
    }
    return at;
}

/* Writes a word from column `at` on and breaks it at the end of the line. Returns the column after
 * it. */
static size_t
put_word(FILE *out, const char *text, size_t size_bytes, size_t at, size_t indent, size_t columns) {
    while (size_bytes > 0) {
        struct character c = take(text, size_bytes);
        if (at + c.columns > columns && at > indent) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        fwrite(c.bytes, 1, c.size_bytes, out);
        at += c.columns;
        text += c.taken_bytes;
        size_bytes -= c.taken_bytes;
    }
    return at;
}

void cli_text_wrap(FILE *out, const char *text, size_t size_bytes, size_t indent, size_t columns) {
    size_t at = indent;
    size_t limit = columns == 0 ? SIZE_MAX / 2 : columns > indent + 8 ? columns : indent + 8;
    bool bars = false; /* inside a list such as "a|b|c" that is too long for a line */
    for (;;) {
        const size_t skip = space_bytes(text, size_bytes);
        text += skip;
        size_bytes -= skip;
        if (size_bytes == 0) {
            break;
        }
        size_t word = word_bytes(text, size_bytes, false);
        bars = (bars && skip == 0) || cli_text_columns(text, word) > limit - indent;
        word = bars ? word_bytes(text, size_bytes, true) : word;
        const size_t width = cli_text_columns(text, word);
        const size_t gap = at > indent && skip > 0 ? 1 : 0;
        if (at + gap + width <= limit || width > limit - indent) {
            fputs(gap > 0 ? " " : "", out);
            at += gap;
        } else {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        at = put_word(out, text, word, at, indent, limit);
        text += word;
        size_bytes -= word;
    }
    fputc('\n', out);
}

size_t cli_columns(void) {
    struct winsize size;
    uint64_t columns = 0;
    const char *text = getenv("COLUMNS");
    if (text && cli_parse_u64(text, CLI_UNIT_NONE, &columns) && columns > 0 &&
        columns <= MAX_COLUMNS) {
        return (size_t)columns;
    }
    const bool terminal =
        isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return !terminal ? 0 : size.ws_col > 0 ? size.ws_col : 80;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool cli_text_holds(const char *text, size_t size_bytes, const char *wanted) {
    size_t wanted_bytes = strlen(wanted);
    for (size_t at = 0; at + wanted_bytes <= size_bytes; at++) {
        size_t i = 0;
        while (i < wanted_bytes && lower(text[at + i]) == lower(wanted[i])) {
            i++;
        }
        if (i == wanted_bytes) {
            return true;
        }
    }
    return false;
}
