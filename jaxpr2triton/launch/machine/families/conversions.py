"""Conversions between numbers of all sizes.

Bytes live in the lower half of registers of 16 bits. LLVM also converts a byte, or a half of a word, where it lies in a
longer register; `cvt.s32.s8.w32` is our name for that: the operand's register has 32 bits.
"""

from __future__ import annotations

from jaxpr2triton.launch.machine.families.floats import read, written
from jaxpr2triton.launch.machine.families.spelling import (
    BYTES,
    C_TYPES,
    FLOATS,
    HALVES,
    INTEGERS,
    Operation,
    Row,
    Spelling,
    register,
    row,
    spelled,
    width,
)

WHOLE = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}  # to an integer, in a float or not
NUMBERS = (*FLOATS, *HALVES)
WHOLES = (*INTEGERS, "u8", "s8")


def _c(type: str) -> str:
    return BYTES.get(type) or C_TYPES[type]


def _ends(type: str) -> tuple[str, str]:
    """The least and the largest integer."""
    n = width(type)
    return (f"-((s128)1 << {n - 1})", f"((s128)1 << {n - 1}) - 1") if type[0] == "s" else ("0", f"((s128)1 << {n}) - 1")


def _operand(s: Spelling) -> str:
    """The type of the register that the operand is in: .w32 says that it is longer than the operand."""
    longer = [each for each in s.modifiers if each in ("w32", "w64")]
    return f"b{longer[0][1:]}" if longer else register(s.type)


def _number(s: Spelling) -> str:
    """The operand; denormals of f32 alone are flushed."""
    return read(s if s.type == "f32" else Spelling(s.name, (), s.types), "a")


def of_integers(s: Spelling) -> Operation | None:
    to, source = s.types
    if s.has("sat"):
        least, most = _ends(to)
        value = f"const s128 x = ({_c(source)})a; d0 = ({_c(to)})(x < {least} ? {least} : x > {most} ? {most} : x);"
    else:
        value = f"d0 = ({_c(to)})({_c(source)})a;"
    return Operation((register(to),), (_operand(s),), value)


def from_integer(s: Spelling) -> Operation | None:
    """Rounded once, in any direction."""
    to, source = s.types
    x = f"({_c(source)})a"
    exact = f"odd64((f128){x})" if width(source) == 64 else f"(f64){x}"
    if to in HALVES:
        value = f"{to}_{s.rounding}({exact})" if s.rounding in ("rn", "rz") else ""
    elif s.rounding == "rn":
        value = f"({to}){x}"
    else:
        value = f"{s.rounding}32({exact})" if to == "f32" else f"{s.rounding}64((f128){x})"
    return Operation((to,), (_operand(s),), f"d0 = {value};") if value else None


def to_integer(s: Spelling) -> Operation | None:
    """The nearest integer that there is, for infinity too.

    NaN is zero, but with 64 bits on either side it is the highest bit alone.
    """
    to, source = s.types
    ways = [WHOLE[each] for each in s.modifiers if each in WHOLE]
    if len(ways) != 1 or (s.has("ftz") and source != "f32"):
        return None
    n = width(to)
    of_nan = "0" if n < 64 and source != "f64" else f"({_c(to)})((u64)1 << {n - 1})"
    x = f"__builtin_{ways[0]}((f64){_number(s)})"
    if n < 32:
        least, most = _ends(to)
        found = f"({_c(to)})clamp(s32_of(x), {least}, {most})"
    else:
        found = f"{to}_of(x)"
    return Operation((register(to),), (source,), f"const f64 x = {x}; d0 = x != x ? {of_nan} : {found};")


def of_floats(s: Spelling) -> Operation | None:
    """To a longer or a shorter float, or to a whole number in the same one; .sat and .relu before it is rounded."""
    to, source = s.types
    ways = [WHOLE[each] for each in s.modifiers if each in WHOLE]
    size = "64" if source == "f64" else "32"
    x = _number(s)
    if ways:
        if to != source:
            return None
        x = f"__builtin_{ways[0]}{'' if source == 'f64' else 'f'}({x})"
    for change in ("sat", "relu"):
        x = f"{change}{size}({x})" if s.has(change) else x
    if to in HALVES:
        return Operation((to,), (source,), f"d0 = {to}_{s.rounding}({x});") if s.rounding in ("rn", "rz") else None
    if to == "f32" and source == "f64":
        x = f"(f32)({x})" if s.rounding == "rn" else f"{s.rounding}32({x})"
    target = Spelling(s.name, s.modifiers if to == "f32" else (), (to,))
    return Operation((to,), (source,), f"d0 = {written(target, x)};")


def two_floats(s: Spelling) -> Operation | None:
    """Two floats are two halves of a word; the first operand is the upper one."""
    half = s.types[0][:-2]
    one = of_floats(Spelling(s.name, s.modifiers, (half, "f32")))
    if one is None:
        return None
    inner = one.body.removeprefix("d0 = ").removesuffix(";")
    lower = inner.replace("(a)", "(b)")
    return Operation((s.types[0],), ("f32", "f32"), f"d0 = (u32){inner} << 16 | (u32){lower};")


def to_tf32(s: Spelling) -> Operation | None:
    ways = [each for each in s.modifiers if each in ("rna", "rn", "rz")]
    if len(ways) != 1:
        return None
    x = "relu32(a)" if s.has("relu") else "a"
    return Operation(("b32",), ("f32",), f"d0 = tf32_{ways[0]}({x});")


def to_bytes(s: Spelling) -> Operation | None:
    """Two numbers, of f32 or the halves of a word, are two floats of 8 bits; the first operand is the upper one."""
    if set(s.modifiers) - {"relu"} != {"rn", "satfinite"}:
        return None
    to, source = s.types
    small = to[:-2]
    pair = ("a", "b") if source == "f32" else (f"{source[:-2]}_value((u16)(a >> 16))", f"{source[:-2]}_value((u16)a)")
    upper, lower = (f"relu32({x})" if s.has("relu") else x for x in pair)
    body = f"d0 = (u16)({small}_rn({upper}) << 8 | {small}_rn({lower}));"
    return Operation(("b16",), ("f32", "f32") if source == "f32" else ("b32",), body)


def from_bytes(s: Spelling) -> Operation | None:
    """Two floats of 8 bits are two halves, which hold them all."""
    to, source = s.types
    if not s.has("rn"):
        return None
    values = [f"{source[:-2]}_value((u8){x})" for x in ("(a >> 8)", "a")]
    upper, lower = (f"(u32)f16_rn({f'relu32({x})' if s.has('relu') else x})" for x in values)
    return Operation((to,), ("b16",), f"d0 = {upper} << 16 | {lower};")


INTEGER_WAYS, FLOAT_WAYS = " ".join(WHOLE), "rn rz rm rp"
ROWS: tuple[Row, ...] = (
    row("cvt", "sat w32 w64", WHOLES, WHOLES, rule=of_integers),
    row("cvt", f"{FLOAT_WAYS} w32 w64", NUMBERS, WHOLES, rule=from_integer),
    row("cvt", f"{INTEGER_WAYS} ftz sat", WHOLES, NUMBERS, rule=to_integer),
    row("cvt", f"{INTEGER_WAYS} {FLOAT_WAYS} ftz sat relu", NUMBERS, NUMBERS, rule=of_floats),
    row("cvt", "rn rz relu", ("f16x2", "bf16x2"), ("f32",), rule=two_floats),
    row("cvt", "rna rn rz relu", ("tf32",), ("f32",), rule=to_tf32),
    row("cvt", "rn satfinite relu", ("e4m3x2", "e5m2x2"), ("f32", "f16x2", "bf16x2"), rule=to_bytes),
    row("cvt", "rn relu", ("f16x2",), ("e4m3x2", "e5m2x2"), rule=from_bytes),
)

_ALL = "u8,s8,u16,s16,u32,s32,u64,s64"
USUAL = tuple(
    each
    for each in spelled(
        f"cvt.{{{_ALL}}}.{{{_ALL}}}",
        "cvt.{s16,u16,s32,u32}.{s8,u8}.w32",
        "cvt.s32.s16.w32",
        "cvt.s64.{s8,s16,s32}.w64",
        "cvt.sat.{s8,u8}.{s16,s32}",
        f"cvt.rn.{{f32,f64,f16,bf16}}.{{{_ALL}}}",
        f"cvt.{{rzi,rni}}.{{{_ALL}}}.{{f32,f64}}",
        "cvt.{rni,rzi,rmi,rpi}.ftz.{s32,u32}.f32",
        "cvt.{rmi,rpi}.{s32,s64}.{f32,f64}",
        "cvt.rzi.{s32,u32}.{f16,bf16}",
        "cvt.{rni,rzi,rmi,rpi}.{f32.f32,ftz.f32.f32,f64.f64,f16.f16,bf16.bf16}",
        "cvt{.sat,.ftz.sat,.ftz}.f32.f32",
        "cvt{,.ftz}.f64.f32",
        "cvt.{rn,rz,rm,rp}{,.ftz}.f32.f64",
        "cvt.{f32,f64}.{f16,bf16}",
        "cvt.{rn,rz,rn.relu}.{f16,bf16,f16x2,bf16x2}.f32",
        "cvt.rn.{f16,bf16}.f64",
        "cvt.{rna,rn,rz}.tf32.f32",
        "cvt.rn.satfinite.{e4m3x2,e5m2x2}.{f32,f16x2}",
        "cvt.rn.f16x2.{e4m3x2,e5m2x2}",
    )
    if len(set(each.split(".")[-2:])) == 2 or each.split(".")[1] not in (*INTEGERS, *BYTES)
)
