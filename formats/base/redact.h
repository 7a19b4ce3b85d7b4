/*
 * redact: locations as they may be stored and shown: without user name, password and query, which
 * hold secrets (https://user:password@host/d?X-Amz-Signature=...).
 *
 * Threading : pure.
 * Untrusted : the text.
 */
#ifndef FORMATS_BASE_REDACT_H
#define FORMATS_BASE_REDACT_H

#include <stdbool.h>

/* Removes them in place from every location (SCHEME://...) of a text, which does not become longer;
 * a query or fragment becomes "?...". A location ends at the next space or quotation mark, without
 * trailing punctuation. Returns whether anything was removed. */
bool redact_locations(char *text);

#endif
