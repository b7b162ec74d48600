"""What compiled kernels did in the simulator, as it is printed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jaxpr2triton.cli import main
from jaxpr2triton.launch.machine.ptx import Instruction
from jaxpr2triton.launch.machine.statistics import kind_of
from jaxpr2triton.report.compiled import CompiledRun, Found, show_compiled, verdict_on_compiled

RUN = CompiledRun("norms", 3, {"floats": 60, "moves and conversions": 30, "integers and choices": 10}, 200, 100, 7)
WRONG = replace(RUN, found=(Found(12, "model.py:3", "misaligned access", 4),))
ROWS = [
    "kernel runs instructions most of them sectors bank conflicts findings",
    "norms 3 100 floats 60%, moves and conversions 30%, integers and choices 10% 200 (2.0 x the least) 7 1",
    "kernel line computes what is wrong times",
    "norms 12 model.py:3 misaligned access 4",
]


def test_a_line_for_each_kernel_and_each_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    first, *rows = (" ".join(line.split()) for line in show_compiled("sm_90", [WRONG]).splitlines())
    assert (first, rows) == ("compiled for sm_90, and run with every access checked", ROWS)
    assert verdict_on_compiled([WRONG, RUN]) == "1 FINDING in 1 compiled kernel"
    assert verdict_on_compiled([RUN]) == ""
    assert show_compiled("sm_90", []).splitlines()[1:] == ["  no kernel ran"]


def test_what_is_never_written_is_a_finding() -> None:
    statistics: Any = SimpleNamespace(instructions={}, sectors=0, least_sectors=0, bank_conflicts=0)
    examined: Any = SimpleNamespace(statistics=statistics, findings=(), forgotten=("out",))
    assert main._compiled_run("norms", [examined]).found == (Found(0, "", "elements of out are never written", 1),)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("mov.b32", "moves and conversions"), ("add.s32", "integers and choices"), ("add.f32", "floats")],
)
def test_kinds_of_instructions(text: str, kind: str) -> None:
    assert kind_of(Instruction(text)) == kind
