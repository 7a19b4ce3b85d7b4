"""Faults in PTX, one in each mutant, drawn by seed: a barrier removed, an index off by one, a wrong stride, a
missing predicate.

Only places whose fault can show are drawn: accesses that the tests execute, products before them, branches before
them that are taken at times, and barriers without which two accesses of a test would race. Not drawn: strides of a
grid, which do nothing in tests with fewer blocks than a grid may have.
"""

import copy
import random
import re

from parse import BITS

MEMORY = re.compile(r"(ld|st)\.(global|shared)|ldmatrix|cp\.async\.c")


class Mutant:
    def __init__(self, seed, module, kernel, shown_by, what):
        self.seed = seed
        self.module = module
        self.kernel = kernel
        self.shown_by = shown_by  # the line that a test must have executed to find it
        self.what = what


def barriers(function):
    return [i for i, s in enumerate(function.statements) if s.op == "bar.sync"]


def next_access(function, i):
    """Line of the first access of memory after a statement, before the next label or branch; None: there is none."""
    for t in function.statements[i + 1:]:
        if t.label or (t.op and t.op.startswith("bra")):
            return None
        if t.op and MEMORY.match(t.op):
            return t.line
    return None


def indices(function):
    return [i for i, s in enumerate(function.statements)
            if s.op and re.match(r"(ld|st)\.(global|shared)", s.op)]


def strides(function):
    """Products with a constant, and shifts, of which an address is made."""
    grid = {s.arguments[0] for s in function.instructions() if s.op.startswith("mov") and "%nctaid" in s.arguments[1]}
    return [i for i, s in enumerate(function.statements) if s.op and
            (re.match(r"mul\.wide", s.op) or s.op == "shl.b64") and re.fullmatch(r"\d+", s.arguments[2])
            and s.arguments[1] not in grid]


def predicates(function):
    return [i for i, s in enumerate(function.statements) if s.op == "bra" and s.predicate]


def shown_by(function, i):
    """The line whose access, branch taken or barrier needed shows that a fault here has an effect."""
    s = function.statements[i]
    if s.op in ("bar.sync", "bra") or MEMORY.match(s.op):
        return s.line
    return next_access(function, i)


def can_show(function, i, lines):
    return shown_by(function, i) in lines and (function.statements[i].op != "bra" or next_access(function, i) in lines)


def needless_barriers(modules, lines):
    """(kernel, line) of barriers between whose sides nothing conflicts in any test."""
    return [(k.name, k.statements[i].line) for m in modules for k in m.kernels() if k.name in lines
            for i in barriers(k) if k.statements[i].line not in lines[k.name]]


def remove(s):
    s.op, s.predicate, s.arguments = "mov.pred", None, ["_", "0"]


def off_by_one(s):
    kind = s.op.rsplit(".", 1)[1]
    count = 4 if ".v4" in s.op else 2 if ".v2" in s.op else 1
    which = 0 if s.op.startswith("st") else 1
    m = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", s.arguments[which])
    s.arguments[which] = f"[{m[1]}+{int(m[2] or 0) + BITS[kind] // 8 * count}]"


def wider(s):
    s.arguments[2] = str(int(s.arguments[2]) + 1 if s.op.startswith("shl") else 2 * int(s.arguments[2]))


KINDS = (("barrier removed", barriers, remove), ("index off by one", indices, off_by_one),
         ("stride doubled", strides, wider), ("branch removed", predicates, remove))


def choose(modules, count, lines):
    """`count` mutants, of each kind in turn; `lines` of each kernel that have accessed memory, branched or been needed."""
    places = {}
    for module in modules:
        for kernel in module.kernels():
            for kind, find, _ in KINDS if kernel.name in lines else ():
                places.setdefault(kind, []).extend((module, kernel, i) for i in find(kernel)
                                                   if can_show(kernel, i, lines[kernel.name]))
    mutants = []
    for seed in range(count):
        kind, _, change = KINDS[seed % len(KINDS)]
        draw = random.Random(seed)
        # A kernel first, so that long ones have no more weight than short ones.
        names = sorted({k.name for _, k, _ in places[kind]})
        name = draw.choice(names)
        module, kernel, at = draw.choice([p for p in places[kind] if p[1].name == name])
        changed = copy.deepcopy(kernel)
        s = changed.statements[at]
        before = str(s)
        change(s)
        mutants.append(Mutant(seed, module, changed, shown_by(kernel, at), f"{kernel.name}, line {s.line}: {kind}: {before}"))
    return mutants
