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

/* Takes them out of every location (SCHEME://...) of a text, which becomes no longer: a query or a
 * fragment is "?..." then. What follows a location, to the next space or quotation mark, counts as
 * part of it; punctuation at its end does not. Returns whether there was anything to take out. */
bool redact_locations(char *text);

#endif
