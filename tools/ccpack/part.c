/*
 * --part auto. Launchers number in two ways:
 *
 *     tasks of a job   SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX                  first
 *     ranks of a task  OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK, SLURM_PROCID    then, in this
 * order
 *
 * The variables of one launcher may be visible to the programs of another. Rank variables set by
 * the same launcher agree; mpirun in a Slurm job sets its own, and SLURM_PROCID is the number of
 * its daemon. Both ways with more than one process are rejected, because the ranks of a task would
 * pack the same part.
 */
#include "tools/ccpack/part.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"

#define ARRAY_ID  "SLURM_ARRAY_TASK_ID"
#define INDEX     "JOB_COMPLETION_INDEX"
#define STEP_SIZE "SLURM_STEP_NUM_TASKS"

/* The number of this process among `count`. */
struct place {
    const char *variable; /* NULL: none is set */
    uint64_t index;       /* from 0 */
    uint64_t count;       /* 0: unknown */
};

struct search {
    const struct part_environment *environment;
    uint64_t wanted; /* the N of auto/N; 0: not given */
    struct error *err;
};

/* NULL: not set, or empty. */
static const char *value_of(const struct search *s, const char *name) {
    const char *text = s->environment->get(s->environment->cookie, name);
    return text && text[0] != '\0' ? text : NULL;
}

/* Leaves `out` unchanged if the variable is not set. Returns OK or USAGE. */
static enum status read_number(uint64_t *out, const struct search *s, const char *name) {
    const char *text = value_of(s, name);
    FAIL_IF(text && (!cli_parse_u64(text, CLI_UNIT_NONE, out) || *out > INT32_MAX), s->err,
            STATUS_USAGE, "--part auto: %s is '%.40s', and must be an integer up to %d", name, text,
            INT32_MAX);
    return STATUS_OK;
}

/* ---- tasks of a job -------------------------------------------------------------------------- */

/* With auto/N the ids of an array are part numbers, so that it may have only some of them.
 */
static enum status find_array(struct place *out, const struct search *s) {
    static const char *const names[] = {"SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
                                        "SLURM_ARRAY_TASK_COUNT"};
    uint64_t id = 0, step = 1;
    TRY(read_number(&id, s, ARRAY_ID));
    uint64_t numbers[] = {id, id, 0};
    for (size_t i = 0; i < CLI_COUNT(names); i++) {
        FAIL_IF(s->wanted == 0 && !value_of(s, names[i]), s->err, STATUS_USAGE,
                "--part auto: " ARRAY_ID " is set, but not %s; --part auto/N says how "
                "many parts there are",
                names[i]);
        TRY(read_number(&numbers[i], s, names[i]));
    }
    TRY(read_number(&step, s, "SLURM_ARRAY_TASK_STEP"));
    const uint64_t min = numbers[0], max = numbers[1], count = numbers[2];
    *out = (struct place){ARRAY_ID, id - 1, s->wanted};
    if (s->wanted > 0) {
        return min >= 1 && id >= 1 && max <= s->wanted && id <= s->wanted
                   ? STATUS_OK
                   : error_set(s->err, STATUS_USAGE,
                               "--part auto/%" PRIu64
                               ": the ids of a Slurm array are the numbers of the parts, 1 to "
                               "%" PRIu64 "; this is task %" PRIu64 " of an array from %" PRIu64
                               " to %" PRIu64 ": submit with --array=1-%" PRIu64
                               ", or with some of these ids",
                               s->wanted, s->wanted, id, min, max, s->wanted);
    }
    FAIL_IF(id < min || id > max || step == 0 || (max - min) % step != 0 ||
                (max - min) / step + 1 != count || (id - min) % step != 0,
            s->err, STATUS_USAGE,
            "--part auto: the ids of this Slurm array are not evenly spaced: task "
            "%" PRIu64 " of %" PRIu64 " tasks from %" PRIu64 " to %" PRIu64 " by %" PRIu64
            "; --array=1-N packs all N parts, and --part auto/N with "
            "--array=3,7 parts 3 and 7 of N",
            id, count, min, max, step);
    out->index = (id - min) / step;
    out->count = count;
    return STATUS_OK;
}

static enum status find_task(struct place *out, const struct search *s) {
    if (value_of(s, ARRAY_ID)) {
        return find_array(out, s);
    }
    *out = (struct place){value_of(s, INDEX) ? INDEX : NULL, 0, s->wanted};
    return read_number(&out->index, s, INDEX);
}

/* ---- ranks of a task ------------------------------------------------------------------------- */

/* srun's name of its ranks' namespace; only then are they the ranks of its step. */
static bool is_pmix_of_slurm(const struct search *s) {
    const char *space = value_of(s, "PMIX_NAMESPACE");
    return space && strncmp(space, "slurm.pmix.", 11) == 0;
}

/* A batch script also has SLURM_PROCID, but no step, and is one process. */
static enum status find_rank(struct place *out, const struct search *s) {
    const char *const ranks[][2] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"PMIX_RANK", is_pmix_of_slurm(s) ? STEP_SIZE : NULL},
        {value_of(s, STEP_SIZE) ? "SLURM_PROCID" : "", STEP_SIZE},
    };
    for (size_t i = 0; i < CLI_COUNT(ranks); i++) {
        if (!value_of(s, ranks[i][0])) {
            continue;
        }
        out->variable = ranks[i][0];
        TRY(read_number(&out->index, s, ranks[i][0]));
        return ranks[i][1] ? read_number(&out->count, s, ranks[i][1]) : STATUS_OK;
    }
    return STATUS_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

static enum status find(struct pack_part *out, const char **variable, const struct search *s) {
    struct place task = {0};
    struct place rank = {0};
    TRY(find_task(&task, s));
    TRY(find_rank(&rank, s));
    FAIL_IF(task.variable && rank.variable && (rank.count > 1 || rank.index > 0), s->err,
            STATUS_USAGE,
            "--part auto: %s and %s are both set, and this task has several ranks "
            "(this is rank %" PRIu64 "), which would all pack its part; start ccpack "
            "once a task, or write --part K/N",
            task.variable, rank.variable, rank.index);
    const struct place p = task.variable ? task : rank;
    FAIL_IF(!p.variable, s->err, STATUS_USAGE,
            "--part auto: found no launcher environment: none of " ARRAY_ID ", " INDEX
            ", OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK and SLURM_PROCID with " STEP_SIZE
            " is set%s; use --part K/N",
            value_of(s, "SLURM_PROCID") ? " (a batch script is not a task of a step: start ccpack "
                                          "with srun, or submit an array)"
                                        : "");
    const uint64_t count = p.count > 0 ? p.count : s->wanted;
    FAIL_IF(count == 0, s->err, STATUS_USAGE,
            "--part auto: %s is %" PRIu64
            ", but nothing in the environment says how many parts there are%s: write "
            "--part auto/N",
            p.variable, p.index,
            strcmp(p.variable, INDEX) == 0 ? " (the job's 'completions')" : "");
    FAIL_IF(s->wanted > 0 && count != s->wanted, s->err, STATUS_USAGE,
            "--part auto/%" PRIu64 ": this is one of %" PRIu64 " ranks (%s)", s->wanted, count,
            p.variable);
    FAIL_IF(p.index >= count || count > PACK_MAX_PARTS, s->err, STATUS_USAGE,
            "--part auto: %s counts from 0, and is %" PRIu64 " of %" PRIu64
            " parts; at most %d parts are possible",
            p.variable, p.index, count, PACK_MAX_PARTS);
    *out = (struct pack_part){(uint32_t)p.index + 1, (uint32_t)count};
    *variable = p.variable;
    return STATUS_OK;
}

enum status part_parse(struct pack_part *out,
                       const char **variable,
                       const char *text,
                       const struct part_environment *e,
                       struct error *err) {
    struct search s = {.environment = e, .err = err};
    *out = (struct pack_part){0};
    *variable = NULL;
    if (strncmp(text, "auto", 4) != 0) {
        return pack_parse_part(out, text, err);
    }
    const bool has_count = text[4] == '/';
    FAIL_IF((!has_count && text[4] != '\0') ||
                (has_count && (!cli_parse_u64(text + 5, CLI_UNIT_NONE, &s.wanted) || s.wanted < 1 ||
                               s.wanted > PACK_MAX_PARTS)),
            err, STATUS_USAGE, "--part %.40s: must be K/N, auto, or auto/N with N up to %d", text,
            PACK_MAX_PARTS);
    return find(out, variable, &s);
}

enum status part_directory(char out[PATH_MAX_BYTES],
                           const char *directory,
                           const struct pack_part *part,
                           struct error *err) {
    size_t end = strlen(directory);
    while (end > 0 && directory[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && directory[begin - 1] != '/') {
        begin--;
    }
    if (strspn(directory + begin, ".") >= end - begin) { /* "/", ".", ".." */
        return error_set(err, STATUS_USAGE,
                         "--out %.100s: --part auto adds -part-K-of-N to the name of a dataset, "
                         "such as 'train'",
                         directory);
    }
    int n = snprintf(out, PATH_MAX_BYTES, "%.*s-part-%" PRIu32 "-of-%" PRIu32, (int)end, directory,
                     part->number, part->count);
    return n < PATH_MAX_BYTES ? STATUS_OK
                              : error_set(err, STATUS_LIMIT, "--out: the path is too long");
}
