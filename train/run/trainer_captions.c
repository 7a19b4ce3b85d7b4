/*
 * trainer_captions: per-sample state of texts by caption (--text-state caption). An epoch uses
 * one of an image's captions at random; each has its own entry, after the entries of samples with
 * lower ids. A sample without captions has one entry, a removed sample none. After a sample's own
 * captions each column of --caption-columns has one entry, whichever of its texts is sampled:
 *
 *   id        0              1   2 (removed)   3
 *   entries   0 1 2 3 4      5                 6 7
 *   first     0              5   6             6        8
 *
 * A run keeps its checkpoint's form. If no sample has two captions, and there are no columns, the
 * state is by sample, and checkpoints are byte-identical to those of --text-state sample.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "train/run/trainer_internal.h"

/* Counts the entries of every id. *several: whether any id has more than one. */
static enum status count_captions(struct trainer *t, bool *several, struct error *err) {
    const struct loader_state place = loader_state(t->loader);
    t->first_caption = calloc((size_t)t->data.id_space + 1, sizeof *t->first_caption);
    TRY_MEMORY(t->first_caption != NULL, err, "no memory for the captions of %" PRIu64 " ids",
               t->data.id_space);
    *several = false;
    for (uint32_t i = 0; i < place.source_count; i++) {
        const struct dataset *d = loader_dataset(t->loader, i);
        uint64_t *counts = t->first_caption + 1 + place.sources[i].id_offset;
        for (uint64_t k = 0; k < dataset_sample_count(d); k++) {
            struct dataset_sample sample;
            TRY(dataset_sample_at(d, k, &sample, err));
            const uint32_t own = sample.text_count > 0 ? sample.text_count : 1;
            counts[sample.sample_id] = own + t->caption_column_count;
            *several = *several || counts[sample.sample_id] > 1;
        }
    }
    for (uint64_t id = 0; id < t->data.id_space; id++) {
        t->first_caption[id + 1] += t->first_caption[id];
    }
    return STATUS_OK;
}

enum status
trainer_open_captions(struct trainer *t, const struct loss_options *loss, struct error *err) {
    const struct trainer_options *o = &t->options;
    const bool continues = t->source != NULL && (t->resumes || o->init_state);
    bool by_caption = continues ? checkpoint_captions(t->source) != NULL
                                : o->text_state == TRAINER_TEXT_CAPTION && t->loader != NULL;
    bool several = false;
    FAIL_IF(continues && by_caption && o->text_state == TRAINER_TEXT_SAMPLE, err, STATUS_MISMATCH,
            "%s keeps the numbers of texts by caption; use --text-state caption",
            checkpoint_path(t->source));
    loader_caption_column_names(t->caption_columns, o->caption_columns);
    for (const char *at = t->caption_columns; *at != '\0'; at++) {
        t->caption_column_count += at == t->caption_columns || *at == ',';
    }
    const char *before = by_caption && continues ? checkpoint_caption_columns(t->source) : NULL;
    FAIL_IF(before != NULL && strcmp(before, t->caption_columns) != 0, err, STATUS_MISMATCH,
            "%s keeps the numbers of texts by the columns '%s', and not by '%s': pass the same "
            "--caption-columns, in the same order",
            checkpoint_path(t->source), before, t->caption_columns);
    if (by_caption && o->task == TRAINER_PAIRS && loss_keeps_texts(loss)) {
        TRY(count_captions(t, &several, err));
    }
    if (!several && !continues) {
        free(t->first_caption);
        t->first_caption = NULL;
    }
    return t->first_caption == NULL
               ? STATUS_OK
               : sample_state_create(&t->captions, t->first_caption[t->data.id_space], t->comm,
                                     err);
}

void trainer_find_captions(const struct trainer *t,
                           uint64_t *out,
                           const struct loader_batch *batch) {
    for (uint32_t i = 0; i < batch->count; i++) {
        const uint64_t *first = &t->first_caption[batch->sample_ids[i]];
        const uint64_t own = first[1] - first[0] - t->caption_column_count;
        const uint32_t k = batch->captions[i];
        out[i] = first[0] + (k >= LOADER_COLUMN_CAPTION ? own + (k - LOADER_COLUMN_CAPTION)
                                                        : k % own); /* --pair-noise: another's */
    }
}

enum status
trainer_check_captions(const struct trainer *t, const struct checkpoint *c, struct error *err) {
    const size_t size_bytes = (size_t)(t->data.id_space + 1) * sizeof *t->first_caption;
    FAIL_IF(
        t->captions != NULL && memcmp(checkpoint_captions(c), t->first_caption, size_bytes) != 0,
        err, STATUS_CORRUPT, "%s counts other captions than the dataset has", checkpoint_path(c));
    return STATUS_OK;
}

void trainer_remap_captions(uint64_t *old_captions,
                            const struct trainer *t,
                            const struct checkpoint *c,
                            const uint64_t *old_ids) {
    const uint64_t *old = checkpoint_captions(c);
    const uint32_t columns = t->caption_column_count; /* the checkpoint has the same */
    for (uint64_t id = 0; id < t->data.id_space; id++) {
        const uint64_t first = t->first_caption[id];
        const uint64_t was = old_ids[id] != SAMPLE_STATE_NO_ID ? old[old_ids[id]] : 0;
        const uint64_t count = old_ids[id] != SAMPLE_STATE_NO_ID ? old[old_ids[id] + 1] - was : 0;
        const uint64_t now = t->first_caption[id + 1] - first;
        for (uint64_t k = 0; k < now; k++) {
            const bool own = k + columns < now;
            const bool known = own ? k + columns < count : count >= columns && count > 0;
            old_captions[first + k] = !known ? SAMPLE_STATE_NO_ID
                                      : own  ? was + k
                                             : was + count - (now - k);
        }
    }
}
