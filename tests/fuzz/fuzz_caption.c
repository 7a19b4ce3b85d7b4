/*
 * Any bytes to caption_clean: the result fits its bound, has no forbidden characters and no ASCII
 * capitals, at most so many words, and no space at its ends.
 */
#include "augment/caption.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    char *out = malloc(CAPTION_CLEAN_BOUND_BYTES(size_bytes));
    if (out == NULL) {
        return 0;
    }
    size_t n = caption_clean(out, (const char *)data, size_bytes);
    int words = 1;
    if (n >= CAPTION_CLEAN_BOUND_BYTES(size_bytes) || out[n] != 0) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        words += out[i] == ' ';
        if ((out[i] >= 'A' && out[i] <= 'Z') ||
            (out[i] != 0 && strchr(",.'!?\"()*#:;~-/", out[i]) != NULL)) {
            abort();
        }
    }
    if (words > CAPTION_MAX_WORDS || (n > 0 && (out[0] == ' ' || out[n - 1] == ' '))) {
        abort();
    }
    free(out);
    return 0;
}
