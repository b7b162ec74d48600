"""docs/coverage.md tells the truth."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.cli import coverage
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS


def test_the_page_is_what_the_tables_say() -> None:
    page = Path(__file__).parents[2] / "docs" / "coverage.md"
    assert page.read_text() == coverage.page(), "run: python -m jaxpr2triton.cli.coverage > docs/coverage.md"


def test_no_row_is_forgotten() -> None:
    covered = coverage.covered()
    assert set(TABLE) - set(covered) == set()
    others = {
        *DECOMPOSITIONS,
        *coverage.SMALL,
        *coverage.SUMS,
        *coverage.ranks.TABLE,
        *coverage.sorts.TABLE,
        *coverage.pools.TABLE,
        *coverage.STRUCTURAL,
        *coverage.BATCHED,
        *coverage.RANDOM,
        *coverage.dynamic.TABLE,
        *coverage.LOOPS,
        *coverage.IMPLEMENTED,
        coverage.OWN,
    }
    assert set(covered) - set(TABLE) - others == {"iota", "dot_general", "conv_general_dilated"}


def test_the_frequent_primitives_are_named_once() -> None:
    assert len(set(coverage.FREQUENT)) == len(coverage.FREQUENT) == 100


def test_the_frequent_primitives_are_the_first_that_were_counted() -> None:
    page = Path(__file__).parents[2] / "bench" / "results" / "frequent.md"
    counted = re.findall(r"^\| \d+ \| `(\S+)` ", page.read_text(), re.MULTILINE)
    assert tuple(counted[: len(coverage.FREQUENT)]) == coverage.FREQUENT


def test_contractions_and_windows_are_all_that_is_missing() -> None:
    missing = set(coverage.FREQUENT) - set(coverage.covered())
    assert missing - set(coverage.BY_LAW) <= {"dot_general", "conv_general_dilated"}


@pytest.mark.parametrize("name", coverage.IMPLEMENTED)
def test_what_jax_lowers_by_functions_is_in_kernels(name: str) -> None:
    x = jnp.linspace(0.5, 2.5, 6)
    key = jax.random.key(3)
    gamma = lambda a: jax.random.loggamma(key, a)  # noqa: E731
    functions = {
        "bessel_i0e": lax.bessel_i0e,
        "igamma": lambda a: lax.igamma(a, a),
        "igamma_grad_a": lambda a: lax.igamma_grad_a(a, a),
        "igammac": lambda a: lax.igammac(a, a),
        "random_gamma": gamma,
        "regularized_incomplete_beta": lambda a: lax.betainc(a, a, a / 4),
    }
    assert name in str(jax.make_jaxpr(functions[name])(x))
    assert not j2t.transpile(functions[name], x).leftovers
