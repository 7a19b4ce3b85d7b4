/*
 * A run's directory: what a path names, which checkpoints stay, and which lines of the metrics.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test.h"
#include "train/run/metrics.h"
#include "train/run/run_dir.h"

static bool there(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

static void add_checkpoint(const char *run, uint64_t step, uint32_t keep) {
    struct error err = {0};
    char path[PATH_MAX_BYTES];
    assert_ok(run_dir_make_checkpoints(file_posix(), run, &err), err);
    assert_ok(run_dir_checkpoint_path(path, run, step, &err), err);
    test_write_file(path, "x", 1);
    assert_ok(run_dir_publish(file_posix(), run, step, keep, &err), err);
}

TEST(last_names_the_newest_and_the_oldest_are_removed) {
    struct error err = {0};
    const char *run = test_temp_dir();
    char path[PATH_MAX_BYTES];
    bool has = true;
    assert_ok(run_dir_has_checkpoint(run, &has, &err), err);
    assert_false(has);
    assert_status(run_dir_resolve(path, run, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, "no checkpoint yet"));
    add_checkpoint(run, 9, 2);
    add_checkpoint(run, 10, 2);
    add_checkpoint(run, 11, 2);
    assert_ok(run_dir_has_checkpoint(run, &has, &err), err);
    assert_true(has);
    assert_false(there(test_temp_path("checkpoints/step-9.safetensors")));
    assert_true(there(test_temp_path("checkpoints/step-10.safetensors")));
    char target[PATH_MAX_BYTES] = {0};
    assert_true(readlink(test_temp_path("last"), target, sizeof target - 1) > 0);
    assert_string_equal(target, "checkpoints/step-11.safetensors");
    struct error fresh = {0};
    assert_ok(run_dir_resolve(path, run, &fresh), fresh);
    assert_string_equal(path, test_temp_path("last"));
    assert_ok(run_dir_resolve(path, test_temp_path("checkpoints/step-10.safetensors"), &fresh),
              fresh);
    assert_string_equal(path, test_temp_path("checkpoints/step-10.safetensors"));
}

TEST(the_checkpoint_that_last_names_is_never_removed) {
    const char *run = test_temp_dir();
    add_checkpoint(run, 20, 1);
    /* A run that went back: an older step becomes the newest checkpoint. */
    add_checkpoint(run, 5, 1);
    assert_true(there(test_temp_path("checkpoints/step-5.safetensors")));
    assert_false(there(test_temp_path("checkpoints/step-20.safetensors")));
}

TEST(the_checkpoint_that_best_names_is_kept_beside_the_newest) {
    struct error err = {0};
    const char *run = test_temp_dir();
    add_checkpoint(run, 1, 1);
    assert_ok(run_dir_keep_best(file_posix(), run, 1, &err), err);
    add_checkpoint(run, 2, 1);
    add_checkpoint(run, 3, 1);
    assert_true(there(test_temp_path("checkpoints/step-1.safetensors")));
    assert_false(there(test_temp_path("checkpoints/step-2.safetensors")));
    assert_ok(run_dir_keep_best(file_posix(), run, 3, &err), err);
    add_checkpoint(run, 4, 1);
    assert_false(there(test_temp_path("checkpoints/step-1.safetensors")));
    assert_true(there(test_temp_path("checkpoints/step-3.safetensors")));
}

TEST(other_files_in_the_run_are_left_alone) {
    const char *run = test_temp_dir();
    add_checkpoint(run, 2, 1);
    test_write_file(test_temp_path("checkpoints/step-012.safetensors"), "x", 1);
    test_write_file(test_temp_path("checkpoints/step-1.safetensors.part.tmp"), "x", 1);
    test_write_file(test_temp_path("notes"), "x", 1);
    add_checkpoint(run, 3, 1);
    assert_false(there(test_temp_path("checkpoints/step-2.safetensors")));
    assert_true(there(test_temp_path("checkpoints/step-012.safetensors")));
    assert_true(there(test_temp_path("checkpoints/step-1.safetensors.part.tmp")));
    assert_true(there(test_temp_path("notes")));
}

TEST(what_a_killed_process_left_of_a_checkpoint_is_deleted) {
    const char *run = test_temp_dir();
    add_checkpoint(run, 2, 1);
    test_write_file(test_temp_path("checkpoints/step-3.safetensors.01ab89ef.tmp"), "x", 1);
    add_checkpoint(run, 4, 1);
    assert_false(there(test_temp_path("checkpoints/step-3.safetensors.01ab89ef.tmp")));
}

static void write_steps(const char *run, uint64_t keep_to, uint64_t first, uint64_t last) {
    struct error err = {0};
    struct metrics *m = NULL;
    assert_ok(metrics_open(&m, run, NULL, keep_to, (struct metrics_watch){0}, &err), err);
    for (uint64_t s = first; s <= last; s++) {
        const struct step_report r = {.step = s, .epoch = s / 4, .loss = 0.5, .pairs_per_s = 100.0};
        assert_ok(metrics_step(m, &r, &err), err);
    }
    assert_ok(metrics_sync(m, &err), err);
    metrics_close(m);
}

TEST(metrics_have_one_line_a_step_after_a_resume) {
    struct error err = {0};
    const char *run = test_temp_dir();
    write_steps(run, 0, 1, 6);
    /* The process was killed inside a line. */
    FILE *f = fopen(test_temp_path("metrics.jsonl"), "ab");
    assert_non_null(f);
    assert_true(fputs("{\"step\":7,\"epo", f) >= 0);
    assert_int_equal(fclose(f), 0);
    write_steps(run, 4, 5, 8);
    size_t size = 0;
    char *text = (char *)test_read_file(test_temp_path("metrics.jsonl"), &size);
    uint64_t expected = 1;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char start[32];
        (void)snprintf(start, sizeof start, "{\"step\":%d,", (int)expected++);
        assert_int_equal(strncmp(line, start, strlen(start)), 0);
        assert_int_equal(line[strlen(line) - 1], '}');
    }
    assert_int_equal(expected, 9);
    free(text);
    struct metrics *m = NULL;
    assert_status(
        metrics_open(&m, test_temp_path("nowhere"), NULL, 0, (struct metrics_watch){0}, &err),
        STATUS_NOTFOUND, err);
}

/* ,"time":"2026-11-22T18:41:56.123Z","run":"00000000000000ff"} */
static void assert_ends_with_time_and_run(const char *line) {
    static const char pattern[] = ",'time':'dddd-dd-ddTdd:dd:dd.dddZ','run':'00000000000000ff'}";
    const size_t size = sizeof pattern - 1;
    assert_true(strlen(line) > size);
    const char *end = line + strlen(line) - size;
    for (size_t i = 0; i < size; i++) {
        const bool same = pattern[i] == 'd'    ? end[i] >= '0' && end[i] <= '9'
                          : pattern[i] == '\'' ? end[i] == '"'
                                               : end[i] == pattern[i];
        if (!same) {
            fail_msg("not the time and the run's id: %s", end);
        }
    }
}

TEST(stages_have_seconds_and_the_fractions_that_are_known) {
    struct error err = {0};
    struct metrics *m = NULL;
    const struct stage_report r = {.seconds = 4.0,
                                   .load_s = 0.5,
                                   .step_s = 2.0,
                                   .checkpoint_s = 0.25,
                                   .evaluation_s = 1.0,
                                   .read_wait_fraction = 0.75,
                                   .decode_wait_fraction = 0.125,
                                   .deliver_wait_fraction = -1.0};
    assert_ok(metrics_open(&m, test_temp_dir(), NULL, 0, (struct metrics_watch){0}, &err), err);
    assert_ok(metrics_stages(m, 9, &r, &err), err);
    metrics_close(m);
    size_t size = 0;
    char *text = (char *)test_read_file(test_temp_path("metrics.jsonl"), &size);
    static const char wanted[] =
        "{\"step\":9,\"stages\":{\"seconds\":4,\"load_s\":0.5,\"ranks_s\":0,\"step_s\":2,"
        "\"checkpoint_s\":0.25,\"evaluation_s\":1,\"read_wait_fraction\":0.75,"
        "\"decode_wait_fraction\":0.125},\"time\":";
    assert_int_equal(strncmp(text, wanted, sizeof wanted - 1), 0);
    free(text);
}

/* Of the batch's state only what the loss keeps; memory, time and the run's id in every line. */
TEST(a_step_records_its_batch_and_memory) {
    struct error err = {0};
    struct metrics *m = NULL;
    const double none = (double)NAN;
    const struct step_report steps[] = {
        {.step = 1, .batch = {.log_u = {-1.5, 2.25}, .zeta = {none, none}}},
        {.step = 2, .batch = {.log_u = {0.5, none}, .zeta = {-0.05, 0.125}}, .device_bytes = 77},
        {.step = 3, .batch = {.log_u = {none, none}, .zeta = {none, none}}},
    };
    static const char *const wanted[] = {
        "\"batch\":{\"image.log_u\":-1.5,\"text.log_u\":2.25},",
        "\"batch\":{\"image.log_u\":0.5,\"image.zeta\":-0.05,\"text.zeta\":0.125},",
        "\"batch\":{},",
    };
    assert_ok(
        metrics_open(&m, test_temp_dir(), "00000000000000ff", 0, (struct metrics_watch){0}, &err),
        err);
    for (int i = 0; i < 3; i++) {
        assert_ok(metrics_step(m, &steps[i], &err), err);
    }
    metrics_close(m);
    size_t size = 0;
    char *text = (char *)test_read_file(test_temp_path("metrics.jsonl"), &size);
    char *line = strtok(text, "\n");
    for (int i = 0; i < 3; i++, line = strtok(NULL, "\n")) {
        assert_non_null(line);
        assert_non_null(strstr(line, wanted[i]));
        const char *rss = strstr(line, "\"peak_rss_bytes\":");
        assert_non_null(rss);
        assert_true(strtoull(rss + sizeof "\"peak_rss_bytes\":" - 1, NULL, 10) > 1 << 20);
        assert_int_equal(strstr(line, "\"device_bytes\":77,") != NULL, i == 1);
        assert_ends_with_time_and_run(line);
    }
    free(text);
}

/* Only a whole line of that very step counts. */
TEST(metrics_report_whether_a_step_was_evaluated) {
    static const struct {
        const char *end;
        uint64_t step;
        bool retrieval, zeroshot;
    } cases[] = {
        {"{\"step\":4,\"state\":{}}\n", 4, false, false},
        {"{\"step\":4,\"retrieval\":{}}\n", 4, true, false},
        {"{\"step\":4,\"zeroshot\":{}}\n", 4, false, true},
        {"{\"step\":4,\"retrieval\":{}}\n{\"step\":4,\"zeroshot\":{}}\n", 4, true, true},
        {"{\"step\":3,\"zeroshot\":{}}\n{\"step\":4,\"retrieval\":{}}\n", 4, true, false},
        {"{\"step\":4,\"retrieval\":{}}\n", 5, false, false},
        {"{\"step\":4,\"retrieval\":{}}\n", 3, false, false},
        {"{\"step\":4,\"retrieval\":{", 4, false, false},
        {"{\"step\":4,\"retrievals\":{}}\n", 4, false, false},
        {"{\"step\":4", 4, false, false},
        {"", 0, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        struct metrics *m = NULL;
        test_write_file(test_temp_path("metrics.jsonl"), cases[i].end, strlen(cases[i].end));
        assert_ok(
            metrics_open(&m, test_temp_dir(), NULL, cases[i].step, (struct metrics_watch){0}, &err),
            err);
        if (metrics_has(m, METRICS_RETRIEVAL) != cases[i].retrieval ||
            metrics_has(m, METRICS_ZEROSHOT) != cases[i].zeroshot) {
            fail_msg("step %d after '%s'", (int)cases[i].step, cases[i].end);
        }
        metrics_close(m);
    }
}

/* Over the kept lines of a resumed run and those that follow; the first of equal values. */
TEST(the_best_value_is_that_of_all_kept_lines) {
    static const char lines[] = "{\"step\":1,\"features\":{\"nn1\":30,\"knn\":99},\"time\":\"\"}\n"
                                "{\"step\":1,\"retrieval\":{\"nn1\":90}}\n"
                                "{\"step\":2,\"features\":{\"nn1\":40.5,\"knn\":1}}\n"
                                "{\"step\":3,\"features\":{\"knn\":1},\"nn1\":77}\n"
                                "{\"step\":4,\"features\":{\"nn1\":40.5}}\n"
                                "{\"step\":5,\"features\":{\"nn1\":80}}\n";
    struct error err = {0};
    struct metrics *m = NULL;
    const struct metrics_watch watch = {"features", "nn1"};
    test_write_file(test_temp_path("metrics.jsonl"), lines, sizeof lines - 1);
    assert_ok(metrics_open(&m, test_temp_dir(), NULL, 4, watch, &err), err);
    assert_int_equal(metrics_best(m).step, 2);
    assert_int_equal(metrics_best(m).since, 1);
    struct features_result r = {.neighbours = {40.0}, .probe = NAN, .images = 1, .class_count = 1};
    assert_ok(metrics_features(m, 6, &r, &err), err);
    assert_int_equal(metrics_best(m).since, 2);
    r.neighbours[FEATURES_NN1] = 41.0;
    assert_ok(metrics_features(m, 7, &r, &err), err);
    assert_int_equal(metrics_best(m).step, 7);
    assert_int_equal(metrics_best(m).since, 0);
    assert_true(metrics_best(m).value == 41.0);
    metrics_close(m);
}
