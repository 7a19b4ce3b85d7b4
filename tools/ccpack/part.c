/*
 * --part auto. Launchers number in two ways:
 *
 *     tasks of a job   SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX                  first
 *     ranks of a task  OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK, SLURM_PROCID    then, in this
 * order
 *
 * The variables of one launcher may be visible to the programs of another. Those of the ranks agree
 * where they are set by the same launcher; mpirun inside a Slurm job shows its own and, in
 * SLURM_PROCID, the number of its daemon. Both ways with more than one process are refused, because
 * the ranks of a task would pack the same part.
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
    uint64_t count;       /* 0: not known */
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

/* Leaves `out` as it is where the variable is not set. Returns OK or USAGE. */
static enum status read_number(uint64_t *out, const struct search *s, const char *name) {
    const char *text = value_of(s, name);
    if (text && (!cli_parse_u64(text, CLI_UNIT_NONE, out) || *out > INT32_MAX)) {
        return error_set(s->err, STATUS_USAGE,
                         "--part auto: %s is '%.40s', and must be a whole number up to %d", name,
                         text, INT32_MAX);
    }
    return STATUS_OK;
}

/* ---- tasks of a job ---------------------------------------------------------------------------
 */

struct array {
    uint64_t id, min, max, step, count;
};

/* With auto/N the ids are the numbers of the parts, so that an array may hold some of them. */
static enum status number_by_id(struct place *out, const struct search *s, const struct array *a) {
    if (a->min < 1 || a->id < 1 || a->max > s->wanted || a->id > s->wanted) {
        return error_set(s->err, STATUS_USAGE,
                         "--part auto/%" PRIu64
                         ": the ids of a Slurm array are the numbers of the parts, 1 to %" PRIu64
                         "; this is task %" PRIu64 " of an array from %" PRIu64 " to %" PRIu64
                         ": submit with --array=1-%" PRIu64 ", or with some of these ids",
                         s->wanted, s->wanted, a->id, a->min, a->max, s->wanted);
    }
    out->index = a->id - 1;
    out->count = s->wanted;
    return STATUS_OK;
}

static enum status
number_by_range(struct place *out, const struct search *s, const struct array *a) {
    const uint64_t width = a->max - a->min;
    const bool in_range = a->min <= a->id && a->id <= a->max && a->step > 0;
    if (!in_range || width % a->step != 0 || width / a->step + 1 != a->count ||
        (a->id - a->min) % a->step != 0) {
        return error_set(s->err, STATUS_USAGE,
                         "--part auto: the ids of this Slurm array are not evenly spaced: task "
                         "%" PRIu64 " of %" PRIu64 " tasks from %" PRIu64 " to %" PRIu64
                         " by %" PRIu64 "; --array=1-N packs all N parts, and --part auto/N with "
                         "--array=3,7 parts 3 and 7 of N",
                         a->id, a->count, a->min, a->max, a->step);
    }
    out->index = (a->id - a->min) / a->step;
    out->count = a->count;
    return STATUS_OK;
}

static enum status find_array(struct place *out, const struct search *s) {
    static const char *const others[] = {"SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
                                         "SLURM_ARRAY_TASK_COUNT"};
    struct array a = {.step = 1};
    TRY(read_number(&a.id, s, ARRAY_ID));
    a.min = a.id;
    a.max = a.id;
    TRY(read_number(&a.min, s, others[0]));
    TRY(read_number(&a.max, s, others[1]));
    TRY(read_number(&a.count, s, others[2]));
    TRY(read_number(&a.step, s, "SLURM_ARRAY_TASK_STEP"));
    out->variable = ARRAY_ID;
    if (s->wanted > 0) {
        return number_by_id(out, s, &a);
    }
    for (size_t i = 0; i < CLI_COUNT(others); i++) {
        if (!value_of(s, others[i])) {
            return error_set(s->err, STATUS_USAGE,
                             "--part auto: " ARRAY_ID " is set, but not %s; --part auto/N says how "
                             "many parts there are",
                             others[i]);
        }
    }
    return number_by_range(out, s, &a);
}

static enum status find_task(struct place *out, const struct search *s) {
    if (value_of(s, ARRAY_ID)) {
        return find_array(out, s);
    }
    if (value_of(s, INDEX)) {
        out->variable = INDEX;
        out->count = s->wanted;
        return read_number(&out->index, s, INDEX);
    }
    return STATUS_OK;
}

/* ---- ranks of a task --------------------------------------------------------------------------
 */

/* srun names the namespace of its own ranks so; only then is its step what has the ranks. */
static bool is_pmix_of_slurm(const struct search *s) {
    const char *space = value_of(s, "PMIX_NAMESPACE");
    return space && strncmp(space, "slurm.pmix.", 11) == 0;
}

/* A batch script has SLURM_PROCID, too, but no step, and is alone. */
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

/* ---- both -------------------------------------------------------------------------------------
 */

static enum status refuse_none(const struct search *s) {
    return error_set(
        s->err, STATUS_USAGE,
        "--part auto: no launcher has set which part this is: none of " ARRAY_ID ", " INDEX
        ", OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK and SLURM_PROCID with " STEP_SIZE
        " is set%s; --part K/N names a part",
        value_of(s, "SLURM_PROCID") ? " (a batch script is no task of a step: start ccpack with "
                                      "srun, or submit an array)"
                                    : "");
}

static enum status refuse_count(const struct search *s, const struct place *p) {
    return error_set(s->err, STATUS_USAGE,
                     "--part auto: %s is %" PRIu64
                     ", but nothing in the environment says how many parts there are%s: write "
                     "--part auto/N",
                     p->variable, p->index,
                     strcmp(p->variable, INDEX) == 0 ? " (the job's 'completions')" : "");
}

static enum status choose(struct place *out, const struct search *s) {
    struct place task = {0};
    struct place rank = {0};
    TRY(find_task(&task, s));
    TRY(find_rank(&rank, s));
    if (task.variable && rank.variable && (rank.count > 1 || rank.index > 0)) {
        return error_set(s->err, STATUS_USAGE,
                         "--part auto: %s and %s are both set, and this task has several ranks "
                         "(this is rank %" PRIu64 "), which would all pack its part; start ccpack "
                         "once a task, or write --part K/N",
                         task.variable, rank.variable, rank.index);
    }
    *out = task.variable ? task : rank;
    return out->variable ? STATUS_OK : refuse_none(s);
}

static enum status find(struct pack_part *out, const char **variable, const struct search *s) {
    struct place p = {0};
    TRY(choose(&p, s));
    if (p.count == 0 && s->wanted == 0) {
        return refuse_count(s, &p);
    }
    if (s->wanted > 0 && p.count > 0 && p.count != s->wanted) {
        return error_set(s->err, STATUS_USAGE,
                         "--part auto/%" PRIu64 ": this is one of %" PRIu64 " ranks (%s)",
                         s->wanted, p.count, p.variable);
    }
    const uint64_t count = p.count > 0 ? p.count : s->wanted;
    if (p.index >= count || count > PACK_MAX_PARTS) {
        return error_set(s->err, STATUS_USAGE,
                         "--part auto: %s counts from 0, and is %" PRIu64 " of %" PRIu64
                         " parts; at most %d parts are possible",
                         p.variable, p.index, count, PACK_MAX_PARTS);
    }
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
    if ((!has_count && text[4] != '\0') ||
        (has_count && (!cli_parse_u64(text + 5, CLI_UNIT_NONE, &s.wanted) || s.wanted < 1 ||
                       s.wanted > PACK_MAX_PARTS))) {
        return error_set(err, STATUS_USAGE,
                         "--part %.40s: must be K/N, auto, or auto/N with N up to %d", text,
                         PACK_MAX_PARTS);
    }
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
