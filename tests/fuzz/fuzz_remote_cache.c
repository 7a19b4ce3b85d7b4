/*
 * What a cache of remote pieces reads from its folder, any bytes: a head that is accepted has the
 * hash of its lines, and fields without line ends; a trailer that is accepted says the size that
 * was asked for.
 *
 * Input: a head; its last bytes are also a trailer.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "loader/remote/remote_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static const char url[] = "http://127.0.0.1:8124/big/shard-000000.cci";
    struct head head;
    uint64_t hash = 0;
    if (head_parse(&head, url, (const char *)data, size_bytes)) {
        demand(memmem(data, size_bytes, url, strlen(url)) != NULL);
        demand(strlen(head.etag) < sizeof head.etag && strchr(head.etag, '\n') == NULL);
        demand(strlen(head.generation) < sizeof head.generation);
        demand(!head.missing || head.size_bytes == 0);
    }
    if (size_bytes >= CACHE_TRAILER_BYTES) {
        const uint8_t *trailer = data + size_bytes - CACHE_TRAILER_BYTES;
        const uint64_t said = load_u64(trailer + 8);
        if (cache_trailer_parse(trailer, said, 0, &hash)) {
            demand(hash == load_u64(trailer + 16));
            demand(!cache_trailer_parse(trailer, said + 1, 0, &hash));
        }
    }
    return 0;
}
