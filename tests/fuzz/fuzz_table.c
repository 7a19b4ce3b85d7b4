/* Tables of any bytes, as TSV and as CSV, grouped and not: see fuzz_source.h. */
#include "tests/fuzz/fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static const struct source_options hows[] = {
        {.kind = SOURCE_TSV, .images = "/"},
        {.kind = SOURCE_CSV, .images = "/"},
        {.kind = SOURCE_CSV, .images = "/", .columns = "caption,path"},
        {.kind = SOURCE_TSV, .images = "/", .grouping = SOURCE_GROUP_ALL},
        {.kind = SOURCE_CSV,
         .images = "/",
         .columns = "caption,path",
         .delimiter = "tab",
         .grouping = SOURCE_GROUP_NEVER},
    };
    for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
        fuzz_source(data, size_bytes, &hows[i]);
    }
    return 0;
}
