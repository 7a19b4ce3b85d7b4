/*
 * A dataset from samples in memory, by pack/writer.
 */
#include "pack/writer/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bindings/c/api_entry_internal.h"
#include "formats/shard/shard_writer.h"
#include "pack/source/source.h"

_Static_assert(CCS_NEXT_ID == PACK_WRITER_NEXT_ID, "the next id");

struct ccs_writer {
    struct pack_writer *writer;
    pid_t process;
};

/* ---- options ----------------------------------------------------------------------------------
 */

static struct ccs_writer_options defaults(void) {
    struct pack_options own;
    pack_options_default(&own);
    return (struct ccs_writer_options){
        .shard_bytes = own.shard_size_bytes,
        .shard_samples = own.shard_samples,
        .level = own.level,
        .container = shard_container_name(own.container),
        .check = own.check,
    };
}

void ccs_writer_options_init(struct ccs_writer_options *opt, uint64_t struct_size) {
    const struct ccs_writer_options mine = defaults();
    api_init(opt, struct_size, &mine, sizeof(mine));
}

static enum status take_container(struct pack_options *own, const char *name, struct error *err) {
    static const enum shard_container written[] = {SHARD_CONTAINER_TAR_ZSTD, SHARD_CONTAINER_TAR};
    for (size_t i = 0; name != NULL && i < sizeof(written) / sizeof(written[0]); i++) {
        if (strcmp(name, shard_container_name(written[i])) == 0) {
            own->container = written[i];
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE, "container %s: must be tar.zst or tar",
                     name != NULL ? name : "NULL");
}

static enum status
take_options(struct pack_options *own, const struct ccs_writer_options *opt, struct error *err) {
    struct ccs_writer_options o = defaults();
    if (opt != NULL) {
        TRY(api_take(&o, sizeof(o), opt, err));
    }
    pack_options_default(own);
    TRY(take_container(own, o.container, err));
    FAIL_IF(o.shard_samples < 1 || o.shard_samples > SHARD_MAX_SAMPLES, err, STATUS_USAGE,
            "shard_samples %" PRIu32 ": must be from 1 to %d", o.shard_samples, SHARD_MAX_SAMPLES);
    FAIL_IF(o.level < SHARD_LEVEL_MIN || o.level > SHARD_LEVEL_MAX, err, STATUS_USAGE,
            "level %" PRId32 ": must be from %d to %d", o.level, SHARD_LEVEL_MIN, SHARD_LEVEL_MAX);
    own->shard_samples = o.shard_samples;
    own->shard_size_bytes = o.shard_bytes;
    own->level = o.level;
    own->check = o.check;
    own->overwrite = o.overwrite;
    own->append = o.append;
    own->created_by = "libccstream " CCSTREAM_VERSION;
    return STATUS_OK;
}

/* ---- the writer -------------------------------------------------------------------------------
 */

static enum status open_writer(struct ccs_writer **out,
                               const char *directory,
                               const struct ccs_writer_options *opt,
                               struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(directory != NULL && directory[0] != '\0', err,
                   "the directory is NULL or empty");
    struct pack_options own;
    TRY(take_options(&own, opt, err));
    struct ccs_writer *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "out of memory for a writer");
    w->process = getpid();
    enum status s = pack_writer_open(&w->writer, directory, &own, err);
    if (s != STATUS_OK) {
        free(w);
        return s;
    }
    *out = w;
    return STATUS_OK;
}

int32_t ccs_writer_open(struct ccs_writer **out,
                        const char *directory,
                        const struct ccs_writer_options *opt,
                        struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_writer(out, directory, opt, &e), &e);
}

void ccs_writer_close(struct ccs_writer *w) {
    if (w != NULL && api_check_process(w->process, NULL) == STATUS_OK) {
        pack_writer_close(w->writer);
        free(w);
    }
}

static const struct ccs_new_sample new_sample = {.id = CCS_NEXT_ID, .label = SHARD_NO_LABEL};

void ccs_new_sample_init(struct ccs_new_sample *s, uint64_t struct_size) {
    api_init(s, struct_size, &new_sample, sizeof(new_sample));
}

static enum status
add(struct ccs_writer *w, const struct ccs_new_sample *sample, uint64_t *id, struct error *err) {
    CHECK_ARGUMENT(w != NULL && sample != NULL, err, "the writer or the sample is NULL");
    TRY(api_check_process(w->process, err));
    struct ccs_new_sample in = new_sample;
    struct shard_text captions[SOURCE_MAX_CAPTIONS];
    TRY(api_take(&in, sizeof(in), sample, err));
    CHECK_ARGUMENT(in.image != NULL || in.image_size == 0, err, "image is NULL");
    CHECK_ARGUMENT(in.captions != NULL || in.caption_count == 0, err, "captions is NULL");
    CHECK_ARGUMENT(in.metadata.data != NULL || in.metadata.size == 0, err, "metadata is NULL");
    FAIL_IF(in.caption_count > SOURCE_MAX_CAPTIONS, err, STATUS_LIMIT,
            "%" PRIu32 " captions: a sample has at most %d", in.caption_count, SOURCE_MAX_CAPTIONS);
    FAIL_IF(in.metadata.size > SOURCE_MAX_JSON_BYTES, err, STATUS_LIMIT,
            "metadata of %" PRIu64 " bytes: a sample has at most %d", (uint64_t)in.metadata.size,
            SOURCE_MAX_JSON_BYTES);
    for (uint32_t i = 0; i < in.caption_count; i++) {
        const struct ccs_text *text = &in.captions[i];
        CHECK_ARGUMENT(text->data != NULL || text->size == 0, err, "a caption is NULL");
        captions[i] = (struct shard_text){text->size > 0 ? text->data : "", text->size};
    }
    const struct pack_writer_sample mine = {
        .id = in.id,
        .key = in.key,
        .image = in.image,
        .image_bytes = in.image_size,
        .captions = captions,
        .caption_count = in.caption_count,
        .label = in.label,
        .json = {in.metadata.data, in.metadata.size},
    };
    uint64_t given = 0;
    TRY(pack_writer_add(w->writer, &given, &mine, err));
    if (id != NULL) {
        *id = given;
    }
    return STATUS_OK;
}

int32_t ccs_writer_add(struct ccs_writer *w,
                       const struct ccs_new_sample *sample,
                       uint64_t *id,
                       struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, add(w, sample, id, &e), &e);
}

static enum status
set_classes(struct ccs_writer *w, const char *const *names, uint32_t count, struct error *err) {
    CHECK_ARGUMENT(w != NULL && (names != NULL || count == 0), err, "the writer or names is NULL");
    TRY(api_check_process(w->process, err));
    for (uint32_t i = 0; i < count; i++) {
        CHECK_ARGUMENT(names[i] != NULL, err, "a name is NULL");
    }
    return pack_writer_set_classes(w->writer, names, count, err);
}

int32_t ccs_writer_set_classes(struct ccs_writer *w,
                               const char *const *names,
                               uint32_t count,
                               struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, set_classes(w, names, count, &e), &e);
}

static enum status finish(struct ccs_writer *w, struct ccs_dataset_info *info, struct error *err) {
    CHECK_ARGUMENT(w != NULL, err, "the writer is NULL");
    TRY(api_check_process(w->process, err));
    struct ccs_dataset_info mine = {0};
    TRY(info != NULL ? api_give(info, &mine, sizeof(mine), err) : STATUS_OK);
    TRY(pack_writer_finish(w->writer, err));
    const struct manifest *m = pack_writer_manifest(w->writer);
    mine.samples = m->samples;
    mine.captions = m->texts;
    mine.id_space = m->id_space;
    mine.image_bytes = m->image_bytes;
    mine.fingerprint = m->fingerprint;
    mine.shards = (uint32_t)m->shard_count;
    mine.classes = (uint32_t)m->class_count;
    mine.tokenizer = m->tokenizer.file != NULL;
    return info != NULL ? api_give(info, &mine, sizeof(mine), err) : STATUS_OK;
}

int32_t
ccs_writer_finish(struct ccs_writer *w, struct ccs_dataset_info *info, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, finish(w, info, &e), &e);
}
