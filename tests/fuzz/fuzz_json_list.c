/* Lists and lines of objects of any bytes: see fuzz_source.h. */
#include "tests/fuzz/fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static const struct source_options hows[] = {
        {.kind = SOURCE_JSON, .images = "/"},
    };
    for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
        fuzz_source(data, size_bytes, &hows[i]);
    }
    return 0;
}
