"""Collections of garbage are rare while a program is planned, and as they were before and afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.collector import NEW_OBJECTS, seldom_collected
from jaxpr2triton.front import planning


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Python's own thresholds; those of the test run are there again afterwards."""
    before, was_on = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(700, 10, 10)
    gc.enable()
    yield
    gc.set_threshold(*before)
    (gc.enable if was_on else gc.disable)()


def young() -> int:
    return gc.get_threshold()[0]


def test_seldom_while_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    compile_jaxpr = planning.compile_jaxpr

    def watched(*args: Any) -> Any:
        seen.append(young())
        return compile_jaxpr(*args)

    monkeypatch.setattr(planning, "compile_jaxpr", watched)
    j2t.transpile(lambda x: jnp.sin(x) * 0.123, np.ones(7, np.float32))
    assert (seen, young()) == ([NEW_OBJECTS], 700)


def test_as_before_when_planning_fails() -> None:
    with pytest.raises(KeyboardInterrupt), seldom_collected():
        raise KeyboardInterrupt
    assert young() == 700


def test_the_last_of_several_ends_it() -> None:
    with seldom_collected():
        with seldom_collected():
            assert young() == NEW_OBJECTS
        assert young() == NEW_OBJECTS
    assert young() == 700


def test_several_threads() -> None:
    begun, may_end = threading.Barrier(3), threading.Event()

    def plan() -> None:
        with seldom_collected():
            begun.wait()
            may_end.wait()

    threads = [threading.Thread(target=plan) for _ in range(2)]
    for thread in threads:
        thread.start()
    with seldom_collected():
        begun.wait()
    assert young() == NEW_OBJECTS, "the others have not ended"
    may_end.set()
    for thread in threads:
        thread.join()
    assert young() == 700


def test_what_is_off_stays_off() -> None:
    gc.disable()
    with seldom_collected():
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()
    gc.set_threshold(0)
    with seldom_collected():
        assert young() == 0
    assert young() == 0


@pytest.mark.parametrize("chosen", [0, 5000, 10 * NEW_OBJECTS])
def test_what_is_set_meanwhile_stays(chosen: int) -> None:
    with seldom_collected():
        gc.set_threshold(chosen)
    assert young() == chosen


def test_more_than_that_is_left_alone() -> None:
    gc.set_threshold(10 * NEW_OBJECTS)
    with seldom_collected():
        assert young() == 10 * NEW_OBJECTS
    assert young() == 10 * NEW_OBJECTS
