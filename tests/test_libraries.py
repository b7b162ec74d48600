"""Examples of other people's libraries; each is skipped where its library is not installed (`scripts/gallery` does)."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import pytest

from examples.libraries.__main__ import FILES, main
from jaxpr2triton import transpile

QUICK = ["equinox.collatz", "lineax.tridiagonal", "optax.fitted_by_adam", "distrax.hidden_markov"]


@pytest.mark.parametrize("name", QUICK)
def test_values_and_gradients_are_those_of_jit(name: str, capsys: Any) -> None:
    pytest.importorskip(name.partition(".")[0])
    assert main([name]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("file", FILES)
def test_every_loop_is_in_a_kernel(file: str) -> None:
    pytest.importorskip(FILES[file].replace("-", "_"))
    for example in importlib.import_module(f"examples.libraries.{file}").EXAMPLES:
        compiled = transpile(example.function, *example.arguments(jax.random.key(0)))
        loops = [left for left in compiled.leftovers if left.primitive in ("scan", "while")]
        assert all(left.step is not None for left in loops) if file == "brax_physics" else not loops


def test_an_ensemble_of_trajectories_is_two_kernels() -> None:
    """The check behind the solver is a flag of the second one, and what the error would tell is left to its branch."""
    pytest.importorskip("diffrax")
    odes = importlib.import_module("examples.libraries.diffrax_odes")
    compiled = transpile(odes.adaptive_ensemble, *odes.EXAMPLES[1].arguments(jax.random.key(0)))
    flags = [[buffer.dtype for buffer in kernel.outputs if buffer.is_flag] for kernel in compiled.kernels]
    assert flags == [[], ["int32"]]
    assert [left.primitive for left in compiled.leftovers] == ["cond"]
