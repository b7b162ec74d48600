"""In which operands equations are linear: what the rows say is what JAX computes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.ir.dtypes import is_bool, is_float
from jaxpr2triton.rules.indexing import TABLE as INDEXING
from jaxpr2triton.rules.linear import linear_in
from jaxpr2triton.rules.pointwise.table import POINTWISE
from jaxpr2triton.rules.rows import TABLE
from tests.rules.pointwise.pointwise_cases import exists, primitive
from tests.rules.pointwise.test_pointwise import PARAMS, SIGNATURES
from tests.rules.test_dims import EQUATIONS
from tests.rules.test_reductions import DTYPES, apply

F32 = np.dtype(np.float32)
OTHERS = {None, np.dtype(np.float16), np.dtype(jnp.bfloat16), np.dtype(np.int32)}  # what f32 is converted to
BITS = "bitcast_convert_type"  # to its own dtype it is linear, but of no use

Example = tuple[Callable[..., Any], list[np.ndarray]]


def some(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype = F32) -> np.ndarray:
    """Multiples of a quarter, so that 16 bits hold them, and twice one less three times another, without rounding."""
    if is_float(dtype):
        return (rng.integers(1, 32, shape) / 4).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def pointwise_examples(rng: np.random.Generator) -> Iterator[Example]:
    for name in (name for name in POINTWISE if name != BITS):
        signatures = [types for types in SIGNATURES[name] if all(dtype == F32 or is_bool(dtype) for dtype in types)]
        for types, params in itertools.product(signatures, PARAMS.get(name, [{}])):
            if exists(name) and F32 in types and params.get("new_dtype") in OTHERS:
                yield _bound(name, params), [some(rng, (40,), dtype) for dtype in types]


def _bound(name: str, params: dict[str, Any]) -> Callable[..., Any]:
    return lambda *args: primitive(name).bind(*args, **params)


def _reducing(name: str) -> Callable[..., Any]:
    return lambda x: apply(name, x, (1,))


def examples() -> Iterator[Example]:
    """Calls of every primitive with a row that floats can be given to, and of contractions."""
    rng = np.random.default_rng(0)
    yield from pointwise_examples(rng)
    yield lambda x: lax.cumsum(x, 1), [some(rng, (4, 5))]
    yield from ((fn, [some(rng, shape) for shape in shapes]) for fn, shapes, _ in EQUATIONS)
    yield from ((_reducing(name), [some(rng, (3, 40))]) for name in DTYPES if F32 in DTYPES[name])
    yield lambda x, y: lax.pad(x, y, [(1, 1, 0)]), [some(rng, (4,)), some(rng, ())]
    yield lambda x: lax.pad(x, 1.0, [(1, 1, 0)]), [some(rng, (4,))]


def equation(fn: Callable[..., Any], args: Sequence[np.ndarray]) -> Any:
    (eqn,) = jax.make_jaxpr(fn)(*args).jaxpr.eqns
    return eqn


def found_linear(fn: Callable[..., Any], args: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The operands x for which f(2 x - 3 y) = 2 f(x) - 3 f(y), whatever it computes."""

    def holds(place: int) -> bool:
        def at(value: np.ndarray) -> np.ndarray:
            return np.asarray(fn(*args[:place], value, *args[place + 1 :]), np.float32)

        x, y = args[place], args[place][..., ::-1] + np.float32(0.5) if args[place].ndim else args[place] + 1
        return np.allclose(at(2 * x - 3 * y), 2 * at(x) - 3 * at(y), rtol=1e-5, atol=1e-5)

    return tuple(place for place, arg in enumerate(args) if is_float(arg.dtype) and holds(place))


EXAMPLES = [(equation(fn, args), fn, args) for fn, args in examples()]


@pytest.mark.parametrize(("eqn", "fn", "args"), EXAMPLES, ids=[eqn.primitive.name for eqn, _, _ in EXAMPLES])
def test_it_is_what_jax_computes(eqn: Any, fn: Callable[..., Any], args: list[np.ndarray]) -> None:
    """All that is linear is told, and nothing else; of results that are no floats nothing."""
    assert linear_in(eqn) == (found_linear(fn, args) if is_float(eqn.outvars[0].aval.dtype) else ())


def test_every_row_that_says_so_is_exercised() -> None:
    seen = {eqn.primitive.name for eqn, _, _ in EXAMPLES}
    claiming = {name for name, row in TABLE.items() if getattr(row, "linear_in", ())}
    assert seen >= {"dot_general", *INDEXING, *claiming}
    assert {"mul", "neg", "convert_element_type", "reduce_sum"} <= claiming


def test_padding_that_is_known_to_be_zero_adds_nothing() -> None:
    def said(padding: float) -> tuple[int, ...]:
        return linear_in(equation(lambda x: lax.pad(x, padding, [(1, 1, 0)]), [np.ones(4, F32)]))

    assert said(0.0) == said(-0.0) == (0,)
    assert said(1.0) == said(np.nan) == ()
