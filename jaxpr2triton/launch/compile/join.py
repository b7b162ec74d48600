"""Products join the sums that they go into, where no other lane is asked for its part.

    mul.f32 %r5, %r3, %r4;
    add.rn.ftz.f32 %r7, %r6, %r5;      →      fma.rn.f32 %r7, %r3, %r4, %r6;

Kernels add up with additions that the compiler must not join with products, or lanes would hold different copies of a
total (`rules/helpers.py` says why). That is needed where a lane adds what another lane has, but not for the terms that
a thread has by itself, of which there may be a hundred; and only who sees the registers can tell the two apart. A
product joins if nobody else reads it: one that goes to other lanes is read by the shuffle, too. Both have to stand in
one block, the factors still there, and what is added must not come from a shuffle itself. PTX lets a `mul` without a
rounding be joined; `mul.rn` is left alone, and so are libdevice's additions without rounding errors, which read their
operands twice.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

REGISTER = re.compile(r"%\w+")
PRODUCT = re.compile(r"\s*mul\.(f32|f64)\s+(%\w+), ([^,;\s]+), ([^,;\s]+);\s*")
_SUM = re.compile(r"(\s*)add\.rn(?:\.ftz)?\.(f32|f64)(\s+)(%\w+), ([^,;\s]+), ([^,;\s]+);\s*")
_ONE = re.compile(r"\s*(?:@!?%\w+\s+)?[a-z][\w.:]*\s+(\{[^}]*\}|[^,;{}]+)[^;]*;\s*(?://.*)?")
_MOVE = re.compile(r"\s*(?:mov|cvt|shl|or|prmt)\.")
LABEL = re.compile(r"\s*(\$\w+):")
JUMP = re.compile(r"\b(bra|brx|ret|exit|call)\b|\.branchtargets\b")


@dataclass(frozen=True)
class _Product:
    line: int
    dtype: str
    factors: tuple[str, str]


def products_joined(ptx: str) -> str:
    """The same code, with fewer instructions; a product and a sum are rounded once instead of twice."""
    lines: list[str | None] = [*ptx.split("\n")]
    times = Counter(REGISTER.findall(ptx))
    targets = {name for line in ptx.split("\n") if JUMP.search(line) for name in re.findall(r"\$\w+", line)}
    shuffled = shuffled_in(ptx)
    products: dict[str, _Product] = {}
    read_by: dict[str, list[str]] = {}  # factors, and their products
    for number, line in enumerate(ptx.split("\n")):
        label = LABEL.match(line)
        if JUMP.search(line) or (label and label[1] in targets):
            products, read_by = {}, {}
        if found := _SUM.fullmatch(line):
            pad, dtype, gap, result, *terms = found.groups()
            for term, other in (terms, terms[::-1]):
                product = products.get(term)
                if product and product.dtype == dtype and other not in shuffled:
                    lines[product.line] = None
                    lines[number] = f"{pad}fma.rn.{dtype}{gap}{result}, {', '.join(product.factors)}, {other};"
                    break
        for register in _written(line):
            for name in read_by.pop(register, ()):
                products.pop(name, None)
        if (found := PRODUCT.fullmatch(line)) and times[found[2]] == 2:  # written here, and read once
            products[found[2]] = _Product(number, found[1], (found[3], found[4]))
            for factor in {found[3], found[4]}:
                read_by.setdefault(factor, []).append(found[2])
    return "\n".join(line for line in lines if line is not None)


def shuffled_in(ptx: str) -> set[str]:
    """What comes from other lanes, 64 bits of it in two halves that are put together."""
    found: set[str] = set()
    for line in ptx.split("\n"):
        if "shfl." in line or (_MOVE.match(line) and found.intersection(REGISTER.findall(line))):
            found |= _written(line)
    return found


def _written(line: str) -> set[str]:
    """What an instruction may write: its first operand; all that is named where a line is not one instruction."""
    one = _ONE.fullmatch(line)
    return set(REGISTER.findall(one[1] if one else line))
