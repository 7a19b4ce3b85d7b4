#include "pack/remove/remove.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "pack/options_internal.h"
#include "pack/pack.h"
#include "pack/remove/remove_internal.h"

enum status pack_remove_begin(struct file **lock,
                              struct manifest *m,
                              const struct pack_remove_options *o,
                              struct error *err) {
    char path[PATH_MAX_BYTES];
    bool unfinished = false;
    TRY(o->fs->lock_directory(o->fs->context, lock, o->directory, err));
    TRY(path_join(path, sizeof(path), o->directory, PACK_JOURNAL_NAME, err));
    TRY(o->fs->exists(o->fs->context, path, &unfinished, err));
    FAIL_IF(unfinished, err, STATUS_EXISTS,
            "%s: holds an unfinished run: complete it with its command and --resume", o->directory);
    TRY(manifest_read(m, o->fs, o->directory, err));
    if (pack_manifest_option(m, PACK_SETTING_PART)) {
        manifest_fini(m);
        return error_set(err, STATUS_MISMATCH,
                         "%s: is a part of a dataset: remove samples after 'ccpack merge'",
                         o->directory);
    }
    return STATUS_OK;
}

enum status pack_remove_publish(struct manifest *m,
                                uint64_t fingerprint,
                                const struct pack_remove_options *o,
                                struct error *err) {
    char *created_by = strdup(o->created_by);
    TRY_MEMORY(created_by, err, "out of memory for the manifest");
    free(m->created_by);
    m->created_by = created_by;
    TRY(manifest_seal(m, fingerprint, err));
    return o->dry_run ? STATUS_OK : manifest_write(m, o->fs, o->directory, err);
}

/* Adds the ids to the removed ones of `m`, which `d` does not have yet. */
static enum status mark(struct manifest *m,
                        const struct dataset *d,
                        const struct pack_remove_options *o,
                        struct pack_remove_summary *out,
                        struct error *err) {
    TRY(manifest_add_removed(m, o->ids, o->id_count, err));
    for (size_t i = 0; i < m->removed.count; i++) {
        struct dataset_sample sample;
        const uint64_t id = m->removed.ids[i];
        if (manifest_is_removed(dataset_manifest(d), id)) {
            continue;
        }
        FAIL_IF(dataset_find(d, id, &sample, err) != STATUS_OK, err, STATUS_NOTFOUND,
                "%s: there is no sample %" PRIu64 "; nothing was removed", o->directory, id);
        out->removed++;
        out->image_bytes += sample.image_bytes;
        m->removed.texts += sample.text_count;
    }
    m->removed.samples += out->removed;
    m->removed.image_bytes += out->image_bytes;
    return STATUS_OK;
}

static enum status remove_from(struct manifest *m,
                               const struct pack_remove_options *o,
                               struct pack_remove_summary *out,
                               struct error *err) {
    struct dataset *d = NULL;
    uint64_t fingerprint = m->fingerprint;
    out->old_fingerprint = m->fingerprint;
    TRY(dataset_open(&d, o->directory, o->fs, err));
    for (size_t i = 0; i < o->id_count; i++) {
        out->before += manifest_is_removed(m, o->ids[i]);
    }
    enum status s = mark(m, d, o, out, err);
    dataset_close(d);
    if (s == STATUS_OK && out->removed > 0) {
        s = dataset_fingerprint_of(&fingerprint, m, o->directory, o->fs, err);
    }
    if (s == STATUS_OK && out->removed > 0) {
        s = pack_remove_publish(m, fingerprint, o, err);
    }
    out->samples = m->samples;
    out->fingerprint = fingerprint;
    return s;
}

enum status pack_remove_samples(const struct pack_remove_options *opt,
                                struct pack_remove_summary *out,
                                struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->directory && opt->created_by);
    struct file *lock = NULL;
    struct manifest m = {0};
    memset(out, 0, sizeof(*out));
    enum status s = pack_remove_begin(&lock, &m, opt, err);
    if (s == STATUS_OK) {
        s = remove_from(&m, opt, out, err);
        manifest_fini(&m);
    }
    opt->fs->close(lock);
    return s;
}
