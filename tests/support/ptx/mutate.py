"""Faults in PTX, one in each mutant, drawn by seed: a barrier removed, an index off by one, a wrong stride, a
missing predicate.

Only places whose fault can show are drawn: accesses that the tests execute, products before them, branches before
them that are taken at times, and barriers with accesses of shared memory before and after them. Not drawn: strides of a grid, which do nothing in tests
with fewer blocks than a grid may have; and barriers of store_partials (NEEDLESS), where each thread reads its own element
before it writes it again.
"""

import copy
import random
import re

from parse import BITS

NEEDLESS = ("parameter_partials", "statistics_partials")
MEMORY = re.compile(r"(ld|st)\.(global|shared)|ldmatrix|cp\.async\.c")
SHARED = re.compile(r"(ld|st)\.shared|ldmatrix|cp\.async\.c")


class Mutant:
    def __init__(self, seed, module, kernel, what):
        self.seed = seed
        self.module = module
        self.kernel = kernel
        self.what = what


def targets(function):
    return {s.label: i for i, s in enumerate(function.statements) if s.label}


def successors(function, labels, i):
    s = function.statements[i]
    follow = []
    if s.op and s.op.startswith("bra"):
        follow.append(labels[s.arguments[0]])
        if s.op == "bra.uni" or not s.predicate:
            return follow
    if s.op in ("ret", "exit") and not s.predicate:
        return follow
    return follow + ([i + 1] if i + 1 < len(function.statements) else [])


def reaches_shared(graph, function, start):
    """Whether an access of shared memory comes after a statement, before another barrier or not."""
    seen, todo = set(), list(graph[start])
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        op = function.statements[i].op
        if op and SHARED.match(op):
            return True
        todo += graph[i]
    return False


def barriers(function):
    """Barriers with shared accesses before and after them."""
    labels = targets(function)
    after = {i: successors(function, labels, i) for i in range(len(function.statements))}
    before = {i: [] for i in after}
    for i, follow in after.items():
        for j in follow:
            before[j].append(i)
    return [i for i in after if function.statements[i].op == "bar.sync"
            and reaches_shared(after, function, i) and reaches_shared(before, function, i)]


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


def is_executed(function, i, lines):
    s = function.statements[i]
    if s.op == "bar.sync":
        return not any(name in function.name for name in NEEDLESS)
    if s.op == "bra" and s.line not in lines:  # never taken
        return False
    return (s.line if MEMORY.match(s.op) else next_access(function, i)) in lines


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
    """`count` mutants, of each kind in turn; `lines` of each kernel that have accessed memory or branched."""
    places = {}
    for module in modules:
        for kernel in module.kernels():
            for kind, find, _ in KINDS if kernel.name in lines else ():
                places.setdefault(kind, []).extend((module, kernel, i) for i in find(kernel)
                                                   if is_executed(kernel, i, lines[kernel.name]))
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
        mutants.append(Mutant(seed, module, changed, f"{kernel.name}, line {s.line}: {kind}: {before}"))
    return mutants
