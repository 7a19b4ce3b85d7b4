/*
 * ccpack seal: the SHA-256 of every file of a dataset, to be published with it.
 */
#include "tools/inspect/seal.h"
#include "formats/base/file_io.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/cli/output.h"

struct options {
    const char *out;
    bool force;
};

static const struct cli_option rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "FILE",
     .help = "write the lines to this file instead of standard output"},
    OUTPUT_FORCE_ROW(struct options, force),
};

static const struct cli_program program = {
    .name = "ccpack seal",
    .purpose = "prints the SHA-256 of every file of a dataset, and one hash over all of them",
    .usage = CLI_TEXTS("DATASET [-o FILE]"),
    CLI_OPTIONS(rows),
    .arguments = {1, 1},
    .examples =
        CLI_TEXTS("ccpack seal cc3m -o cc3m.sha256", "ccdump verify cc3m --seal cc3m.sha256"),
    .notes =
        CLI_TEXTS("The output has the format of sha256sum; 'sha256sum -c' in the dataset's folder "
                  "checks it. The last line on stderr is the hash of the output: anyone who has it "
                  "from a trusted source can check the dataset with 'ccdump verify --sha256'. The "
                  "checksums inside a dataset are XXH64, which detect damage but not forgery.")};

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct byte_buffer lines;
    char root[SHA256_HEX_BYTES];
    if (o->out) {
        TRY(output_check_file(o->out, o->force, err));
        TRY(file_make_parents(file_posix(), o->out, err));
    }
    enum status s = seal_make(&lines, root, a->items[0], err);
    THEN(s, o->out ? file_write_atomic(file_posix(), o->out, lines.data, lines.size_bytes, err)
                   : cli_put(lines.data, lines.size_bytes, err));
    if (s == STATUS_OK) {
        cli_print(stderr, "%s: sha256 %s\n", a->items[0], root);
    }
    byte_buffer_fini(&lines);
    return s;
}

CLI_MAIN(ccpack_seal_main, program, struct options, run)
