"""PTX as nvcc writes it, in statements."""

import re

BITS = {"pred": 1}
for letter in "busf":
    for size in (8, 16, 32, 64):
        BITS[f"{letter}{size}"] = size

REGISTER = {1: "bool", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}


class Unknown(Exception):
    """PTX that is not understood: never skipped."""


def c_type(ptx):
    """The C type of a value: of f32 float, of s16 int16_t, of b8 uint8_t."""
    if ptx == "pred":
        return "bool"
    if ptx not in BITS:
        raise Unknown(f"type .{ptx}")
    if ptx[0] == "f" and BITS[ptx] >= 32:
        return "float" if ptx == "f32" else "double"
    return ("int" if ptx[0] == "s" else "uint") + f"{BITS[ptx]}_t"


class Statement:
    """A label, '{' or '}' (both with op None), or an instruction: [@predicate] op arguments."""

    def __init__(self, line, label=None, brace=None, predicate=None, op=None, arguments=()):
        self.line = line
        self.label = label
        self.brace = brace
        self.predicate = predicate
        self.op = op
        self.arguments = list(arguments)

    def __str__(self):
        before = f"@{self.predicate} " if self.predicate else ""
        return f"{before}{self.op} {', '.join(self.arguments)}"


class Variable:
    """Memory with a name: a parameter, a shared or local variable, a table of constants."""

    def __init__(self, name, align, size, values=None):
        self.name = name
        self.align = align
        self.size = size
        self.values = values


class Function:
    """A kernel (`entry`) or a function that kernels call."""

    def __init__(self, name, entry, parameters, results):
        self.name = name
        self.entry = entry
        self.parameters = parameters
        self.results = results
        self.shared = []
        self.statements = []
        self.declared = {}  # line of the declaration -> what it declares

    def instructions(self):
        return [s for s in self.statements if s.op]


class Module:
    def __init__(self, unit):
        self.unit = unit
        self.constants = []
        self.shared = []
        self.functions = []

    def kernels(self):
        return [f for f in self.functions if f.entry]


def variable(text):
    text = re.sub(r"\s+", " ", text.strip())
    text = re.sub(r" \.ptr( \.(global|shared|local|const))?( \.align \d+)?", "", text)  # what a pointer points to
    m = re.fullmatch(r"(?:\.align (\d+) )?\.([busf]\d+) ([\w$.]+)(?:\[(\d+)\])?(?: ?= ?\{([^}]*)\})?", text)
    if not m or m[2] not in BITS:
        raise Unknown(f"declaration {text}")
    width = BITS[m[2]] // 8
    size = width * int(m[4] or 1)
    return Variable(m[3], int(m[1] or width), size, m[5])


def variables(text):
    return [variable(v.strip().removeprefix(".param")) for v in text.split(",") if v.strip()]


def split_arguments(text):
    """Arguments at commas outside of brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    if part.strip():
        parts.append(part.strip())
    return parts


INSTRUCTION = re.compile(r"(?:@(!?%[\w$]+)\s+)?([a-z][\w.:]*)(?:\s+(.*))?$", re.S)


def parse_body(function, text, line):
    """Statements of a body. `line` is that of its first character."""
    at = 0
    while True:
        m = re.compile(r"\s*").match(text, at)
        line += text.count("\n", at, m.end())
        at = m.end()
        if at == len(text):
            return
        m = re.compile(r"(\$?\w+):").match(text, at)
        if m:
            function.statements.append(Statement(line, label=m[1]))
            at = m.end()
            continue
        if text[at] in "{}":
            function.statements.append(Statement(line, brace=text[at]))
            at += 1
            continue
        end = text.index(";", at)
        statement = text[at:end].strip()
        if statement.startswith("."):
            declare(function, line, statement)
        else:
            m = INSTRUCTION.match(statement)
            if not m:
                raise Unknown(f"line {line}: {statement}")
            arguments = split_arguments(re.sub(r"\s+", " ", m[3] or ""))
            function.statements.append(Statement(line, None, None, m[1], m[2], arguments))
        line += text.count("\n", at, end)
        at = end + 1


def declare(function, line, text):
    kind, _, rest = text[1:].partition(" ")
    if kind == "pragma":
        return
    if kind == "shared":
        function.shared.append(variable(rest))
        return
    if kind in ("local", "param"):
        function.statements.append(Statement(line, op="." + kind, arguments=[variable(rest)]))
        return
    if kind != "reg":
        raise Unknown(f"line {line}: .{text}")
    m = re.fullmatch(r"\.(\w+)\s+(.*)", rest.strip(), re.S)
    names = []
    for name in m[2].split(","):
        many = re.fullmatch(r"(%?[\w$]+)<(\d+)>", name.strip())
        names += [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name.strip()]
    function.statements.append(Statement(line, op=".reg", arguments=[m[1], names]))


FUNCTION = re.compile(
    r"^(?:\.visible |\.weak )*\.(entry|func)\s+(?:\(([^)]*)\)\s*)?([\w$]+)\s*\(([^)]*)\)((?:\s*\.(?:maxntid|minnctapersm|reqntid)[^\n{]*)*)\s*([{;])",
    re.M)


def parse(unit, text):
    text = re.sub(r"//[^\n]*", "", text)
    module = Module(unit)
    outside = []
    last = 0
    for m in FUNCTION.finditer(text):
        if m.start() < last:
            raise Unknown(f"{unit}: a function inside of another")
        outside.append(text[last:m.start()])
        last = m.end()
        if m[6] == ";":
            continue
        depth, end = 1, m.end()
        while depth > 0:
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        function = Function(m[3], m[1] == "entry", variables(m[4]), variables(m[2] or ""))
        parse_body(function, text[m.end():end - 1], text.count("\n", 0, m.end()) + 1)
        module.functions.append(function)
        last = end
    outside.append(text[last:])
    head = re.sub(r"^\.(version|target|address_size)[^\n]*", "", "\n".join(outside), flags=re.M)
    for statement in filter(None, (x.strip() for x in head.split(";"))):
        m = re.match(r"\.(?:visible )?\.?(global|shared)\s+", statement)
        if m:
            (module.constants if m[1] == "global" else module.shared).append(variable(statement[m.end():]))
        else:
            raise Unknown(f"{unit}: {statement[:80]}")
    return module
