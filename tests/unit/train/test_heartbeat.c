/* The heartbeat file and the look at a process. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/base/rng.h"
#include "formats/json/json_reader.h"
#include "tests/support/test.h"
#include "train/comm/heartbeat.h"

static struct heartbeat sample(void) {
    struct heartbeat h = {.rank = 2,
                          .world = 4,
                          .host = "node7.cluster",
                          .pid = 4711,
                          .start_ticks = 123456789,
                          .beat = 17,
                          .step = 300,
                          .phase = COMM_PHASE_BACKWARD,
                          .wait_ms = 250,
                          .still_ms = 40,
                          .state = HEARTBEAT_LOST_PEER,
                          .lost = 3,
                          .reason = "rank 3 is gone"};
    return h;
}

static void assert_equal(const struct heartbeat *a, const struct heartbeat *b) {
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->world, b->world);
    assert_string_equal(a->host, b->host);
    assert_true(a->pid == b->pid && a->start_ticks == b->start_ticks);
    assert_true(a->beat == b->beat && a->step == b->step && a->phase == b->phase);
    assert_true(a->wait_ms == b->wait_ms && a->still_ms == b->still_ms && a->state == b->state &&
                a->lost == b->lost);
    assert_string_equal(a->reason, b->reason);
}

TEST(the_line_is_the_documented_one) {
    const struct heartbeat h = sample();
    char line[HEARTBEAT_MAX_BYTES];
    const size_t n = heartbeat_format(line, &h);
    assert_string_equal(
        line, "{\"heartbeat\":1,\"rank\":2,\"world\":4,\"host\":\"node7.cluster\","
              "\"pid\":4711,\"start\":123456789,\"beat\":17,\"step\":300,"
              "\"phase\":\"backward\",\"wait_ms\":250,\"still_ms\":40,\"state\":\"lost-peer\","
              "\"lost\":3,\"reason\":\"rank 3 is gone\"}\n");
    assert_int_equal(n, strlen(line));
}

/* Text of any bytes but NUL: quotes and backslashes are kept, what is not printable is replaced. */
TEST(any_fields_are_read_back) {
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_ORDER, 0, 0);
    for (int i = 0; i < 3000; i++) {
        struct heartbeat h = {.world = 1 + (int32_t)rng_below(&rng, COMM_MAX_WORLD), .lost = -1};
        h.rank = (int32_t)rng_below(&rng, (uint32_t)h.world);
        h.pid = (int64_t)(rng_u64(&rng) >> (1 + rng_below(&rng, 63)));
        h.start_ticks = rng_u64(&rng) >> (1 + rng_below(&rng, 63));
        h.beat = rng_u64(&rng) >> (1 + rng_below(&rng, 63));
        h.step = rng_u64(&rng) >> (1 + rng_below(&rng, 63));
        h.wait_ms = (int64_t)(rng_u64(&rng) >> (1 + rng_below(&rng, 63)));
        h.still_ms = (int64_t)(rng_u64(&rng) >> (1 + rng_below(&rng, 63)));
        h.phase = (enum comm_phase)rng_below(&rng, COMM_PHASE_COUNT);
        h.state = (enum heartbeat_state)rng_below(&rng, 4);
        h.lost = h.state == HEARTBEAT_LOST_PEER ? (int32_t)rng_below(&rng, (uint32_t)h.world) : -1;
        const uint32_t host_bytes = rng_below(&rng, sizeof h.host);
        const uint32_t reason_bytes =
            i == 1 ? sizeof h.reason - 1 : rng_below(&rng, sizeof h.reason);
        const bool plain = rng_below(&rng, 2) == 0;
        for (uint32_t k = 0; k < host_bytes; k++) {
            h.host[k] = (char)('-' + (char)rng_below(&rng, 70));
        }
        for (uint32_t k = 0; k < reason_bytes; k++) {
            h.reason[k] =
                (char)(plain ? '"' + (char)rng_below(&rng, 90) : 1 + (int)rng_below(&rng, 255));
        }
        if (i == 1) { /* the longest line */
            memset(h.reason, '"', sizeof h.reason - 1);
            memset(h.host, '\\', sizeof h.host - 1);
            h.start_ticks = h.beat = h.step = INT64_MAX;
            h.pid = h.wait_ms = h.still_ms = INT64_MAX;
        }
        char line[HEARTBEAT_MAX_BYTES];
        char again[HEARTBEAT_MAX_BYTES];
        struct heartbeat got;
        const size_t n = heartbeat_format(line, &h);
        assert_true(n < sizeof line && strlen(line) == n);
        assert_true(heartbeat_parse(&got, line, n));
        if (plain || i == 1) {
            assert_equal(&got, &h);
        }
        assert_true(heartbeat_format(again, &got) == n && memcmp(line, again, n) == 0);
        struct json_document *d = NULL;
        struct error err = {0};
        assert_ok(json_document_parse(&d, "line", line, n, &err), err);
        json_document_destroy(d);
    }
}

TEST(damaged_lines_are_refused) {
    const struct heartbeat h = sample();
    char line[HEARTBEAT_MAX_BYTES];
    struct heartbeat got;
    const size_t n = heartbeat_format(line, &h);
    for (size_t i = 0; i < n; i++) {
        assert_false(heartbeat_parse(&got, line, i));
    }
    line[n] = ' ';
    assert_true(heartbeat_parse(&got, line, n + 1));
    line[n] = 'x';
    assert_false(heartbeat_parse(&got, line, n + 1));

    static const struct {
        const char *from, *to;
    } changes[] = {
        {"\"heartbeat\":1", "\"heartbeat\":2"},
        {"\"rank\":2", "\"rank\":4"}, /* of 4 */
        {"\"rank\":2", "\"rank\":-2"},
        {"\"rank\":2", "\"rank\":02"},
        {"\"world\":4", "\"world\":4097"},
        {"\"lost\":3", "\"lost\":4"},
        {"\"step\":300", "\"step\":9223372036854775808"},
        {"\"pid\":4711", "\"pid\":9223372036854775808"},
        {"\"pid\":4711", "\"pid\":"},
        {"backward", "sideways"},
        {"lost-peer", "running"}, /* names a lost rank */
        {"rank 3 is", "rank\x1b[2J"},
        {"rank 3 is", "rank\\u0033"},
        {"rank 3 is", "rank \xff"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        (void)heartbeat_format(line, &h);
        char changed[2 * HEARTBEAT_MAX_BYTES];
        const char *at = strstr(line, changes[i].from);
        assert_non_null(at);
        const int size = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - line), line,
                                  changes[i].to, at + strlen(changes[i].from));
        if (heartbeat_parse(&got, changed, (size_t)size)) {
            fail_msg("accepted: %s", changed);
        }
    }
}

TEST(files_are_replaced_and_read) {
    struct heartbeat h = sample();
    struct heartbeat got;
    struct error err = {0};
    char path[PATH_MAX_BYTES];
    assert_ok(heartbeat_path(path, test_temp_dir(), 2, &err), err);
    assert_false(heartbeat_read(&got, path));
    assert_ok(heartbeat_write(path, &h, &err), err);
    struct stat first;
    struct stat second;
    assert_int_equal(stat(path, &first), 0);
    h.beat++;
    assert_ok(heartbeat_write(path, &h, &err), err);
    assert_int_equal(stat(path, &second), 0);
    assert_true(first.st_ino != second.st_ino);
    assert_true(heartbeat_read(&got, path));
    assert_equal(&got, &h);
}

/* As on a full disk: there is no new file, and the old one keeps its blocks. Here the name of a new
 * one would be too long. */
TEST(where_no_file_can_be_made_the_old_one_is_overwritten) {
    struct heartbeat h = sample();
    struct heartbeat got;
    struct error err = {0};
    char folder[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    size_t n = (size_t)snprintf(folder, sizeof folder, "%s", test_temp_dir());
    while (n < PATH_MAX_BYTES - 16) { /* folders of up to 200 bytes, so that the path ends there */
        const size_t left = PATH_MAX_BYTES - 16 - n;
        const size_t part = left < 2 ? 0 : left > 402 ? 200 : left > 201 ? left / 2 - 1 : left - 1;
        if (part == 0) {
            break;
        }
        folder[n] = '/';
        memset(folder + n + 1, 'd', part);
        folder[n += 1 + part] = '\0';
        assert_int_equal(mkdir(folder, 0777), 0);
    }
    assert_ok(heartbeat_path(path, folder, 2, &err), err);
    assert_status(heartbeat_write(path, &h, &err), STATUS_IO, err);
    const int fd = open(path, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < 3; i++) {
        h.beat++;
        h.reason[i == 1 ? 8 : i == 2 ? 0 : strlen(h.reason)] = '\0'; /* shorter than before */
        assert_ok(heartbeat_write(path, &h, &err), err);
        assert_true(heartbeat_read(&got, path));
        assert_equal(&got, &h);
    }
    while (strlen(folder) > strlen(test_temp_dir())) {
        (void)unlink(path);
        assert_int_equal(rmdir(folder), 0);
        *strrchr(folder, '/') = '\0';
    }
}

static void await_state(pid_t pid, enum process_state state) {
    uint64_t ticks = 0;
    while (process_look(pid, &ticks) != state) {
        usleep(1000);
    }
    assert_true((ticks != 0) == (state == PROCESS_STOPPED));
}

TEST(processes_run_stop_and_are_gone_as_zombies) {
    uint64_t own = 0;
    uint64_t again = 0;
    assert_int_equal(process_look(getpid(), &own), PROCESS_RUNS);
    assert_int_equal(process_look(getpid(), &again), PROCESS_RUNS);
    assert_true(own > 0 && own == again);
    const pid_t pid = test_child();
    assert_int_equal(process_look(pid, &again), PROCESS_RUNS);
    assert_true(again >= own);
    kill(pid, SIGSTOP);
    await_state(pid, PROCESS_STOPPED);
    kill(pid, SIGKILL);
    await_state(pid, PROCESS_GONE); /* a zombie */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(process_look(pid, &again), PROCESS_GONE);
}
