"""For pytest: `-p tests.standin.plugin` has the whole session run on the stand-in driver.

It comes before `tests/conftest.py`, which imports JAX. Kernels are computed, each array being an allocation of its own,
but where the tests of the driver itself count what is launched.
"""

from __future__ import annotations

import importlib
import os

import pytest

from tests.standin.build import why_not
from tests.standin.start import ALLOCATOR, COMPUTED, EACH_BY_ITSELF, started

NO_LIBRARY = "cuSolver internal error"

if reason := why_not():
    raise RuntimeError(reason)
if os.environ.get(COMPUTED):
    os.environ.setdefault(ALLOCATOR, EACH_BY_ITSELF)
started()


_DONE = pytest.StashKey[object]()


def pytest_configure(config: pytest.Config) -> None:
    """The machine is imported when `tests/conftest.py` has said how JAX is set up."""
    if os.environ.get(COMPUTED):
        execute, checks = (importlib.import_module(f"tests.standin.{name}") for name in ("execute", "checks"))
        noting = checks.noting_kernels()
        config.stash[_DONE] = execute.compute(execute.on_machine(noting.__enter__()))
        config.add_cleanup(lambda: noting.__exit__(None, None, None))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    done = config.stash.get(_DONE, None)
    if done is not None:
        terminalreporter.write_line(f"{done.kernels.total()} launches of {len(done.kernels)} kernels were computed")
        for line in done.wrong[:20]:
            terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """What the machine finds in a kernel fails the test; one that needs a library of NVIDIA's cannot be run."""
    done = item.config.stash.get(_DONE, None)
    before = len(done.wrong) if done is not None else 0
    try:
        return (yield)
    except Exception as problem:
        if NO_LIBRARY in str(problem):
            pytest.skip("needs cuSOLVER, which is not there")
        raise
    finally:
        if done is not None and done.wrong[before:]:
            pytest.fail("\n".join(done.wrong[before:][:5]), pytrace=False)
