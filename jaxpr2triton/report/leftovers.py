"""What stays with XLA, in words: leftovers of one kind together, and all that keeps a loop out of kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from jaxpr2triton.ir.kernel import Launches, Leftover, Obstacle, StepOfLoop
from jaxpr2triton.ir.scans import UNKNOWN
from jaxpr2triton.plan.library import shown
from jaxpr2triton.report.table import count, first_of, paragraph, shortened

PLACES_SHOWN = 3  # of leftovers of one kind
OBSTACLES_SHOWN = 12  # kinds of them, of one loop


def left_to_xla(leftovers: Sequence[Leftover], width: int) -> list[str]:
    """Lines: each kind with its places and the reason, what a loop is launched for, and the equation."""
    groups = grouped(leftovers)
    lines = ["", "  left to XLA"] if groups else []
    for (primitive, why, launches, microseconds), group in groups.items():
        kind = primitive if len(group) == 1 else f"{len(group):,} x {primitive}"
        kinds = grouped_obstacles(group[0].obstacles)
        takes = group[0].takes if len(kinds) < 2 else ""
        why = f"no kernel can hold its body, for {len(kinds)} reasons" if len(kinds) > 1 else why
        why = "; ".join(filter(None, (why, takes)))
        lines.append(paragraph(f"{kind} at {_places(left.where for left in group)}: {why}", width, indent="    "))
        lines += _obstacles(kinds, width) if len(kinds) > 1 else []
        if launches is not None:
            text = _launches_of_loop(launches, microseconds, group[0].step is not None)
            lines.append(paragraph(text + (" of each" if len(group) > 1 else ""), width, indent="      "))
        lines += [paragraph(_step(left.step), width, indent="      ") for left in group if left.step is not None]
        example = "" if len(group) == 1 else "such as "
        lines.append(f"      {shortened(example + group[0].equation, width - 6)}")
    return lines


Kind = tuple[str, str, Launches | None, float | None]  # primitive, reason; of loops their launches and microseconds


def grouped(leftovers: Sequence[Leftover]) -> dict[Kind, list[Leftover]]:
    """Leftovers of one kind, as long as they have one reason."""
    groups: dict[Kind, list[Leftover]] = {}
    for left in leftovers:
        microseconds = None if left.launches is None else left.microseconds
        groups.setdefault((left.primitive, left.why, left.launches, microseconds), []).append(left)
    return groups


def grouped_obstacles(obstacles: Sequence[Obstacle]) -> dict[str, list[Obstacle]]:
    """What keeps a loop out of kernels, by reason: each of these is one thing to do."""
    groups: dict[str, list[Obstacle]] = {}
    for obstacle in obstacles:
        groups.setdefault(obstacle.why, []).append(obstacle)
    return groups


def _obstacles(kinds: dict[str, list[Obstacle]], width: int) -> list[str]:
    """2 x sort, mul at model.py:3 (f): … for each reason."""
    lines = []
    for why, group in list(kinds.items())[:OBSTACLES_SHOWN]:
        times = Counter(each.primitive for each in group)
        names = ", ".join(name if many == 1 else f"{many:,} x {name}" for name, many in times.items())
        what = "; ".join(filter(None, (why, group[0].takes)))
        lines.append(paragraph(f"{names} at {_places(each.where for each in group)}: {what}", width, indent=" " * 6))
    others = len(kinds) - OBSTACLES_SHOWN
    return [*lines, *([f"      and {count(others, 'more reason')}"] if others > 0 else [])]


def _places(wheres: Iterable[str]) -> str:
    """model.py:3 (f), model.py:5 (f), model.py:9 (g) and 4 more places."""
    return first_of((where or "an unknown line" for where in wheres), PLACES_SHOWN, "more place")


def _step(step: StepOfLoop) -> str:
    """each step is 14 kernels (rollout_step_0, …), and XLA for dot_general (2)"""
    names = first_of((kernel.name for kernel in step.kernels), PLACES_SHOWN)
    left = Counter(step.left_to_xla).most_common()
    others = ", ".join(name if many == 1 else f"{many:,} x {name}" for name, many in left)
    text = f"each step launches {count(len(step.kernels), 'kernel')}: {names}"
    return text + (f"; XLA does {others}" if left else "")


def _launches_of_loop(launches: Launches, microseconds: float | None, with_kernels: bool) -> str:
    """XLA: 5 launches a step, 320 in all, about 610 µs"""
    text = f"XLA{' and kernels' if with_kernels else ''}: {count(launches.a_step, 'launch', 'launches')} a step"
    text += "" if launches.in_all is None else f", {launches.in_all:,} in all"
    if microseconds is not None:
        return f"{text}, about {shown(microseconds)} µs"
    return text if launches.in_all is None else f"{text}, if each `while` in it has {UNKNOWN} steps"
