/*
 * How a plan is chosen, without a GPU: cuDNN proposes engines and builds plans for the description
 * of an H200, and stand-ins execute and time them. A plan that failed in its first execution makes
 * way for the next proposal; autotune times launches that are queued during a delay kernel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/log.h"
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "tests/support/h200.h"
#include "tests/support/test.h"

/* ---- the stand-ins, and the calls they received ---- */

static struct {
    int executions, refusals; /* the first `refusals` executions are refused */
    bool lost;                /* the device has failed: every call fails */
    char calls[8192];         /* d: delay, (: event, x: execution, ): wait */
    int lines_count;
    char first_line[512], last_line[512];
    int spares; /* outputs for timed runs */
    int workspaces_denied;
    float round_ms[64];
    int rounds;
} seen;

static void call(char letter) {
    const size_t length = strlen(seen.calls);
    assert_true(length + 1 < sizeof seen.calls);
    seen.calls[length] = letter;
}

cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle,
                                         cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack);
cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle,
                                         cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack) {
    (void)handle;
    assert_non_null(plan);
    assert_non_null(pack);
    call('x');
    return seen.executions++ < seen.refusals ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream);
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return seen.lost ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t __wrap_cudaEventCreate(cudaEvent_t *out);
cudaError_t __wrap_cudaEventCreate(cudaEvent_t *out) {
    static char event;
    *out = (cudaEvent_t)(void *)&event;
    return cudaSuccess;
}

cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event);
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event) {
    assert_non_null(event);
    return cudaSuccess;
}

cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event;
    (void)stream;
    call('(');
    return cudaSuccess;
}

cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event);
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    call(')');
    return cudaSuccess;
}

cudaError_t __wrap_cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t __wrap_cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    (void)begin;
    (void)end;
    *ms = seen.round_ms[seen.rounds++];
    return cudaSuccess;
}

cudaError_t launch_delay(cudaStream_t stream, int64_t cycles) {
    (void)stream;
    assert_true(cycles > 0);
    call('d');
    return cudaSuccess;
}

enum status cuda_workspace(struct cuda_device *dev,
                           enum workspace which,
                           size_t size_bytes,
                           void **out,
                           struct error *err) {
    (void)dev;
    (void)size_bytes;
    assert_int_equal(which, WORKSPACE_DNN);
    *out = NULL;
    return seen.workspaces_denied-- > 0 ? error_set(err, STATUS_NOMEM, "9 GiB requested")
                                        : STATUS_OK;
}

enum status cuda_memory(struct cuda_device *dev, size_t size_bytes, void **out, struct error *err) {
    (void)dev;
    (void)err;
    assert_true(size_bytes > 0);
    seen.spares++;
    *out = NULL; /* cudaFree accepts it */
    return STATUS_OK;
}

static void write_line(void *cookie, enum log_level level, const char *text) {
    (void)cookie;
    (void)level;
    char *to = seen.lines_count++ == 0 ? seen.first_line : seen.last_line;
    (void)snprintf(to, sizeof seen.last_line, "%s", text);
}

/* ---- a device of them ---- */

static const struct log_sink sink = {.write = write_line, .max_level = LOG_LEVEL_DEBUG};

static const struct conv_problem base = {.pass = CONV_FORWARD,
                                         .dtype = DTYPE_BF16,
                                         .n = 8,
                                         .h = 56,
                                         .w = 56,
                                         .c = 64,
                                         .k = 64,
                                         .r = 3,
                                         .s = 3,
                                         .oh = 56,
                                         .ow = 56,
                                         .stride = 1,
                                         .pad = 1};

static struct cuda_device dev;
static struct conv_gpu gpu;

static void open_plans(bool autotune, const char *folder) {
    struct error err = {0};
    memset(&seen, 0, sizeof seen);
    memset(&dev, 0, sizeof dev);
    gpu = (struct conv_gpu){.sm = 90, .name = "NVIDIA H200"};
    device_options_default(&dev.options);
    dev.options.autotune = autotune;
    dev.options.log = &sink;
    assert_ok(conv_gpu_describe(&gpu.properties, h200, &err), err);
    assert_ok(conv_plans_create(&dev.convs, &gpu, &dev.options, folder, &err), err);
}

static void close_plans(void) {
    conv_plans_destroy(dev.convs);
    (void)cudnnBackendDestroyDescriptor(gpu.properties);
}

static enum status run(const struct conv_problem *p, struct error *err) {
    static _Alignas(16) char memory[16];
    return conv_run(&dev, p, memory, memory, memory, err);
}

TEST(the_first_plan_is_executed_once_and_kept) {
    struct error err = {0};
    open_plans(false, NULL);
    for (int i = 0; i < 3; i++) {
        assert_ok(run(&base, &err), err);
    }
    assert_string_equal(seen.calls, "xxx");
    assert_int_equal(seen.lines_count, 1);
    assert_non_null(strstr(seen.first_line, "cuDNN engine "));
    assert_non_null(strstr(seen.first_line, "fprop bf16 x8,56,56,64"));
    close_plans();
}

TEST(a_plan_that_refuses_its_first_execution_makes_way_for_the_next) {
    struct error err = {0};
    open_plans(false, NULL);
    seen.refusals = 2;
    assert_ok(run(&base, &err), err);
    assert_string_equal(seen.calls, "xxx");
    assert_int_equal(seen.lines_count, 3);
    assert_non_null(strstr(seen.first_line, "failed in its first execution"));
    assert_non_null(strstr(seen.first_line, "running a convolution"));
    assert_null(strstr(seen.last_line, "refuses"));
    assert_ok(run(&base, &err), err); /* the third again */
    assert_int_equal(seen.executions, 4);
    close_plans();
}

TEST(a_plan_whose_workspace_cannot_be_had_makes_way_for_the_next) {
    struct error err = {0};
    open_plans(false, NULL);
    seen.workspaces_denied = 2;
    assert_ok(run(&base, &err), err);
    assert_string_equal(seen.calls, "x");
    assert_non_null(strstr(seen.first_line, "9 GiB requested"));
    close_plans();
    open_plans(false, NULL);
    seen.workspaces_denied = 1000000;
    assert_status(run(&base, &err), STATUS_NOMEM, err); /* not plain loops */
    assert_string_equal(err.text, "9 GiB requested");
    close_plans();
}

TEST(where_every_plan_refuses_there_is_no_engine) {
    struct error err = {0};
    open_plans(false, NULL);
    seen.refusals = 1000000;
    assert_status(run(&base, &err), STATUS_UNSUPPORTED, err);
    const int tried = seen.executions;
    assert_true(tried > 1);
    assert_non_null(strstr(seen.last_line, "plain loops"));
    err = (struct error){0};
    assert_status(run(&base, &err), STATUS_UNSUPPORTED, err); /* not searched again */
    assert_int_equal(seen.executions, tried);
    close_plans();
}

TEST(a_failed_device_is_not_a_refusal) {
    struct error err = {0};
    open_plans(false, NULL);
    seen.refusals = 1000000;
    seen.lost = true;
    assert_status(run(&base, &err), STATUS_DEVICE, err);
    assert_int_equal(seen.executions, 1);
    close_plans();
}

TEST(a_remembered_choice_that_refuses_is_replaced) {
    struct error err = {0};
    const char *folder = test_temp_dir();
    const char *path = test_temp_path("conv-plans.txt");
    size_t size;
    open_plans(false, folder);
    assert_ok(run(&base, &err), err);
    close_plans();
    uint8_t *before = test_read_file(path, &size);

    open_plans(false, folder);
    assert_ok(run(&base, &err), err);
    assert_string_equal(seen.calls, "x");
    assert_non_null(strstr(seen.first_line, "remembered"));
    close_plans();

    open_plans(false, folder);
    seen.refusals = 2; /* as remembered, and as proposed first */
    assert_ok(run(&base, &err), err);
    assert_string_equal(seen.calls, "xxx");
    close_plans();
    uint8_t *after = test_read_file(path, &size);
    assert_string_not_equal((char *)before, (char *)after);
    free(before);
    free(after);
}

/* Executions between the first two events that follow `from`. */
static int launches_of_round(const char *from) {
    const char *begin = strchr(from, '(');
    assert_non_null(begin);
    assert_true(begin > seen.calls && begin[-1] == 'd'); /* the delay comes right before */
    const char *end = strchr(begin + 1, '(');
    assert_non_null(end);
    assert_int_equal(end[1], ')'); /* nothing waits before the last launch is queued */
    for (const char *c = begin + 1; c < end; c++) {
        assert_int_equal(*c, 'x');
    }
    return (int)(end - begin - 1);
}

TEST(autotune_chooses_the_plan_with_the_fastest_median) {
    struct error err = {0};
    open_plans(true, NULL);
    /* Rounds: the first plan 50, 20, 30 (median 30), the second 29, 90, 28 (29), the third is slow
     * at once, and so are the others. */
    static const float rounds[] = {50, 20, 30, 29, 90, 28};
    for (size_t i = 0; i < sizeof seen.round_ms / sizeof seen.round_ms[0]; i++) {
        seen.round_ms[i] = i < 6 ? rounds[i] : 100;
    }
    assert_ok(run(&base, &err), err);
    assert_true(seen.rounds > 6 && seen.rounds < 6 + 12); /* slow plans get one round */
    const char *at = seen.calls;
    for (int i = 0; i < seen.rounds; i++) {
        const int launches = launches_of_round(at);
        assert_true(launches >= 10);
        at = strchr(at, ')') + 1;
    }
    assert_int_equal(seen.spares, 0);
    assert_non_null(strstr(seen.first_line, "2.900 ms"));
    assert_string_equal(at, "x"); /* the result itself */
    close_plans();
}

TEST(autotune_never_adds_to_the_output_twice) {
    struct error err = {0};
    struct conv_problem p = base;
    open_plans(true, NULL);
    p.pass = CONV_DATA;
    p.add = true;
    for (size_t i = 0; i < sizeof seen.round_ms / sizeof seen.round_ms[0]; i++) {
        seen.round_ms[i] = 1;
    }
    assert_ok(run(&p, &err), err);
    assert_int_equal(seen.spares, 1);
    close_plans();
}

TEST(autotune_skips_a_plan_that_refuses) {
    struct error err = {0};
    open_plans(true, NULL);
    seen.refusals = 1;
    for (size_t i = 0; i < sizeof seen.round_ms / sizeof seen.round_ms[0]; i++) {
        seen.round_ms[i] = 1;
    }
    assert_ok(run(&base, &err), err);
    assert_non_null(strstr(seen.first_line, "failed in its first execution"));
    assert_int_equal(seen.calls[1], 'x'); /* the next plan's, before any delay */
    assert_non_null(strstr(seen.last_line, "the fastest of"));
    close_plans();
}
