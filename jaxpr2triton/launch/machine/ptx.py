"""PTX text → flat instructions: scopes and calls written out, every register with its own name, lines of the source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from jaxpr2triton.errors import CompilerBug


class NotUnderstood(CompilerBug):
    """PTX that the machine does not know."""


@dataclass(frozen=True)
class Address:
    base: str  # a register, a parameter, or an array
    offset: int = 0


Operand = str | tuple[str, ...] | Address


@dataclass(frozen=True)
class Instruction:
    opcode: str  # with all modifiers; empty for a label
    operands: tuple[Operand, ...] = ()
    guard: str | None = None
    negated: bool = False
    target: str = ""  # of a branch, or the label itself
    line: int = 0  # of the kernel's source; 0 if that is not known
    text: str = ""

    @property
    def name(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split(".")[1:])


@dataclass(frozen=True)
class Array:
    """Static memory: a table, or a piece of shared or local memory."""

    size: int  # bytes; 0: as much as the launch gives
    align: int
    content: bytes = b""


def laid_out(arrays: Mapping[str, Array]) -> tuple[dict[str, int], int]:
    """Where each array begins, and where they end; those without a size share what comes after the others."""
    places, end = {}, 0
    for name, array in arrays.items():
        if array.size:
            end = -(-end // array.align) * array.align
            places[name] = end
            end += array.size
    end = -(-end // 16) * 16
    return places | {name: end for name, array in arrays.items() if not array.size}, end


@dataclass(frozen=True)
class Module:
    entry: str
    parameters: tuple[str, ...]
    parameter_widths: tuple[int, ...]  # bytes
    body: tuple[Instruction, ...]
    registers: dict[str, str]  # name → type
    tables: dict[str, Array]
    shared: dict[str, Array]
    local: dict[str, Array]
    threads: int  # that the kernel demands; 0: any number


WIDTHS = {
    **dict.fromkeys(("b8", "u8", "s8"), 1),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2"), 2),
    **dict.fromkeys(("pred", "b32", "u32", "s32", "f32", "f16x2", "bf16x2", "s16x2", "u16x2", "tf32"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), 8),
}

ASSERTION = "__assertfail"  # CUDA's function, whose first parameter is the message; it does not return
STRUCTURE = "structure"  # the type of a parameter that is an array of bytes, whose parts have types of their own


def parse(ptx: str) -> Module:
    """The kernel in a text of PTX."""
    module_level: list[str] = []
    functions: dict[str, _Function] = {}
    pieces = _pieces(ptx)
    for piece in pieces:
        if head := _HEAD.search(piece):
            functions[head["name"]] = _function(piece, head, pieces)
        else:
            module_level.append(piece)
    entry = next((function for function in functions.values() if function.is_entry), None)
    if entry is None:
        raise NotUnderstood("this PTX has no kernel")
    writer = _Writer(functions, _kernel_file(ptx))
    written = list(writer.written_out(entry, {}, "", 0))
    targets = {each.target for each in written if each.opcode}
    body = tuple(each for each in written if each.opcode or each.target in targets)
    for piece in module_level:
        if _ARRAY.search(piece):
            writer.declare_array(piece, "")
    return Module(
        entry=entry.name,
        parameters=tuple(name for name, _ in entry.parameters),
        parameter_widths=tuple(width for _, width in entry.parameters),
        body=body,
        registers=writer.registers,
        tables=writer.arrays["global"] | writer.arrays["const"],
        shared=writer.arrays["shared"],
        local=writer.arrays["local"],
        threads=entry.threads,
    )


# pieces: a statement without its semicolon, a label `name:`, a brace that opens or closes a scope, a `.loc`

# braces at the beginning of a statement are scopes, and so is the one after a function's head; others hold lists
_PIECE = re.compile(
    r"[{}]|[\w$.%]+:(?!:)|(?:\.\w+\s+)*\.(?:entry|func)\b[^{;]*(?=\{)|[^;{}]*(?:\{[^}]*\}[^;{}]*)*;",
)
_WHOLE_LINES = (".loc ", ".file", ".version", ".target", ".address_size")


def _pieces(ptx: str) -> Iterator[str]:
    held = ""  # of a statement that goes on in the next line
    for line in ptx.partition("\n\t.section")[0].split("\n"):
        line = line.partition("//")[0].strip().replace("\t", " ")
        if not held and line.startswith(_WHOLE_LINES):
            yield line
            continue
        held = f"{held} {line}".strip()
        while match := _PIECE.match(held):
            held = held[match.end() :].strip()
            if not (match.group().endswith(";") and _HEAD.search(match.group())):  # a function that is written below
                yield match.group().rstrip(";").strip()


# functions


@dataclass(frozen=True)
class _Function:
    name: str
    is_entry: bool
    parameters: tuple[tuple[str, int], ...]  # with their bytes
    results: tuple[tuple[str, int], ...]
    threads: int
    pieces: tuple[str, ...]


_HEAD = re.compile(
    r"\.(?P<kind>entry|func)\s*(?:\((?P<results>[^)]*)\))?\s*(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?"
)


def _function(text: str, head: re.Match[str], pieces: Iterator[str]) -> _Function:
    body, depth = [], 0
    for piece in pieces:
        depth += (piece == "{") - (piece == "}")
        body.append(piece)
        if depth == 0:
            break
    threads = re.search(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", text)
    return _Function(
        name=head["name"],
        is_entry=head["kind"] == "entry",
        parameters=_parameters(head["parameters"]),
        results=_parameters(head["results"]),
        threads=_product(int(count) for count in threads.groups() if count) if threads else 0,
        pieces=tuple(body[1:-1]),
    )


def _product(numbers: Iterator[int]) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total


def _parameters(text: str | None) -> tuple[tuple[str, int], ...]:
    """`.param .u64 .ptr .global .align 1 x_0, .param .b8 x_1[16]` → (x_0, 8), (x_1, 16)."""
    found = []
    for each in filter(None, map(str.strip, (text or "").split(","))):
        kind = re.search(r"\.(?!param\b|reg\b|align\b)(\w+)", each)
        name = re.search(r"([\w$%]+)\s*(?:\[(\d+)\])?$", each)
        if kind is None or name is None:
            raise NotUnderstood(f"parameter {each}")
        found.append((name[1], WIDTHS[kind[1]] * int(name[2] or 1)))
    return tuple(found)


_ARRAY = re.compile(
    r"\.(?P<space>global|const|shared|local)\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?P<name>[\w$]+)"
    r"(?:\[(?P<count>\d*)\])?(?:\s*=\s*(?P<content>.*))?$",
    re.S,
)


def _content(text: str, width: int) -> bytes:
    numbers = [int(word, 0) for word in re.findall(r"-?(?:0[xX][0-9a-fA-F]+|\d+)", text)]
    return b"".join((number % 256**width).to_bytes(width, "little") for number in numbers)


# lines of the source

_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")


def _kernel_file(ptx: str) -> str:
    """The number of the file that the kernel was written in; Triton's own library has others."""
    found = re.search(r'\.file\s+(\d+)\s+"[^"]*<triton kernels', ptx)
    return found.group(1) if found else "1"


@dataclass
class _Writer:
    """Writes functions out into one list of instructions."""

    functions: dict[str, _Function]
    kernel_file: str
    registers: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, dict[str, Array]] = field(
        default_factory=lambda: {space: {} for space in ("global", "const", "shared", "local")}
    )
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)  # of places in other files, where they were inlined
    scopes: int = 0

    def written_out(self, function: _Function, bound: dict[str, str], end: str, line: int) -> Iterator[Instruction]:
        """The body, with `bound` parameters; a call's `ret` goes to the label `end`."""
        self.scopes += 1
        tag = f"@{self.scopes}" if end else ""
        scopes = [bound]
        for piece in function.pieces:
            if piece == "{":
                scopes.append({})
            elif piece == "}":
                scopes.pop()
            elif piece.startswith(".loc "):
                line = self._line_of(piece, line)
            elif piece.startswith(".reg"):
                self._declare_registers(piece, scopes)
            elif piece.startswith(".param"):
                ((name, width),) = _parameters(piece)
                kind = STRUCTURE if piece.endswith("]") else f"b{8 * width}"
                scopes[-1][name] = self._new_register(name, kind, taken=True)
            elif _ARRAY.match(piece):
                scopes[-1] |= self.declare_array(piece, tag)
            elif piece.startswith("."):
                continue  # .pragma and the like: advice
            elif piece.endswith(":"):
                yield Instruction("", target=tag + piece[:-1], line=line)
            else:
                names = {name: to for scope in scopes for name, to in scope.items()}
                yield from self._instruction(piece, names, tag, end, line)

    def _instruction(self, text: str, names: dict[str, str], tag: str, end: str, line: int) -> Iterator[Instruction]:
        match = re.match(r"(?:@(!?)(%?[\w$]+)\s+)?([\w.:]+)\s*(.*)$", text, re.S)
        if match is None:
            raise NotUnderstood(text)
        negated, guard, opcode, rest = match.groups()
        made = Instruction(opcode, (), names.get(guard, guard), bool(negated), line=line, text=" ".join(text.split()))
        if made.name == "call":
            yield from self._call(made, rest, names, line)
        elif made.name == "bra":
            yield replace(made, target=tag + rest.strip())
        elif made.name == "ret" and end:
            yield replace(made, opcode="bra.uni", target=end)
        else:
            yield from _each_by_itself(replace(made, operands=tuple(_operand(word, names) for word in _words(rest))))

    def _call(self, call: Instruction, rest: str, names: dict[str, str], line: int) -> Iterator[Instruction]:
        match = re.match(r"(?:\(([^)]*)\)\s*,)?\s*([\w$]+)\s*(?:,\s*\(([^)]*)\))?", rest, re.S)
        if match is None or call.guard or (match[2] != ASSERTION and match[2] not in self.functions):
            raise NotUnderstood(call.text)
        if match[2] == ASSERTION:
            yield replace(call, opcode=ASSERTION, operands=(names[_words(match[3])[0]],))
            return
        callee = self.functions[match[2]]
        given = [names[name] for group in (match[1], match[3]) for name in _words(group or "")]
        wanted = [name for name, _ in (*callee.results, *callee.parameters)]
        self.scopes += 1
        end = f"@end{self.scopes}"
        yield from self.written_out(callee, dict(zip(wanted, given, strict=True)), end, line)
        yield Instruction("", target=end, line=line)

    def _declare_registers(self, text: str, scopes: list[dict[str, str]]) -> None:
        match = re.match(r"\.reg\s+\.(\w+)\s+(.*)$", text, re.S)
        assert match is not None
        for name in map(str.strip, match[2].split(",")):
            many = re.match(r"(.*)<(\d+)>$", name)
            for each in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                scopes[-1][each] = self._new_register(each, match[1], taken=False)

    def _new_register(self, name: str, kind: str, taken: bool) -> str:
        if taken or name in self.registers:
            name = f"{name}@{len(self.registers)}"
        self.registers[name] = kind
        return name

    def declare_array(self, text: str, tag: str) -> dict[str, str]:
        match = _ARRAY.search(text)
        assert match is not None
        width = WIDTHS[match["type"]]
        size = 0 if match["count"] == "" else width * int(match["count"] or 1)
        content = _content(match["content"], width) if match["content"] else b""
        self.arrays[match["space"]][tag + match["name"]] = Array(size, int(match["align"] or width), content)
        return {match["name"]: tag + match["name"]}

    def _line_of(self, loc: str, current: int) -> int:
        match = _LOC.match(loc)
        if match is None:
            return current
        here, caller = match.group(1, 2, 3), match.group(4, 5, 6)
        if caller[0] is not None:
            line = self.lines.get(caller, int(caller[1]) if caller[0] == self.kernel_file else current)
        else:
            line = int(here[1]) if here[0] == self.kernel_file else current
        self.lines[here] = line
        return line


def _each_by_itself(of: Instruction) -> Iterator[Instruction]:
    """`st.param.v2.b32 [p], {a, b}` → `st.param.b32 [p], a` and `st.param.b32 [p+4], b`; all else stays one."""
    parts = [word for word in of.modifiers if word in ("v2", "v4", "v8")]
    if not parts or of.modifiers[0].partition("::")[0] != "param":
        yield of
        return
    place, values = of.operands if of.name == "st" else of.operands[::-1]
    assert isinstance(place, Address) and isinstance(values, tuple)
    opcode, width = of.opcode.replace(f".{parts[0]}", ""), WIDTHS[of.modifiers[-1]]
    for number, value in enumerate(values):
        there = replace(place, offset=place.offset + number * width)
        yield replace(of, opcode=opcode, operands=(there, value) if of.name == "st" else (value, there))


# operands


def _words(text: str) -> list[str]:
    """Split at the commas that stand in no bracket."""
    words, depth, start = [], 0, 0
    for position, letter in enumerate(text + ","):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            words.append(text[start:position].strip())
            start = position + 1
    return [word for word in words if word]


def _operand(word: str, names: dict[str, str]) -> Operand:
    if word.startswith("{"):
        return tuple(names.get(each, each) for each in _words(word[1:-1]))
    if word.startswith("["):
        match = re.match(r"\[\s*([%\w$]+)\s*(?:([+-])\s*(-?\w+))?\s*\]$", word)
        if match is None:
            raise NotUnderstood(f"address {word}")
        base, sign, offset = match.groups()
        distance = int(offset, 0) if offset else 0
        return Address(names.get(base, base), -distance if sign == "-" else distance)
    if "|" in word:
        return tuple(names.get(each.strip(), each.strip()) for each in word.split("|"))
    return names.get(word, word)


def literal(text: str) -> int | None:
    """The bits of a literal, 64 of them; None if this is none."""
    if match := re.fullmatch(r"0[fFdD]([0-9a-fA-F]{8,16})", text):
        return int(match[1], 16)
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return int(text.rstrip("U"), 0) % 2**64
    return None
