/*
 * A NumPy file: what is accepted has items of its shape up to the end of the file.
 */
#include <stdint.h>
#include <stdlib.h>

#include "tools/cli/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    const uint8_t *items = NULL;
    uint64_t rows = 0;
    uint64_t columns = 0;
    if (npy_parse(&items, "input", data, size_bytes, "<f4", &rows, &columns, NULL) == STATUS_OK &&
        items + rows * (columns > 0 ? columns : 1) * 4 != data + size_bytes) {
        abort();
    }
    return 0;
}
