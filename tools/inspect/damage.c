#include "tools/inspect/damage.h"

#include "tools/cli/cli.h"

/* A missing or unreadable file is damage too. */
bool damage_is(enum status s) {
    return s != STATUS_OK && s != STATUS_NOMEM && s != STATUS_INTERRUPTED && s != STATUS_INVALID;
}

bool damage_cache_is_of(const struct token_cache *c, const struct manifest *m) {
    const struct token_cache_key *key = token_cache_key(c);
    return (!m->tokenizer.file || key->tokenizer_hash == m->tokenizer.hash) &&
           key->fingerprint == m->fingerprint && key->text_count == m->texts;
}

enum status damage_cache_rows(const struct token_cache *c, struct error *why) {
    enum status s = STATUS_OK;
    for (uint64_t i = 0; i < token_cache_key(c)->text_count && s == STATUS_OK; i++) {
        uint32_t count = 0;
        s = cli_interrupted()
                ? error_set(why, STATUS_INTERRUPTED, "interrupted in %s", TOKEN_CACHE_NAME)
                : token_cache_get(c, NULL, &count, i, 0, why);
    }
    return s;
}
