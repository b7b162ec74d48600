"""Eight fake CPU devices, mistakes raised, hypothesis profiles, and the markers `gpu` and `standin`."""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator
from typing import Any

os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8").strip()
os.environ.pop("JAX_PLATFORMS", None)
os.environ.pop("COLUMNS", None)  # test runners set it for their own workers
os.environ["J2T_RAISE"] = "1"  # a mistake of ours is an error, in the processes that tests start too

import hypothesis  # these follow the flags, which JAX reads when it is imported
import jax
import numpy as np
import pytest

from tests.package_files import Trees, parse_files
from tests.seeds import Seeds, fresh_seed
from tests.standin.build import why_not
from tests.standin.start import is_started

_ANY_HEALTH = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
hypothesis.settings.register_profile(
    "ci", max_examples=25, deadline=None, derandomize=True, suppress_health_check=_ANY_HEALTH
)
hypothesis.settings.register_profile(
    "deep", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=_ANY_HEALTH
)
hypothesis.settings.register_profile("ci-few", hypothesis.settings.get_profile("ci"), max_examples=8)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=fresh_seed(), metavar="N", help="of what is drawn without a seed")
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="of each test one case in N, the same always")


def pytest_configure(config: pytest.Config) -> None:
    setattr(np.random, "default_rng", Seeds(config.getoption("--seed")))  # noqa: B010  # no such field for type checkers


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if isinstance(np.random.default_rng, Seeds):
        np.random.default_rng.begin(item.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """A failure of what was drawn says how to draw it again."""
    outcome = yield
    report, seeds = outcome.get_result(), np.random.default_rng
    if report.failed and isinstance(seeds, Seeds) and seeds.drawn[item.nodeid]:
        report.sections.append(("drawn without a seed", f"again: --seed {seeds.seed}"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some cases of each test, if so asked.

    Tests marked `gpu` need a device, those marked `standin` the driver without one; else they are skipped.
    """
    some = one_in(config.getoption("--one-in"), [item.nodeid for item in items])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in some])
    items[:] = [item for item in items if item.nodeid in some]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and jax.default_backend() not in ("gpu", "cuda", "rocm"):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA or ROCm device, and there is none here"))
    if not is_started():
        reason = why_not() or "runs on the stand-in driver: python -m tests.standin"
        for item in items:
            if item.get_closest_marker("standin"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def trees() -> Trees:
    """The files of the package, parsed once for all rules of a module."""
    return parse_files()


def one_in(share: int, names: list[str]) -> set[str]:
    """Of each test's cases one in so many, and one at least; which one they begin with depends on the test's name."""
    cases: dict[str, list[str]] = {}
    for name in names:
        cases.setdefault(name.partition("[")[0], []).append(name)
    found: set[str] = set()
    for test, of_test in cases.items():
        found.update(of_test[zlib.crc32(test.encode()) % min(share, len(of_test)) :: share])
    return found
