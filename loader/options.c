/*
 * options: defaults, ranges, and the parser of an order such as "block:1024:16".
 */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "loader/options_internal.h"

void loader_options_default(struct loader_options *opt) {
    *opt = (struct loader_options){
        .batch_count = 512,
        .rank = 0,
        .world = 1,
        .image_size_px = 256,
        .augment = AUGMENT_TRAIN,
        .captions = LOADER_CAPTIONS_DRAWN,
        .caption = -1,
        .order = LOADER_ORDER_GLOBAL,
        .block_count = 1024,
        .block_window = 16,
        .views = 1,
        .positives = 1,
        .drop_last = true,
        .max_tokens = 30,
        .clean_captions = true,
        .engine = LOADER_ENGINE_AUTO,
        .read_depth = 64,
        .prefetch_batches = 3,
        .verify_images = true,
        .max_corrupt_count = 1000,
        .wait_timeout_ms = 60000,
        .host_memory = host_memory_default(),
    };
    loader_filter_default(&opt->filter);
}

static bool is_augment_kind(enum augment_kind kind) {
    for (int i = 0; AUGMENT_KIND_NAMES[i] != NULL; i++) {
        if ((int)kind == AUGMENT_TRAIN + i) {
            return true;
        }
    }
    return false;
}

enum status options_check(const struct loader_options *opt) {
    REQUIRE(opt->batch_count >= 1 && opt->batch_count <= LOADER_MAX_BATCH);
    REQUIRE(opt->world >= 1 && opt->world <= LOADER_MAX_WORLD && opt->rank < opt->world);
    REQUIRE(opt->image_size_px >= LOADER_MIN_IMAGE_SIDE_PX &&
            opt->image_size_px <= LOADER_MAX_IMAGE_SIDE_PX);
    REQUIRE(opt->max_tokens >= 2 && opt->max_tokens <= TOKENIZER_MAX_TOKENS);
    REQUIRE(opt->threads <= LOADER_MAX_THREADS);
    REQUIRE(opt->read_depth >= 1 && opt->read_depth <= LOADER_MAX_READ_DEPTH);
    REQUIRE(opt->prefetch_batches >= 1 && opt->prefetch_batches <= LOADER_MAX_PREFETCH);
    REQUIRE(opt->max_corrupt_count <= LOADER_MAX_CORRUPT_LIST);
    REQUIRE(opt->wait_timeout_ms >= 0 && opt->wait_timeout_ms <= LOADER_MAX_WAIT_MS);
    REQUIRE(opt->views <= AUGMENT_MAX_VIEWS);
    REQUIRE(opt->positives >= 1 && opt->positives <= LOADER_MAX_POSITIVES);
    REQUIRE(opt->batch_count % opt->positives == 0);
    REQUIRE(opt->positives == 1 || opt->views == 1);
    REQUIRE(opt->pair_noise >= 0.0 && opt->pair_noise <= 1.0);
    REQUIRE(is_augment_kind(opt->augment));
    REQUIRE((opt->crop_min == 0.0 && opt->crop_max == 0.0) ||
            (opt->crop_min > 0.0 && opt->crop_min <= opt->crop_max && opt->crop_max <= 1.0));
    REQUIRE(opt->interpolation <= RESIZE_LANCZOS);
    REQUIRE(opt->hooks.pixels == NULL || opt->hooks.pixel_bytes > 0);
    REQUIRE(opt->order <= LOADER_ORDER_CLASSES);
    REQUIRE(opt->block_count >= 1 && opt->block_count <= LOADER_MAX_BLOCK);
    REQUIRE(opt->order != LOADER_ORDER_CLASSES ||
            (opt->positives == 1 && opt->batch_count % opt->block_count == 0 &&
             opt->max_corrupt_count == 0));
    REQUIRE(opt->block_window >= 1 && opt->block_window <= LOADER_MAX_BLOCK_WINDOW);
    REQUIRE(opt->filter.max_aspect >= 0 && opt->filter.max_aspect <= LOADER_FILTER_MAX_ASPECT);
    REQUIRE(opt->host_memory.alloc != NULL && opt->host_memory.release != NULL);
    return STATUS_OK;
}

/* --- "block:1024:16" --- */

/* Reads a number in [1, max], which the end of the text or a colon must follow. Returns where it
 * ends; NULL otherwise. */
static const char *read_count(const char *text, uint32_t max, uint32_t *out) {
    char *end = NULL;
    if (text[0] < '1' || text[0] > '9') {
        return NULL;
    }
    unsigned long long value = strtoull(text, &end, 10);
    *out = (uint32_t)value;
    return value <= max && (*end == '\0' || *end == ':') ? end : NULL;
}

enum status loader_order_parse(struct loader_options *opt, const char *text, struct error *err) {
    REQUIRE(opt != NULL && text != NULL);
    uint32_t count = opt->block_count;
    uint32_t window = opt->block_window;
    if (strcmp(text, "global") == 0 || strcmp(text, "sequential") == 0) {
        opt->order = text[0] == 'g' ? LOADER_ORDER_GLOBAL : LOADER_ORDER_SEQUENTIAL;
        return STATUS_OK;
    }
    if (strncmp(text, "block:", 6) == 0) {
        const char *at = read_count(text + 6, LOADER_MAX_BLOCK, &count);
        if (at != NULL && *at == ':') {
            at = read_count(at + 1, LOADER_MAX_BLOCK_WINDOW, &window);
        }
        if (at != NULL && *at == '\0') {
            opt->order = LOADER_ORDER_BLOCK;
            opt->block_count = count;
            opt->block_window = window;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE,
                     "order '%.40s': expected global, sequential, block:SIZE or block:SIZE:WINDOW "
                     "with 1 to %d samples and 1 to %d blocks",
                     text, LOADER_MAX_BLOCK, LOADER_MAX_BLOCK_WINDOW);
}
