/*
 * launch: reads a launcher's environment, and opens the group that the options select.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "formats/base/module_file.h"
#include "train/comm/comm_internal.h"
#include "train/comm/meet.h"
#include "train/comm/watch.h"

/* A number in an environment variable; -1: not set, or not in [0, COMM_MAX_WORLD]. */
static int32_t environment_number(const char *name) {
    const char *text = getenv(name);
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return -1;
    }
    char *end;
    const long value = strtol(text, &end, 10);
    return *end == '\0' && value <= COMM_MAX_WORLD ? (int32_t)value : -1;
}

/* ---- who started this process: variables alone may be those of an enclosing job ---- */

static bool by_pmix(void) {
    return getenv("PMIX_NAMESPACE") != NULL || getenv("OMPI_MCA_orte_hnp_uri") != NULL;
}

/* The launcher is connected by a descriptor or a port. */
static bool by_pmi(void) {
    const int32_t fd = environment_number("PMI_FD");
    return (fd >= 0 && fcntl(fd, F_GETFD) != -1) || getenv("PMI_PORT") != NULL ||
           getenv("PMI_CONTROL_PORT") != NULL;
}

/* 0: unknown. */
static long parent_of(long pid) {
    char path[64];
    char line[512] = "";
    long parent = 0;
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    if (f != NULL) {
        const char *end = fgets(line, sizeof line, f) != NULL ? strrchr(line, ')') : NULL;
        (void)fclose(f);
        if (end == NULL || sscanf(end, ") %*c %ld", &parent) != 1) {
            parent = 0;
        }
    }
    return parent;
}

/* srun's task is this process or an ancestor. */
static bool by_srun(void) {
    const char *text = getenv("SLURM_TASK_PID");
    const long task = text != NULL ? strtol(text, NULL, 10) : 0;
    long pid = (long)getpid();
    while (task > 1 && pid > 1 && pid != task) {
        pid = parent_of(pid);
    }
    return task > 1 && pid == task;
}

/* No evidence: all processes of a pod may have them. So the launchers above are checked first, and
 * RANK alone is not enough. srun's step may have started torchrun, so srun is checked later. */
static bool by_variables(void) {
    return getenv("MASTER_ADDR") != NULL;
}

struct launcher {
    const char *name, *rank, *world;
    bool (*started)(void);
    const char *job[3]; /* identifies the launch, equal on all ranks; NULL: unknown */
};

/* NULL: none. *ignored: the first launcher whose variables are set although it did not start this
 * process as one of several; NULL: none. */
static const struct launcher *
find_launcher(int32_t *rank, int32_t *world, const struct launcher **ignored) {
    /* srun sets SLURM_STEP_NUM_TASKS for its step; SLURM_NTASKS is also set by sbatch, whose script
     * is one process. PMIx has no variable for a job's size. */
    static const struct launcher known[] = {
        {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", by_pmix, {NULL}},
        {"mpiexec", "PMI_RANK", "PMI_SIZE", by_pmi, {NULL}},
        {"torchrun",
         "RANK",
         "WORLD_SIZE",
         by_variables,
         {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
        {"srun",
         "SLURM_PROCID",
         "SLURM_STEP_NUM_TASKS",
         by_srun,
         {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
        {"PMIx", "PMIX_RANK", NULL, by_pmix, {NULL}},
    };
    *rank = 0;
    *world = 1;
    *ignored = NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const int32_t r = environment_number(known[i].rank);
        const int32_t w = known[i].world != NULL ? environment_number(known[i].world) : 0;
        if (r < 0 || w < 0 || (w == 0 ? known[i].world != NULL : r >= w)) {
            continue;
        }
        if (known[i].started()) {
            *rank = r;
            *world = w;
            return &known[i];
        }
        *ignored = *ignored == NULL && w != 1 ? &known[i] : *ignored;
    }
    return NULL;
}

void comm_launched(int32_t *rank, int32_t *world, const char **launcher) {
    const struct launcher *ignored;
    const struct launcher *found = find_launcher(rank, world, &ignored);
    *launcher = found != NULL ? found->name : NULL;
}

static uint64_t hash_of_job(const struct launcher *l) {
    uint64_t hash = 0;
    for (int i = 0; i < 3; i++) {
        const char *text = l->job[i] != NULL ? getenv(l->job[i]) : NULL;
        hash = hash * 31 + (text != NULL ? hash64(text, strlen(text)) : 1);
    }
    return hash;
}

/* Never unloaded: MPI cannot be initialised again. */
static enum status
load_module(const struct comm_module **out, const char *path, struct error *err) {
    void *library;
    void (*function)(void);
    TRY(module_file_load(&library, &function, path, COMM_MODULE_SYMBOL, err));
    const struct comm_module *module = ((comm_module_entry *)function)();
    if (module->abi != COMM_MODULE_ABI || module->link_size_bytes != sizeof(struct comm_link) ||
        strcmp(module->version, CCSTREAM_VERSION) != 0) {
        (void)error_set(err, STATUS_UNSUPPORTED,
                        "%s is from another build (%s, interface %u) than this program (%s, "
                        "interface %d); build both together",
                        path, module->version, module->abi, CCSTREAM_VERSION, COMM_MODULE_ABI);
        module_file_unload(library);
        return STATUS_UNSUPPORTED;
    }
    *out = module;
    return STATUS_OK;
}

/* A thread that ends this process if another rank is lost before all are connected: MPI_Init has no
 * deadline, and Gloo has one per connection. */
struct join_limit {
    const struct comm_options *options;
    const struct meet *meet; /* after meet_all; NULL: MPI's ranks are not known yet */
    int32_t rank;
    bool runs;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* guarded by mutex */
    int64_t left_ms;
    bool joined;
};

enum { LOOK_MS = 200, LOOKS_FOR_GONE = 15 };

static void end_unjoined(const struct join_limit *j, const char *why) {
    log_write(j->options->log, LOG_LEVEL_ERROR, "rank %d ends: %s", j->rank, why);
    (void)usleep(5 * LOOK_MS * 1000); /* let the others find the same, not the end of this one */
    _exit(WATCH_EXIT_CODE);
}

static void *limit_join(void *cookie) {
    struct join_limit *j = cookie;
    const struct comm_options *o = j->options;
    char lost[256] = "";
    bool asked = false;
    (void)pthread_mutex_lock(&j->mutex);
    while (!j->joined && j->left_ms > 0) {
        const int64_t before_ns = clock_now_ns();
        clock_wait_ms(&j->wake, &j->mutex, j->left_ms < LOOK_MS ? j->left_ms : LOOK_MS);
        j->left_ms -= (clock_now_ns() - before_ns) / 1000000 + 1;
        if (!j->joined && j->meet != NULL && meet_find_lost(j->meet, false, lost, sizeof lost)) {
            end_unjoined(j, lost);
        }
        if (!asked && o->should_stop != NULL && o->should_stop()) { /* perhaps one is gone */
            asked = true;
            j->left_ms = j->left_ms < 5 * LOOK_MS ? j->left_ms : 5 * LOOK_MS;
        }
    }
    if (!j->joined) {
        char why[512] = "a signal came before all ranks had joined";
        if (!asked) {
            (void)snprintf(why, sizeof why, "not all ranks have joined within %lld s of its start",
                           (long long)(o->timeout_ms / 1000));
        }
        if (j->meet != NULL && meet_find_lost(j->meet, true, lost, sizeof lost)) {
            const size_t n = strlen(why);
            (void)snprintf(why + n, sizeof why - n, ": %s", lost);
        }
        end_unjoined(j, why);
    }
    (void)pthread_mutex_unlock(&j->mutex);
    return NULL;
}

static enum status limit_begin(struct join_limit *j,
                               const struct comm_options *opt,
                               const struct meet *meet,
                               int32_t rank,
                               struct error *err) {
    *j =
        (struct join_limit){.options = opt, .meet = meet, .rank = rank, .left_ms = opt->timeout_ms};
    (void)pthread_mutex_init(&j->mutex, NULL);
    (void)pthread_cond_init(&j->wake, NULL);
    j->runs = pthread_create(&j->thread, NULL, limit_join, j) == 0;
    FAIL_IF(!j->runs, err, STATUS_NOMEM, "cannot start the thread that limits joining");
    return STATUS_OK;
}

/* Ranks are connected; the same time is allowed for their answers. */
static void limit_renew(struct join_limit *j) {
    (void)pthread_mutex_lock(&j->mutex);
    j->left_ms = j->options->timeout_ms;
    (void)pthread_mutex_unlock(&j->mutex);
}

/* `s`: result of joining: a Gloo connection fails before its peer's process is gone. */
static void limit_end(struct join_limit *j, enum status s) {
    if (j->runs) {
        if (s == STATUS_IO && j->meet != NULL) {
            (void)usleep(LOOKS_FOR_GONE * LOOK_MS * 1000);
        }
        (void)pthread_mutex_lock(&j->mutex);
        j->joined = true;
        (void)pthread_cond_signal(&j->wake);
        (void)pthread_mutex_unlock(&j->mutex);
        (void)pthread_join(j->thread, NULL);
    }
}

/* MPI and the libraries that it loads (UCX when it is loaded) install handlers for some signals,
 * and start threads: neither may take a signal from this program. Gloo writes to connections that
 * another rank may have closed, which must be an error, not the end of this process. */
static enum status load_and_join(struct comm_link **out,
                                 const char *path,
                                 const struct comm_place *place,
                                 struct error *err) {
    enum { SIGNALS = 32 };
    struct sigaction handlers[SIGNALS];
    bool known[SIGNALS] = {false};
    sigset_t all, before;
    const struct comm_module *module;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < SIGNALS; i++) {
        known[i] = sigaction(i, NULL, &handlers[i]) == 0;
    }
    enum status s = load_module(&module, path, err);
    THEN(s, module->open(out, place, err));
    for (int i = 1; i < SIGNALS; i++) {
        if (known[i]) {
            (void)sigaction(i, &handlers[i], NULL);
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s;
}

/* "torchrun started 4 processes, but ", or "". */
static void describe_launch(char out[80], const struct launcher *l, int32_t world) {
    out[0] = '\0';
    if (l != NULL && world == 0) {
        (void)snprintf(out, 80, "%s started this process, but ", l->name);
    } else if (l != NULL && world > 1) {
        (void)snprintf(out, 80, "%s started %d processes, but ", l->name, world);
    }
}

static enum status open_mpi(struct comm_link **out,
                            struct join_limit *limit,
                            const char *started,
                            const struct launcher *launcher,
                            const struct comm_options *opt,
                            const struct comm_place *place,
                            struct error *err) {
    static const char file_name[] = "libccstream_mpi.so";
    char path[PATH_MAX];
    FAIL_IF(!module_file_find(path, sizeof path, file_name, "CCSTREAM_MPI_MODULE"), err,
            STATUS_UNSUPPORTED,
            "%sthis build has no MPI module (%s next to the program); install MPI, "
            "such as libopenmpi-dev, and build again",
            started, file_name);
    TRY(limit_begin(limit, opt, NULL, place->rank, err));
    TRY(load_and_join(out, path, place, err));
    limit_renew(limit);
    const int32_t world = (*out)->world;
    if (launcher != NULL && place->world != 0 && world != place->world) {
        (void)(*out)->close(*out, false);
        return error_set(err, STATUS_IO,
                         "%sMPI sees %d: launcher and MPI do not belong together; under Slurm try "
                         "srun --mpi=pmix (srun --mpi=list names what it has), mpirun, or "
                         "--transport gloo",
                         started, world);
    }
    return STATUS_OK;
}

/* *m: call meet_end when all ranks have joined. */
static enum status open_gloo(struct comm_link **out,
                             struct meet *m,
                             struct join_limit *limit,
                             const char *started,
                             const struct launcher *launcher,
                             const struct comm_options *opt,
                             struct comm_place *place,
                             struct error *err) {
    static const char file_name[] = "libccstream_gloo.so";
    char path[PATH_MAX];
    FAIL_IF(launcher == NULL || place->world == 0, err, STATUS_USAGE,
            "--transport gloo needs a launcher that gives each process its rank, such as torchrun, "
            "or RANK, WORLD_SIZE and MASTER_ADDR in the environment");
    FAIL_IF(opt->run == NULL, err, STATUS_USAGE,
            "%sover Gloo they meet in the folder of the run; give --out RUN or --resume RUN",
            started);
    FAIL_IF(!module_file_find(path, sizeof path, file_name, "CCSTREAM_GLOO_MODULE"), err,
            STATUS_UNSUPPORTED,
            "%sthis build has no Gloo module (%s next to the program); install libgloo-dev and "
            "build again, or start the ranks with mpirun",
            started, file_name);
    enum status s = meet_all(m, opt->run, place->rank, place->world, hash_of_job(launcher),
                             opt->timeout_ms, opt->should_stop, err);
    if (s == STATUS_TIMEOUT) {
        log_write(opt->log, LOG_LEVEL_ERROR, "rank %d ends: %s", place->rank, err->text);
        _exit(WATCH_EXIT_CODE);
    }
    place->folder = m->folder;
    place->one_host = m->one_host;
    THEN(s, limit_begin(limit, opt, m, place->rank, err));
    THEN(s, load_and_join(out, path, place, err));
    if (s == STATUS_OK) {
        limit_renew(limit);
    }
    return s;
}

/* The launcher is not MPI's. */
static bool prefers_gloo(const struct launcher *l) {
    return l != NULL && (l->started == by_variables || (l->started == by_srun && !by_pmix()));
}

enum status comm_open(struct comm **out, const struct comm_options *opt, struct error *err) {
    REQUIRE(out != NULL && opt != NULL && opt->timeout_ms > 0);
    struct comm_place place = {.timeout_ms = opt->timeout_ms};
    const struct launcher *ignored;
    char started[80];
    const struct launcher *launcher = find_launcher(&place.rank, &place.world, &ignored);
    *out = NULL;
    describe_launch(started, launcher, place.world);
    if (launcher == NULL && ignored != NULL) {
        log_write(
            opt->log, LOG_LEVEL_WARN,
            "%s is ignored: it belongs to an enclosing job, and %s did not start this process as "
            "one of several%s",
            ignored->rank, ignored->name,
            ignored->started == by_variables ? " (there is no MASTER_ADDR)" : "");
    }
    FAIL_IF(opt->ranks == COMM_RANKS_OFF && place.world > 1, err, STATUS_USAGE,
            "%s--ranks off makes each of them train the whole run; start one process, or use "
            "--ranks auto",
            started);
    if (opt->ranks == COMM_RANKS_OFF ||
        (place.world == 1 && opt->transport == COMM_TRANSPORT_AUTO) ||
        (place.world == 1 && launcher != NULL && opt->transport == COMM_TRANSPORT_GLOO)) {
        return comm_create(out, NULL, opt, err);
    }
    struct comm_link *link;
    struct meet meet = {0};
    struct join_limit limit = {.runs = false};
    const bool gloo = opt->transport == COMM_TRANSPORT_GLOO ||
                      (opt->transport == COMM_TRANSPORT_AUTO && prefers_gloo(launcher));
    enum status s = gloo ? open_gloo(&link, &meet, &limit, started, launcher, opt, &place, err)
                         : open_mpi(&link, &limit, started, launcher, opt, &place, err);
    if (s == STATUS_OK && link->world > COMM_MAX_WORLD) {
        (void)link->close(link, false);
        s = error_set(err, STATUS_LIMIT, "more than %d ranks", COMM_MAX_WORLD);
    }
    THEN(s, comm_create(out, link, opt, err));
    limit_end(&limit, s);
    meet_end(&meet);
    return s;
}
