/*
 * remote: the options of the program, its cache, and what is left of both in a child of fork.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "loader/remote/remote_internal.h"

static struct {
    char *endpoint, *user_agent;
    bool started, survives_fork;
} remote;

/* --- fork --- */

/* What these locks guard is whole in the child: a fork waits for a dataset that is being opened. */
static void before_fork(void) {
    open_before_fork();
    objects_before_fork();
    extents_before_fork();
}

static void after_fork(void) {
    extents_after_fork();
    objects_after_fork();
    open_after_fork();
}

/* The parent's clients are left as they are: to free them would end TLS connections that the parent
 * goes on to use. */
static void after_fork_in_child(void) {
    open_forget();
    extents_abandon();
    remote_pread_after_fork();
    cache_after_fork(remote_view.cache);
    after_fork();
}

/* Once in the life of the process: what is registered stays. */
static enum status survive_fork(struct error *err) {
    FAIL_IF(!remote.survives_fork &&
                pthread_atfork(before_fork, after_fork, after_fork_in_child) != 0,
            err, STATUS_NOMEM, "out of memory for remote files");
    remote.survives_fork = true;
    return STATUS_OK;
}

/* --- life --- */

void remote_options_default(struct remote_options *opt) {
    *opt = (struct remote_options){.user_agent = "ccstream",
                                   .cache_bytes = REMOTE_CACHE_DEFAULT_BYTES};
}

enum status remote_start(const struct remote_options *opt, struct error *err) {
    REQUIRE(opt != NULL && opt->user_agent != NULL);
    FAIL_IF(remote.started, err, STATUS_EXISTS, "remote locations are in use already");
    FAIL_IF(opt->cache != NULL && opt->cache_bytes < REMOTE_CACHE_MIN_BYTES, err, STATUS_USAGE,
            "a cache has at least %" PRIu64 " MiB", REMOTE_CACHE_MIN_BYTES >> 20);
    TRY(survive_fork(err));
    if (opt->cache != NULL) {
        TRY(cache_open(&remote_view.cache, opt->cache, opt->cache_bytes, opt->log, err));
    }
    remote_view.options = *opt;
    remote_view.options.cache = NULL; /* the caller's */
    remote.user_agent = strdup(opt->user_agent);
    remote.endpoint = opt->endpoint != NULL ? strdup(opt->endpoint) : NULL;
    if (remote.user_agent == NULL || (opt->endpoint != NULL && remote.endpoint == NULL)) {
        remote_stop();
        return error_set(err, STATUS_NOMEM, "out of memory for remote files");
    }
    remote_view.options.user_agent = remote.user_agent;
    remote_view.options.endpoint = remote.endpoint;
    remote.started = true;
    file_system_set_remote(remote_files());
    return STATUS_OK;
}

void remote_stop(void) {
    file_system_set_remote(NULL);
    extents_stop();
    open_stop();
    remote_pread_stop();
    objects_stop();
    cache_close(remote_view.cache);
    remote_view.cache = NULL;
    free(remote.user_agent);
    free(remote.endpoint);
    remote.user_agent = NULL;
    remote.endpoint = NULL;
    remote.started = false;
}
