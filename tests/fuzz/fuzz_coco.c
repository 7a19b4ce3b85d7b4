/* COCO captions of any bytes: rows keep what pack/source.h promises, and come the same again. */
#include "tests/fuzz/fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    fuzz_source(data, size_bytes, SOURCE_COCO);
    return 0;
}
