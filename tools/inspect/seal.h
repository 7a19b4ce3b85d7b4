/*
 * seal: the SHA-256 of every file of a dataset, in the format of sha256sum, and the hash of these
 * lines, which identifies the whole. The formats' own checksums are XXH64, which detects damage,
 * not forgery.
 *
 * Threading : none.
 * Untrusted : the dataset; its manifest has plain file names only.
 */
#ifndef TOOLS_INSPECT_SEAL_H
#define TOOLS_INSPECT_SEAL_H

#include "formats/base/bytes.h"
#include "formats/base/sha256.h"
#include "formats/base/status.h"

enum { SEAL_MAX_BYTES = 256 << 20 };

/* Fills `lines` ("HEX  NAME", sorted by name: dataset.json, shards, sidecars, attached columns, the
 * tokenizer and its cache) and `root`, their hash. Returns OK, INTERRUPTED, NOMEM, LIMIT, or a
 * failure of reading. */
enum status seal_make(struct byte_buffer *lines,
                      char root[SHA256_HEX_BYTES],
                      const char *dataset,
                      struct error *err);

#endif
