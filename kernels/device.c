/*
 * device: opens a device by name. The CPU backends are linked in; cuda is a module that is loaded
 * only for cuda, auto and the list.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend_internal.h"
#include "kernels/module_internal.h"

static const struct {
    const char *name, *text;
    enum status (*open)(struct device **out, int32_t threads_count, struct error *err);
} backends[] = {
    {"cpu", "oneDNN", cpu_open},
    {"cpu-ref", "plain loops in double, the specification; for checking only", cpu_ref_open},
};
enum { BACKENDS_COUNT = sizeof backends / sizeof backends[0] };

enum { MAX_GPUS = 64 }; /* further GPUs of a machine are ignored */

void device_options_default(struct device_options *opt) {
    *opt = (struct device_options){.deterministic = true};
}

static enum status
count_gpus(const struct backend_module **out, int32_t *count, struct error *err) {
    TRY(cuda_module(out, err));
    return (*out)->count(count, err);
}

/* index -1: the rank's GPU. */
static enum status
cuda_open(struct device **out, int32_t index, const struct device_options *opt, struct error *err) {
    const struct backend_module *module;
    int32_t count;
    TRY(count_gpus(&module, &count, err));
    index = index < 0 ? opt->local_rank % count : index;
    FAIL_IF(index >= count, err, STATUS_UNSUPPORTED,
            "there is no device cuda:%d, the last is cuda:%d", index, count - 1);
    return module->open(out, index, opt, err);
}

/* "cuda:N" with N below MAX_GPUS; -1 for anything else. */
static int32_t cuda_index(const char *name) {
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9' || strlen(name) > 7) {
        return -1;
    }
    char *end;
    const long index = strtol(name + 5, &end, 10);
    return *end == '\0' && index < MAX_GPUS ? (int32_t)index : -1;
}

static enum status
open_auto(struct device **out, const struct device_options *opt, struct error *err) {
    struct error why = {0};
    const struct backend_module *module;
    int32_t count;
    if (cuda_open(out, -1, opt, &why) == STATUS_OK) {
        return STATUS_OK;
    }
    if (opt->local_rank > 0 && count_gpus(&module, &count, NULL) == STATUS_OK) {
        return error_set(err, why.status, "%s", why.text); /* other ranks have opened theirs */
    }
    TRY(device_open_with(out, "cpu", opt, err));
    (void)snprintf((*out)->note, sizeof(*out)->note, "no cuda: %s", why.text);
    return STATUS_OK;
}

enum status device_open_with(struct device **out,
                             const char *name,
                             const struct device_options *opt,
                             struct error *err) {
    REQUIRE(out != NULL && name != NULL && opt != NULL && opt->threads_count >= 0);
    REQUIRE(opt->local_rank >= 0);
    *out = NULL;
    for (size_t i = 0; i < BACKENDS_COUNT; i++) {
        if (strcmp(name, backends[i].name) == 0) {
            return backends[i].open(
                out, opt->threads_count > 0 ? opt->threads_count : omp_get_num_procs(), err);
        }
    }
    if (strcmp(name, "auto") == 0) {
        return open_auto(out, opt, err);
    }
    const int32_t index = cuda_index(name);
    if (index >= 0 || strcmp(name, "cuda") == 0) {
        return cuda_open(out, index, opt, err);
    }
    return error_set(err, STATUS_UNSUPPORTED,
                     "there is no device '%s'; expected cpu, cpu-ref, cuda, cuda:N or auto", name);
}

enum status
device_open(struct device **out, const char *name, int32_t threads_count, struct error *err) {
    struct device_options opt;
    REQUIRE(threads_count >= 0);
    device_options_default(&opt);
    opt.threads_count = threads_count;
    return device_open_with(out, name, &opt, err);
}

void device_close(struct device *dev) {
    if (dev != NULL) {
        dev->close(dev);
    }
}

void device_list(void (*line)(const char *name, bool works, const char *text, void *cookie),
                 void *cookie) {
    for (size_t i = 0; i < BACKENDS_COUNT; i++) {
        line(backends[i].name, true, backends[i].text, cookie);
    }
    const struct backend_module *module;
    struct error err = {0};
    int32_t count = 0;
    if (cuda_module(&module, &err) != STATUS_OK || module->count(&count, &err) != STATUS_OK) {
        line("cuda", false, err.text, cookie);
        return;
    }
    for (int32_t i = 0; i < count && i < MAX_GPUS; i++) {
        char name[16];
        char about[200];
        char text[320];
        const bool works = module->describe(i, about, sizeof about, &err) == STATUS_OK;
        (void)snprintf(name, sizeof name, "cuda:%d", i);
        (void)snprintf(text, sizeof text, "%s (built with %s)", about, module->requirements);
        line(name, works, works ? text : err.text, cookie);
    }
}
