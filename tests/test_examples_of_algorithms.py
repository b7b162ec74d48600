"""The algorithms of docs/algorithms.md: values, gradients and lanes at small sizes, and plans at realistic ones."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from examples.algorithms.__main__ import JAX, algorithms, planned, reasons, row
from examples.algorithms.entry import Algorithm
from examples.algorithms.grids import neighbours
from jaxpr2triton import Program

PAGE = Path(__file__).parents[1] / "docs" / "algorithms.md"
ALGORITHMS = algorithms()
ALLOWED = 2e-5  # of the largest number


def drawn(name: str, *, many: int = 0) -> tuple[Any, ...]:
    """Arguments of small size; or several of those that are lanes."""
    algorithm, rng = ALGORITHMS[name], np.random.default_rng(len(name))
    if not many:
        return algorithm.small(rng)
    lanes = [algorithm.small(rng) for _ in range(many)]
    assert algorithm.along is not None
    return tuple(
        lanes[0][n] if axis is None else jnp.stack([each[n] for each in lanes])
        for n, axis in enumerate(algorithm.along)
    )


def assert_close(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
        assert ours.dtype == theirs.dtype
        largest = np.max(np.abs(theirs), initial=0, where=np.isfinite(theirs))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=ALLOWED * largest)


def not_by_size(program: Program, lanes: int) -> list[str]:
    """What is left to XLA for another reason than that there is too much of it."""
    return [why for left in program.leftovers for why in _whys(left) if not _is_size(why, left.primitive, lanes)]


def _whys(left: Any) -> Iterator[str]:
    yield from [each.why for each in left.obstacles] or [str(left.why)]


def _is_size(why: str, primitive: str, lanes: int) -> bool:
    if carries := re.search(r"it carries ([\d,]+) numbers, and ([\d,]+) fit", why):
        carried, fit = (int(number.replace(",", "")) for number in carries.groups())
        return (carried // lanes if lanes and carried % lanes == 0 else carried) > fit  # of all lanes, or of one
    if "would look through" in why:
        return primitive not in ("scan", "while")
    longer = r"a library takes about|a kernel of [\w,]+ programs? takes about"
    return bool(re.search(rf"{longer}|matrix is larger than|is longer than", why))


def check(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """That it is right in the interpreter, and all of it in kernels."""
    assert_close(j2t.fuse(function, backend="interpret")(*args), jax.jit(function)(*args))
    assert not not_by_size(j2t.transpile(function, *args), 1)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_values(name: str) -> None:
    check(ALGORITHMS[name].of_few, drawn(name))


@pytest.mark.parametrize("name", [n for n, each in ALGORITHMS.items() if each.by])
def test_gradients(name: str) -> None:
    """As one program, and as two."""
    algorithm, args = ALGORITHMS[name], drawn(name)
    gradient = algorithm.gradient(algorithm.of_few)
    check(gradient, args)
    in_two = algorithm.gradient(j2t.fuse(algorithm.of_few, backend="interpret"))
    assert_close(in_two(*args), jax.jit(gradient)(*args))


@pytest.mark.parametrize("name", [n for n, each in ALGORITHMS.items() if each.along])
def test_lanes(name: str) -> None:
    algorithm, args = ALGORITHMS[name], drawn(name, many=3)
    function = jax.vmap(algorithm.of_few, algorithm.along)
    fused = jax.vmap(j2t.fuse(algorithm.of_few, backend="interpret"), algorithm.along)
    assert_close(fused(*args), jax.jit(function)(*args))
    assert not not_by_size(j2t.transpile(function, *args), 1)


@functools.cache
def programs(name: str) -> dict[str, Program]:
    """At the realistic size; a mistake of ours is a reason here."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.delenv("J2T_RAISE")
        warnings.simplefilter("ignore", j2t.BugWarning)
        return planned(ALGORITHMS[name])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_at_a_realistic_size_nothing_is_left_but_by_size(name: str) -> None:
    assert programs(name)
    for program in programs(name).values():
        assert not not_by_size(program, ALGORITHMS[name].lanes)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_page_says_what_is_planned(name: str) -> None:
    if JAX not in PAGE.read_text():
        pytest.skip("the page is of another version of JAX, which traces some programs otherwise")
    lines = PAGE.read_text().splitlines()
    algorithm = ALGORITHMS[name]
    expected = [row(algorithm, programs(name)), *(f"- {reason}" for reason in reasons(algorithm, programs(name)))]
    said = [line for line in lines if re.match(rf"(\| |- ){name}\b", line)]
    assert said == expected, "run: python -m examples.algorithms > docs/algorithms.md"


def test_a_kernel_is_as_long_as_its_chain_of_stencils() -> None:
    def lines(many: int) -> int:
        def step(u: Any, _: None) -> tuple[Any, None]:
            for _ in range(many):
                u = neighbours(u) / 4
            return u, None

        solved = j2t.transpile(lambda u: lax.scan(step, u, None, length=3)[0], jnp.ones((8, 8)))
        return sum(len(kernel.source.splitlines()) for kernel in solved.kernels)

    assert lines(6) < 2.5 * lines(3)


def test_there_are_three_of_each_sort() -> None:
    assert len(ALGORITHMS) == 21
    entries: list[Algorithm] = list(ALGORITHMS.values())
    assert all(each.says and each.lines >= 9 for each in entries)
