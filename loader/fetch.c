/*
 * fetch: a pipeline of one read slot and one batch slot, which no thread runs: the functions of the
 * reading and decoding threads are called in turn for each row.
 */
#include "loader/fetch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "loader/pipeline_internal.h"
#include "loader/sample_work.h"

struct fetcher {
    struct pipeline p; /* the loader's options, sources and files; the two slots below */
    struct read_slot read;
    struct batch_slot batch;
    struct sample_work *work;
    uint32_t max_count;
};

static enum status allocate(struct fetcher *f, const struct fetch_options *opt, struct error *err) {
    struct pipeline *p = &f->p;
    size_t align = 0;
    const size_t size = read_buffer_bytes(p, &align);
    f->read.buffer = aligned_alloc(align, size);
    FAIL_IF(f->read.buffer == NULL, err, STATUS_NOMEM,
            "out of memory for a read buffer of %zu bytes", size);
    TRY(batch_slot_alloc(&f->batch, p, opt->max_count, err));
    return sample_work_create(&f->work, &p->opt, p->sources, p->tokenizer, err);
}

enum status fetcher_open(struct fetcher **out,
                         struct loader *l,
                         const struct fetch_options *opt,
                         struct error *err) {
    REQUIRE(out != NULL && l != NULL && opt != NULL);
    REQUIRE(opt->max_count >= 1 && opt->max_count <= LOADER_MAX_BATCH);
    REQUIRE(opt->views <= AUGMENT_MAX_VIEWS);
    *out = NULL;
    const struct pipeline *from = loader_pipeline(l);
    struct fetcher *f = calloc(1, sizeof *f);
    TRY_MEMORY(f != NULL, err, "out of memory for a fetcher");
    f->p = (struct pipeline){.opt = from->opt,
                             .sampler = {.positives = 1},
                             .sources = from->sources,
                             .tokenizer = from->tokenizer,
                             .files = from->files,
                             .image_bytes = from->image_bytes,
                             .read_slots = &f->read,
                             .read_slot_count = 1,
                             .batch_slots = &f->batch,
                             .batch_slot_count = 1};
    f->p.opt.augment = opt->augment;
    f->p.opt.views = opt->views;
    f->p.opt.positives = 1;
    f->p.opt.captions =
        from->opt.captions == LOADER_CAPTIONS_NONE ? LOADER_CAPTIONS_NONE : opt->captions;
    f->max_count = opt->max_count;
    enum status s = allocate(f, opt, err);
    RETURN_CREATED(s, out, f, fetcher_close);
}

void fetcher_close(struct fetcher *f) {
    if (f == NULL) {
        return;
    }
    sample_work_destroy(f->work);
    if (f->batch.block != NULL) {
        f->p.opt.host_memory.release(f->p.opt.host_memory.cookie, f->batch.block);
    }
    free(f->read.buffer);
    free(f);
}

/* Makes row `i`. *why: of a failure that concerns this sample alone, in the returned status. */
static enum status make_row(struct fetcher *f,
                            enum status *row,
                            uint32_t i,
                            uint64_t id,
                            struct error *why,
                            struct error *err) {
    *why = (struct error){0};
    f->read.index = i;
    *row = sources_find(f->p.sources, id, &f->read.source, why);
    if (*row < STATUS_OK) {
        return STATUS_OK;
    }
    TRY(pipeline_reads_images(&f->p) ? reader_load(&f->p, &f->read, err) : STATUS_OK);
    *row = decode_sample(&f->p, f->work, &f->read, why);
    if (*row == STATUS_OK) {
        return STATUS_OK;
    }
    FAIL_IF(!decode_is_damage(*row), err, *row, "%s", why->text);
    /* The whole file may have been replaced, rather than the sample damaged. */
    return shard_files_check(f->p.files, f->read.source.shard, err);
}

enum status loader_fetch(struct fetcher *f,
                         struct loader_batch *out,
                         enum status *statuses,
                         const uint64_t *ids,
                         const uint64_t *views,
                         uint32_t count,
                         uint64_t epoch,
                         struct error *err) {
    REQUIRE(f != NULL && out != NULL && (count == 0 || ids != NULL) && count <= f->max_count);
    f->batch.batch = (struct sampler_batch){.epoch = epoch, .count = count};
    *out = (struct loader_batch){0};
    for (uint32_t i = 0; i < count; i++) {
        struct error why;
        enum status row = STATUS_OK;
        f->batch.batch.epoch = views != NULL ? views[i] / 2 : epoch;
        TRY(make_row(f, &row, i, ids[i], &why, err));
        if (views != NULL && views[i] % 2 != 0 && row == STATUS_OK) {
            REQUIRE(f->p.opt.views == 2);
            memcpy(f->batch.images[0] + i * f->p.image_bytes,
                   f->batch.images[1] + i * f->p.image_bytes, f->p.image_bytes);
        }
        if (statuses != NULL) {
            statuses[i] = row;
        } else if (row < STATUS_OK) {
            return error_set(err, row, "cannot fetch sample %" PRIu64 ": %s", ids[i], why.text);
        }
    }
    f->batch.batch.epoch = epoch;
    *out = batch_slot_view(&f->batch);
    return STATUS_OK;
}
