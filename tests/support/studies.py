"""Runs commands of a program of the studies, each in a fork of one process that has imported NumPy, matplotlib and the studies:
imports take most of the time of a short study.

    coproc STUDIES { exec PYTHON studies.py PROGRAM; }

reads a command per line: the pid of a process, whose files 8 and 9 are stdout and stderr, and the words, each with a tab after
it. Writes the exit code of each.
"""

import importlib
import os
import runpy
import sys
import traceback

program = sys.argv[1]
sys.argv = [program, "--version"]
with open(os.devnull, "w") as nowhere:
    commands, codes, sys.stdout = sys.stdin.buffer, sys.stdout, nowhere
    try:
        runpy.run_path(program, run_name="__main__")  # finds the package, as the program does
    except SystemExit:
        pass
for name in ("numpy", "ccstream", "matplotlib.figure", "matplotlib.backends.backend_svg", "matplotlib.backends.backend_agg",
             *(f"studies.{n}" for n in ("toy", "chains", "blocks", "zeta", "batch", "noise", "labels", "negatives", "normalizer",
                                        "coldstart", "longtail", "margin"))):
    try:
        importlib.import_module(name)
    except ImportError:
        pass  # the command says so
main = sys.modules["studies.__main__"].main
for line in iter(commands.readline, b""):
    pid, *words = line.decode().split("\t")[:-1]
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # commands are for the parent alone
        for number, of_client in ((1, 8), (2, 9)):
            os.dup2(os.open(f"/proc/{pid}/fd/{of_client}", os.O_WRONLY), number)
        sys.stdout, sys.stderr = (os.fdopen(n, "w") for n in (1, 2))
        sys.argv = [program, *words]
        code = 1
        try:
            code = main(words)
            sys.stdout.flush()
        except SystemExit as error:
            code = error.code
        except BaseException:  # a bug: its trace is in the output
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=codes, flush=True)
