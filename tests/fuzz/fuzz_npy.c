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
    char dtype[NPY_DTYPE_BYTES];
    if (npy_parse(&items, "input", data, size_bytes, dtype, &rows, &columns, NULL) == STATUS_OK &&
        items + rows * (columns > 0 ? columns : 1) * (uint64_t)(dtype[2] - '0') !=
            data + size_bytes) {
        abort();
    }
    return 0;
}
