/*
 * --part auto: which part a launcher's environment names. For every launcher the parts of its
 * processes are 1 to N, each once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"
#include "tools/ccpack/part.h"

/* "NAME=VALUE" texts, up to a NULL. */
static const char *get(void *cookie, const char *name) {
    const size_t length = strlen(name);
    for (const char *const *v = cookie; *v; v++) {
        if (strncmp(*v, name, length) == 0 && (*v)[length] == '=') {
            return *v + length + 1;
        }
    }
    return NULL;
}

static enum status parse(struct pack_part *out,
                         const char **variable,
                         const char *text,
                         const char *const *variables,
                         struct error *err) {
    const struct part_environment e = {get, (void *)(uintptr_t)variables};
    memset(err, 0, sizeof(*err));
    return part_parse(out, variable, text, &e, err);
}

/* `variables` are separated by spaces. */
static void is_part(const char *text, const char *variables, const char *want, const char *which) {
    char copy[512];
    const char *list[16] = {NULL};
    struct pack_part part;
    struct error err;
    const char *variable = NULL;
    size_t count = 0;
    snprintf(copy, sizeof(copy), "%s", variables);
    for (char *v = strtok(copy, " "); v; v = strtok(NULL, " ")) {
        list[count++] = v;
    }
    enum status s = parse(&part, &variable, text, list, &err);
    if (!which) { /* refused, with these words */
        assert_status(s, STATUS_USAGE, err);
        char words[256];
        snprintf(words, sizeof(words), "%s", want);
        for (char *w = strtok(words, ";"); w; w = strtok(NULL, ";")) {
            if (!strstr(err.text, w)) {
                fail_msg("%s with %s: no '%s' in: %s", text, variables, w, err.text);
            }
        }
        return;
    }
    char got[64];
    assert_status(s, STATUS_OK, err);
    snprintf(got, sizeof(got), "%" PRIu32 "/%" PRIu32, part.number, part.count);
    assert_string_equal(got, want);
    assert_string_equal(variable ? variable : "", which);
}

static void is_refused(const char *text, const char *variables, const char *words) {
    is_part(text, variables, words, NULL);
}

#define ARRAY(id, min, max, step, count)                                                           \
    "SLURM_ARRAY_TASK_ID=" #id " SLURM_ARRAY_TASK_MIN=" #min " SLURM_ARRAY_TASK_MAX=" #max         \
    " SLURM_ARRAY_TASK_STEP=" #step " SLURM_ARRAY_TASK_COUNT=" #count " "
#define OMPI(rank, size) "OMPI_COMM_WORLD_RANK=" #rank " OMPI_COMM_WORLD_SIZE=" #size " "
#define STEP(rank, size) "SLURM_PROCID=" #rank " SLURM_STEP_NUM_TASKS=" #size " "

TEST(a_written_part_ignores_the_environment) {
    is_part("3/8", ARRAY(1, 0, 3, 1, 4), "3/8", "");
    is_refused("9/8", "", "K/N;auto");
    is_refused("3", OMPI(0, 4), "K/N;auto");
}

TEST(every_launcher_is_known) {
    is_part("auto", ARRAY(5, 1, 7, 2, 4), "3/4", "SLURM_ARRAY_TASK_ID");
    is_part("auto/8", "JOB_COMPLETION_INDEX=7", "8/8", "JOB_COMPLETION_INDEX");
    is_part("auto", OMPI(1, 4), "2/4", "OMPI_COMM_WORLD_RANK");
    is_part("auto/4", OMPI(1, 4), "2/4", "OMPI_COMM_WORLD_RANK");
    is_part("auto", "PMI_RANK=0 PMI_SIZE=3", "1/3", "PMI_RANK");
    is_part("auto/3", "PMIX_RANK=2", "3/3", "PMIX_RANK");
    is_part("auto", "PMIX_RANK=2 PMIX_NAMESPACE=slurm.pmix.7.0 " STEP(2, 4), "3/4", "PMIX_RANK");
    is_part("auto", STEP(3, 4), "4/4", "SLURM_PROCID");
}

/* mpirun in a Slurm job: its daemons are the tasks of the step. */
TEST(the_innermost_launcher_of_ranks_counts) {
    is_part("auto", STEP(0, 2) "PMIX_RANK=5 " OMPI(5, 8), "6/8", "OMPI_COMM_WORLD_RANK");
    is_part("auto", STEP(0, 2) "PMI_RANK=5 PMI_SIZE=8", "6/8", "PMI_RANK");
    is_refused("auto", STEP(0, 2) "PMIX_RANK=5 PMIX_NAMESPACE=prterun-1", "PMIX_RANK;auto/N");
    is_part("auto/8", STEP(0, 2) "PMIX_RANK=5 PMIX_NAMESPACE=prterun-1", "6/8", "PMIX_RANK");
}

TEST(tasks_of_a_job_come_before_a_lone_rank) {
    is_part("auto", ARRAY(3, 1, 8, 1, 8) STEP(0, 1) "PMIX_RANK=0 " OMPI(0, 1), "3/8",
            "SLURM_ARRAY_TASK_ID");
    is_part("auto", ARRAY(3, 1, 8, 1, 8) "SLURM_PROCID=0", "3/8", "SLURM_ARRAY_TASK_ID");
    is_part("auto/8", "JOB_COMPLETION_INDEX=2 " OMPI(0, 1), "3/8", "JOB_COMPLETION_INDEX");
    is_part("auto", ARRAY(3, 1, 8, 1, 8) "JOB_COMPLETION_INDEX=1", "3/8", "SLURM_ARRAY_TASK_ID");
    is_refused("auto", ARRAY(3, 1, 8, 1, 8) OMPI(2, 4),
               "SLURM_ARRAY_TASK_ID and OMPI_COMM_WORLD_RANK;rank 2;once a task");
    is_refused("auto", ARRAY(3, 1, 8, 1, 8) STEP(0, 4), "SLURM_PROCID;several ranks");
    is_refused("auto/8", "JOB_COMPLETION_INDEX=2 PMIX_RANK=1", "PMIX_RANK;rank 1");
}

TEST(without_a_launcher_the_variables_are_named) {
    is_refused("auto", "",
               "SLURM_ARRAY_TASK_ID;JOB_COMPLETION_INDEX;OMPI_COMM_WORLD_RANK;PMI_RANK");
    is_refused("auto", "HOME=/ SLURM_ARRAY_TASK_ID= PMI_RANK=", "PMIX_RANK;SLURM_PROCID;K/N");
    is_refused("auto", "SLURM_PROCID=0 SLURM_NTASKS=4", "a batch script;srun");
    is_refused("auto/8", "", "SLURM_ARRAY_TASK_ID");
}

TEST(an_unknown_number_of_parts_is_asked_for) {
    is_refused("auto", "JOB_COMPLETION_INDEX=2", "JOB_COMPLETION_INDEX is 2;completions;auto/N");
    is_refused("auto", "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_RANK is 2;auto/N");
    is_refused("auto", "SLURM_ARRAY_TASK_ID=2", "SLURM_ARRAY_TASK_MIN;auto/N");
    is_refused("auto", "SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=4",
               "SLURM_ARRAY_TASK_COUNT;auto/N");
}

TEST(wrong_numbers_are_refused) {
    is_refused("auto", ARRAY(5, 1, 9, 2, 4),
               "not evenly spaced;task 5 of 4 tasks from 1 to 9 by 2");
    is_refused("auto", ARRAY(3, 1, 7, 1, 3), "not evenly spaced"); /* --array=1,3,7 */
    is_refused("auto", ARRAY(4, 1, 7, 2, 4), "not evenly spaced");
    is_refused("auto", ARRAY(9, 1, 7, 2, 4), "not evenly spaced");
    is_refused("auto", ARRAY(1, 7, 1, 1, 7), "not evenly spaced");
    is_refused("auto", ARRAY(1, 1, 1, 0, 1), "not evenly spaced");
    is_refused("auto", ARRAY(1, 1, 200000, 1, 200000), "at most 100000");
    is_refused("auto", OMPI(4, 4), "OMPI_COMM_WORLD_RANK;is 4 of 4");
    is_refused("auto", OMPI(1x, 4), "OMPI_COMM_WORLD_RANK is '1x'");
    is_refused("auto", OMPI(-1, 4), "OMPI_COMM_WORLD_RANK is '-1'");
    is_refused("auto", OMPI(1, 99999999999), "OMPI_COMM_WORLD_SIZE is '99999999999'");
    is_refused("auto/8", OMPI(1, 4), "auto/8;one of 4 ranks;OMPI_COMM_WORLD_RANK");
    is_refused("auto/8", "JOB_COMPLETION_INDEX=8", "counts from 0, and is 8 of 8");
    for (size_t i = 0; i < 6; i++) {
        static const char *const texts[] = {"auto/",       "auto/0",    "auto/8x",
                                            "auto/100001", "automatic", "auto/-1"};
        is_refused(texts[i], OMPI(0, 1), "auto/N with N up to 100000");
    }
}

/* With auto/N the ids are part numbers, so that an array of a few ids packs these parts again. */
TEST(an_array_of_some_ids_packs_these_parts) {
    is_part("auto/8", ARRAY(3, 3, 7, 1, 2), "3/8", "SLURM_ARRAY_TASK_ID"); /* --array=3,7 */
    is_part("auto/8", ARRAY(7, 3, 7, 1, 2), "7/8", "SLURM_ARRAY_TASK_ID");
    is_part("auto/8", "SLURM_ARRAY_TASK_ID=8", "8/8", "SLURM_ARRAY_TASK_ID");
    /* Every task of a wrong array is refused, not only the one whose id is out of range. */
    for (int id = 0; id < 8; id++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "SLURM_ARRAY_TASK_ID=%d SLURM_ARRAY_TASK_MIN=0 "
                 "SLURM_ARRAY_TASK_MAX=7",
                 id);
        is_refused("auto/8", text, "1 to 8;from 0 to 7;--array=1-8");
    }
    is_refused("auto/8", ARRAY(3, 1, 9, 1, 9), "from 1 to 9");
    is_refused("auto/8", "SLURM_ARRAY_TASK_ID=9", "task 9");
}

TEST(any_array_has_every_part_once) {
    static const unsigned bases[] = {0, 1, 7, 1000};
    static const unsigned steps[] = {1, 2, 3, 10, 999};
    for (unsigned n = 1; n <= 40; n++) {
        for (size_t k = 0; k < 20; k++) {
            const unsigned base = bases[k % 4];
            const unsigned step = steps[k / 4];
            for (unsigned i = 0; i < n; i++) {
                char texts[5][64];
                const char *list[6] = {texts[0], texts[1], texts[2], texts[3], texts[4], NULL};
                struct pack_part part;
                struct error err;
                const char *variable = NULL;
                snprintf(texts[0], 64, "SLURM_ARRAY_TASK_ID=%u", base + i * step);
                snprintf(texts[1], 64, "SLURM_ARRAY_TASK_MIN=%u", base);
                snprintf(texts[2], 64, "SLURM_ARRAY_TASK_MAX=%u", base + (n - 1) * step);
                snprintf(texts[3], 64, "SLURM_ARRAY_TASK_STEP=%u", step);
                snprintf(texts[4], 64, "SLURM_ARRAY_TASK_COUNT=%u", n);
                assert_ok(parse(&part, &variable, "auto", list, &err), err);
                assert_int_equal(part.number, i + 1);
                assert_int_equal(part.count, n);
            }
        }
    }
}

TEST(a_part_goes_beside_the_dataset) {
    char path[PATH_MAX_BYTES];
    struct error err = {0};
    const struct pack_part part = {3, 8};
    assert_ok(part_directory(path, "train", &part, &err), err);
    assert_string_equal(path, "train-part-3-of-8");
    assert_ok(part_directory(path, "/data/a.b//", &part, &err), err);
    assert_string_equal(path, "/data/a.b-part-3-of-8");
    static const char *const wrong[] = {"/", ".", "..", "x/..", "./"};
    for (size_t i = 0; i < 5; i++) {
        assert_status(part_directory(path, wrong[i], &part, &err), STATUS_USAGE, err);
    }
    static char longest[PATH_MAX_BYTES];
    memset(longest, 'x', sizeof(longest) - 1);
    assert_status(part_directory(path, longest, &part, &err), STATUS_LIMIT, err);
}
