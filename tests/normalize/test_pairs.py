"""What the files of `pairs/` say of the passes is true: the text, and the values."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxpr2triton.normalize import passes
from tests.normalize.pairs import FILES, Pair, pairs_in, pass_named, written
from tests.normalize.passing import same_bits

PAIRS = [pair for file in FILES for pair in pairs_in(file)]
ADDS_IN_ANOTHER_ORDER = (
    "carry_reductions",
    "defer_accumulation",
    "products_apart",
    "sums_apart",
    "sweep_affine",
    "write_loops",
)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_text_is_what_the_pass_does(pair: Pair) -> None:
    assert written(pair).text() == pair.text()


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_values_stay(pair: Pair) -> None:
    before, args = pair.program()
    after = pass_named(pair.name).run(before)
    results = [jax.core.eval_jaxpr(each.jaxpr, each.consts, *args) for each in (before, after)]
    for expected, found in zip(*results, strict=True):
        if pair.name in ADDS_IN_ANOTHER_ORDER:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        else:
            assert same_bits(np.asarray(expected), np.asarray(found))


def test_every_pass_has_a_file() -> None:
    names = {each.name for each in (*passes.LOOPS, *passes.AROUND_LOOPS, *passes.PASSES)}
    assert names - {"unkey_outside"} == {file.stem for file in FILES}
