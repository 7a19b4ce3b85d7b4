"""Loads in flight: how many loads of 16 bytes a thread issues before it needs the result of the first of them.

One load in flight leaves a third of a GPU's bandwidth unused (tests/bench/results/gpu.md), so the kernels that most of a
step's bytes go through have at least LEAST. Counted in PTX, whose order of loads ptxas keeps or improves.
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
