"""Why there are several kernels, how they were planned, and what several devices may split, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jaxpr2triton.ir.kernel import Apart, Divided
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.report.table import count, first_of, paragraph

NAMES_SHOWN = 4  # of kernels that are apart for one reason
PLACES_SHOWN = 3
AXES_SHOWN = 6  # that are split together


def why_several(apart: Sequence[Apart], width: int) -> list[str]:
    """Why each kernel is not one with those before it, the kernels of one reason together.

    softmax_2 after softmax_1: a sum over the whole array is needed first, at model.py:3 (softmax)
    """
    groups: dict[tuple[bool, str], list[Apart]] = {}
    for each in apart:
        groups.setdefault((each.waits, each.why), []).append(each)
    lines = ["", "  why there are several kernels"] if groups else []
    for (waits, why), group in groups.items():
        text = first_of((each.kernel for each in group), NAMES_SHOWN)
        if len(group) == 1 and group[0].others:
            text += f" {'after' if waits else 'beside'} {first_of(group[0].others, NAMES_SHOWN)}"
        places = first_of((each.where for each in group if each.where), PLACES_SHOWN, "more place")
        lines.append(paragraph(f"{text}: {why}{f', at {places}' if places else ''}", width, indent="    "))
    return lines


def how_planned(steps: Sequence[str], width: int) -> list[str]:
    """The steps of the search, numbered."""
    digits = len(str(len(steps)))
    numbered = [f"{number:>{digits}} {step}" for number, step in enumerate(steps, 1)]
    lines = numbered or ["at the first attempt"]
    return ["", "  how it was planned", *(paragraph(line, width, indent="    ") for line in lines)]


def schedules_compiled(plans: Iterable[Plan]) -> Iterator[str]:
    """rnn_0: of 3 schedules compiled the one of 805 cycles, the others take 831 and 926"""
    for plan in plans:
        if plan.choice is not None and plan.choice.compiled:
            least, *others = (f"{cycles:,.0f}" for cycles in plan.choice.compiled)
            rest = f", the others take {' and '.join(others)}" if others else ""
            yield f"{plan.name}: of {count(len(others) + 1, 'schedule')} compiled the one of {least} cycles{rest}"


def over_devices(divided: Sequence[Divided], width: int) -> list[str]:
    """Which axes several devices may split, and why not the others.

    x[0], out[0]: shardable
    x[1], out[1]: replicated: `sort` needs it whole
    """
    lines = []
    for each in divided:
        said = "shardable, with one all-reduce" if each.meets else "shardable"
        said = f"replicated: {each.why_whole}" if each.why_whole else said
        lines.append(paragraph(f"{first_of(each.places, AXES_SHOWN)}: {said}", width, indent="    "))
    return ["", "  over several devices", *lines] if lines else []
