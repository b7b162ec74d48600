"""Small kernels made of single rows, the values they run on, and JAX's answers.

A `Case` is one call of a primitive. Cases that read the same buffers share a kernel, one output each:

    a = tl.load(a_ptr + i)
    b = tl.load(b_ptr + i)
    tl.store(out0_ptr + i, a + b)
    tl.store(out1_ptr + i, a + 1.5)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive, primitives

from jaxpr2triton.ir import hashing, members, rounded, tree
from jaxpr2triton.ir.dtypes import is_bool, is_float, is_unsigned, triton_name, working_dtype
from jaxpr2triton.ir.kernel import Buffer, Kernel, KernelAxis, Role
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.rules.base import Call, Pointwise
from jaxpr2triton.rules.helpers import texts_of, with_callees
from jaxpr2triton.rules.literals import constant
from jaxpr2triton.rules.pointwise.table import POINTWISE

SIZE = 512
_LETTERS = "abcdef"
FLOATS = tuple(np.dtype(name) for name in (np.float16, jnp.bfloat16, np.float32, np.float64))
INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
BOOL = np.dtype(np.bool_)
Params = tuple[tuple[str, Any], ...]
DTYPES = (*FLOATS, *INTEGERS, BOOL)


@dataclass(frozen=True)
class Case:
    """One call; a constant that is None stands for an operand that is read from a buffer."""

    name: str
    dtypes: tuple[np.dtype, ...]
    constants: tuple[Any, ...]
    params: Params = ()

    def __str__(self) -> str:
        operands = ["_" if value is None else str(value) for value in self.constants]
        params = [f"{key}={value}" for key, value in self.params]
        return f"{self.name}[{', '.join(map(str, self.dtypes))}]({', '.join([*operands, *params])})"

    @property
    def row(self) -> Pointwise:
        return POINTWISE[self.name]

    @property
    def call(self) -> Call:
        """What the row is told about the equation."""
        return Call(self.dtypes, out_dtype(self.name, self.dtypes, self.params), dict(self.params))

    def operands(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays, with constants in their places."""
        pairs = zip(arrays, self.constants)
        return [array if value is None else np.full(array.shape, value, array.dtype) for array, value in pairs]


@functools.cache
def out_dtype(name: str, dtypes: tuple[np.dtype, ...], params: Params) -> np.dtype:
    """The dtype of the primitive's result."""
    specs = [jax.ShapeDtypeStruct((SIZE,), dtype) for dtype in dtypes]
    return np.dtype(jax.eval_shape(lambda *xs: primitive(name).bind(*xs, **dict(params)), *specs).dtype)


@functools.cache
def compiled(calls: tuple[tuple[str, Params], ...]) -> Callable[..., list[jax.Array]]:
    """The primitives, each bound to the same operands, under one `jax.jit`."""
    return jax.jit(lambda *arrays: [primitive(name).bind(*arrays, **dict(params)) for name, params in calls])


@functools.cache
def primitive(name: str) -> Primitive:
    """The primitive of that name; `add_any` is hidden, and found where JAX uses it."""
    for home in (primitives, lax, hashing, rounded, members):
        if hasattr(home, f"{name}_p"):
            return getattr(home, f"{name}_p")
    for eqn in jax.make_jaxpr(jax.grad(lambda x: x * x))(1.0).eqns:
        if eqn.primitive.name == name:
            return eqn.primitive
    raise LookupError(name)


def exists(name: str) -> bool:
    """False for the primitives that this version of JAX does not have."""
    try:
        return primitive(name) is not None
    except LookupError:
        return False


# ------------------------------------------------------------------------------------------------------------ values


def special(dtype: np.dtype) -> list[Any]:
    """The values where things go wrong."""
    if is_bool(dtype):
        return [False, True]
    if is_float(dtype):
        info = jnp.finfo(dtype)
        sizes = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 88.0, 127.5, 300.0, 40000.0, 2.0**31, 2.0**63, 2.0**64]
        sizes += [
            1e-4,
            0.1,
            0.999,
            1 + 2.0**-8 + 2.0**-40,
            1 + 2.0**-11 + 2.0**-40,
            float(info.max),
            float(info.tiny),
            float(info.eps),
            np.inf,
        ]
        signed = [sign * size for size in sizes for sign in (1, -1)]
        with np.errstate(over="ignore"):
            return [*np.asarray([*signed, np.nan], dtype)]
    lowest, highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    numbers = {0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, highest, highest - 1, highest // 2, lowest}
    if not is_unsigned(dtype):
        numbers |= {-1, -2, -3, -7, -8, -100, lowest + 1}
    return [*np.asarray(sorted(numbers), dtype)]


def random_values(dtype: np.dtype, count: int, random: np.random.Generator) -> np.ndarray:
    """Ordinary numbers, some small and some large."""
    if is_bool(dtype):
        return random.integers(0, 2, count).astype(bool)
    if is_float(dtype):
        return (random.normal(size=count) * 10.0 ** random.uniform(-3, 2, count)).astype(dtype)
    info = np.iinfo(dtype)
    wide = random.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
    return np.where(random.random(count) < 0.5, wide, wide % np.asarray(12, dtype)).astype(dtype)


def arrays_for(dtypes: Sequence[np.dtype], random: np.random.Generator) -> list[np.ndarray]:
    """For one operand every special value, for more a sample of their pairs; the rest is random."""
    columns = [random_values(dtype, SIZE, random) for dtype in dtypes]
    choices = [np.asarray(special(dtype), dtype) for dtype in dtypes]
    if len(dtypes) == 1:
        columns[0][: len(choices[0])] = choices[0]
        return columns
    half = 3 * SIZE // 4
    for column, values in zip(columns, choices):
        column[:half] = values[random.integers(0, len(values), half)]
    return columns


# ------------------------------------------------------------------------------------------------------------ kernels


def kernel_of(cases: Sequence[Case], name: str = "rows") -> Kernel:
    """One kernel for cases that have operands of the same dtypes."""
    inputs = tuple(Buffer(letter, (SIZE,), dtype) for letter, dtype in zip(_LETTERS, cases[0].dtypes))
    outputs = tuple(Buffer(f"out{n}", (SIZE,), case.call.out_dtype) for n, case in enumerate(cases))
    lines = [
        "import triton",
        "import triton.language as tl",
        "from triton.language.extra import libdevice",
        "",
        "",
        texts_of(dict.fromkeys(name for case in cases for helper in case.row.helpers for name in with_callees(helper))),
        "@triton.jit",
        f"def {name}({', '.join(buffer.name + '_ptr' for buffer in (*inputs, *outputs))}):",
        f"    i = tl.arange(0, {SIZE})",
    ]
    for buffer in inputs:
        widen = "" if working_dtype(buffer.dtype) == buffer.dtype else ".to(tl.float32)"
        lines.append(f"    {buffer.name} = tl.load({buffer.name}_ptr + i){widen}")
    for buffer, case in zip(outputs, cases):
        lines.append(f"    tl.store({buffer.name}_ptr + i, {expression(case)})  # {case}")
    axis = KernelAxis("i", SIZE, Role.LANE, SIZE)
    return Kernel(name, "\n".join(lines) + "\n", inputs, outputs, (axis,), (1, 1, 1), 4, 1, 0, 0, len(cases))


def expression(case: Case) -> str:
    """What the row writes, rounded to the dtype of the result."""
    operands = zip(_LETTERS, case.dtypes, case.constants)
    values = [tree.name(name) if value is None else constant(value, dtype) for name, dtype, value in operands]
    text, dtype = printed(case.row.write(case.call, values)), case.call.out_dtype
    if "word" in case.call.params:  # the helper gives two words
        return f"{text}[{case.call.params['word']}]"
    return text if working_dtype(dtype) == dtype else f"({text}).to({triton_name(dtype)})"


# -------------------------------------------------------------------------------------------------------- comparisons


def answers(cases: Sequence[Case], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What JAX computes. The primitives are compiled together, and run once for each choice of constants."""
    calls = tuple(dict.fromkeys((case.name, case.params) for case in cases))
    found: dict[str, dict[tuple[str, Params], np.ndarray]] = {}
    results = []
    for case in cases:
        chosen = repr(case.constants)  # tells 0.0 from -0.0
        if chosen not in found:
            found[chosen] = dict(zip(calls, map(np.asarray, compiled(calls)(*case.operands(arrays)))))
        result = found[chosen][case.name, case.params]
        if case.name == "convert_element_type" and result.dtype == np.float16 and case.constants == (None,):
            result = _rounded_once(case.operands(arrays)[0])  # XLA rounds float64 twice where a CPU cannot at once
        results.append(result)
    return results


def _rounded_once(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(np.float16)


def wider_answer(case: Case, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """What JAX computes with more digits, rounded to the dtype; XLA's own functions lose some digits on a CPU."""
    wide = [widened(operand) for operand in case.operands(arrays)]
    (result,) = compiled(((case.name, case.params),))(*wide)
    with np.errstate(over="ignore"):
        return np.asarray(result).astype(case.call.out_dtype)


def widened(x: np.ndarray) -> np.ndarray:
    if not is_float(x.dtype):
        return x
    return x.astype(np.float32 if x.dtype.itemsize == 2 else np.float64)


def agree(
    got: np.ndarray, wanted: np.ndarray, digits: float, *, signed_zeros: bool = True, floor: float = 0.0
) -> np.ndarray:
    """Equal, both NaN, or within some units in the last place (of `floor` at least); denormals count as zeros."""
    if not is_float(wanted.dtype):
        return got == wanted
    info = jnp.finfo(wanted.dtype)
    tiny, eps = np.longdouble(info.tiny), np.longdouble(info.eps)
    with np.errstate(invalid="ignore"):
        a, b = (x.astype(np.longdouble) for x in (got, wanted))
        a, b = (np.where(np.abs(x) <= 2 * tiny, np.copysign(0, x), x) for x in (a, b))
        size = np.maximum(np.abs(b), floor)
        near = np.isfinite(a) & ((a != 0) | (floor > 0)) & (np.abs(a - b) <= digits * eps * size)
    same = (a == b) & ((np.signbit(a) == np.signbit(b)) | (not signed_zeros))
    return same | near | (np.isnan(a) & np.isnan(b))
