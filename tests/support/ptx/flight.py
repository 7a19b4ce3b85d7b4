"""Loads in flight: how many loads of 16 bytes a thread issues before it needs the result of the first of them.

One load in flight leaves a third of a GPU's bandwidth unused (tests/bench/results/gpu.md), so the kernels that most of a
step's bytes go through have at least LEAST. Counted in PTX, and where there is an nvdisasm in what ptxas makes of it.
"""

import re

LEAST = 4
# Batch norm and AdamW in their wide form: 27 ms of a ResNet-50 step of 70 on an H200.
STREAMING = re.compile(r"_Z\d+(apply|statistics_partials|backward_partials|backward_apply)I.*Li[48]EEv|_Z5adamwILi4E")
STREAMING_COUNT = 17
WIDE = re.compile(r"ld\.global.*\.v[48]")


def registers(text):
    return re.findall(r"%[\w$]+", text) if isinstance(text, str) else []


def in_flight(function):
    """The most loads of 16 bytes in a row of which none is used before the last."""
    most = now = 0
    waiting = set()  # registers that loads fill
    for s in function.instructions():
        if s.op.startswith("."):
            continue
        if s.op.startswith("mov"):  # another name, no use
            if waiting.intersection(registers(s.arguments[1])):
                waiting.update(registers(s.arguments[0]))
            continue
        is_load = WIDE.match(s.op)
        used = s.arguments if s.op.startswith(("st.", "bra", "bar")) else s.arguments[1:]
        if any(waiting.intersection(registers(a)) for a in used):
            waiting.clear()
            now = 0
        if is_load:
            now += 1
            waiting.update(registers(s.arguments[0]))
            most = max(most, now)
    return most


def few_loads(modules):
    """A line for each streaming kernel with less than LEAST, and if one of them has another name."""
    found = {k.name: in_flight(k) for m in modules for k in m.kernels() if STREAMING.match(k.name)}
    lines = [f"{name}: {count} loads of 16 bytes in flight, fewer than {LEAST}" for name, count in found.items() if count < LEAST]
    if len(found) != STREAMING_COUNT:
        lines.append(f"{len(found)} kernels stream, not {STREAMING_COUNT}: see tests/support/ptx/flight.py")
    return lines


# ---- what ptxas makes of it ----

SASS_FUNCTION = re.compile(r"^\.text\.(\w+):", re.M)
SASS_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)\s*(.*?)\s*;")
# Masks from outputs, for units with a residual: ptxas unpacks the first row's loads between those of the second. On the H200
# this kernel reached 0.97 of the copy rate all the same (docs/results/steps.md).
SASS_FEWER = {"backward_partialsIL4mask1E": 3}
SASS_WIDE = re.compile(r"LDG\.E\.(?:\w+\.)*?(128|256|ENL2\.256)")


def sass_registers(text):
    return [int(r) for r in re.findall(r"\bR(\d+)\b", text)]


def sass_in_flight(text):
    """in_flight of the text of one function by nvdisasm. A label ends a row: a loop's loads begin there."""
    most = now = 0
    waiting = set()
    for line in text.splitlines():
        m = SASS_INSTRUCTION.search(line)
        if not m:
            if line.startswith(".L"):
                waiting.clear()
                now = 0
            continue
        name, arguments = m[1], m[2].split(",")
        load = SASS_WIDE.match(name)
        filled = 0  # arguments that it writes
        if not name.startswith(("ST", "BRA", "EXIT", "BAR", "RED", "ATOM")):
            filled = 2 if load and "256" in load[1] else 1
        if waiting.intersection(sass_registers(",".join(arguments[filled:]))):
            waiting.clear()
            now = 0
        if load:
            now += 1
            for argument in arguments[:filled]:
                for first in sass_registers(argument):
                    waiting.update(range(first, first + 4))
            most = max(most, now)
    return most


def few_loads_of_sass(text):
    """few_loads in the output of `nvdisasm -c`, after the number of streaming kernels in it."""
    parts = SASS_FUNCTION.split(text)
    found = {name: sass_in_flight(body) for name, body in zip(parts[1::2], parts[2::2]) if STREAMING.match(name)}
    least = {name: next((n for part, n in SASS_FEWER.items() if part in name), LEAST) for name in found}
    return len(found), [f"{name}: {count} loads of 16 bytes in flight in SASS, fewer than {least[name]}"
                        for name, count in found.items() if count < least[name]]
