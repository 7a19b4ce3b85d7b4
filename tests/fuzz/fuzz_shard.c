/*
 * Any bytes as a shard file, whose container its end declares. If it opens, every request about
 * every sample returns a value or a refusal. If shard_verify finds no fault, no request is refused,
 * ids ascend, and captions in the index equal those in the frames.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_reader.h"
#include "tests/support/file_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void count_fault(void *cookie,
                        enum shard_part part,
                        uint64_t sample_id,
                        uint64_t offset,
                        const char *text) {
    (void)part;
    (void)sample_id;
    (void)offset;
    demand(text[0] != '\0');
    ++*(uint64_t *)cookie;
}

static bool same_text(const struct shard_text *a, const struct shard_text *b) {
    return a->size_bytes == b->size_bytes &&
           (a->size_bytes == 0 || memcmp(a->data, b->data, a->size_bytes) == 0);
}

/* In a sound shard every caption in the index equals the one in the sample's frame. */
static void check_captions(struct shard_reader *r, uint32_t index, bool sound) {
    struct shard_record record;
    if (shard_reader_record(r, index, &record, NULL) != STATUS_OK) {
        demand(!sound);
        return;
    }
    for (uint32_t k = 0; k < record.text_count; k++) {
        struct sample_view view;
        struct shard_text column = {0};
        enum status got = shard_reader_caption(r, index, k, &column, NULL);
        demand(got == STATUS_OK || !sound);
        if (!sound) {
            continue;
        }
        char *copy = malloc(column.size_bytes + 1); /* the view may take the caption's memory */
        demand(copy != NULL);
        if (column.size_bytes > 0) {
            memcpy(copy, column.data, column.size_bytes);
        }
        column.data = copy;
        demand(shard_reader_get(r, index, &view, NULL) == STATUS_OK);
        demand(k < view.caption_count && same_text(&view.captions[k], &column));
        free(copy);
    }
}

static void read_all(struct shard_reader *r, bool sound) {
    uint64_t last_id = 0;
    for (uint32_t i = 0; i < shard_reader_sample_count(r); i++) {
        struct sample_view view;
        enum status s = shard_reader_get(r, i, &view, NULL);
        demand(s == STATUS_OK || !sound);
        demand(s == STATUS_OK || (view.image == NULL && view.caption_count == 0));
        if (s == STATUS_OK) {
            demand(i == 0 || view.record.sample_id > last_id || !sound);
            last_id = view.record.sample_id;
        }
        check_captions(r, i, sound);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct file_system *fs = NULL;
    struct file *f = NULL;
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(fs->open(fs->context, &f, "a.shard", FILE_REPLACE, NULL) == STATUS_OK);
    demand(fs->write(f, data, size_bytes, NULL) == STATUS_OK);
    fs->close(f);

    uint64_t faults = 0;
    struct shard_verify how = {.fault = count_fault, .cookie = &faults};
    enum status verified = shard_verify(fs, "a.shard", &how, NULL);
    demand(verified != STATUS_OK || faults == 0);
    demand(verified != STATUS_CORRUPT || faults > 0);

    bool begins = false;
    demand(shard_reader_begins(&begins, fs, "a.shard", NULL) == STATUS_OK);

    struct shard_reader *r = NULL;
    enum status opened = shard_reader_open(&r, fs, "a.shard", NULL);
    if (opened == STATUS_OK) {
        /* The sidecar is missing, which shard_verify may report; a reader does not need it. */
        read_all(r, verified == STATUS_OK);
        shard_reader_close(r);
    } else {
        demand(r == NULL && verified != STATUS_OK);
    }
    file_memory_destroy(fs);
    return 0;
}
