/*
 * ccstream-eval: evaluates checkpoints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/base/child_process.h"
#include "formats/base/module_file.h"
#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/cli/cli.h"
#include "tools/cli/openmp_wait.h"

/* `ccstream-eval suite` and `debias` are Python, using `ccpack index` and `ccstream-eval embed`:
 * executes the ccstudy next to this program. */
static int python_command(int argc, char **argv) {
    char path[PATH_MAX_BYTES];
    char **words = calloc((size_t)argc + 2, sizeof *words);
    char **const environment = child_environment(true); /* sets and models may be remote */
    if (words != NULL && environment != NULL &&
        module_file_find(path, sizeof path, "ccstudy", "CCSTREAM_CCSTUDY")) {
        words[0] = path;
        for (int i = 0; i < argc; i++) {
            words[i + 1] = argv[i];
        }
        (void)execve(path, words, environment);
    }
    free(environment);
    free(words);
    cli_print(stderr,
              "ccstream-eval %s: is written in Python, in ccstudy, which is not next to this "
              "program or cannot be started: build with python3-dev and python3-numpy\n",
              argv[0]);
    return status_exit_code(STATUS_UNSUPPORTED);
}

static const struct cli_command commands[] = {
    {"retrieval", "recall between images and captions", ccstream_eval_retrieval},
    {"zeroshot", "classification by class names in prompts", ccstream_eval_zeroshot},
    {"suite", "the 38 test sets of DataComp, or others in that layout, in one pass",
     python_command},
    {"debias", "zero-shot classification with a spurious attribute removed, by group",
     python_command},
    {"linear", "a linear classifier on the image features", ccstream_eval_linear},
    {"knn", "classification by nearest neighbours", ccstream_eval_knn},
    {"mean", "classification by the mean features of each class", ccstream_eval_mean},
    {"embed", "writes embeddings as .npy", ccstream_eval_embed},
    {"score", "image-caption similarity, by sample id", ccstream_eval_score},
    {"objective", "exact global losses over a whole dataset", ccstream_eval_objective},
};

static const struct cli_suite suite = {
    .name = "ccstream-eval",
    .purpose = "evaluates a checkpoint",
    .commands = commands,
    .command_count = CLI_COUNT(commands),
    .examples = CLI_TEXTS("ccstream-eval retrieval runs/a --data coco-test --json",
                          "ccstream-eval zeroshot runs/a --data cifar10-test",
                          "ccstream-eval linear runs/a --train cifar10 --data cifar10-test"),
};

int main(int argc, char **argv) {
    openmp_wait_briefly(argv);
    return cli_suite_main(&suite, argc, argv);
}
