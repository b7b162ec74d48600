"""Arithmetic of floats: sums and products in each rounding, the smaller and the larger, signs, and approximations."""

from __future__ import annotations

from jaxpr2triton.launch.machine.families.spelling import (
    FLOATS,
    HALVES,
    Operation,
    Row,
    Spelling,
    row,
    same,
    spelled,
)

SIZE = {"f32": "32", "f64": "64", "f16": "32", "bf16": "32"}  # halves are computed as f32, which holds them all


def read(s: Spelling, name: str, type: str = "") -> str:
    """An operand as a C number; .ftz makes zeros of denormals."""
    type = type or s.type
    match type, s.has("ftz"):
        case "f32", True:
            return f"ftz32({name})"
        case "f16", True:
            return f"f16_value(ftz_f16({name}))"
        case "bf16", True:
            return f"ftz32(bf16_value({name}))"
        case "f16" | "bf16", _:
            return f"{type}_value({name})"
        case _:
            return name


def written(s: Spelling, value: str) -> str:
    """A C number as what the register gets: rounded to a half, denormals flushed, every NaN the one NaN."""
    if s.type in HALVES:
        value = f"{s.type}_rn({value})"
        return f"ftz_{s.type}({value})" if s.has("ftz") else value
    value = f"ftz32({value})" if s.has("ftz") else value
    return f"one_nan{SIZE[s.type]}({value})"


# The exact value, to be rounded once: `wide` is a type that holds products, `n` the size of sums in it.
EXACT = {
    "add": "sum_odd{n}({x}, {y})",
    "sub": "sum_odd{n}({x}, -{y})",
    "mul": "(({wide}){x} * {y})",
    "fma": "sum_odd{n}(({wide}){x} * {y}, {z})",
}
NEAREST = {
    "add": "{x} + {y}",
    "sub": "{x} - {y}",
    "mul": "{x} * {y}",
    "fma": "__builtin_fma{f}({x}, {y}, {z})",
}


def arithmetic(s: Spelling) -> Operation:
    """add, sub, mul, fma of one type.

    Halves, and other roundings than to the nearest, start from a value of the next wider type that is exact but for its
    last bit, which is odd where something is missing; -(rounded up)(-value) is rounded down, also where it is zero.
    """
    x, y, z = (read(s, each) for each in "abc")
    count = 3 if s.name == "fma" else 2
    if s.rounding == "rn" and s.type in FLOATS:
        value = NEAREST[s.name].format(x=x, y=y, z=z, f="f" if s.type == "f32" else "")
    else:
        value = _rounded_once(s, x, y, z)
    for change in ("sat", "relu"):
        if s.has(change):
            value = f"{change}{'32' if s.type == 'f32' else '64'}({value})"  # a half is not rounded before
    return same(s.type, count, written(s, value))


def _rounded_once(s: Spelling, x: str, y: str, z: str) -> str:
    wide, n = ("f128", "128") if s.type == "f64" else ("f64", "64")
    down = s.rounding == "rm"
    if down:
        x, z = f"-{x}", f"-{z}"
        y = f"-{y}" if s.name == "add" else f"(-{y})" if s.name == "sub" else y
    value = EXACT[s.name].format(x=x, y=y, z=z, n=n, wide=wide)
    if s.type in HALVES:
        return value
    return f"{'-rp' if down else s.rounding}{SIZE[s.type]}({value})"


def half_arithmetic(s: Spelling) -> Operation | None:
    return arithmetic(s) if s.rounding == "rn" else None


def mixed(s: Spelling) -> Operation | None:
    """fma.rn.f32.bf16: halves are added to, or multiplied and added to, an f32."""
    half = s.types[1]
    wide = Spelling(s.name, s.modifiers, s.types[:1])
    halves = 2 if s.name == "fma" else 1
    inner = arithmetic(wide)
    names = "abc"[: len(inner.operands)]
    given = "".join(f"const f32 {name}_ = {half}_value({name}); " for name in names[:halves])
    rest = "".join(f"const f32 {name}_ = {name}; " for name in names[halves:])
    again = "".join(f"const f32 {name} = {name}_; " for name in names)
    return Operation(
        ("f32",), (half,) * halves + ("f32",) * (len(names) - halves), f"{given}{rest}{{ {again}{inner.body} }}"
    )


def smaller_or_larger(s: Spelling) -> Operation | None:
    """-0 is less than +0; of a number and a NaN the number is taken, but with .NaN the NaN."""
    x, y = read(s, "a"), read(s, "b")
    size = SIZE[s.type]
    which = f"{s.name}{'_nan' if s.has('NaN') else ''}{size}"
    if s.has("xorsign") != s.has("abs") or (s.type == "f64" and s.modifiers):
        return None
    if s.has("xorsign"):
        value = f"xorsign32({which}(__builtin_fabsf({x}), __builtin_fabsf({y})), {x}, {y})"
    else:
        value = f"{which}({x}, {y})"
    return same(s.type, 2, written(s, value))


def sign(s: Spelling) -> Operation:
    """neg and abs change the sign and nothing else, of NaN too."""
    if s.type in HALVES:
        x = "ftz_f16(a)" if s.has("ftz") else "a"
        return same(s.type, 1, f"{x} ^ 0x8000" if s.name == "neg" else f"{x} & 0x7fff")
    x = read(s, "a")
    return same(s.type, 1, f"-{x}" if s.name == "neg" else f"__builtin_fabs{'f' if s.type == 'f32' else ''}({x})")


def copysign(s: Spelling) -> Operation:
    """The second operand with the sign of the first."""
    return same(s.type, 2, f"__builtin_copysign{'f' if s.type == 'f32' else ''}(b, a)")


KINDS = {  # of a float, by its size without its sign: m; the smallest normal number, and infinity
    "finite": "m < {inf}",
    "infinite": "m == {inf}",
    "number": "m <= {inf}",
    "notanumber": "m > {inf}",
    "normal": "m >= {least} && m < {inf}",
    "subnormal": "m != 0 && m < {least}",
}


def testp(s: Spelling) -> Operation | None:
    if len(s.modifiers) != 1:
        return None
    if s.type == "f32":
        size = "const u32 m = bits32(a) & 0x7fffffffu;"
        test = KINDS[s.modifiers[0]].format(inf="0x7f800000u", least="0x00800000u")
    else:
        size = "const u64 m = bits64(a) & 0x7fffffffffffffffull;"
        test = KINDS[s.modifiers[0]].format(inf="0x7ff0000000000000ull", least="0x0010000000000000ull")
    return Operation(("pred",), (s.type,), f"{size} d0 = {test};")


# ---- quotients, roots and other functions

ODD = {"div": "quotient_odd64({x}, {y})", "rcp": "quotient_odd64(1, {x})", "sqrt": "root_odd64({x})"}
QUOTIENT = {"div": "{x} / {y}", "rcp": "1 / {x}", "sqrt": "__builtin_sqrt{f}({x})"}


def quotient(s: Spelling) -> Operation | None:
    """div, rcp and sqrt as IEEE 754 has them: .rn, and for f32 in the other directions too."""
    x, y = read(s, "a"), read(s, "b")
    if s.rounding == "rn":
        value = QUOTIENT[s.name].format(x=x, y=y, f="f" if s.type == "f32" else "")
    elif s.type == "f32":
        value = f"{s.rounding}32({ODD[s.name].format(x=x, y=y)})"
    else:
        return None
    return same(s.type, 2 if s.name == "div" else 1, written(s, value))


APPROXIMATE = {
    "rcp": "1 / {x}",
    "sqrt": "__builtin_sqrtf({x})",
    "rsqrt": "rsqrt_32({x})",
    "ex2": "exp2_32({x})",
    "lg2": "log2_32({x})",
    "sin": "sin_32({x})",
    "cos": "cos_32({x})",
    "tanh": "tanh_32({x})",
}


def approximate(s: Spelling) -> Operation | None:
    """The nearest value in place of what the device's units find; with noise, one beside it."""
    if s.has("approx") == s.has("full"):
        return None
    x, y = read(s, "a"), read(s, "b")
    if s.name == "div":
        quotient = f"{x} / {y}" if s.has("full") else f"div_approx32({x}, {y})"
        return same(s.type, 2, written(s, f"NOISY({quotient})"))
    return same(s.type, 1, written(s, f"NOISY({APPROXIMATE[s.name].format(x=x)})")) if s.has("approx") else None


def gross(s: Spelling) -> Operation | None:
    """rcp and rsqrt of f64 as starting values for Newton's steps: .ftz makes them of 20 bits, with zeros after them."""
    if not s.has("approx") or (s.name == "rcp" and not s.has("ftz")):
        return None
    if not s.has("ftz"):
        return same("f64", 1, "one_nan64(NOISY(rsqrt_64(a)))")
    value = "1 / x" if s.name == "rcp" else "rsqrt_64(x)"
    body = f"const f64 x = a != a ? a : ftz64(upper64(a)); d0 = one_nan64(upper64(ftz64({value})));"
    return Operation(("f64",), ("f64",), body)


F32, F64, FLOAT, HALF = ("f32",), ("f64",), FLOATS, HALVES
ROWS: tuple[Row, ...] = (
    row("add sub mul fma", "rn rz rm rp ftz sat", F32, rule=arithmetic),
    row("add sub mul fma", "rn rz rm rp", F64, rule=arithmetic),
    row("add sub mul", "rn ftz sat", ("f16",), rule=half_arithmetic),
    row("fma", "rn ftz sat relu", ("f16",), rule=half_arithmetic),
    row("add sub mul", "rn", ("bf16",), rule=half_arithmetic),
    row("fma", "rn relu", ("bf16",), rule=half_arithmetic),
    row("add sub fma", "rn rz rm rp sat", F32, HALF, rule=mixed),
    row("min max", "ftz NaN xorsign abs", (*F32, "f16"), rule=smaller_or_larger),
    row("min max", "NaN xorsign abs", ("bf16",), rule=smaller_or_larger),
    row("min max", "", F64, rule=smaller_or_larger),
    row("neg abs", "ftz", (*F32, "f16"), rule=sign),
    row("neg abs", "", (*F64, "bf16"), rule=sign),
    row("copysign", "", FLOAT, rule=copysign),
    row("testp", " ".join(KINDS), FLOAT, rule=testp),
    row("div rcp sqrt", "rn rz rm rp ftz", F32, rule=quotient),
    row("div rcp sqrt", "rn", F64, rule=quotient),
    row("div", "approx full ftz", F32, rule=approximate),
    row("rcp sqrt rsqrt ex2 lg2 sin cos", "approx ftz", F32, rule=approximate),
    row("tanh", "approx", (*F32, *HALF), rule=approximate),
    row("ex2", "approx", ("f16",), rule=approximate),
    row("ex2", "approx ftz", ("bf16",), rule=approximate),
    row("rcp rsqrt", "approx ftz", F64, rule=gross),
)

USUAL = spelled(
    "{add,sub,mul}{,.rn}{,.ftz}.f32",
    "{add,sub,mul}{,.rn}.f64",
    "{add,sub,mul}{.rz,.rm,.rp}{,.ftz}.f32",
    "{add,sub,mul,fma}{.rz,.rm,.rp}.f64",
    "{add,mul,fma.rn}{,.ftz}.sat.f32",
    "fma{.rn,.rz,.rm,.rp}{,.ftz}.f32",
    "fma.rn.{f64,f16,bf16}",
    "fma.rn.relu.{f16,bf16}",
    "{add,sub,mul}{,.rn}.{f16,bf16}",
    "{min,max}{,.NaN}{,.ftz}.f32",
    "{min,max}{.NaN,}.xorsign.abs.f32",
    "{min,max}{,.NaN}.{f16,bf16}",
    "{min,max}.f64",
    "{neg,abs}{,.ftz}.f32",
    "{neg,abs}.{f64,f16,bf16}",
    "copysign.{f32,f64}",
    "testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}",
    "{div,rcp,sqrt}.rn{,.ftz}.f32",
    "{div,rcp,sqrt}.rn.f64",
    "div{.approx,.full}{,.ftz}.f32",
    "{rcp,sqrt,rsqrt,ex2,lg2,sin,cos}.approx{,.ftz}.f32",
    "tanh.approx.{f32,f16,bf16}",
    "ex2.approx{.f16,.ftz.bf16}",
    "{rcp,rsqrt}.approx.ftz.f64",
    "rsqrt.approx.f64",
)
