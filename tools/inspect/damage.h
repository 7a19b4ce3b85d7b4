/*
 * damage: what `ccdump verify` finds and `ccpack repair` rebuilds.
 *
 * Threading : pure functions, except that damage_cache_rows stops on cli_interrupted.
 */
#ifndef TOOLS_INSPECT_DAMAGE_H
#define TOOLS_INSPECT_DAMAGE_H

#include <stdbool.h>

#include "formats/dataset/manifest.h"
#include "formats/tokenizer/token_cache.h"

/* Whether the status means damaged data, not a failure of the check itself. */
bool damage_is(enum status s);

/* Whether the cache was made from this state of the dataset, with its tokenizer; else it is unused.
 */
bool damage_cache_is_of(const struct token_cache *c, const struct manifest *m);

/* Reads every row of a token cache. Returns OK, CORRUPT or INTERRUPTED. */
enum status damage_cache_rows(const struct token_cache *c, struct error *why);

#endif
