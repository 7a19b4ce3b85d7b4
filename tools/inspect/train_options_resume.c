/*
 * The options of a resumed run: which may change, and what RUN/config.json records.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/tokenizer/tokenizer.h"
#include "tools/inspect/train_options.h"

/* Options that a resumed run may change: those without effect on results, the remaining schedule,
 * and the location of its data, whose fingerprint is checked. */
static const char changeable[] =
    " data val remap-state on-full-disk resume eval-every epochs lr min-lr grad-checkpoint "
    "image-lr text-lr checkpoint-every keep-checkpoints steps json quiet device state-memory "
    "threads loader-threads zeroshot knn probe patience io-engine nondeterministic cuda-graph "
    "autotune plan-cache dry-run checkpoint-seconds ranks transport rank-timeout endpoint "
    "instance-metadata allow-private cache cache-size report progress probe-pairs ";

/* Why other options cannot change; a group's reason has no name. */
static const struct {
    const char *name, *group, *reason;
} fixed_reasons[] = {
    {"out", NULL, "RUN itself is continued"},
    {"preset", NULL, "a run's options are in RUN/config.json"},
    {"config", NULL, "a run's options are in RUN/config.json"},
    {"batch-size", NULL, "the position in the epoch is counted in batches"},
    {"pair-noise", NULL, "earlier steps used other pairs"},
    {"caption-columns", NULL, "earlier steps used other captions"},
    {"weight", NULL, "earlier steps used other weights"},
    {"reference", NULL, "the per-sample state was computed with it"},
    {"teacher-image", NULL, "earlier steps used another teacher"},
    {"teacher-text", NULL, "earlier steps used another teacher"},
    {"fixed-views", NULL, "earlier steps used other views"},
    {"order", NULL, "the position in the epoch is one in this order"},
    {"seed", NULL, "order, augmentation and dropout follow from it"},
    {"keep-best", NULL, "RUN/best is the best by this figure since the run began"},
    {"init", NULL, "the run has its own weights by now"},
    {"init-image", NULL, "the run has its own weights by now"},
    {"init-text", NULL, "the run has its own weights by now"},
    {"init-state", NULL, "the run has its own state by now"},
    {"recover-state", NULL, "the run has its own state by now"},
    {"tokenizer", NULL, "the checkpoint holds the one that the text tower was trained with"},
    {NULL, "Model", "the weights in the checkpoint were trained with it"},
    {NULL, "Loss", "the per-sample state in the checkpoint was computed with it"},
    {NULL, "Optimiser", "the optimiser state in the checkpoint was computed with it"},
    {NULL, "Machine", "earlier steps were computed with it"},
};

static const char *reason_of(const char *name, const char *group) {
    const char *reason = "it is part of the run";
    for (size_t i = CLI_COUNT(fixed_reasons); i-- > 0;) {
        const bool named =
            fixed_reasons[i].name != NULL && strcmp(fixed_reasons[i].name, name) == 0;
        const bool grouped =
            fixed_reasons[i].group != NULL && strcmp(fixed_reasons[i].group, group) == 0;
        reason = named || grouped ? fixed_reasons[i].reason : reason;
    }
    return reason;
}

static bool same_value(const struct cli_option *row,
                       const struct train_options *a,
                       const struct train_options *b) {
    const char *x = (const char *)a + row->offset;
    const char *y = (const char *)b + row->offset;
    const char *text[2];
    if (row->type != CLI_STRING) { /* lists are not compared: all of them may change */
        return memcmp(x, y, row->size_bytes) == 0;
    }
    memcpy(&text[0], x, sizeof text[0]);
    memcpy(&text[1], y, sizeof text[1]);
    return text[0] != NULL && text[1] != NULL && strcmp(text[0], text[1]) == 0;
}

enum status train_options_check_resumed(const struct cli_arguments *given,
                                        const struct train_options *recorded,
                                        const struct train_options *o,
                                        struct error *err) {
    const struct cli_option *row;
    const char *group = "";
    for (size_t i = 0; (row = cli_row(train_program(), i)) != NULL; i++) {
        const bool allowed =
            !given->given[i] || strstr(changeable, cli_format(" %s ", row->name)) != NULL;
        group = row->group != NULL ? row->group : group;
        FAIL_IF(!allowed && !same_value(row, recorded, o), err, STATUS_USAGE,
                "--%s cannot be changed by --resume: %s. To start a new run from "
                "these weights: --init %s --data DIR --out NEW",
                row->name, reason_of(row->name, group), o->resume);
    }
    return STATUS_OK;
}

/* Makes a relative *path absolute. */
static enum status
make_absolute(const char **path, struct run_config_words *paths, struct error *err) {
    char directory[PATH_MAX_BYTES];
    char absolute[2 * PATH_MAX_BYTES];
    const char *word = absolute;
    if (*path == NULL || (*path)[0] == '/' || strstr(*path, "://") != NULL) {
        return STATUS_OK;
    }
    FAIL_ERRNO_IF(getcwd(directory, sizeof directory) == NULL, err, "the working directory");
    (void)snprintf(absolute, sizeof absolute, "%s/%s", directory, *path);
    TRY(run_config_add_words(paths, 1, &word, err));
    *path = paths->words[paths->count - 1];
    return STATUS_OK;
}

enum status train_options_keep(struct train_options *kept,
                               struct run_config_words *paths,
                               const struct train_options *o,
                               struct error *err) {
    *kept = *o;
    kept->out = NULL;
    kept->resume = NULL;
    kept->remap_state = (struct cli_list){0};
    kept->config = NULL;
    kept->preset = 0;
    kept->json = false;
    kept->quiet = false;
    kept->progress = 0;
    kept->trainer.max_steps = 0;
    kept->ranks = COMM_RANKS_AUTO; /* a resumed run may have another launcher */
    kept->transport = COMM_TRANSPORT_AUTO;
    kept->rank_timeout_seconds = 60;
    const char **const single[] = {&kept->trainer.val,
                                   &kept->trainer.zeroshot,
                                   &kept->trainer.init,
                                   &kept->trainer.init_image,
                                   &kept->trainer.init_text,
                                   &kept->trainer.tokenizer,
                                   &kept->trainer.device_options.plan_cache,
                                   &kept->remote.cache};
    for (size_t i = 0; i < CLI_COUNT(single); i++) {
        const bool built_in = single[i] == &kept->trainer.tokenizer && *single[i] != NULL &&
                              strcmp(*single[i], TOKENIZER_CLIP_NAME) == 0;
        TRY(built_in ? STATUS_OK : make_absolute(single[i], paths, err));
    }
    if (o->trainer.knn != NULL) {
        char first[PATH_MAX_BYTES];
        const char *parts[2] = {first, NULL};
        const char *both;
        TRY(trainer_split_knn(first, &parts[1], o->trainer.knn, err));
        TRY(make_absolute(&parts[0], paths, err));
        TRY(make_absolute(&parts[1], paths, err));
        both = cli_format("%s:%s", parts[0], parts[1]);
        TRY(run_config_add_words(paths, 1, &both, err));
        kept->trainer.knn = paths->words[paths->count - 1];
    }
    for (size_t i = 0; i < kept->data.count; i++) {
        TRY(make_absolute(&kept->data.items[i], paths, err));
    }
    return STATUS_OK;
}
