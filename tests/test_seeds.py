"""What is drawn without a seed is drawn again by `--seed`, and a failure says by which."""

from __future__ import annotations

import numpy as np
import pytest

from tests.seeds import Seeds


def test_the_same_seed_draws_the_same_numbers_in_each_test() -> None:
    found = []
    for seed, test in ((1, "a"), (1, "b"), (1, "a"), (2, "a")):
        seeds = Seeds(seed)
        seeds.begin("before")
        seeds()
        seeds.begin(test)
        found.append([seeds().integers(1 << 30) for _ in range(2)])
    assert found[0] == found[2]
    assert found[0] != found[1] and found[0] != found[3] and found[0][0] != found[0][1]


def test_a_seed_that_is_given_is_kept() -> None:
    assert Seeds(1)(7).integers(1 << 30) == np.random.Generator(np.random.PCG64(7)).integers(1 << 30)


def test_a_failure_names_its_seed(pytestconfig: pytest.Config) -> None:
    seeds = np.random.default_rng
    assert isinstance(seeds, Seeds) and seeds.seed == pytestconfig.getoption("--seed")
    assert seeds.test.endswith("test_a_failure_names_its_seed")
