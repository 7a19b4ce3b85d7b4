"""The program: `python3 -m ccstream.studies NAME ...`, or ccstudy NAME."""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from . import command, page, study

_COMMANDS = {
    "toy": "the toy problem with known popularity: NUCLR, figures 2 and 6",
    "zeta": "popularity learned by Algorithm 1, and the three forms of xi: NUCLR",
    "margin": "k-variance normalised margins and test accuracy: Chuang, chapter 8",
    "chains": "negatives sampled by Markov chains, compared with the global softmax: EMC2",
    "batch": "recall over the batch size, of global losses and CLIP: SogCLR, NUCLR",
    "gradient": "exact gradient of the global loss during training: EMC2, figure 7",
    "noise": "recall over the fraction of noisy pairs: RINCE and CLIP",
    "blocks": "blocks of similar points compared with pairs: CURL, table 2",
    "labels": "supervised towers and class collision: CURL, table 1",
    "negatives": "negatives with and without those of the anchor's class: DCL, figure 3-2",
    "normalizer": "error of log u over the batch size: SogCLR, FastCLIP, SCENT, NeuCLIP",
    "coldstart": "starting from trained weights without moments and u: TuneCLIP",
    "longtail": "gain of NUCLR over SogCLR if many images share a caption",
    "table": "a table of losses x seeds x test sets, from one file",
}
# Other programs: commands that ccstream-eval starts by this one, and one that is this one by another name.
_HOSTED = {"suite": "ccstream-eval suite", "debias": "ccstream-eval debias", "report": "ccstream-report"}
_PURPOSE = "reproduces the experiments of the papers, with their figures"
_EXAMPLES = ["ccstudy toy -o studies", "ccstudy zeta --quick --json"]

_CODES = {"UsageError": 64, "NotFoundError": 66, "UnsupportedError": 69, "OutOfMemoryError": 71, "ExistsError": 73,
          "StorageError": 74, "TimeoutError": 74, "CorruptError": 65, "VersionError": 65, "LimitError": 65,
          "MismatchError": 65}  # of ccstream's exceptions


def _unknown(word: str) -> int:
    close = difflib.get_close_matches(word, _COMMANDS, 1)
    if os.path.exists(word):
        meant = f"a command comes first: ccstudy COMMAND {word}"
    elif close:
        meant = f"did you mean '{close[0]}'?"
    else:
        meant = "the first word is a command"
    print(f"ccstudy: no command '{word}'; {meant}\nccstudy: 'ccstudy --help' lists the commands", file=sys.stderr)
    return 64


def _run(name: str, program: str, words: list[str]) -> int:
    """Returns the exit code."""
    module = importlib.import_module(f".{name}", __package__)
    options = command.parse(module, program, words)
    if hasattr(module, "check"):
        module.check(options)
    if hasattr(module, "act"):
        module.act(options, program)
        return 0
    stem = module.stem(options) if hasattr(module, "stem") else name
    if options.out is not None:
        page.check_folder(options.out, stem, options.force)
    progress = study.Progress(options.quiet)
    try:
        result = module.run(options, progress)
    finally:
        progress.clear()
    shown = not options.json and not options.quiet
    if shown:
        page.print_table(module.table(result))
    text = page.json_text(result)
    if options.out is not None:
        path = page.write_files(Path(options.out), stem, text, module, result, options)
        if shown:
            print(path)
    if options.json:
        sys.stdout.write(text)
    sys.stdout.flush()
    return module.exit_code(result) if hasattr(module, "exit_code") else 0


def _code_of(error: Exception) -> int | None:
    """The exit code of an error to report to the user; None for a bug."""
    if isinstance(error, study.StudyError):
        return error.code
    if type(error).__module__.split(".")[0] in ("ccstream", "_ccstream"):
        return _CODES.get(type(error).__name__, 70)
    if isinstance(error, MemoryError):
        return 71
    return 74 if isinstance(error, OSError) else None


def _guarded(program: str, act: Callable[[], int | None]) -> int:
    """Calls `act` and returns its exit code; errors are reported in one line."""
    try:
        return act() or 0
    except command.Stop:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE  # as programs that the signal ends, without a word
    except KeyboardInterrupt:
        print(f"{program}: stopped on request", file=sys.stderr)
        return 130
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        hint = f"\n{program}: '{program} --help' lists every option" if code == 64 and "--" in str(error) else ""
        print(f"{program}: {error}{hint}", file=sys.stderr)
        return code
    return 0


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    sys.stdout, sys.stderr = study.Terminal(sys.stdout), study.Terminal(sys.stderr)  # type: ignore[assignment]
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    if any("://" in word for word in words):
        study.hide_secrets(page.redact)
    first = words[0] if words else ""
    if first in ("--help", "-h") or words == ["help"]:
        command.print_suite(_COMMANDS, _PURPOSE, _EXAMPLES)
        return 0
    if first == "--version":
        return _guarded("ccstudy", lambda: command.print_version("ccstudy"))
    if not words:
        command.print_suite(_COMMANDS, _PURPOSE, _EXAMPLES, sys.stderr)
        return 64
    if first not in _COMMANDS and first not in _HOSTED:
        return _unknown(first)
    program = _HOSTED.get(first, f"ccstudy {first}")
    return _guarded(program, lambda: _run(first, program, words[1:]))


if __name__ == "__main__":
    sys.exit(main())
