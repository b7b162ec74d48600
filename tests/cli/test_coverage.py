"""docs/coverage.md tells the truth."""

from __future__ import annotations

from pathlib import Path

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
        *coverage.STRUCTURAL,
        *coverage.BATCHED,
        *coverage.RANDOM,
        *coverage.dynamic.TABLE,
        *coverage.LOOPS,
    }
    assert set(covered) - set(TABLE) - others == {"iota", "dot_general"}


def test_the_frequent_primitives_are_named_once() -> None:
    assert len(set(coverage.FREQUENT)) == len(coverage.FREQUENT)
