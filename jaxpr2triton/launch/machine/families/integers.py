"""Arithmetic of integers: sums with and without carry, products, quotients, the smaller and the larger."""

from __future__ import annotations

from jaxpr2triton.launch.machine.families.spelling import (
    C_TYPES,
    INTEGERS,
    SIGNED,
    Operation,
    Row,
    Spelling,
    row,
    same,
    spelled,
    width,
)

SIGN = {"add": "+", "addc": "+", "sub": "-", "subc": "-"}


def unsigned(type: str) -> str:
    return f"u{width(type)}"


def wider(type: str) -> str:
    """s32 → s64, of the same sign."""
    return f"{type[0]}{2 * width(type)}"


def total(s: Spelling) -> Operation | None:
    """add and sub wrap; .sat stops at the ends, of s32 only; .cc keeps the carry, or the borrow."""
    sign = SIGN[s.name]
    if s.has("sat"):
        return same("s32", 2, f"(s32)clamp((s64)a {sign} b, INT32_MIN, INT32_MAX)") if s.modifiers == ("sat",) else None
    if s.has("cc"):
        return _with_carry(s, f"a {sign} (wide)(narrow)b")
    return same(s.type, 2, f"({unsigned(s.type)})a {sign} ({unsigned(s.type)})b")


def total_with_carry(s: Spelling) -> Operation | None:
    sign = SIGN[s.name]
    return _with_carry(s, f"a {sign} (wide)(narrow)b {sign} carry")


def _with_carry(s: Spelling, expression: str, count: int = 2) -> Operation | None:
    """`expression` starts with what is as long as an operand; bit n of the wider sum is the carry, or the borrow."""
    if width(s.type) == 16:
        return None
    narrow = unsigned(s.type)
    text = f"(wide)(narrow){expression}".replace("wide", wider(narrow)).replace("narrow", narrow)
    kept = f" carry = (u32)(w >> {width(s.type)}) & 1;" if s.has("cc") else ""
    return Operation((s.type,), (s.type,) * count, f"const {wider(narrow)} w = {text}; d0 = ({narrow})w;{kept}")


def product(s: Spelling) -> Operation | None:
    """mul and mad: .lo and .hi are the halves of the product, .wide is all of it."""
    parts = {"lo", "hi", "wide"}.intersection(s.modifiers)
    if len(parts) != 1 or (s.has("cc") and s.name == "mul"):
        return None
    n, whole = width(s.type), wider(s.type)
    text = f"({whole})a * b"
    added = s.name != "mul"
    if s.has("wide"):
        if n == 64 or len(s.modifiers) > 1:
            return None
        if not added:
            return Operation((whole,), (s.type, s.type), f"d0 = {text};")
        return Operation((whole,), (s.type, s.type, whole), f"d0 = ({unsigned(whole)})({text}) + ({unsigned(whole)})c;")
    low = f"({unsigned(s.type)})(({unsigned(whole)})a * ({unsigned(whole)})b)" if n == 16 else ""
    low = low or f"({unsigned(s.type)})a * ({unsigned(s.type)})b"
    part = f"({unsigned(s.type)})(({text}) >> {n})" if s.has("hi") else low
    if s.has("cc"):
        return _with_carry(s, f"({part}) + (wide)(narrow)c", 3)
    return same(s.type, 3, f"({part}) + ({unsigned(s.type)})c") if added else same(s.type, 2, part)


def product_with_carry(s: Spelling) -> Operation | None:
    """madc: the carry of the sum before is added too."""
    if len({"lo", "hi"}.intersection(s.modifiers)) != 1:
        return None
    unsigned_type = unsigned(s.type)
    high = f"({unsigned_type})((({wider(s.type)})a * b) >> {width(s.type)})"
    part = high if s.has("hi") else f"(({unsigned_type})a * ({unsigned_type})b)"
    return _with_carry(s, f"({part}) + (wide)(narrow)c + carry", 3)


def quotient(s: Spelling) -> Operation:
    """div and rem, also where C has none: x / 0 is all ones, x % 0 is x, and the least number / -1 is itself."""
    t = C_TYPES[s.type]
    if s.name == "div":
        value, of_zero, of_minus_one = "a / b", f"({t})-1", f"({t})(({unsigned(s.type)})0 - ({unsigned(s.type)})a)"
    else:
        value, of_zero, of_minus_one = "a % b", "a", "0"
    if s.type in SIGNED:
        value = f"b == -1 ? {of_minus_one} : {value}"
    return same(s.type, 2, f"b == 0 ? {of_zero} : {value}")


def sign(s: Spelling) -> Operation:
    """The least number is its own negative."""
    t = unsigned(s.type)
    return same(s.type, 1, f"({t})0 - ({t})a" if s.name == "neg" else f"a < 0 ? ({t})0 - ({t})a : ({t})a")


def smaller_or_larger(s: Spelling) -> Operation | None:
    """.relu: at least zero."""
    if s.has("relu") and s.type != "s32":
        return None
    found = f"a {'<' if s.name == 'min' else '>'} b ? a : b"
    if s.has("relu"):
        return Operation(("s32",), ("s32", "s32"), f"const s32 m = {found}; d0 = m < 0 ? 0 : m;")
    return same(s.type, 2, found)


def distance(s: Spelling) -> Operation:
    """sad: the distance of two numbers is added to the third."""
    t = unsigned(s.type)
    return same(s.type, 3, f"({t})c + (a < b ? ({t})b - ({t})a : ({t})a - ({t})b)")


def dot(s: Spelling) -> Operation | None:
    """dp4a adds four products of bytes to c; dp2a those of two halves of a by the lower or upper two bytes of b."""
    first, second = s.types
    high = s.has("hi")
    if (s.name == "dp4a") != (not s.modifiers) or len(s.modifiers) > 1:
        return None
    wide, count = (8, 4) if s.name == "dp4a" else (16, 2)
    left = [f"(s32)({first[0]}{wide})(a >> {wide * i})" for i in range(count)]
    right = [f"(s32)({second[0]}8)(b >> {8 * i + 16 * high})" for i in range(count)]
    products = " + ".join(f"{x} * {y}" for x, y in zip(left, right))
    result = "u32" if (first, second) == ("u32", "u32") else "s32"
    return Operation((result,), ("b32", "b32", result), f"d0 = (u32)c + (u32)({products});")


INTEGER, WIDE = INTEGERS, ("u32", "s32", "u64", "s64")
ROWS: tuple[Row, ...] = (
    row("add sub", "", INTEGER, rule=total),
    row("add sub", "sat", ("s32",), rule=total),
    row("add sub", "cc", WIDE, rule=total),
    row("addc subc", "cc", WIDE, rule=total_with_carry),
    row("mul mad", "lo hi wide", INTEGER, rule=product),
    row("mad", "lo hi cc", WIDE, rule=product),
    row("madc", "lo hi cc", WIDE, rule=product_with_carry),
    row("div rem", "", INTEGER, rule=quotient),
    row("neg abs", "", SIGNED, rule=sign),
    row("min max", "relu", INTEGER, rule=smaller_or_larger),
    row("sad", "", INTEGER, rule=distance),
    row("dp4a dp2a", "lo hi", ("u32", "s32"), ("u32", "s32"), rule=dot),
)

USUAL = spelled(
    "{add,sub,mul.lo,min,max,div,rem}.{u16,s16,u32,s32,u64,s64}",
    "{add,sub,addc,subc,mad.lo,mad.hi,madc.lo,madc.hi}.cc.{u32,s32,u64,s64}",
    "{addc,subc,madc.lo,madc.hi}.{u32,s32,u64,s64}",
    "{mul.hi,mad.lo}.{u16,s16,u32,s32,u64,s64}",
    "mad.hi.{u32,s32,u64,s64}",
    "{mul,mad}.wide.{u16,s16,u32,s32}",
    "{neg,abs}.{s16,s32,s64}",
    "{add,sub}.sat.s32",
    "{min,max}.relu.s32",
    "dp4a.{u32,s32}.{u32,s32}",
)
