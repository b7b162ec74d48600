"""What `logging` is told: one line for each program that is planned, and, for those who ask, what was at hand."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.compile import compile as compiling
from tests.programs import windows

X = np.ones((4, 8), np.float32)
SECONDS = r"\d+\.\d\d s: normalize \d+\.\d\d, partition \d+\.\d\d, schedule \d+\.\d\d, graph \d+\.\d\d, emit \d+\.\d\d"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[int], list[str]]:
    """The lines of a level since the last call."""
    caplog.set_level(logging.DEBUG, "jaxpr2triton")

    def found(level: int) -> list[str]:
        mine = [each for each in caplog.records if each.name == "jaxpr2triton" and each.levelno == level]
        caplog.clear()
        return [each.getMessage() for each in mine]

    return found


def reason(line: str) -> str:
    """Why a program was planned."""
    found = re.fullmatch(r"planned \w+, (.*); (no|\d+) kernels?.*; " + SECONDS, line)
    assert found, line
    return found[1]


def test_a_plan_is_one_line(lines: Callable[[int], list[str]]) -> None:
    def seen_once(x: Any) -> Any:
        return windows(windows(jnp.sin(x)) * 3.0) * 3.0

    j2t.transpile(seen_once, X)
    (line,) = lines(logging.INFO)
    made = "2 kernels in 3 launches, 2 equations left to XLA"
    assert re.fullmatch(f"planned seen_once, the first of this name; {made}; {SECONDS}", line), line


def test_the_line_says_what_is_new(lines: Callable[[int], list[str]]) -> None:
    def scaled_for_log(x: Any, factor: Any, power: int = 2) -> Any:
        return x**power * factor

    fused = j2t.fuse(scaled_for_log, backend="interpret", static_argnames="power")
    calls: list[Callable[[], Any]] = [
        lambda: fused(X, X),
        lambda: fused(X[:2], X[:2]),
        lambda: fused(X[:2], X[:2].astype(jnp.bfloat16)),
        lambda: fused(X[:2], X[:2].astype(jnp.bfloat16), power=3),
        lambda: fused(X[:2], X[:2].astype(jnp.bfloat16), power=3),
        lambda: j2t.fuse(scaled_for_log, backend="interpret", static_argnames="power")(X, X),
        lambda: j2t.transpile(scaled_for_log, X, X),
        lambda: j2t.transpile(scaled_for_log, X, X, roles={"i": "grid"}),
        lambda: j2t.transpile(scaled_for_log, X, X, roles={"i": "grid"}, for_target="gfx942"),
    ]
    found = []
    for call in calls:
        call()
        found.append([reason(line) for line in lines(logging.INFO)])
    assert found == [
        ["the first of this name"],
        ["new types of x: f32[2,8] after f32[4,8], factor: f32[2,8] after f32[4,8]"],
        ["new types of factor: bf16[2,8] after f32[2,8]"],
        ["other static arguments, or other values that it closes over"],
        [],
        ["new types of x: f32[4,8] after f32[2,8], factor: f32[4,8] after bf16[2,8]"],
        ["the same program, traced again"],
        ["other roles"],
        ["other target"],
    ]


def test_other_functions_of_a_name_are_told(lines: Callable[[int], list[str]]) -> None:
    def make(second: bool) -> Callable[..., Any]:
        if second:

            def same_name(x: Any) -> Any:
                return x * 3

            return same_name

        def same_name(x: Any) -> Any:
            return x * 2

        return same_name

    for second in (False, True):
        j2t.transpile(make(second), X)
    _, line = lines(logging.INFO)
    place = rf"same_name at {re.escape(__file__)}:\d+"
    assert re.fullmatch(f"another function of this name: {place} after {place}", reason(line))


def test_many_new_types_are_counted(lines: Callable[[int], list[str]]) -> None:
    def many_types(*xs: Any) -> Any:
        return sum(xs)

    for rows in (4, 2):
        j2t.transpile(many_types, *[X[:rows]] * 5)
    assert reason(lines(logging.INFO)[1]).endswith(" and 2 more")


def test_other_arguments_are_told(lines: Callable[[int], list[str]]) -> None:
    def more_or_less(*xs: Any) -> Any:
        return sum(xs)

    for count in (1, 2):
        j2t.transpile(more_or_less, *[X] * count)
    assert [reason(line) for line in lines(logging.INFO)] == ["the first of this name", "other arguments"]


def test_what_was_at_hand_is_told_to_those_who_ask(lines: Callable[[int], list[str]]) -> None:
    def asked_twice(x: Any) -> Any:
        return jnp.sin(x).sum()

    fused = j2t.fuse(asked_twice, backend="interpret")
    jax.grad(fused)(X)
    told = lines(logging.DEBUG)
    assert re.fullmatch(r"linearize: made a program in \d.\d\d s", told[0])
    assert "prune: the program was made before" in told
    jax.jit(jax.grad(lambda x: fused(x) * 2))(X)
    assert "asked_twice_bwd was planned before" in lines(logging.DEBUG)


def test_kernels_are_read_from_disk_or_compiled(
    lines: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("J2T_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("J2T_CACHE", "1")
    (kernel,) = j2t.transpile(lambda x: x * 1.2345, X).kernels
    lines(logging.DEBUG)
    for expected in (r"kernel lambda_at_\d+ for sm_90: compiled in \d.\d\d s", r"kernel \w+ for sm_90: read from disk"):
        monkeypatch.setattr(compiling, "_binaries", compiling.OrderedDict())
        compiling.compile_kernel(kernel, target_named("sm_90"))
        (line,) = lines(logging.DEBUG)
        assert re.fullmatch(expected, line)
    compiling.compile_kernel(kernel, target_named("sm_90"))
    assert lines(logging.DEBUG) == []


def test_kernels_are_refused(lines: Callable[[int], list[str]]) -> None:
    (kernel,) = j2t.transpile(lambda x: x * 1.5432, X).kernels
    lines(logging.DEBUG)
    with pytest.raises(j2t.KernelRefused):
        compiling.compile_kernel(dataclasses.replace(kernel, name="refused", grid=(0, 1, 1)), target_named("sm_90"))
    (line,) = lines(logging.DEBUG)
    assert re.fullmatch(r"kernel refused for sm_90: refused after \d.\d\d s", line)


def test_nothing_is_printed_unless_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    j2t.transpile(lambda x: x * 5.4321, X)
    assert capfd.readouterr() == ("", "")
