"""Kernels in PTX as C++ over runtime.h: one function for each, which a thread runs."""

import re

from parse import BITS, REGISTER, Unknown, c_type

SHARED_BEGIN = 1024  # so that address 0 is no variable
GAP_BYTES = 128  # between shared variables, so that a step beyond one is noticed
SPECIAL = {"%clock64": "ptx_clock()", "%laneid": "ptx_lane()"}
for axis in "xyz":
    SPECIAL[f"%tid.{axis}"] = f"ptx_host->thread->{axis}"
    SPECIAL[f"%ctaid.{axis}"] = f"ptx_host->block->{axis}"
    SPECIAL[f"%ntid.{axis}"] = f"ptx_host->threads->{axis}"
    SPECIAL[f"%nctaid.{axis}"] = f"ptx_host->blocks->{axis}"
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
ROUND = {"rzi": "trunc", "rni": "nearbyint", "rmi": "floor", "rpi": "ceil"}
CACHE = {"nc", "wb", "ca", "cg", "cs", "lu", "volatile"}


def unsigned(ptx):
    return f"uint{BITS[ptx]}_t"


def lay_out(function, module):
    """Name -> address of the shared variables that the function has or names, and their ranges."""
    named = {a for s in function.instructions() for text in s.arguments if isinstance(text, str)
             for a in re.findall(r"[\w$.]+", text)}
    at, places, ranges = SHARED_BEGIN, {}, []
    for v in function.shared + [v for v in module.shared if v.name in named]:
        at = (at + v.align - 1) // v.align * v.align
        places[v.name] = at
        ranges.append((at, at + v.size))
        at = (at + v.size + GAP_BYTES + 15) // 16 * 16
    return places, ranges


def parameter_offsets(function):
    offsets, at = {}, 0
    for p in function.parameters:
        at = (at + p.align - 1) // p.align * p.align
        offsets[p.name] = at
        at += p.size
    return offsets


class Translator:
    def __init__(self, module, function):
        self.module = module
        self.function = function
        self.shared, self.ranges = lay_out(function, module)
        self.offsets = parameter_offsets(function)
        self.constants = {v.name: f"c_{module.unit}_{v.name}" for v in module.constants}
        self.scopes = [{}]
        self.memory = [{}]  # of scopes: name -> pointer, of local variables and parameters of calls
        self.sizes = {}  # of local variables, by pointer
        self.scope_count = 0
        self.declarations = []

    # ---- values ----

    def register(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise Unknown(f"register {name}")

    def pointer(self, name):
        for scope in reversed(self.memory):
            if name in scope:
                return scope[name]
        if name in self.offsets:
            return f"(parameters + {self.offsets[name]})" if self.function.entry else f"p_{name}"
        if name in {v.name for v in self.function.results}:
            return "result"
        return None

    def value(self, text, want):
        """C expression of the type `want` for an operand."""
        if text in SPECIAL:
            return f"({want}){SPECIAL[text]}"
        if text.startswith("%"):
            name, have = self.register(text)
            return convert(name, have, want)
        m = re.fullmatch(r"0[fF]([0-9A-Fa-f]{8})", text)
        if m:
            return convert(f"f32_of(0x{m[1]}u)", "float", want)
        m = re.fullmatch(r"0[dD]([0-9A-Fa-f]{16})", text)
        if m:
            return convert(f"f64_of(0x{m[1]}ull)", "double", want)
        if re.fullmatch(r"-?(\d+|0[xX][0-9a-fA-F]+)U?", text):
            if want == "bool":
                return "true" if int(text, 0) else "false"
            return convert(f"((uint64_t)0x{int(text.rstrip('U'), 0) & (2**64 - 1):x}ull)", "uint64_t", want)
        if text in self.shared:
            return f"({want}){self.shared[text]}"
        if text in self.constants:
            return f"({want})(uintptr_t){self.constants[text]}"
        pointer = self.pointer(text)
        if pointer:
            return f"({want})(uintptr_t){pointer}"
        raise Unknown(f"operand {text}")

    def put(self, target, expression, have):
        """Assignment of an expression of the type `have`."""
        if target == "_":
            return ""
        name, want = self.register(target)
        return f"{name} = {convert(expression, have, want)};"

    def address(self, text, want):
        m = re.fullmatch(r"\[\s*(%?[\w$.]+?)\s*(?:\+\s*(-?\d+))?\s*\]", text)
        if not m:
            raise Unknown(f"address {text}")
        return m[1], int(m[2] or 0), want

    # ---- statements ----

    def statement(self, s):
        if s.label:
            return s.label.replace("$", "") + ": ;"
        if s.brace == "{":
            self.scope_count += 1
            self.scopes.append({})
            self.memory.append({})
            return "{"
        if s.brace == "}":
            self.scopes.pop()
            self.memory.pop()
            return "}"
        if s.op.startswith("."):
            return self.declare(s)
        code = self.instruction(s)
        if s.predicate:
            wanted = self.value(s.predicate.lstrip("!"), "bool")
            code = f"ptx_taken({s.line}); {code}" if s.op.startswith("bra") else code
            return f"if ({'!' if s.predicate[0] == '!' else ''}{wanted}) {{ {code} }}"
        return code

    def declare(self, s):
        if s.op == ".reg":
            kind = "bool" if s.arguments[0] == "pred" else c_type(s.arguments[0].replace("s", "u"))
            for name in s.arguments[1]:
                own = f"r_{re.sub(r'[%$]', '', name)}_{len(self.declarations) and self.scope_count}"
                self.scopes[-1][name] = (own, kind)
                self.declarations.append(f"{kind} {own};")
            return ""
        v = s.arguments[0]
        own = f"m_{re.sub(r'[%$]', '', v.name)}_{self.scope_count}"
        self.memory[-1][v.name] = own
        self.sizes[own] = v.size
        self.declarations.append(f"alignas({max(v.align, 8)}) unsigned char {own}[{v.size}];")
        return ""

    def instruction(self, s):
        for pattern, method in INSTRUCTIONS:
            m = pattern.fullmatch(s.op)
            if m:
                try:
                    return method(self, s, m)
                except (KeyError, IndexError) as e:
                    raise Unknown(f"line {s.line}: {s} ({e!r})") from e
        raise Unknown(f"line {s.line}: {s}")

    def arithmetic(self, s, m):
        """Two operands by a C operator: the type as it is for floats, unsigned otherwise."""
        kind = m[2]
        want = c_type(kind) if kind[0] == "f" or kind == "pred" else unsigned(kind)
        sign = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "div": "/"}[m[1]]
        a, b = (self.value(x, want) for x in s.arguments[1:3])
        return self.put(s.arguments[0], f"({want})({a} {sign} {b})", want)

    def carry(self, s, m):
        op, kind = m[1], m[3]
        if kind != "u32":
            raise Unknown(f"line {s.line}: {s}")
        a, b = (self.value(x, "uint32_t") for x in s.arguments[1:3])
        if op in ("mad", "madc"):
            product = f"(uint64_t){a} * {b}"
            a = f"(uint32_t)({product}{' >> 32' if m[2] == '.hi' else ''})"
            b = self.value(s.arguments[3], "uint32_t")
        sign = "-" if op.startswith("sub") else "+"
        with_carry = f" {sign} (uint64_t)carry" if op in ("addc", "subc", "madc") else ""
        keep = "carry = (sum >> 32) & 1;" if m[0].find(".cc") >= 0 else ""
        return f"{{ const uint64_t sum = (uint64_t){a} {sign} (uint64_t){b}{with_carry}; " \
               f"{self.put(s.arguments[0], '(uint32_t)sum', 'uint32_t')} {keep} }}"

    def multiply(self, s, m):
        """mul and mad of integers: lo, hi, wide."""
        kind, size = m[3], BITS[m[3]]
        wide = m[3][0] + str(2 * size)
        if m[2] == "lo":
            want = unsigned(kind)
            product = f"(uint64_t){self.value(s.arguments[1], want)} * (uint64_t){self.value(s.arguments[2], want)}"
        else:
            a, b = (self.value(x, c_type(kind)) for x in s.arguments[1:3])
            double = ("" if kind[0] == "s" else "unsigned ") + "__int128" if size == 64 else c_type(wide)
            product = f"({double}){a} * ({double}){b}"
            if m[2] == "hi":
                want, product = c_type(kind), f"({product}) >> {size}"
            else:
                want = c_type(wide)
        if m[1] == "mad":
            product = f"({want})({product}) + {self.value(s.arguments[3], want)}"
        return self.put(s.arguments[0], f"({want})({product})", want)

    def fused(self, s, m):
        want = c_type(m[2])
        name = {"rn": "std::fma", "rm": "fma_down"}[m[1]]
        if m[1] == "rm" and m[2] != "f32":
            raise Unknown(f"line {s.line}: {s}")
        a, b, c = (self.value(x, want) for x in s.arguments[1:4])
        return self.put(s.arguments[0], f"{name}({a}, {b}, {c})", want)

    def divide(self, s, m):
        want = c_type(m[2])
        a, b = (self.value(x, want) for x in s.arguments[1:3])
        return self.put(s.arguments[0], f"ptx_{m[1]}<{want}>({a}, {b})", want)

    def call(self, s, m):
        """One operand through a function of runtime.h or of C++."""
        name, kind = FUNCTIONS[m[1]], m[2]
        want = c_type(kind)
        return self.put(s.arguments[0], f"({want}){name}({self.value(s.arguments[1], want)})", want)

    def invert(self, s, m):
        want = "bool" if m[2] == "pred" else c_type(m[2]) if m[2][0] == "f" else unsigned(m[2])
        a = self.value(s.arguments[1], want)
        sign = {"neg": "-", "not": "!" if want == "bool" else "~"}[m[1]]
        return self.put(s.arguments[0], f"({want})({sign}{a})", want)

    def reciprocal(self, s, m):
        want = c_type(m[1])
        return self.put(s.arguments[0], f"({want})1 / {self.value(s.arguments[1], want)}", want)

    def absolute(self, s, m):
        want = c_type(m[1])
        return self.put(s.arguments[0], f"({want})std::abs({self.value(s.arguments[1], want)})", want)

    def copy_sign(self, s, m):
        want = c_type(m[1])
        return self.put(s.arguments[0], f"std::copysign({self.value(s.arguments[2], want)}, {self.value(s.arguments[1], want)})",
                        want)

    def extreme(self, s, m):
        want = c_type(m[2])
        name = f"std::f{m[1]}" if m[2][0] == "f" else f"std::{m[1]}<{want}>"
        return self.put(s.arguments[0], f"{name}({self.value(s.arguments[1], want)}, {self.value(s.arguments[2], want)})", want)

    def shift(self, s, m):
        want = unsigned(m[2]) if m[1] == "shl" else c_type(m[2].replace("b", "u"))
        return self.put(s.arguments[0], f"ptx_{m[1]}<{want}>({self.value(s.arguments[1], want)}, "
                                        f"{self.value(s.arguments[2], 'uint32_t')})", want)

    def funnel(self, s, m):
        low, high, by = (self.value(x, "uint32_t") for x in s.arguments[1:4])
        return self.put(s.arguments[0], f"ptx_shf_{m[1]}({low}, {high}, {by}, {'true' if m[2] == 'wrap' else 'false'})",
                        "uint32_t")

    def insert(self, s, m):
        want = unsigned(m[1])
        a, b = (self.value(x, want) for x in s.arguments[1:3])
        at, count = (self.value(x, "uint32_t") for x in s.arguments[3:5])
        return self.put(s.arguments[0], f"ptx_bfi<{want}>({a}, {b}, {at}, {count})", want)

    def extract(self, s, m):
        want = c_type(m[1])
        a = self.value(s.arguments[1], want)
        at, count = (self.value(x, "uint32_t") for x in s.arguments[2:4])
        return self.put(s.arguments[0], f"ptx_bfe<{want}>({a}, {at}, {count})", want)

    def permute(self, s, m):
        a, b, c = (self.value(x, "uint32_t") for x in s.arguments[1:4])
        return self.put(s.arguments[0], f"ptx_prmt({a}, {b}, {c})", "uint32_t")

    def zeros(self, s, m):
        want = unsigned(m[1])
        return self.put(s.arguments[0], f"ptx_clz<{want}>({self.value(s.arguments[1], want)})", "uint32_t")

    def logic3(self, s, m):
        a, b, c = (self.value(x, "uint32_t") for x in s.arguments[1:4])
        return self.put(s.arguments[0], f"ptx_lop3({a}, {b}, {c}, {int(s.arguments[4], 0)})", "uint32_t")

    def move(self, s, m):
        to, source = s.arguments[:2]
        kind = m[1]
        if kind == "pred":
            return self.put(to, self.value(source, "bool"), "bool")
        want = unsigned(kind)
        if to.startswith("{"):
            parts = split_vector(to)
            size = BITS[kind] // len(parts)
            puts = (self.put(part, f"(uint{size}_t)(whole >> {i * size})", f"uint{size}_t") for i, part in enumerate(parts))
            return f"{{ const {want} whole = {self.value(source, want)}; {' '.join(puts)} }}"
        if source.startswith("{"):
            parts = split_vector(source)
            size = BITS[kind] // len(parts)
            whole = " | ".join(f"(({want}){self.value(part, f'uint{size}_t')} << {i * size})" for i, part in enumerate(parts))
            return self.put(to, f"({want})({whole})", want)
        want = c_type(kind.replace("b", "u"))
        return self.put(to, self.value(source, want), want)

    def to_space(self, s, m):
        """cvta: global and local addresses are the host's; a shared one becomes generic by a high bit."""
        a = self.value(s.arguments[1], "uint64_t")
        if m[2] == "shared":
            a = f"({a} & ~PTX_SHARED_BIT)" if m[1] else f"({a} | PTX_SHARED_BIT)"
        return self.put(s.arguments[0], a, "uint64_t")

    def compare(self, s, m):
        how, kind = m[1], m[2]
        want = c_type(kind.replace("b", "u"))
        a, b = (self.value(x, want) for x in s.arguments[1:3])
        if kind[0] != "f":
            code = f"{a} {COMPARE[how]} {b}"
        elif how in ("nan", "num"):
            code = f"{'!' if how == 'num' else ''}std::isunordered({a}, {b})"
        elif how in ("ne", "equ"):
            code = f"!std::isunordered({a}, {b}) && {a} != {b}" if how == "ne" else f"std::isunordered({a}, {b}) || {a} == {b}"
        elif how in COMPARE:
            code = f"{a} {COMPARE[how]} {b}"
        else:  # true also where one is no number
            code = f"std::isunordered({a}, {b}) || {a} {COMPARE[how.removesuffix('u')]} {b}"
        return self.put(s.arguments[0], f"({code})", "bool")

    def select(self, s, m):
        want = c_type(m[1].replace("b", "u"))
        a, b = (self.value(x, want) for x in s.arguments[1:3])
        return self.put(s.arguments[0], f"({self.value(s.arguments[3], 'bool')} ? {a} : {b})", want)

    def to_bf16(self, s, m):
        parts = [f"bf16_of({self.value(x, 'float')})" for x in s.arguments[1:]]
        if m[1] == "bf16":
            return self.put(s.arguments[0], parts[0], "uint16_t")
        return self.put(s.arguments[0], f"((uint32_t){parts[0]} << 16 | {parts[1]})", "uint32_t")

    def from_bf16(self, s, m):
        return self.put(s.arguments[0], f"f32_of((uint32_t){self.value(s.arguments[1], 'uint16_t')} << 16)", "float")

    def convert(self, s, m):
        flags = [f for f in m[1].split(".") if f and f != "ftz"]
        to, source = m[2], m[3]
        want, have = c_type(to), c_type(source)
        a = self.value(s.arguments[1], have)
        known = {"rn", "sat"} | set(ROUND)
        if len(flags) > 1 or not set(flags) <= known or ("sat" in flags and (to, source) != ("f32", "f32")):
            raise Unknown(f"line {s.line}: {s}")
        integer = flags and flags[0] in ROUND
        if to[0] == "f" and source[0] == "f":
            code = f"ptx_saturate({a})" if flags == ["sat"] else f"std::{ROUND[flags[0]]}({a})" if integer else a
        elif source[0] == "f":
            code = f"ptx_integer<{want}>(std::{ROUND[flags[0]]}((double){a}))"
        else:
            code = a
        return self.put(s.arguments[0], f"({want})({code})", want)

    # ---- memory ----

    def load(self, s, m):
        space, count, kind = self.access(s, m)
        targets = split_vector(s.arguments[0]) if count > 1 else [s.arguments[0]]
        if len(targets) != count:
            raise Unknown(f"line {s.line}: {s}")
        size = BITS[kind] // 8
        pointer = self.place(s, space, s.arguments[1], count * size)
        want = c_type(kind.replace("b", "u"))
        puts = " ".join(self.put(t, f"at<{want}>(p + {i * size})", want) for i, t in enumerate(targets))
        return f"{{ const unsigned char *p = {pointer}; {puts} }}"

    def store(self, s, m):
        space, count, kind = self.access(s, m)
        values = split_vector(s.arguments[1]) if count > 1 else [s.arguments[1]]
        if len(values) != count:
            raise Unknown(f"line {s.line}: {s}")
        size = BITS[kind] // 8
        want = unsigned(kind)
        values = ", ".join(self.value(v, want) for v in values)
        if space in ("global", "shared"):
            base, offset, _ = self.address(s.arguments[0], None)
            whole = "uint64_t" if space == "global" else "uint32_t"
            at = f"{self.value(base, whole)} + ({whole}){offset}ll"
            return f"{{ const {want} v[] = {{{values}}}; ptx_store_{space}({at}, v, {count * size}, {s.line}); }}"
        pointer = self.place(s, space, s.arguments[0], count * size)
        return f"{{ const {want} v[] = {{{values}}}; memcpy({pointer}, v, {count * size}); }}"

    def access(self, s, m):
        flags = [f for f in m[2].split(".") if f]
        count = 1
        if flags and flags[-1] in ("v2", "v4"):
            count = int(flags.pop()[1])
        if not set(flags) <= CACHE:
            raise Unknown(f"line {s.line}: {s}")
        return m[1], count, m[3]

    def place(self, s, space, text, size):
        base, offset, _ = self.address(text, None)
        if space in ("global", "shared"):
            whole = "uint64_t" if space == "global" else "uint32_t"
            return f"ptx_load_{space}({self.value(base, whole)} + ({whole}){offset}ll, {size}, {s.line})"
        if space == "param" and not base.startswith("%"):
            pointer = self.pointer(base)
            if pointer is None:
                raise Unknown(f"line {s.line}: {s}")
            return f"({pointer} + {offset})"
        at = f"((unsigned char *)(uintptr_t){self.value(base, 'uint64_t')} + {offset})"
        if space == "local":
            depots = [f"ptx_inside({at}, {size}, {own}, {n})" for own, n in self.sizes.items() if "depot" in own]
            if len(depots) != 1:
                raise Unknown(f"line {s.line}: {s}")
            return depots[0]
        return at

    def copy_later(self, s, m):
        to, offset, _ = self.address(s.arguments[0], None)
        source, source_offset, _ = self.address(s.arguments[1], None)
        size = int(s.arguments[2])
        read = self.value(s.arguments[3], "uint32_t") if len(s.arguments) > 3 else f"{size}u"
        return f"ptx_copy_later({self.value(to, 'uint32_t')} + (uint32_t){offset}ll, " \
               f"{self.value(source, 'uint64_t')} + (uint64_t){source_offset}ll, {size}, {read}, {s.line});"

    # ---- threads ----

    def shuffle(self, s, m):
        to, _, valid = s.arguments[0].partition("|")
        value, by, clamp, mask = (self.value(x, "uint32_t") for x in s.arguments[1:5])
        code = f"bool same; const uint32_t got = ptx_shuffle_{m[1]}({value}, {by}, {clamp}, {mask}, &same); "
        code += self.put(to, "got", "uint32_t")
        return f"{{ {code} {self.put(valid, 'same', 'bool') if valid else ''} }}"

    def matrices(self, s, m):
        base, offset, _ = self.address(s.arguments[1], None)
        targets = split_vector(s.arguments[0])
        puts = " ".join(self.put(t, f"got[{i}]", "uint32_t") for i, t in enumerate(targets))
        return f"{{ uint32_t got[4]; ptx_matrices(got, {self.value(base, 'uint32_t')} + (uint32_t){offset}ll, " \
               f"{'true' if m[1] else 'false'}, {s.line}); {puts} }}"

    def tensor_core(self, s, m):
        a, b = (", ".join(self.value(x, "uint32_t") for x in split_vector(v)) for v in s.arguments[1:3])
        c = ", ".join(self.value(x, "float") for x in split_vector(s.arguments[3]))
        puts = " ".join(self.put(t, f"d[{i}]", "float") for i, t in enumerate(split_vector(s.arguments[0])))
        return f"{{ float d[4] = {{{c}}}; const uint32_t ab[6] = {{{a}, {b}}}; ptx_mma(d, ab); {puts} }}"

    def barrier(self, s, m):
        if s.arguments != ["0"]:
            raise Unknown(f"line {s.line}: {s}")
        return f"ptx_barrier({s.line});"

    def jump(self, s, m):
        return f"goto {s.arguments[0].replace('$', '')};"

    def invoke(self, s, m):
        name = next(a for a in s.arguments if re.fullmatch(r"[A-Za-z_]\w+", a))
        lists = [split_vector(a) for a in s.arguments if a.startswith("(")]
        before = s.arguments[0].startswith("(")
        results = lists.pop(0) if before else []
        arguments = lists.pop(0) if lists else []
        if len(results) > 1 or name not in {f.name for f in self.module.functions}:
            raise Unknown(f"line {s.line}: {s}")
        passed = [self.pointer(results[0]) if results else "nullptr"] + [self.pointer(a) for a in arguments]
        return f"f_{name}({', '.join(passed)});"

    # ---- all of it ----

    def run(self):
        """The C++ function."""
        lines = []
        for s in self.function.statements:
            code = self.statement(s)
            if code:
                lines.append(code)
        carry = "bool carry = false; (void)carry;"
        return f"{signature(self.function)} {{\n{chr(10).join(self.declarations)}\n{carry}\n{chr(10).join(lines)}\n}}\n"


def signature(function):
    if function.entry:
        return f"static void k_{function.name}(const unsigned char *parameters)"
    names = ", ".join(["unsigned char *result"] + [f"unsigned char *p_{p.name}" for p in function.parameters])
    return f"static void f_{function.name}({names})"


def split_vector(text):
    return [x.strip() for x in text.strip("{}() ").split(",") if x.strip()]


def convert(expression, have, want):
    """C code for `expression` of one type as another: the same bits between floats and integers."""
    if have == want:
        return expression
    if "bool" in (have, want):
        raise Unknown(f"{have} as {want}")
    if want in ("float", "double"):
        if have in ("float", "double"):
            raise Unknown(f"{have} as {want}")
        return f"f32_of((uint32_t){expression})" if want == "float" else f"f64_of((uint64_t){expression})"
    if have in ("float", "double"):
        return f"({want})bits_of({expression})"
    return f"({want})({expression})"


FUNCTIONS = {"sqrt.rn": "std::sqrt", "ex2.approx.ftz": "ptx_power_of_two", "lg2.approx.ftz": "ptx_log_of_two",
             "rcp.approx.ftz": "ptx_rough_reciprocal", "cos.approx.ftz": "std::cos", "sin.approx.ftz": "std::sin"}
INTEGER = "([busf]16|[bus]32|[bus]64)"
FLOAT = "(f32|f64)"
INSTRUCTIONS = [(re.compile(pattern), method) for pattern, method in (
    (rf"(add|sub|mul)(?:\.rn)?\.{FLOAT}", Translator.arithmetic),
    (rf"(div)\.rn\.{FLOAT}", Translator.arithmetic),
    (rf"(add|sub)\.{INTEGER}", Translator.arithmetic),
    (r"(and|or|xor)\.(b16|b32|b64|pred)", Translator.arithmetic),
    (r"(add|addc|sub|subc|mad|madc)(\.lo|\.hi)?(?:\.cc)\.(u32)", Translator.carry),
    (r"(addc|subc|madc)(\.lo|\.hi)?\.(u32)", Translator.carry),
    (r"(mul|mad)\.(lo|hi|wide)\.([us](?:16|32|64))", Translator.multiply),
    (rf"fma\.(rn|rm)\.{FLOAT}", Translator.fused),
    (r"(div|rem)\.([us](?:16|32|64))", Translator.divide),
    (rf"({'|'.join(map(re.escape, FUNCTIONS))})\.{FLOAT}", Translator.call),
    (rf"rcp\.rn\.{FLOAT}", Translator.reciprocal),
    (r"(neg)\.(f32|f64|s16|s32|s64)", Translator.invert),
    (r"(not)\.(b16|b32|b64|pred)", Translator.invert),
    (r"abs\.(f32|f64|s32|s64)", Translator.absolute),
    (rf"copysign\.{FLOAT}", Translator.copy_sign),
    (r"(min|max)\.(f32|f64|[us](?:16|32|64))", Translator.extreme),
    (r"(shl|shr)\.([bus](?:16|32|64))", Translator.shift),
    (r"shf\.(l|r)\.(wrap|clamp)\.b32", Translator.funnel),
    (r"bfi\.(b32|b64)", Translator.insert),
    (r"bfe\.([us](?:32|64))", Translator.extract),
    (r"prmt\.b32", Translator.permute),
    (r"clz\.(b32|b64)", Translator.zeros),
    (r"lop3\.b32", Translator.logic3),
    (r"mov\.(pred|[busf](?:16|32|64))", Translator.move),
    (r"cvta(\.to)?\.(global|local|shared|param)\.u64", Translator.to_space),
    (r"setp\.(\w+)\.([busf](?:16|32|64))", Translator.compare),
    (r"selp\.([busf](?:16|32|64))", Translator.select),
    (r"cvt\.rn\.(bf16|bf16x2)\.f32", Translator.to_bf16),
    (r"cvt\.f32\.bf16", Translator.from_bf16),
    (r"cvt((?:\.(?:rn|rzi|rni|rmi|rpi|sat|ftz))*)\.([usf](?:8|16|32|64))\.([usf](?:8|16|32|64))", Translator.convert),
    (r"ld\.(param|global|shared|local)((?:\.\w+)*)\.([busf](?:8|16|32|64))", Translator.load),
    (r"st\.(param|global|shared|local)((?:\.\w+)*)\.([busf](?:8|16|32|64))", Translator.store),
    (r"cp\.async\.c[ag]\.shared\.global", Translator.copy_later),
    (r"cp\.async\.commit_group", lambda self, s, m: "ptx_copies_commit();"),
    (r"cp\.async\.wait_group", lambda self, s, m: f"ptx_copies_wait({int(s.arguments[0])});"),
    (r"cp\.async\.wait_all", lambda self, s, m: "ptx_copies_commit(); ptx_copies_wait(0);"),
    (r"shfl\.sync\.(bfly|idx)\.b32", Translator.shuffle),
    (r"ldmatrix\.sync\.aligned\.m8n8\.x4(\.trans)?\.shared\.b16", Translator.matrices),
    (r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32", Translator.tensor_core),
    (r"(?:bar|barrier)\.sync", Translator.barrier),
    (r"bra(?:\.uni)?", Translator.jump),
    (r"call(?:\.uni)?", Translator.invoke),
    (r"ret|exit", lambda self, s, m: "return;"),
    (r"trap", lambda self, s, m: 'ptx_stop("trap");'),
)]


def constants(module):
    return [f"alignas({v.align}) static const unsigned char c_{module.unit}_{v.name}[{v.size}] = {{{v.values or '0'}}};"
            for v in module.constants]


def used_functions(module, kernel):
    """Functions that the kernel calls, callees first."""
    names = {a for s in kernel.instructions() if s.op.startswith("call") for a in s.arguments}
    used = [f for f in module.functions if f.name in names]
    return [g for f in used for g in used_functions(module, f)] + used


def translate(module, kernels, chunk):
    """A C++ file of some kernels of a module, which defines the list ptx_chunk_<chunk>."""
    out = ['#include "tests/support/ptx/runtime.h"', *constants(module)]
    functions = []
    for kernel in kernels:
        functions += [f for f in used_functions(module, kernel) if f not in functions]
    for f in functions + list(kernels):
        out.append(signature(f) + ";")
    rows = []
    for f in functions + list(kernels):
        t = Translator(module, f)
        try:
            out.append(t.run())
        except Unknown as e:
            raise Unknown(f"{module.unit}: {f.name}: {e}") from e
        if f.entry:
            offsets = t.offsets
            numbers = ", ".join(f"{{{offsets[p.name]}, {p.size}}}" for p in f.parameters)
            ranges = ", ".join(f"{{{a}, {b}}}" for a, b in t.ranges)
            out.append(f"static const struct ptx_range s_{f.name}[] = {{{ranges}{', ' if ranges else ''}{{0, 0}}}};")
            out.append(f"static const struct ptx_range p_{f.name}[] = {{{numbers}{', ' if numbers else ''}{{0, 0}}}};")
            rows.append(f'{{"{f.name}", k_{f.name}, p_{f.name}, {len(f.parameters)}, s_{f.name}, {len(t.ranges)}}},')
    tables = " ".join(f"{{(uintptr_t)c_{module.unit}_{v.name}, {v.size}}}," for v in module.constants)
    out.append(f"extern const struct ptx_chunk ptx_chunk_{chunk};")
    out.append(f"static const struct ptx_kernel kernels[] = {{{chr(10).join(rows)}}};")
    out.append(f"static const struct ptx_table tables[] = {{{tables} {{0, 0}}}};")
    out.append(f"const struct ptx_chunk ptx_chunk_{chunk} = {{kernels, {len(rows)}, tables}};")
    return "\n".join(out) + "\n"
