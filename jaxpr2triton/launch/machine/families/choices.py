"""Comparisons, choices between two values, and moves: what only looks at numbers and leaves them as they are."""

from __future__ import annotations

from jaxpr2triton.launch.machine.families.floats import read
from jaxpr2triton.launch.machine.families.spelling import (
    BITS,
    C_TYPES,
    FLOATS,
    HALVES,
    INTEGERS,
    Operation,
    Row,
    Spelling,
    row,
    same,
    spelled,
    width,
)

ORDERED = {"eq": "x == y", "ne": "x < y | x > y", "lt": "x < y", "le": "x <= y", "gt": "x > y", "ge": "x >= y"}
UNORDERED = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}  # true where that is false
OF_FLOATS = {
    **ORDERED,
    **{name: f"!({ORDERED[opposite]})" for name, opposite in UNORDERED.items()},
    "num": "x == x & y == y",
    "nan": "x != x | y != y",
}
UNSIGNED = {"lo": "x < y", "ls": "x <= y", "hi": "x > y", "hs": "x >= y"}
OF_INTEGERS = {**ORDERED, "ne": "x != y", **UNSIGNED}
COMBINED = {"and": "&", "or": "|", "xor": "^"}
COMPARED = (*FLOATS, *HALVES, *BITS, *INTEGERS)


def _comparison(s: Spelling) -> str | None:
    """The first modifier, as C that compares x with y."""
    kind = s.type
    if not s.modifiers or (s.has("ftz") and kind not in ("f32", "f16")):
        return None
    if kind in (*FLOATS, *HALVES):
        return OF_FLOATS.get(s.modifiers[0])
    if kind in BITS and s.modifiers[0] not in ("eq", "ne"):
        return None
    if kind not in ("u16", "u32", "u64") and s.modifiers[0] in UNSIGNED:
        return None
    return OF_INTEGERS.get(s.modifiers[0])


def _compared(s: Spelling, test: str) -> str:
    number = C_TYPES[s.type] if s.type not in HALVES else "f32"
    return f"const {number} x = {read(s, 'a')}, y = {read(s, 'b')}; d0 = {test};"


def comparison(s: Spelling) -> Operation | None:
    """setp: of two values; with .and, .or or .xor the result is combined with a third, a predicate."""
    test = _comparison(s)
    rest = [each for each in s.modifiers[1:] if each != "ftz"]
    if test is None or len(rest) > 1 or not COMBINED.keys() >= set(rest):
        return None
    if rest:
        return Operation(("pred",), (s.type, s.type, "pred"), _compared(s, f"({test}) {COMBINED[rest[0]]} c"))
    return Operation(("pred",), (s.type, s.type), _compared(s, test))


def comparison_as_number(s: Spelling) -> Operation | None:
    """set: true is 1.0 in floats and all ones in integers."""
    inner = Spelling(s.name, s.modifiers, s.types[1:])
    test = _comparison(inner)
    if test is None or any(each != "ftz" for each in s.modifiers[1:]):
        return None
    true = "1.0f" if s.types[0] == "f32" else "0xffffffffu"
    return Operation((s.types[0],), (s.type, s.type), _compared(inner, f"({test}) ? {true} : 0"))


def choice(s: Spelling) -> Operation:
    return Operation((s.type,), (s.type, s.type, "pred"), "d0 = c ? a : b;")


def choice_by_sign(s: Spelling) -> Operation:
    """slct: the first where the third is not negative; NaN chooses the second."""
    x = "ftz32(c)" if s.has("ftz") else "c"
    return Operation((s.types[0],), (s.types[0], s.types[0], s.type), f"d0 = {x} >= 0 ? a : b;")


def move(s: Spelling) -> Operation:
    return same(s.type, 1, "a")


def packed(s: Spelling) -> Operation | None:
    """Our name for `mov` with braces on its right: pack.b64.2 is two of 32 bits, the lower one first."""
    parts = _parts(s)
    if parts is None:
        return None
    part, count = parts
    pieces = (f"(u{width(s.type)}){name} << {i * width(part)}" for i, name in enumerate("abce"[:count]))
    return Operation((s.type,), (part,) * count, f"d0 = {' | '.join(pieces)};")


def unpacked(s: Spelling) -> Operation | None:
    """… and on its left: unpack.b32.2."""
    parts = _parts(s)
    if parts is None:
        return None
    part, count = parts
    body = " ".join(f"d{i} = ({C_TYPES[part]})(a >> {i * width(part)});" for i in range(count))
    return Operation((part,) * count, (s.type,), body)


def _parts(s: Spelling) -> tuple[str, int] | None:
    count = int(s.modifiers[0]) if s.modifiers else 0
    part = f"b{width(s.type) // count}" if count else ""
    return (part, count) if part in BITS else None


ANY = ("pred", *COMPARED)
CHOSEN = (*BITS, *INTEGERS, *FLOATS, *HALVES)
TESTS = " ".join([*OF_FLOATS, *UNSIGNED])
SPACES = "to const global local shared param"
ROWS: tuple[Row, ...] = (
    row("setp", f"{TESTS} and or xor ftz", COMPARED, rule=comparison),
    row("set", f"{TESTS} ftz", ("u32", "s32", "f32"), COMPARED, rule=comparison_as_number),
    row("selp", "", CHOSEN, rule=choice),
    row("slct", "", (*BITS, *INTEGERS, *FLOATS), ("s32",), rule=choice_by_sign),
    row("slct", "ftz", (*BITS, *INTEGERS, *FLOATS), ("f32",), rule=choice_by_sign),
    row("mov", "", (*ANY, "f16x2", "bf16x2"), rule=move),
    row("cvta", SPACES, ("u32", "u64"), rule=move),
    row("pack", "2 4", ("b32", "b64"), rule=packed),
    row("unpack", "2 4", ("b32", "b64"), rule=unpacked),
)

USUAL = spelled(
    "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{f32,f64,f16,bf16}",
    "setp.{eq,ne,lt,le,gt,ge}.ftz.f32",
    "setp.{eq,ne}.{b16,b32,b64,u16,u32,u64,s16,s32,s64}",
    "setp.{lt,le,gt,ge}.{u16,u32,u64,s16,s32,s64}",
    "setp.{eq,ne}.{and,or}.{b32,f32}",
    "setp.{lt,gt}.{and,or}.{s32,u32,f32}",
    "set.{eq,lt}.{u32.f32,f32.f32,u32.s32}",
    "selp.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f16,bf16,f32,f64}",
    "slct.{b32,f32,f64}.{s32,f32}",
    "mov.{pred,b16,b32,b64,u16,u32,u64,s16,s32,s64,f16,bf16,f32,f64}",
    "cvta.{local,shared,global,to.global,to.shared,to.local}.u64",
    "{pack,unpack}{.b32.2,.b64.2,.b64.4}",
)
