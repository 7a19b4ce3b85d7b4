/*
 * Random bytes as the ledger of a fetch: what is read of them, written again, is read as the same.
 */
#include <stdlib.h>
#include <string.h>

#include "pack/fetch/fetch_internal.h"
#include "tests/support/file_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static enum status copy(void *cookie, const struct ledger_entry *entry, struct error *err) {
    return entry->is_retry  ? ledger_add_retry(cookie, entry->retry, err)
           : entry->is_list ? ledger_add_list(cookie, entry->retry, entry->first_row, err)
                            : ledger_add(cookie, &entry->line, err);
}

static enum status hash(void *cookie, const struct ledger_entry *entry, struct error *err) {
    uint64_t *sum = cookie;
    (void)err;
    *sum = *sum * 31 + entry->line.row + (uint64_t)entry->line.state + entry->line.hash +
           strlen(entry->line.reason) + strlen(entry->retry) + entry->first_row +
           entry->line.url_hash;
    return STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct file_system *fs = NULL;
    struct ledger *l = NULL;
    uint64_t good_bytes = 0;
    uint64_t sums[2] = {0, 0};
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(file_write_atomic(fs, "a", data, size_bytes, NULL) == STATUS_OK);
    demand(ledger_open(&l, fs, "b", 0, NULL) == STATUS_OK);
    demand(ledger_scan(fs, "a", copy, l, &good_bytes, NULL) == STATUS_OK);
    demand(good_bytes <= size_bytes);
    ledger_close(l);
    demand(ledger_scan(fs, "a", hash, &sums[0], &good_bytes, NULL) == STATUS_OK);
    demand(ledger_scan(fs, "b", hash, &sums[1], &good_bytes, NULL) == STATUS_OK);
    demand(sums[0] == sums[1]);
    file_memory_destroy(fs);
    return 0;
}
