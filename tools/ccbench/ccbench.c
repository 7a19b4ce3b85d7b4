/*
 * ccbench: measures parts of ccstream on this machine, each next to its own limit.
 */
#include "tools/ccbench/ccbench_internal.h"
#include "tools/cli/openmp_wait.h"

int main(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"loader", "pairs per second, beside the limit of this machine", ccbench_loader},
        {"ops", "every operator, beside a matrix product and a copy", ccbench_ops},
        {"decode", "bare JPEG decoding, in images and MB per second and core", ccbench_decode},
        {"step", "training steps, operator by operator, beside the convolutions alone",
         ccbench_step},
    };
    static const char *const examples[] = {
        "ccbench loader cc3m --threads 2",
        "ccbench loader --data cc3m:0.7 --data coco:0.3 --size 224 --io pread --json",
        "ccbench decode cc3m",
        "ccbench ops --only conv_bn",
        "ccbench step --tower image --image-tower resnet18 --image-size 112 --batch 32",
        NULL,
    };
    static const struct cli_suite suite = {
        .name = "ccbench",
        .purpose = "measure on this machine",
        .commands = commands,
        .command_count = CLI_COUNT(commands),
        .examples = examples,
    };
    openmp_wait_briefly(argv);
    return cli_suite_main(&suite, argc, argv);
}
