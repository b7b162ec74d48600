"""Operations on two numbers in one register: each is that of the scalar, done with both halves.

add.bf16x2   →   add.bf16 of the lower halves, and of the upper ones
"""

from __future__ import annotations

from collections.abc import Callable

from jaxpr2triton.launch.machine.families.spelling import C_TYPES, Operation, Row, Spelling, row, spelled, width

Lookup = Callable[[Spelling], Operation | None]


def rows(scalar: Lookup) -> tuple[Row, ...]:
    """`scalar` finds the operation that is done twice."""

    def both(s: Spelling) -> Operation | None:
        one = scalar(Spelling(s.name, s.modifiers, (s.type[:-2],)))
        return one and in_halves(s.type, one)

    return (
        row("add sub mul fma min max neg abs", "rn rz rm rp ftz sat relu NaN xorsign abs", HALVED, rule=both),
        row("ex2 tanh", "approx ftz", ("f16x2", "bf16x2"), rule=both),
        row("add sub min max neg", "", ("s16x2", "u16x2"), rule=both),
        row("setp", "eq ne lt le gt ge equ neu ltu leu gtu geu num nan and or xor ftz", ("f16x2", "bf16x2"), rule=both),
    )


def in_halves(type: str, one: Operation) -> Operation:
    """A predicate is made of each half; a predicate that is given is the same for both."""
    part, half = type[:-2], width(type) // 2
    text, kept = "", C_TYPES[one.results[0]]
    names = "abc"[: len(one.operands)]
    outer = "".join(f"const {C_TYPES[type]} {name}_ = {name}; " for name, t in zip(names, one.operands) if t == part)
    for i, place in enumerate(("low", "high")):
        given = "".join(
            f"const {C_TYPES[part]} {name} = {_from_bits(part, f'({name}_ >> {i * half})' if i else f'{name}_')}; "
            for name, t in zip(names, one.operands)
            if t == part
        )
        text += f"{kept} {place}; {{ {kept} d0; {given}{one.body} {place} = d0; }} "
    operands = tuple(type if t == part else t for t in one.operands)
    if one.results == ("pred",):
        return Operation(("pred", "pred"), operands, f"{outer}{text}d0 = low; d1 = high;")
    whole = C_TYPES[type]
    low, high = (f"({whole}){_to_bits(part, place)}" for place in ("low", "high"))
    return Operation((type,), operands, f"{outer}{text}d0 = {low} | {high} << {half};")


def _from_bits(part: str, bits: str) -> str:
    return f"float32((u32){bits})" if part == "f32" else f"({C_TYPES[part]}){bits}"


def _to_bits(part: str, value: str) -> str:
    return f"bits32({value})" if part == "f32" else f"(u16){value}"


HALVED = ("f16x2", "bf16x2", "f32x2")
USUAL = spelled(
    "{add,sub,mul,fma}.rn.{f16x2,bf16x2}",
    "{add,sub,mul}.{f16x2,bf16x2}",
    "fma.rn.relu.{f16x2,bf16x2}",
    "{min,max}{,.NaN}.{f16x2,bf16x2}",
    "{neg,abs}.{f16x2,bf16x2}",
    "{add,mul,fma}.rn.f32x2",
    "{ex2,tanh}.approx.f16x2",
    "{ex2.approx.ftz,tanh.approx}.bf16x2",
    "{add,sub}.{s16x2,u16x2}",
    "{min,max}.{s16x2,u16x2}",
    "setp.{eq,ne,lt,gt,le,ge}.{f16x2,bf16x2}",
)
