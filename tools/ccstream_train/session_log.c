/*
 * session_log: lines of JSON, each appended with one write, and a lock on the open file
 * description.
 */
#include "tools/ccstream_train/ccstream_train_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"
#include "formats/dataset/manifest.h"

enum { MAX_LINE_BYTES = 8 << 20 };

static void put_time(struct json_writer *w) {
    const time_t now = time(NULL);
    struct tm utc;
    char text[32];
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_string(w, "time", text);
}

/* The first processor's name in /proc/cpuinfo; null without one. */
static void put_cpu(struct json_writer *w) {
    static const char key[] = "model name";
    char line[256];
    char *found = NULL;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f != NULL && found == NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, sizeof key - 1) == 0 && colon != NULL) {
            found = colon + 1 + strspn(colon + 1, " \t");
            found[strcspn(found, "\n")] = '\0';
        }
    }
    json_string(w, "cpu", found);
    if (f != NULL) {
        (void)fclose(f);
    }
}

static void put_machine(struct json_writer *w) {
    struct utsname name;
    char kernel[2 * sizeof name.sysname];
    const bool known = uname(&name) == 0;
    if (known) {
        (void)snprintf(kernel, sizeof kernel, "%s %s", name.sysname, name.release);
    }
    json_string(w, "host", known ? name.nodename : NULL);
    json_i64(w, "pid", getpid());
    json_string(w, "kernel", known ? kernel : NULL);
    put_cpu(w);
    json_i64(w, "cpus", sysconf(_SC_NPROCESSORS_ONLN));
    json_i64(w, "memory_bytes", (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

/* Writes a dataset's fields; only its path if the manifest cannot be read. weight 0: none. */
static void
put_dataset(struct json_writer *w, const char *key, const char *directory, double weight) {
    struct manifest m;
    json_open_object(w, key);
    json_location(w, "directory", directory);
    if (manifest_read(&m, file_system_of(directory), directory, NULL) == STATUS_OK) {
        json_u64(w, "samples", m.samples);
        json_u64(w, "captions", m.texts);
        json_hex64(w, "fingerprint", m.fingerprint);
        manifest_fini(&m);
    }
    if (weight > 0) {
        json_double(w, "weight", weight);
    }
    json_close_object(w);
}

static void put_run(struct json_writer *w,
                    const struct trainer *trainer,
                    const struct trainer_options *t,
                    const char *val) {
    const struct trainer_summary sum = trainer_summary(trainer);
    json_string(w, "device", sum.device);
    json_string(w, "engine", sum.engine);
    json_i64(w, "ranks", comm_world(t->comm));
    json_u64(w, "step", sum.step);
    json_hex64(w, "data", sum.data);
    if (sum.resumed_step > 0) {
        json_u64(w, "resumed_step", sum.resumed_step);
        json_hex64(w, "resumed_data", sum.resumed_data);
    }
    json_u64(w, "total_steps", sum.total_steps);
    json_u64(w, "steps_per_epoch", sum.steps_per_epoch);
    json_u64(w, "batch", t->batch_count);
    json_string(w, "loss", sum.loss);
    json_i64(w, "parameters", sum.memory.parameter_count);
    json_u64(w, "model_bytes", sum.memory.total_bytes);
    json_open_array(w, "datasets");
    for (uint32_t i = 0; i < t->source_count; i++) {
        put_dataset(w, NULL, t->sources[i].directory, t->sources[i].weight);
    }
    json_close_array(w);
    if (val != NULL) {
        put_dataset(w, "val", val, 0);
    } else {
        json_null(w, "val");
    }
}

/* ---- the file and its lock ---- */

static const struct flock whole_file = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

/* EXISTS: another process holds the lock. Does nothing on file systems without locks. */
static enum status lock_run(int fd, const char *run, struct error *err) {
    static const int64_t patience_ns = INT64_C(5) * 1000 * 1000 * 1000;
    const int64_t begun_ns = clock_now_ns();
    struct flock lock = whole_file;
    struct flock held = whole_file; /* a read lock, which any reader can take, does not block */
    while (fcntl(fd, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES) &&
           (held = whole_file, fcntl(fd, F_OFD_GETLK, &held) != 0 || held.l_type != F_RDLCK)) {
        FAIL_IF(clock_now_ns() - begun_ns > patience_ns, err, STATUS_EXISTS,
                "%s is being trained by another process; 'ccstream-report --follow %s' shows it",
                run, run);
        (void)usleep(50000); /* a rank that is ending, perhaps */
    }
    return STATUS_OK;
}

enum status session_log_open(int *out, const char *run, struct error *err) {
    char path[PATH_MAX_BYTES];
    *out = -1;
    TRY(path_join(path, sizeof path, run, SESSION_LOG_NAME, err));
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    FAIL_ERRNO_IF(fd < 0, err, "cannot open %s", path);
    const enum status s = lock_run(fd, run, err);
    if (s != STATUS_OK) {
        (void)close(fd);
        return s;
    }
    *out = fd;
    return STATUS_OK;
}

void session_log_close(int fd) {
    if (fd >= 0) {
        (void)close(fd);
    }
}

void session_log_discard(const char *run) {
    static const char *const names[] = {SESSION_LOG_NAME, "config.json", "metrics.jsonl"};
    char path[PATH_MAX_BYTES];
    for (size_t i = 0; i < CLI_COUNT(names); i++) {
        if (path_join(path, sizeof path, run, names[i], NULL) == STATUS_OK) {
            (void)unlink(path);
        }
    }
}

enum status session_log_add(int fd,
                            const struct trainer *trainer,
                            const struct trainer_options *t,
                            int argc,
                            char *const *argv,
                            struct error *err) {
    REQUIRE(fd >= 0 && trainer != NULL && t != NULL);
    struct json_writer w;
    json_writer_init(&w, MAX_LINE_BYTES);
    json_open_object(&w, NULL);
    put_time(&w);
    json_string(&w, "run", t->run_id);
    json_string(&w, "version", CCSTREAM_VERSION);
    json_open_array(&w, "command");
    for (int i = 0; i < argc; i++) {
        json_location(&w, NULL, argv[i]);
    }
    json_close_array(&w);
    char directory[PATH_MAX_BYTES];
    json_string(&w, "directory", getcwd(directory, sizeof directory));
    put_machine(&w);
    put_run(&w, trainer, t, t->val);
    json_close_object(&w);
    json_newline(&w);
    enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK && write(fd, w.out.data, w.out.size_bytes) != (ssize_t)w.out.size_bytes) {
        s = error_set_errno(err, "cannot write %s/%s", t->run, SESSION_LOG_NAME);
    }
    json_writer_fini(&w);
    return s;
}
