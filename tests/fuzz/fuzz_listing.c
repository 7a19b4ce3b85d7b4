/* Any bytes as a page of a hub's or bucket's list: names are texts within the page's size. */
#include <stdlib.h>
#include <string.h>

#include "net/listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    char *page = calloc(size_bytes + 1, 1);
    if (page == NULL) {
        abort();
    }
    memcpy(page, data, size_bytes);
    for (int is_s3 = 0; is_s3 < 2; is_s3++) {
        struct byte_buffer names;
        byte_buffer_init(&names, 1 << 24);
        const enum status s = listing_parse(&names, page, is_s3 == 1, NULL);
        if ((s != STATUS_OK && s != STATUS_CORRUPT) || names.size_bytes > size_bytes ||
            (names.size_bytes > 0 && names.data[names.size_bytes - 1] != 0)) {
            abort();
        }
        byte_buffer_fini(&names);
    }
    free(page);
    return 0;
}
