"""Bits: logic, shifts, fields, bytes, and where the highest one is."""

from __future__ import annotations

from jaxpr2triton.launch.machine.families.spelling import (
    BITS,
    C_TYPES,
    INTEGERS,
    Operation,
    Row,
    Spelling,
    row,
    same,
    spelled,
    width,
)

LOGIC = {"and": "a & b", "or": "a | b", "xor": "a ^ b"}


def logic(s: Spelling) -> Operation:
    return same(s.type, 2, LOGIC[s.name])


def inverse(s: Spelling) -> Operation:
    """not; cnot is one for zero and zero for all else."""
    return same(s.type, 1, "!a" if s.name == "cnot" or s.type == "pred" else "~a")


def any_logic(s: Spelling) -> Operation:
    """The fourth operand is the table of results."""
    return same("b32", 4, "lop3(a, b, c, e)")


def shift(s: Spelling) -> Operation:
    """The amount has 32 bits, whatever is shifted; by too much leaves zeros, or the sign."""
    last = width(s.type) - 1
    if s.name == "shr" and s.type[0] == "s":
        return Operation((s.type,), (s.type, "b32"), f"d0 = a >> (b > {last} ? {last} : b);")
    sign = "<<" if s.name == "shl" else ">>"
    return Operation((s.type,), (s.type, "b32"), f"d0 = b > {last} ? 0 : a {sign} (b & {last});")


def funnel(s: Spelling) -> Operation | None:
    """shf: b:a is shifted, and its upper half (.l) or its lower half (.r) is the result."""
    if len(s.modifiers) != 2 or s.has("l") == s.has("r") or s.has("wrap") == s.has("clamp"):
        return None
    amount = "(c & 31)" if s.has("wrap") else "(c > 32 ? 32 : c)"
    both = "((u64)b << 32 | a)"
    return same("b32", 3, f"(u32)(({both} << {amount}) >> 32)" if s.has("l") else f"(u32)({both} >> {amount})")


def permutation(s: Spelling) -> Operation:
    return same("b32", 3, "prmt(a, b, c)")


def field(s: Spelling) -> Operation:
    """bfe: bits of a from b on, c of them; only the last byte of b and c counts."""
    sign = s.type[0]
    body = f"d0 = ({C_TYPES[s.type]})field_{sign}(a, b & 255, c & 255);"
    return Operation((s.type,), (s.type, "b32", "b32"), body)


def insertion(s: Spelling) -> Operation:
    """bfi: bits of a into b, from c on, e of them."""
    return Operation(
        (s.type,), (s.type, s.type, "b32", "b32"), f"d0 = ({C_TYPES[s.type]})insert(a, b, c & 255, e & 255);"
    )


def mask(s: Spelling) -> Operation | None:
    """bmsk: ones from a on, b of them; both stop at 32 (.clamp) or are taken modulo it (.wrap)."""
    if len(s.modifiers) != 1:
        return None
    if s.has("wrap"):
        return same("b32", 2, "(u32)insert(~(u64)0, 0, a & 31, b & 31)")
    return same("b32", 2, "(u32)insert(~(u64)0, 0, a > 32 ? 32 : a, b > 32 ? 32 : b)")


def extension(s: Spelling) -> Operation | None:
    """szext: the lower b bits, with zeros or copies of their highest bit before them."""
    if len(s.modifiers) != 1:
        return None
    amount = "b & 31" if s.has("wrap") else "b > 32 ? 32 : b"
    return Operation((s.type,), (s.type, "b32"), f"d0 = ({C_TYPES[s.type]})field_{s.type[0]}(a, 0, {amount});")


def count(s: Spelling) -> Operation:
    """popc and clz count ones, and the zeros before the first one."""
    if s.name == "popc":
        return Operation(("b32",), (s.type,), "d0 = __builtin_popcountll((u64)a);")
    return Operation(("b32",), (s.type,), f"d0 = {width(s.type) - 1} - highest(a);")


def reversal(s: Spelling) -> Operation:
    return same(s.type, 1, f"reversed{width(s.type)}(a)")


def find(s: Spelling) -> Operation:
    """bfind: the highest bit unlike the sign, all ones if there is none; .shiftamt: how far it is from the top."""
    n = width(s.type)
    value = f"(u{n})(a < 0 ? ~a : a)" if s.type[0] == "s" else "a"
    found = f"const u32 at = highest({value}); d0 = "
    return Operation(
        ("u32",), (s.type,), found + (f"at > {n - 1} ? at : {n - 1} - at;" if s.has("shiftamt") else "at;")
    )


WIDE = ("b32", "b64")
FIELDS = ("u32", "s32", "u64", "s64")
ROWS: tuple[Row, ...] = (
    row("and or xor not", "", ("pred", *BITS), rule=lambda s: inverse(s) if s.name == "not" else logic(s)),
    row("cnot", "", BITS, rule=inverse),
    row("lop3", "", ("b32",), rule=any_logic),
    row("shl", "", BITS, rule=shift),
    row("shr", "", (*BITS, *INTEGERS), rule=shift),
    row("shf", "l r wrap clamp", ("b32",), rule=funnel),
    row("prmt", "", ("b32",), rule=permutation),
    row("bfe", "", FIELDS, rule=field),
    row("bfi", "", WIDE, rule=insertion),
    row("bmsk", "wrap clamp", ("b32",), rule=mask),
    row("szext", "wrap clamp", ("u32", "s32"), rule=extension),
    row("popc clz", "", WIDE, rule=count),
    row("brev", "", WIDE, rule=reversal),
    row("bfind", "shiftamt", FIELDS, rule=find),
)

USUAL = spelled(
    "{and,or,xor,not}.{pred,b16,b32,b64}",
    "lop3.b32",
    "shl.{b16,b32,b64}",
    "shr.{b16,b32,b64,u16,u32,u64,s16,s32,s64}",
    "shf.{l,r}.{wrap,clamp}.b32",
    "prmt.b32",
    "bfe.{u32,s32,u64,s64}",
    "{bfi,popc,clz,brev}.{b32,b64}",
    "bfind{,.shiftamt}.{u32,s32,u64,s64}",
    "bmsk.clamp.b32",
    "szext.clamp.{u32,s32}",
)
