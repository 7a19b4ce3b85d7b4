/*
 * objects: the table of the files at servers that were named, by path, and of their folders. A file
 * that is dropped from it remains valid for its users.
 *
 * Threading : remote_object_find, _start and _copy: any thread. The rest: who opens (open.c), one
 *             at a time.
 */
#ifndef LOADER_REMOTE_OBJECTS_INTERNAL_H
#define LOADER_REMOTE_OBJECTS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "loader/remote/remote_internal.h"

struct remote_folder {
    char *text;
    struct location *location;
    pthread_mutex_t lock; /* of location */
    struct remote_folder *next;
    char generation[HEAD_ETAG_BYTES]; /* ETag of its manifest; "": none was read */
    atomic_bool offline;              /* the server could not be reached: the cache must do */
};

/* The object of a path, new where there is none. Returns OK, NOMEM or what location_create and
 * location_url return. */
enum status objects_get(struct remote_object **out, const char *path, struct error *err);

/* Takes every file of a folder out of the table. */
void objects_drop_folder(const struct remote_folder *folder);

void objects_set_known(struct remote_object *o, const char *etag, uint64_t size_bytes);
void objects_set_missing(struct remote_object *o);
void objects_set_copy(struct remote_object *o, struct copy copy);

void objects_before_fork(void); /* nobody opens */
void objects_after_fork(void);  /* in the parent and in the child */
void objects_stop(void);

#endif
