/*
 * directory: which files of a directory are the packer's, and bringing it to where a run begins.
 * Only the packer's own files are ever removed.
 */
#ifndef PACK_RUN_DIRECTORY_INTERNAL_H
#define PACK_RUN_DIRECTORY_INTERNAL_H

#include "formats/base/bytes.h"
#include "pack/pack.h"
#include "pack/run/plan_internal.h"

/* What a directory holds. */
struct pack_contents {
    bool dataset, journal, shards;
    bool rejects;        /* the list under its final name */
    const char *foreign; /* a file that is not the packer's; NULL: none */
    const char *tar;     /* one of them that has the name of a shard; NULL: none */
};

/* `tars`: shard-NNNNNN.tar is the packer's; otherwise it may be anybody's. */
void pack_directory_look(struct pack_contents *out, const struct byte_buffer *names, bool tars);

/* The number in the name of a shard or of its index; false for other names. */
bool pack_shard_number(uint32_t *out, const char *name, bool tars);

/* Whether two paths name the same folder, through links too. */
bool pack_directory_is_same(const char *a, const char *b);

/* The names in a directory; none when it does not exist. */
enum status pack_directory_list(struct byte_buffer *names,
                                const struct file_system *fs,
                                const char *directory,
                                struct error *err);

/* Removes a name from the list. */
void pack_directory_forget(struct byte_buffer *names, const char *name);

/* Makes a directory and those above it, durably, where they do not exist. */
enum status
pack_directory_make(const struct file_system *fs, const char *directory, struct error *err);

/* Makes a directory that did not exist when the run looked, and locks it. Returns OK; EXISTS when
 * another run was faster; IO, NOTFOUND or NOMEM. */
enum status pack_directory_make_locked(struct file **lock,
                                       const struct file_system *fs,
                                       const char *directory,
                                       struct error *err);

/* Refuses a source that is a file which the run would replace. Returns OK or USAGE. */
enum status pack_directory_check_sources(const struct pack_options *opt, struct error *err);

/* Makes the directory, or removes from it what is replaced and what was begun after the point. */
enum status pack_directory_prepare(struct pack_plan *p, struct error *err);

/* Removes what the run wrote; requires p->next_number as it was before, and p->tars of its own
 * container. With append the dataset is as it was, or as it is now if it is complete. */
enum status pack_directory_undo(struct pack_plan *p, struct error *err);

/* What killed processes left of the packer's own files, except the list of rejects that grows. */
enum status pack_directory_remove_drafts(const struct file_system *fs,
                                         const char *directory,
                                         const struct byte_buffer *names,
                                         struct error *err);

/* Removes all of the packer's own files, dataset.json first. */
enum status pack_directory_clear(const struct file_system *fs,
                                 const char *directory,
                                 const struct byte_buffer *names,
                                 bool tars,
                                 struct error *err);

enum status pack_remove(const struct file_system *fs,
                        const char *directory,
                        const char *name,
                        struct error *err);

#endif
