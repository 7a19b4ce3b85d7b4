/*
 * ccbench: measures parts of ccstream on this machine, each against its own limit.
 */
#include "tools/ccbench/ccbench_internal.h"
#include "tools/cli/openmp_wait.h"

int main(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"loader", "pairs per second of the loader, and the machine's limit", ccbench_loader},
        {"ops", "each operator, compared with a matrix product and a copy", ccbench_ops},
        {"step", "training steps, operator by operator, compared with their convolutions alone",
         ccbench_step},
        {"loss", "a step of a loss on the CPU, compared with its matrix products alone",
         ccbench_loss},
    };
    static const char *const examples[] = {
        "ccbench loader cc3m --threads 2",
        "ccbench loader --data cc3m:0.7 --data coco:0.3 --size 224 --io-engine pread --json",
        "ccbench ops --only conv_bn",
        "ccbench step --tower image --image-tower resnet18 --image-size 112 --batch-size 32",
        "ccbench loss clip --batch-size 16384 --dim 512",
        NULL,
    };
    static const struct cli_suite suite = {
        .name = "ccbench",
        .purpose = "measures the speed of ccstream on this machine",
        .commands = commands,
        .command_count = CLI_COUNT(commands),
        .examples = examples,
    };
    openmp_wait_briefly(argv);
    return cli_suite_main(&suite, argc, argv);
}
