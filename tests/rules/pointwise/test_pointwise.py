"""Every pointwise row against JAX: every dtype, every special value, a constant in every place."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from jaxpr2triton.rules.base import Call, merge_tables
from jaxpr2triton.rules.pointwise import arithmetic, bits, comparison, convert, exponential, rounding, trigonometric
from jaxpr2triton.rules.pointwise.table import POINTWISE
from tests.rules.pointwise.pointwise_cases import (
    BOOL,
    DTYPES,
    FLOATS,
    INTEGERS,
    Case,
    agree,
    answers,
    arrays_for,
    exists,
    kernel_of,
    special,
    wider_answer,
)

Signature = tuple[np.dtype, ...]

TABLES = (arithmetic, bits, comparison, convert, exponential, rounding, trigonometric)

SIGNED = tuple(dtype for dtype in INTEGERS if dtype.kind == "i")
NUMBERS = FLOATS + INTEGERS


def unary(*dtypes: np.dtype) -> list[Signature]:
    return [(dtype,) for dtype in dtypes]


def binary(*dtypes: np.dtype) -> list[Signature]:
    return [(dtype, dtype) for dtype in dtypes]


SIGNATURES: dict[str, list[Signature]] = {
    **dict.fromkeys(("add", "add_any", "sub", "mul", "div", "rem"), binary(*NUMBERS)),
    **dict.fromkeys(("max", "min", "eq", "ne", "lt", "le", "gt", "ge"), binary(*DTYPES)),
    **dict.fromkeys(("and", "or", "xor"), binary(*INTEGERS, BOOL)),
    **dict.fromkeys(("mulhi", "shift_left", "shift_right_logical", "shift_right_arithmetic"), binary(*INTEGERS)),
    **dict.fromkeys(("neg", "sign", "square", "one_minus_square"), unary(*NUMBERS)),
    **dict.fromkeys(("convert_element_type", "bitcast_convert_type", "copy", "stop_gradient"), unary(*DTYPES)),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log1p", "logistic", "sqrt", "rsqrt"), unary(*FLOATS)),
    **dict.fromkeys(("erf", "erfc", "erf_inv", "lgamma", "is_finite", "floor", "ceil", "round"), unary(*FLOATS)),
    **dict.fromkeys(("sin", "cos", "tan", "sinh", "cosh", "tanh"), unary(*FLOATS)),
    **dict.fromkeys(("asin", "acos", "atan", "asinh", "acosh", "atanh"), unary(*FLOATS)),
    "abs": unary(*FLOATS, *SIGNED),
    "not": unary(*INTEGERS, BOOL),
    "atan2": binary(*FLOATS),
    "pow": binary(*FLOATS) + list(itertools.product(FLOATS, INTEGERS)),
    "clamp": [(dtype,) * 3 for dtype in DTYPES],
    "select_n": [(BOOL, dtype, dtype) for dtype in DTYPES] + [(np.dtype(np.int32), *(dtype,) * 3) for dtype in DTYPES],
    "rounded": unary(*FLOATS[:2]),
    "member": unary(*NUMBERS),
    "threefry": [(np.dtype(np.uint32),) * 4],
    "philox": [(np.dtype(np.uint32),) * 6],
}
ACCURACY: dict[str, Any] = {"accuracy": None}
PARAMS: dict[str, list[dict[str, Any]]] = {
    "round": [{"rounding_method": method} for method in lax.RoundingMethod],
    "convert_element_type": [{"new_dtype": dtype, "weak_type": False, "sharding": None} for dtype in DTYPES],
    "bitcast_convert_type": [{"new_dtype": dtype} for dtype in DTYPES],
    **{name: [ACCURACY] for name in ("exp", "exp2", "expm1", "log", "log1p", "log2", "logistic", "sqrt", "rsqrt")},
    "member": [{"of": 8}],
    "threefry": [{"word": word} for word in (0, 1)],
    "philox": [{"word": word} for word in range(4)],
    **{name: [ACCURACY] for name in ("sin", "cos", "tan", "tanh")},
}


FEW, SOME, MANY = 4, 16, 128
INEXACT = {  # XLA computes these to some units in the last place of float64; below that it is measured with more digits
    **dict.fromkeys(("exp", "log", "log2", "tanh", "logistic", "rsqrt", "sin", "cos", "tan", "pow", "erf"), FEW),
    **dict.fromkeys(("asin", "acos", "atan", "atan2", "acosh", "expm1", "one_minus_square"), FEW),
    **dict.fromkeys(("sinh", "cosh", "asinh", "erfc"), SOME),
    **dict.fromkeys(("exp2", "log1p", "atanh", "lgamma", "erf_inv"), MANY),
}
NEAR_ZERO = {"lgamma": 1.0}  # accurate as if the result were at least this large
NO_ZERO_SIGN = ("max", "min", "clamp")  # of 0.0 and -0.0, XLA takes either


def constants(name: str, dtypes: Signature) -> Iterator[tuple[Any, ...]]:
    """No constant, then special values in each place."""
    yield (None,) * len(dtypes)
    if len(dtypes) == 1:
        return
    for place, dtype in enumerate(dtypes):
        if name == "select_n" and place == 0:
            continue
        for value in special(dtype)[:: 1 if is_bool(dtype) else 4]:
            yield tuple(value if n == place else None for n in range(len(dtypes)))
    if name == "select_n":
        yield (None, *[special(dtype)[-1 - n % 2] for n, dtype in enumerate(dtypes[1:])])
    if name == "clamp":
        yield (special(dtypes[0])[0], None, special(dtypes[0])[1])


def cases_of(name: str) -> Iterator[Case]:
    """Every call of a primitive that JAX accepts and that the row does not refuse."""
    if not exists(name):
        return
    for params, dtypes in itertools.product(PARAMS.get(name, [{}]), SIGNATURES[name]):
        if name == "bitcast_convert_type" and is_bool(dtypes[0]) != is_bool(params["new_dtype"]):
            continue
        if name != "bitcast_convert_type" or dtypes[0].itemsize == params["new_dtype"].itemsize:
            plain = Case(name, dtypes, (None,) * len(dtypes), tuple(params.items()))
            assert plain.row.refuse(plain.call) is None, str(plain)
            yield from (Case(name, dtypes, chosen, plain.params) for chosen in constants(name, dtypes))


def by_operands() -> dict[Signature, list[Case]]:
    """Cases that can share a kernel."""
    with jax.enable_x64(True):
        groups: dict[Signature, list[Case]] = defaultdict(list)
        for name in POINTWISE:
            for case in cases_of(name):
                groups[case.dtypes].append(case)
    return groups


def wrong_elements(case: Case, arrays: list[np.ndarray], got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where the result is neither JAX's nor, for functions that XLA approximates, the one JAX has with more digits."""
    signed_zeros, floor = case.name not in NO_ZERO_SIGN, NEAR_ZERO.get(case.name, 0.0)
    digits = INEXACT.get(case.name, 0)
    right = agree(got, wanted, digits, signed_zeros=signed_zeros, floor=floor)
    if digits and not right.all():
        right |= agree(got, wider_answer(case, arrays), FEW, signed_zeros=signed_zeros, floor=floor)
    return np.flatnonzero(~right)


GROUPS = by_operands()
SAMPLE = ("float32", "float64", "bfloat16", "int8", "uint64", "bool")
COMPILED = [operands for operands in GROUPS if set(map(str, operands)) <= set(SAMPLE)]
TARGETS = ("sm_90", "gfx942", "sm_100", "sm_80")


@pytest.mark.parametrize("operands", GROUPS, ids=lambda operands: "-".join(map(str, operands)))
def test_rows_compute_what_jax_computes(operands: Signature) -> None:
    cases = GROUPS[operands]
    arrays = arrays_for(operands, np.random.default_rng())
    problems = []
    with jax.enable_x64(True):
        results = run_interpreted(kernel_of(cases), arrays)
        for case, got, wanted in zip(cases, results, answers(cases, arrays)):
            values = case.operands(arrays)
            for n in wrong_elements(case, arrays, got, wanted)[:3]:
                problems.append(f"{case} at {[x[n] for x in values]}: {got[n]!r}, expected {wanted[n]!r}")
    assert not problems, "\n".join(problems)


def test_every_row_is_exercised() -> None:
    assert set(SIGNATURES) == set(POINTWISE)
    tested = {case.name for cases in GROUPS.values() for case in cases}
    assert tested == {name for name in POINTWISE if exists(name)}


def test_no_primitive_has_two_rows() -> None:
    rows = [name for table in TABLES for name in table.TABLE]
    assert sorted(rows) == sorted(POINTWISE)
    with pytest.raises(CompilerBug, match="two rows for the primitive `add`"):
        merge_tables(arithmetic.TABLE, arithmetic.TABLE)


@pytest.mark.parametrize(
    "source, target, reason",
    [
        (np.float32, np.int64, "a bitcast from float32 to int64 changes the number of elements"),
        (np.bool_, np.int8, "a bitcast from bool to int8 has no meaning for one bit"),
        (np.uint8, np.bool_, "a bitcast from uint8 to bool has no meaning for one bit"),
    ],
)
def test_a_bitcast_keeps_the_number_of_bits(source: type, target: type, reason: str) -> None:
    refusal = POINTWISE["bitcast_convert_type"].refuse(Call((np.dtype(source),), np.dtype(target)))
    assert str(refusal) == reason


@pytest.mark.compile
@pytest.mark.parametrize("n", range(len(COMPILED)), ids=lambda n: "-".join(map(str, COMPILED[n])))
def test_rows_compile(n: int) -> None:
    """Each row, with at most one constant in each place: for AMD and one of the others, in float32 for all."""
    chosen: dict[str, Case] = {}
    for case in GROUPS[COMPILED[n]]:
        places = [value is None for value in case.constants]
        chosen.setdefault(f"{case.name} {case.params} {places}", case)
    with jax.enable_x64(True):
        kernel = kernel_of(list(chosen.values()))
    in_float32 = set(map(str, COMPILED[n])) == {"float32"}
    for target in TARGETS if in_float32 else (TARGETS[n % 4], TARGETS[1]):
        assert compile_kernel(kernel, target_named(target)).code
