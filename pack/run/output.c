/*
 * The journal has one line, the head: a file with its final name is complete, so whoever resumes
 * keeps the shards that exist and makes the rest.
 */
#include "pack/run/output_internal.h"

#include <stdio.h>
#include <string.h>

#include "pack/journal/journal_internal.h"

void pack_output_init(struct pack_output *o,
                      const struct file_system *fs,
                      const char *directory,
                      const char *kind) {
    *o = (struct pack_output){.fs = fs, .directory = directory, .kind = kind};
    byte_buffer_init(&o->names, 0);
    json_writer_init(&o->head, 0);
}

void pack_output_fini(struct pack_output *o) {
    o->fs->close(o->lock);
    byte_buffer_fini(&o->names);
    json_writer_fini(&o->head);
}

void pack_output_head(struct pack_output *o, const char *created_by) {
    json_open_object(&o->head, NULL);
    json_string(&o->head, "journal", o->kind);
    json_u64(&o->head, "version", PACK_JOURNAL_VERSION);
    json_string(&o->head, "created_by", created_by);
    json_string(&o->head, "container", shard_container_name(o->container));
}

static enum status refuse(const struct pack_output *o, const char *what, struct error *err) {
    return error_set(err, STATUS_EXISTS, "%s: %s; --overwrite replaces it", o->directory, what);
}

/* Whether the directory holds the beginning of this work. */
static enum status
look_at_journal(struct pack_output *o, const struct pack_contents *c, struct error *err) {
    struct pack_journal_kind kind = {.name = ""};
    bool equal = false;
    if (c->journal) {
        TRY(pack_journal_kind(&kind, o->fs, o->directory, err));
        o->tars = o->tars || kind.tars;
    }
    if (strcmp(kind.name, o->kind) == 0) {
        TRY(pack_journal_has_head(&equal, o->fs, o->directory, &o->head.out, err));
        if (!equal && !o->overwrite) {
            char what[80];
            snprintf(what, sizeof(what), "contains the beginning of another %s", o->kind);
            return refuse(o, what, err);
        }
    }
    o->resumes = equal && !o->overwrite;
    o->finished = o->resumes && c->dataset;
    return STATUS_OK;
}

/* A dataset that is replaced says whether tars with the names of shards are its own. */
static void look_at_old(struct pack_output *o) {
    struct manifest old;
    struct error ignored;
    if (manifest_read(&old, o->fs, o->directory, &ignored) == STATUS_OK) {
        o->tars = old.container == SHARD_CONTAINER_TAR;
        manifest_fini(&old);
    }
}

enum status pack_output_look(struct pack_output *o,
                             bool (*is_same)(const void *cookie, const struct manifest *there),
                             const void *cookie,
                             struct error *err) {
    struct pack_contents c;
    TRY(json_writer_status(&o->head, err));
    TRY(o->fs->exists(o->fs->context, o->directory, &o->existed, err));
    if (o->existed) {
        TRY(o->fs->lock_directory(o->fs->context, &o->lock, o->directory, err));
    }
    TRY(pack_directory_list(&o->names, o->fs, o->directory, err));
    pack_directory_look(&c, &o->names, false);
    if (c.dataset && o->overwrite) {
        look_at_old(o);
    }
    o->has_journal = c.journal;
    TRY(look_at_journal(o, &c, err));
    if (o->resumes) {
        return STATUS_OK;
    }
    pack_directory_look(&c, &o->names, o->tars);
    if (c.dataset && !c.journal && !o->overwrite) {
        struct manifest there;
        TRY(manifest_read(&there, o->fs, o->directory, err));
        o->finished = is_same(cookie, &there);
        manifest_fini(&there);
        if (o->finished) {
            return STATUS_OK;
        }
    }
    bool taken = c.dataset || c.journal || c.shards || c.rejects || c.foreign;
    RETURN_IF(!o->overwrite && taken,
              refuse(o, c.dataset ? "holds a dataset already" : "is not empty", err));
    FAIL_IF(c.tar && o->container == SHARD_CONTAINER_TAR, err, STATUS_EXISTS,
            "%s/%.80s: has the name of a shard, but belongs to no dataset made by ccpack; move it "
            "away, or %s into another directory",
            o->directory, c.tar, o->kind);
    return STATUS_OK;
}

enum status pack_output_begin(struct pack_output *o, struct error *err) {
    if (!o->resumes) {
        if (!o->existed) {
            TRY(pack_directory_make_locked(&o->lock, o->fs, o->directory, err));
        }
        TRY(pack_directory_clear(o->fs, o->directory, &o->names, o->tars, err));
        TRY(pack_journal_begin(o->fs, o->directory, &o->head.out, NULL, err));
    } else {
        TRY(pack_directory_remove_drafts(o->fs, o->directory, &o->names, err));
    }
    o->has_journal = true;
    return STATUS_OK;
}

enum status pack_output_end(struct pack_output *o, struct error *err) {
    if (o->has_journal) {
        TRY(pack_remove(o->fs, o->directory, PACK_JOURNAL_NAME, err));
        TRY(o->fs->sync_directory(o->fs->context, o->directory, err));
    }
    return STATUS_OK;
}
