"""The command line of a study: option tables parsed by the same rules as in the C programs, and --help."""

from __future__ import annotations

import difflib
import math
import sys
import textwrap
from types import ModuleType
from typing import Any

from .study import COMMON, Option, Options, UsageError, ccstream

_WIDTH = 100
VERSION: str | None = None  # of the program; None: that of the package


class Stop(Exception):
    """--help or --version was printed."""


def options_of(study: ModuleType) -> list[Option]:
    own = list(study.OPTIONS)
    return own if any(row.name == "out" for row in own) else COMMON + own


# ---- values


def _value(row: Option, text: str) -> Any:
    if row.word and text == row.word:
        return None
    if row.choices and text not in row.choices:
        close = difflib.get_close_matches(text, row.choices, 1)
        raise UsageError(f"--{row.name} must be one of {', '.join(row.choices)}, not '{text}'" +
                         (f"; did you mean '{close[0]}'?" if close else ""))
    if row.kind not in (int, float):
        return text
    number: float | None = None
    try:
        number = row.kind(text) if text == text.strip() and "_" not in text else None
    except ValueError:
        pass
    if number is None or not math.isfinite(number):
        noun = "an integer" if row.kind is int else "a number"
        raise UsageError(f"--{row.name} requires {noun}{' or ' + row.word if row.word else ''}, not '{text}'")
    if row.least is not None and number < row.least:
        raise UsageError(f"--{row.name} must be at least {row.least}, not {text}")
    if row.most is not None and number > row.most:
        raise UsageError(f"--{row.name} must be at most {row.most}, not {text}")
    return number


def parse(study: ModuleType, program: str, words: list[str]) -> Options:
    """Options of a study's command line. Raises UsageError, and Stop after --help or --version."""
    rows = options_of(study)
    options = Options(given=set(), arguments=[])
    for row in rows:
        start = [] if row.kind is list else False if row.kind is bool else row.default
        setattr(options, _member(row), start)
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            options.arguments += words
            break
        if word == "":
            raise UsageError("an argument is empty")
        if word == "-" or not word.startswith("-"):
            options.arguments.append(word)
        elif word.startswith("--"):
            _long(study, program, rows, options, word, words)
        else:
            _short(study, program, rows, options, word, words)
    least, most = getattr(study, "ARGUMENTS", (0, 0))
    usage = f"usage: {program} {usage_of(study)[0]}"
    if len(options.arguments) < least:
        raise UsageError(f"too few arguments; {usage}")
    if len(options.arguments) > most:
        raise UsageError(f"one argument too many: '{options.arguments[most]}'; {usage}")
    return options


def _member(row: Option) -> str:
    return row.name.replace("-", "_")


def _long(study: ModuleType, program: str, rows: list[Option], options: Options, word: str, rest: list[str]) -> None:
    name, equals, glued = word[2:].partition("=")
    if name == "help":
        print_help(study, program)
        raise Stop
    if name == "version":
        print_version(program)
        raise Stop
    row = next((row for row in rows if name and name in (row.name, row.former)), None)
    if row is None:
        close = difflib.get_close_matches(name, [row.name for row in rows], 1)
        raise UsageError(f"unknown option '--{name}'" + (f"; did you mean '--{close[0]}'?" if close else ""))
    _take(rows, options, row, glued if equals else None, rest)


def _short(study: ModuleType, program: str, rows: list[Option], options: Options, word: str, rest: list[str]) -> None:
    name = word[1:].partition("=")[0]
    if len(name) > 1 and any(row.name == name for row in rows):
        raise UsageError(f"unknown option '-{name}'; did you mean '--{name}'?")
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        row = next((row for row in rows if row.letter == letter), None)
        if row is None and letter == "h":
            print_help(study, program)
            raise Stop
        if row is None:
            raise UsageError(f"unknown option '-{letter}'")
        if row.kind is bool:
            _take(rows, options, row, None, rest)
        else:
            _take(rows, options, row, letters or None, rest)
            break


def _take(rows: list[Option], options: Options, row: Option, glued: str | None, rest: list[str]) -> None:
    options.given.add(row.name)
    if row.kind is bool:
        if glued is not None:
            raise UsageError(f"--{row.name} takes no value")
        setattr(options, _member(row), True)
        return
    if glued is None:
        if not rest:
            raise UsageError(f"--{row.name} requires a value: {row.metavar}")
        if rest[0].startswith("--") and any(rest[0][2:].partition("=")[0] == other.name for other in rows):
            raise UsageError(f"--{row.name} requires a value: {row.metavar}; the option '{rest[0]}' follows it")
    text = glued if glued is not None else rest.pop(0)
    if text == "":
        raise UsageError(f"--{row.name} requires a value, not an empty one: {row.metavar}")
    if row.kind is list:
        getattr(options, _member(row)).append(text)
    else:
        setattr(options, _member(row), _value(row, text))


# ---- help


def usage_of(study: ModuleType) -> list[str]:
    return list(getattr(study, "USAGE", ["[-o DIR] [options]"]))


def _facts(row: Option) -> str:
    """"[256..4096, default 512]", or nothing."""
    facts = ""
    least, most = (f"{v:,}" if v is not None and v >= 10000 else f"{v}" for v in (row.least, row.most))
    if row.choices:
        facts = "|".join(row.choices)
    elif row.least is not None and row.most is not None and row.least != 0:
        facts = f"{least}..{most}"
    elif row.most is not None:
        facts = f"at most {most}" if row.kind is int else f"0..{most}"
    elif row.least:
        facts = f"at least {least}"
    if row.word and facts:
        facts += f" or {row.word}"
    default = row.word if row.word and row.default is None else row.default
    parts = [facts] if facts else []
    if default is not None and row.kind not in (bool, list):
        parts.append(f"default {default}")
    if row.kind is list:
        parts.append("may be repeated")
    return f" [{', '.join(parts)}]" if parts else ""


def _entry(left: str, right: str, column: int) -> str:
    lines = textwrap.wrap(right, _WIDTH - column, break_long_words=True, break_on_hyphens=False)
    head = f"{left:{column}}" if len(left) + 2 <= column else f"{left}\n{' ' * column}"
    return head + f"\n{' ' * column}".join(lines)


def _command(text: str) -> str:
    """A command line, broken at spaces with backslashes so that it can be copied as a whole."""
    return " \\\n      ".join(textwrap.wrap(text, _WIDTH - 10, initial_indent="  ", break_long_words=False,
                                            break_on_hyphens=False))


def print_help(study: ModuleType, program: str) -> None:
    rows = options_of(study)
    left = {row.name: f"  {'-' + row.letter + ', ' if row.letter else '    '}--{row.name}"
            f"{' ' + row.metavar if row.metavar else ''}" for row in rows}
    column = max([len("      --version") + 2] + [len(text) + 2 for text in left.values() if len(text) <= 32])
    out = [*textwrap.wrap(f"{program}: {study.PURPOSE}", _WIDTH, subsequent_indent=" " * (len(program) + 2)), ""]
    for i, usage in enumerate(usage_of(study)):
        out.append(f"{'usage:' if i == 0 else '      '} {program} {usage}")
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            out += ["", f"{group}:"]
        out.append(_entry(left[row.name], row.help + _facts(row), column))
    out += ["", "Always:", _entry("  -h, --help", "this text", column),
            _entry("      --version", "name and version", column)]
    for note in study.NOTES:
        out += ["", *textwrap.wrap(note, _WIDTH, break_on_hyphens=False)]
    out += ["", "Examples:", *map(_command, study.EXAMPLES)]
    print("\n".join(out))


def print_version(program: str) -> None:
    print(f"{program.partition(' ')[0]} {VERSION or ccstream.version()} (ccstream)")


def print_suite(commands: dict[str, str], purpose: str, examples: list[str], out: Any = None) -> None:
    lines = [f"ccstudy: {purpose}", "", "usage: ccstudy COMMAND [options] ...", "", "Commands:"]
    lines += [_entry(f"  {name}", text, 16) for name, text in commands.items()]
    lines += ["", "'ccstudy COMMAND --help' lists a command's options.", "", "Examples:", *map(_command, examples)]
    print("\n".join(lines), file=out or sys.stdout)
