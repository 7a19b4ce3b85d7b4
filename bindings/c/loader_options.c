/*
 * Options of the loader: defaults, ranges, names.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bindings/c/api_entry_internal.h"
#include "bindings/c/loader_internal.h"
#include "formats/tokenizer/tokenizer.h"

/* The loader's own defaults. */
static struct ccs_loader_options defaults(void) {
    struct loader_options own;
    loader_options_default(&own);
    return (struct ccs_loader_options){
        .batch_size = own.batch_count,
        .rank = own.rank,
        .world = own.world,
        .image_size_px = own.image_size_px,
        .augment = augment_kind_name(own.augment),
        .views = own.views,
        .positives = own.positives,
        .order = "global",
        .captions = own.captions == LOADER_CAPTIONS_DRAWN,
        .drop_last = own.drop_last,
        .clean_captions = own.clean_captions,
        .verify_images = own.verify_images,
        .max_tokens = own.max_tokens,
        .seed = own.seed,
        .epochs = own.epochs,
        .threads = own.threads,
        .prefetch = own.prefetch_batches,
        .max_corrupt = own.max_corrupt_count,
        .caption = own.caption,
        .tokens = true,
        .pixels = "uint8",
    };
}

void ccs_loader_options_init(struct ccs_loader_options *opt, uint64_t struct_size) {
    const struct ccs_loader_options mine = defaults();
    api_init(opt, struct_size, &mine, sizeof(mine));
}

enum status loader_take_options(struct ccs_loader_options *out,
                                const struct ccs_loader_options *opt,
                                struct error *err) {
    *out = defaults();
    return opt != NULL ? api_take(out, sizeof(*out), opt, err) : STATUS_OK;
}

static enum status check_ranges(const struct ccs_loader_options *o, struct error *err) {
    const struct {
        const char *name;
        uint64_t value, low, high;
    } rows[] = {
        {"batch_size", o->batch_size, 1, LOADER_MAX_BATCH},
        {"world", o->world, 1, LOADER_MAX_WORLD},
        {"image_size_px", o->image_size_px, LOADER_MIN_IMAGE_SIDE_PX, LOADER_MAX_IMAGE_SIDE_PX},
        {"views", o->views, 0, AUGMENT_MAX_VIEWS},
        {"positives", o->positives, 1, LOADER_MAX_POSITIVES},
        {"max_tokens", o->max_tokens, 2, TOKENIZER_MAX_TOKENS},
        {"threads", o->threads, 0, LOADER_MAX_THREADS},
        {"prefetch", o->prefetch, 1, LOADER_MAX_PREFETCH},
        {"max_corrupt", o->max_corrupt, 0, LOADER_MAX_CORRUPT_LIST},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        FAIL_IF(rows[i].value < rows[i].low || rows[i].value > rows[i].high, err, STATUS_USAGE,
                "%s is %" PRIu64 ", expected %" PRIu64 " to %" PRIu64, rows[i].name, rows[i].value,
                rows[i].low, rows[i].high);
    }
    FAIL_IF(o->rank >= o->world, err, STATUS_USAGE, "rank is %" PRIu32 ", expected 0 to %" PRIu32,
            o->rank, o->world - 1);
    FAIL_IF(o->batch_size % o->positives != 0, err, STATUS_USAGE,
            "batch_size is %" PRIu32 ", expected a multiple of positives, %" PRIu32, o->batch_size,
            o->positives);
    FAIL_IF(o->caption < -1 || (o->caption >= 0 && o->positives > 1), err, STATUS_USAGE,
            "caption is %" PRId32 ", expected -1, or with one positive an index from 0",
            o->caption);
    FAIL_IF(!(o->crop_min == 0.0 && o->crop_max == 0.0) &&
                !(o->crop_min > 0.0 && o->crop_min <= o->crop_max && o->crop_max <= 1.0),
            err, STATUS_USAGE, "the crop is %g to %g of the area, expected 0 < min <= max <= 1",
            o->crop_min, o->crop_max);
    FAIL_IF(o->positives > 1 && o->views == 0, err, STATUS_USAGE,
            "positives is %" PRIu32 ", expected 1 without views", o->positives);
    FAIL_IF(o->positives > 1 && o->views > 1, err, STATUS_USAGE,
            "positives is %" PRIu32 ", expected 1 with two views", o->positives);
    return STATUS_OK;
}

static enum status check_pairs(const struct ccs_loader_options *o, struct error *err) {
    FAIL_IF((o->tokenizer == NULL) != (o->tokenizer_size == 0), err, STATUS_USAGE,
            "tokenizer and tokenizer_size must be set together");
    FAIL_IF(o->tokenizer != NULL && o->tokenizer_path != NULL, err, STATUS_USAGE,
            "pass either tokenizer or tokenizer_path");
    FAIL_IF(o->ids == NULL && o->id_count != 0, err, STATUS_USAGE, "id_count is set without ids");
    FAIL_IF((o->allocator.alloc == NULL) != (o->allocator.release == NULL), err, STATUS_USAGE,
            "allocator.alloc and .release must be set together");
    return STATUS_OK;
}

static enum status convert_augment(enum augment_kind *out, const char *name, struct error *err) {
    if (name != NULL && augment_kind_of(out, name)) {
        return STATUS_OK;
    }
    char names[120] = "";
    size_t used = 0;
    for (int i = 0; AUGMENT_KIND_NAMES[i] != NULL && used < sizeof(names); i++) {
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
                                 AUGMENT_KIND_NAMES[i]);
    }
    return error_set(err, STATUS_USAGE, "augment is '%.40s', expected one of: %s",
                     name != NULL ? name : "NULL", names);
}

static enum status
convert_interpolation(enum resize_filter *out, const char *name, struct error *err) {
    static const char *const names[] = {"bilinear", "bicubic", "lanczos"}; /* from 1 on */
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum resize_filter)(i + 1);
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE,
                     "interpolation is '%.40s', expected bilinear, bicubic or lanczos", name);
}

enum status loader_convert_options(struct loader_options *out,
                                   const struct ccs_loader_options *o,
                                   struct error *err) {
    TRY(check_ranges(o, err));
    TRY(check_pairs(o, err));
    loader_options_default(out);
    TRY(convert_augment(&out->augment, o->augment, err));
    TRY(loader_order_parse(out, o->order != NULL ? o->order : "", err));
    if (o->filter != NULL) {
        TRY(loader_filter_parse(&out->filter, o->filter, err));
    }
    if (o->interpolation != NULL) {
        TRY(convert_interpolation(&out->interpolation, o->interpolation, err));
    }
    out->filter.ids = o->ids;
    out->filter.id_count = o->id_count;
    out->caption = o->caption;
    out->crop_min = o->crop_min;
    out->crop_max = o->crop_max;
    out->caption_columns = o->caption_columns;
    out->batch_count = o->batch_size;
    out->rank = o->rank;
    out->world = o->world;
    out->image_size_px = o->image_size_px;
    out->captions = !o->captions ? LOADER_CAPTIONS_NONE
                    : o->tokens  ? LOADER_CAPTIONS_DRAWN
                                 : LOADER_CAPTIONS_TEXTS;
    out->views = o->views;
    out->positives = o->positives;
    out->drop_last = o->drop_last;
    out->seed = o->seed;
    out->epochs = o->epochs;
    out->max_tokens = o->max_tokens;
    out->clean_captions = o->clean_captions;
    out->tokenizer_model = o->tokenizer;
    out->tokenizer_model_size_bytes = o->tokenizer_size;
    out->threads = o->threads;
    out->prefetch_batches = o->prefetch;
    out->verify_images = o->verify_images;
    out->max_corrupt_count = o->max_corrupt;
    return STATUS_OK;
}
