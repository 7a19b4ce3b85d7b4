/*
 * ccdump: inspects datasets, shards, plain tars and checkpoints. Results go to stdout, as text or
 * as JSON.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/child_process.h"
#include "tools/ccdump/ccdump_internal.h"

/* `ccdump repair`, an alias: executes the ccpack next to this program. */
static int repair(char **argv) {
    char path[PATH_MAX + sizeof("ccpack")] = "";
    const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    fputs("ccdump: 'ccdump repair' is now 'ccpack repair'\n", stderr);
    if (n > 0) {
        strcpy(strrchr(path, '/') + 1, "ccpack");
        execve(path, argv, child_environment(false));
    }
    cli_print(stderr, "ccdump: %s cannot be started\n", path);
    return 69;
}

int main(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"info", "a summary of a dataset, a shard or a tar", ccdump_info},
        {"ls", "one line per sample, or per shard", ccdump_ls},
        {"show", "one sample: captions, metadata, index fields, image", ccdump_show},
        {"find", "the samples that match conditions: key, caption, size, class", ccdump_find},
        {"stats", "histograms of sizes and captions; formats, duplicates, classes", ccdump_stats},
        {"duplicates", "exact and near-duplicate images", ccdump_duplicates},
        {"verify", "read and check everything", ccdump_verify},
        {"cat", "samples as a plain tar, or parts of samples", ccdump_cat},
        {"extract", "samples as files in a folder", ccdump_extract},
        {"state", "a checkpoint's per-sample state", ccdump_state},
        {"popularity", "the samples with the largest and smallest learned popularity",
         ccdump_popularity},
        {"order", "the samples of a training step", ccdump_order},
        {"why", "one sample in a run: training history, per-sample state, nearest neighbours",
         ccdump_why},
    };
    static const char *const examples[] = {
        "ccdump info cc3m",
        "ccdump show cc3m 12",
        "ccdump find cc3m --caption 'red car' --json",
        "ccdump verify cc3m --jobs 8",
        "ccdump cat cc3m | tar -t",
        "ccdump popularity runs/a cc3m --html popularity.html",
        "ccdump why runs/a cc3m 12 --html 12.html",
        NULL,
    };
    static const struct cli_suite suite = {
        .name = "ccdump",
        .purpose = "inspects datasets, single shards, plain WebDataset tars and checkpoints",
        .commands = commands,
        .command_count = CLI_COUNT(commands),
        .examples = examples,
    };
    /* So that "ccdump ls DIR | head" exits silently, even if the parent process ignores the signal.
     */
    signal(SIGPIPE, SIG_DFL);
    if (argc > 1 && strcmp(argv[1], "repair") == 0) {
        return repair(argv);
    }
    return cli_suite_main(&suite, argc, argv);
}
