"""The tests of the launch path, in processes of their own: the driver comes before JAX."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.standin import build, start
from tests.standin.start import ALLOCATOR, EACH_BY_ITSELF, POOL

ROOT = Path(__file__).parents[2]


HERE = "tests/standin"
RUNS = {
    "launches": (EACH_BY_ITSELF, f"{HERE}/test_launches.py"),
    "steps": (POOL, f"{HERE}/test_steps.py"),
    "values": (EACH_BY_ITSELF, "-m", "gpu", "tests/test_fuse.py", "tests/test_transpile.py"),
}


@pytest.mark.skipif(bool(build.why_not()), reason=build.why_not() or "it can run")
@pytest.mark.parametrize("run", RUNS)
def test_on_the_stand_in_driver(run: str) -> None:
    """All programs are in `python -m tests.standin` alone, and their values in `-m gpu`, which take minutes."""
    allocator, *words = RUNS[run]
    command = [sys.executable, "-m", "tests.standin", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, ALLOCATOR: allocator}, capture_output=True, text=True)
    assert done.returncode == 0 and re.search(r"\d+ passed", done.stdout), done.stdout[-5000:] + done.stderr[-2000:]


def test_the_driver_comes_before_jax() -> None:
    with pytest.raises(RuntimeError, match="the stand-in driver is to be started before JAX is imported"):
        start.started.__wrapped__()


def test_a_private_name_that_is_gone_says_where_to_look() -> None:
    with pytest.raises(RuntimeError) as caught:
        start.replace("jax.numpy", "has_a_gpu", lambda: True)
    assert str(caught.value) == (
        f"jax {jax.__version__} has no jax.numpy.has_a_gpu, which the stand-in driver replaces: "
        "look for what does its work now, and change tests/standin/start.py"
    )
