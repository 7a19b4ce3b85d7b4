/*
 * ccpack attach and detach: the Python package does the work, because its libraries read the
 * tables.
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/base/child_process.h"
#include "formats/base/file_io.h"
#include "formats/base/module_file.h"
#include "tools/ccpack/ccpack_internal.h"

/* Runs ccstream.attach of this program's build or installation with the words of the command line.
 * Nothing is imported from the current folder, which is untrusted. */
static enum status become_python(char *command, int argc, char **argv, struct error *err) {
    static char code[] =
        "import sys\nsys.dont_write_bytecode = True\n"
        "sys.path[:] = [sys.argv.pop(1)] + [p for p in sys.path if p not in ('', '.')]\ntry:\n"
        " from ccstream.attach import main\nexcept ImportError as e:\n"
        " print(f'ccpack: {e}: attach needs NumPy for {sys.executable}', file=sys.stderr)\n"
        " sys.exit(69)\nmain()\n";
    const char *named = getenv("CCSTREAM_PYTHON");
    char python[PATH_MAX_BYTES];
    char module[PATH_MAX_BYTES];
    char folder[PATH_MAX_BYTES];
    named = named != NULL && named[0] != '\0' ? named : CCS_PYTHON;
    FAIL_IF(!child_program_find(python, sizeof(python), named), err, STATUS_UNSUPPORTED,
            "there is no %.200s to run attach", named);
    FAIL_IF(!module_file_find(module, sizeof(module), "python/ccstream/attach.py", "") &&
                !module_file_find(module, sizeof(module), "../python/ccstream/attach.py", ""),
            err, STATUS_UNSUPPORTED,
            "this installation has no Python package: install Python 3.11 with NumPy, and build "
            "again");
    TRY(path_directory(folder, sizeof(folder), module, err));
    TRY(path_directory(module, sizeof(module), folder, err));
    char **words = calloc((size_t)argc + 5, sizeof(*words));
    TRY_MEMORY(words, err, "out of memory");
    char *first[] = {python, (char[]){"-c"}, code, module, command};
    for (size_t i = 0; i < 5; i++) {
        words[i] = first[i];
    }
    for (int i = 1; i < argc; i++) {
        words[i + 4] = argv[i];
    }
    char **const environment = child_environment(false);
    TRY_MEMORY(environment, err, "out of memory");
    execve(python, words, environment);
    return error_set_errno(err, "cannot run %.200s", python);
}

static int run(const char *name, char *command, int argc, char **argv) {
    const struct cli_program program = {.name = name};
    struct error err = {0};
    return cli_exit(&program, become_python(command, argc, argv, &err), &err);
}

int ccpack_attach_main(int argc, char **argv) {
    return run("ccpack attach", (char[]){"attach"}, argc, argv);
}

int ccpack_detach_main(int argc, char **argv) {
    return run("ccpack detach", (char[]){"detach"}, argc, argv);
}
