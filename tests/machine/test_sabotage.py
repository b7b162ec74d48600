"""Barriers and masks that are missing are noticed; `python -m bench.sabotage` tries all of them.

A sample here, chosen by a fixed seed (`HYPOTHESIS_PROFILE=deep`: everything).
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loop_programs import PROGRAMS
from tests.machine.cases import Case, cases_of, loop_cases
from tests.machine.sabotage import (
    ALONE,
    BARRIER_OF_SOURCE,
    BARRIERS,
    DOUBLED,
    MASKS,
    NOTICED,
    VALUES,
    Outcome,
    Sabotage,
    outcomes,
    sabotages,
    what_becomes_of,
    without_barrier,
)

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
QUICK = ("thomas", "logistic_map", "lambda_returns", "rnn", "sinkhorn", "biquad", "ctc_loss", "hmm_forward")
CHOSEN = [program for program in PROGRAMS if DEEP or program.name in QUICK]
OF_EACH_KIND = 40  # in the sample
ENOUGH, MOST = 0.8, 0.75


@functools.cache
def cases() -> tuple[Case, ...]:
    return tuple(case for program in CHOSEN for case in loop_cases(program))


def keeping() -> list[Case]:
    return [case for case in cases() if BARRIER_OF_SOURCE in case.kernel.source]


def sample(kind: str, some: tuple[Case, ...]) -> list[Outcome]:
    every = [(case, each) for case in some for each in sabotages(case, (kind,))]
    picked = list(range(len(every)))
    if not DEEP and len(every) > OF_EACH_KIND:
        picked = sorted(np.random.default_rng(5).choice(len(every), OF_EACH_KIND, replace=False).tolist())
    by_case: dict[Case, list[Sabotage]] = {}
    for number in picked:
        case, each = every[number]
        by_case.setdefault(case, []).append(each)
    return [outcome for case, each in by_case.items() for outcome in outcomes(case, each)]


def test_every_barrier_of_the_source_is_missed() -> None:
    """Where nothing is found, a barrier of Triton's own does the same, or no thread reads what another one wrote."""
    found: dict[str, Counter[str]] = {}
    for case in keeping():
        for warps in (1, 2, 4) if DEEP else (1, 4):
            wide = case.with_warps(warps)
            for _, less in without_barrier(wide):
                found.setdefault(str(case), Counter())[what_becomes_of(less)] += 1
    assert found
    total = sum(found.values(), Counter())
    assert set(total) <= {NOTICED, DOUBLED, ALONE}
    assert total[NOTICED] >= 0.6 * total.total(), found
    if not DEEP:
        assert all(of[NOTICED] for of in found.values()), found


@pytest.mark.parametrize("kind", BARRIERS)
def test_barriers_of_the_compiler(kind: str) -> None:
    found = sample(kind, (*cases(), *(case.with_warps(4) for case in cases())))
    assert [str(each) for each in found if each.changed and not each.noticed] == []
    assert sum(each.noticed for each in found) >= ENOUGH * len(found)


@pytest.mark.parametrize("kind", MASKS)
def test_masks_that_matter(kind: str) -> None:
    changed = [each for each in sample(kind, cases()) if each.changed]
    assert sum(each.noticed for each in changed) >= ENOUGH * len(changed), [str(each) for each in changed]


@pytest.mark.parametrize("kind", VALUES)
def test_other_arithmetic_is_seen_in_the_values(kind: str) -> None:
    """Not all of it: what is added may be less than what values may be off."""
    changed = [each for each in sample(kind, cases()) if each.changed]
    assert changed
    seen = sum(each.noticed or each.off for each in changed)
    assert seen >= MOST * len(changed), [str(each) for each in changed if not each.noticed and not each.off]


def test_the_race_that_the_page_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "without-a-gpu.md").read_text()
    section = page.split("## A race, step by step")[1].split("\n## ")[0]
    example, finding = re.findall(r"```(?:python|text)\n(.*?)```", section, re.DOTALL)
    namespace: dict[str, Any] = {}
    (tmp_path / "model.py").write_text(example)
    exec(compile(example, str(tmp_path / "model.py"), "exec"), namespace)
    (case,) = cases_of("decayed", namespace["gradient"], np.ones((3, 4), np.float32))
    ((line, less),) = without_barrier(case)
    assert f"line {line}" in section
    shown = [" ".join(finding.split()), str(less.run().findings[0])]
    # Triton's numbers of registers are its own, and which line of a statement of several it names
    one, other = (re.sub(r"^line \d+", "line", re.sub(r"%\w+", "%", text)) for text in shown)
    assert one == other
