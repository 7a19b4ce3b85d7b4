/*
 * launch: what a launcher's environment shows, and the group that the options select.
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
#include "formats/base/module_file.h"
#include "train/comm/comm_internal.h"
#include "train/comm/watch.h"

/* The number in an environment variable; -1: not set, or not one in [0, COMM_MAX_WORLD]. */
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

/* The launcher is at the other end of a descriptor, or of a port. */
static bool by_pmi(void) {
    const int32_t fd = environment_number("PMI_FD");
    return (fd >= 0 && fcntl(fd, F_GETFD) != -1) || getenv("PMI_PORT") != NULL ||
           getenv("PMI_CONTROL_PORT") != NULL;
}

/* 0: not known. */
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

/* srun's task is this process or one that it comes from. */
static bool by_srun(void) {
    const char *text = getenv("SLURM_TASK_PID");
    const long task = text != NULL ? strtol(text, NULL, 10) : 0;
    long pid = (long)getpid();
    while (task > 1 && pid > 1 && pid != task) {
        pid = parent_of(pid);
    }
    return task > 1 && pid == task;
}

struct launcher {
    const char *name, *rank, *world;
    bool (*started)(void);
};

/* NULL: there is none. *ignored: the first whose variables are there, although it did not start
 * this process as one of several; NULL: none. */
static const struct launcher *
find_launcher(int32_t *rank, int32_t *world, const struct launcher **ignored) {
    /* SLURM_STEP_NUM_TASKS is set by srun for its step; SLURM_NTASKS by sbatch too, whose script
     * is one process. PMIx has no variable for the size of a job. */
    static const struct launcher known[] = {
        {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", by_pmix},
        {"mpiexec", "PMI_RANK", "PMI_SIZE", by_pmi},
        {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", by_srun},
        {"PMIx", "PMIX_RANK", NULL, by_pmix},
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
                        "%s is of another build (%s, interface %u) than this program (%s, "
                        "interface %d); build both together",
                        path, module->version, module->abi, CCSTREAM_VERSION, COMM_MODULE_ABI);
        module_file_unload(library);
        return STATUS_UNSUPPORTED;
    }
    *out = module;
    return STATUS_OK;
}

/* A thread that ends this process if its MPI does not find those of the other ranks: MPI_Init has
 * no deadline of its own. */
struct join_limit {
    const struct comm_options *options;
    int32_t rank;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool joined; /* guarded by mutex */
};

static void *limit_join(void *cookie) {
    struct join_limit *j = cookie;
    const int64_t timeout_ms = j->options->timeout_ms;
    const int64_t end_ns = clock_now_ns() + timeout_ms * 1000000;
    (void)pthread_mutex_lock(&j->mutex);
    while (!j->joined && clock_now_ns() < end_ns) {
        clock_wait_ms(&j->wake, &j->mutex, (end_ns - clock_now_ns()) / 1000000 + 1);
    }
    if (!j->joined) {
        log_write(j->options->log, LOG_LEVEL_ERROR,
                  "rank %d ends: not all ranks have joined within %lld s of its start", j->rank,
                  (long long)(timeout_ms / 1000));
        _exit(WATCH_EXIT_CODE);
    }
    (void)pthread_mutex_unlock(&j->mutex);
    return NULL;
}

static enum status join(struct comm_link **out,
                        const struct comm_module *module,
                        const struct comm_options *opt,
                        int32_t rank,
                        struct error *err) {
    struct join_limit j = {.options = opt,
                           .rank = rank,
                           .mutex = PTHREAD_MUTEX_INITIALIZER,
                           .wake = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    FAIL_IF(pthread_create(&thread, NULL, limit_join, &j) != 0, err, STATUS_NOMEM,
            "cannot start the thread that limits MPI_Init");
    const enum status s = module->open(out, err);
    (void)pthread_mutex_lock(&j.mutex);
    j.joined = true;
    (void)pthread_cond_signal(&j.wake);
    (void)pthread_mutex_unlock(&j.mutex);
    (void)pthread_join(thread, NULL);
    return s;
}

/* MPI and the libraries that it loads (UCX already when it is loaded) install handlers of their own
 * for some signals, and start threads: neither may take a signal from this program. */
static enum status load_and_join(struct comm_link **out,
                                 const char *path,
                                 const struct comm_options *opt,
                                 int32_t rank,
                                 struct error *err) {
    enum { SIGNALS = 32 };
    struct sigaction handlers[SIGNALS];
    bool known[SIGNALS] = {false};
    sigset_t all, before;
    const struct comm_module *module;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < SIGNALS; i++) {
        known[i] = sigaction(i, NULL, &handlers[i]) == 0;
    }
    enum status s = load_module(&module, path, err);
    THEN(s, join(out, module, opt, rank, err));
    for (int i = 1; i < SIGNALS; i++) {
        if (known[i]) {
            (void)sigaction(i, &handlers[i], NULL);
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s;
}

static enum status open_mpi(struct comm_link **out,
                            const char *started,
                            const struct comm_options *opt,
                            int32_t rank,
                            struct error *err) {
    static const char file_name[] = "libccstream_mpi.so";
    char path[PATH_MAX];
    FAIL_IF(!module_file_find(path, sizeof path, file_name, "CCSTREAM_MPI_MODULE"), err,
            STATUS_UNSUPPORTED,
            "%sthis build has no MPI module (%s next to the program); install MPI, "
            "such as libopenmpi-dev, and build again",
            started, file_name);
    return load_and_join(out, path, opt, rank, err);
}

enum status comm_open(struct comm **out, const struct comm_options *opt, struct error *err) {
    REQUIRE(out != NULL && opt != NULL && opt->timeout_ms > 0);
    int32_t rank, world;
    const struct launcher *ignored;
    char started[80] = "";
    const struct launcher *launcher = find_launcher(&rank, &world, &ignored);
    *out = NULL;
    if (world == 0) {
        (void)snprintf(started, sizeof started, "%s started this process, but ", launcher->name);
    } else if (world > 1) {
        (void)snprintf(started, sizeof started, "%s started %d processes, but ", launcher->name,
                       world);
    } else if (launcher == NULL && ignored != NULL) {
        log_write(opt->log, LOG_LEVEL_WARN,
                  "%s is ignored: it is of an enclosing job, and %s did not start this process as "
                  "one of several",
                  ignored->rank, ignored->name);
    }
    FAIL_IF(opt->ranks == COMM_RANKS_OFF && world > 1, err, STATUS_USAGE,
            "%s--ranks off makes each of them train the whole run; start one process, or use "
            "--ranks auto",
            started);
    if (opt->ranks == COMM_RANKS_OFF || (opt->ranks == COMM_RANKS_AUTO && world == 1)) {
        return comm_create(out, NULL, opt, err);
    }
    struct comm_link *link;
    TRY(open_mpi(&link, started, opt, rank, err));
    if (world != 0 && launcher != NULL && link->world != world) {
        (void)error_set(err, STATUS_IO,
                        "%sMPI sees %d: launcher and MPI do not belong together; under Slurm try "
                        "srun --mpi=pmix (srun --mpi=list names what it has), or mpirun",
                        started, link->world);
        link->close(link, false);
        return STATUS_IO;
    }
    if (link->world > COMM_MAX_WORLD) {
        link->close(link, false);
        return error_set(err, STATUS_LIMIT, "more than %d ranks", COMM_MAX_WORLD);
    }
    return comm_create(out, link, opt, err);
}
