"""What a program became: its kernels, what they move and compute, and what stays with XLA and why."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from jaxpr2triton.ir.cycles import Cycles
from jaxpr2triton.ir.dtypes import short_name
from jaxpr2triton.ir.jaxprs import nbytes_of
from jaxpr2triton.ir.kernel import Choice, Kernel, Launches, Leftover, Residual
from jaxpr2triton.policy import Policy
from jaxpr2triton.report.cycles import cycle_facts, shown_cycles
from jaxpr2triton.report.leftovers import left_to_xla
from jaxpr2triton.report.residuals import shown_residuals
from jaxpr2triton.report.several import how_planned, over_devices, why_several
from jaxpr2triton.report.slow_kernels import doubts_about
from jaxpr2triton.report.summary import Summary
from jaxpr2triton.report.table import count, paragraph, report_width, table
from jaxpr2triton.report.times import Spent, shown_times, times_of

RUNS_SHOWN = 8  # of the types of inputs and outputs
AGAIN = 16  # times what is moved, from which on it is told what programs load
LOOPS_SHOWN = 3  # of a program, with what XLA would launch for them


def explain(
    compiled: Summary,
    name: str = "program",
    title: str = "",
    why: bool = False,
    cycles: Mapping[Kernel, Cycles] | None = None,
) -> str:
    """A table of kernels, bytes against the least possible, launches, and the leftovers with their reasons.

    No line is longer than 100 columns, or than COLUMNS. `title` stands for the name where the name says little;
    `why` adds how it was planned and which axes several devices may split, and `cycles` what a model says that each
    kernel takes.
    """
    facts, width = _facts(compiled, name, cycles), report_width()
    lines = [
        paragraph(f"{title or name}: ({shown_types(facts['inputs'])}) → ({shown_types(facts['outputs'])})", width),
        paragraph(_launches(facts), width, indent="  "),
        *([paragraph(_alone(facts["xla_alone"]), width, indent="  ")] if facts["kernels"] else []),
        paragraph(_traffic(facts), width, indent="  "),
    ]
    if facts["kernels"]:
        rows = [
            [
                kernel["name"] + (f" ({kernel['launches']} times)" if kernel["launches"] > 1 else ""),
                " | ".join(axis["text"] for axis in kernel["axes"]) or "-",
                "×".join(map(str, _trimmed(kernel["grid"]))),
                kernel["num_warps"],
                kernel["bytes_read"],
                kernel["bytes_written"],
                kernel["flops"],
            ]
            for kernel in facts["kernels"]
        ]
        header = ["kernel", "axes", "grid", "warps", "bytes read", "written", "flops"]
        lines += ["", table(header, rows, width=width)]
    lines += _flags(facts["kernels"], width)
    lines += _estimates(facts["kernels"], width)
    lines += _meetings(facts["kernels"], width)
    lines += [] if cycles is None else shown_cycles(cycles, width)
    lines += shown_times(_times(compiled, cycles), cycles is not None, width)
    warnings = [warning for kernel in facts["kernels"] for warning in kernel["warnings"]]
    lines += ["", *(paragraph(f"warning: {text}", width, indent="  ") for text in warnings)] if warnings else []
    lines += why_several(compiled.apart, width)
    lines += left_to_xla(compiled.leftovers, width)
    lines += [*how_planned(compiled.steps, width), *over_devices(compiled.divided, width)] if why else []
    return "\n".join(lines)


def shown_types(types: Sequence[str]) -> str:
    """f32[4], f32[4], f32[4], i32[] → 3 x f32[4], i32[]; of very many kinds the first ones and the number of others."""
    runs = [(each, len(list(same))) for each, same in itertools.groupby(types)]
    shown = [text for each, many in runs[:RUNS_SHOWN] for text in ([each] * many if many < 3 else [f"{many} x {each}"])]
    others = sum(many for _, many in runs[RUNS_SHOWN:])
    return ", ".join([*shown, *([f"and {others:,} more"] if others else [])])


def _flags(kernels: Sequence[dict[str, Any]], width: int) -> list[str]:
    """Results that programs only set, as they find that something holds: the call clears them before the launch."""
    flags = [f"{kernel['name']} only sets {', '.join(kernel['flags'])}" for kernel in kernels if kernel["flags"]]
    cleared = "bytes that are zero before each launch"
    return ["", *(paragraph(f"{text}: {cleared}", width, indent="  ") for text in flags)] if flags else []


def _estimates(kernels: Sequence[dict[str, Any]], width: int) -> list[str]:
    """Of each kernel with loops what its schedule was chosen for, and what the next best one would take."""
    rows = []
    for kernel in kernels:
        estimate = kernel["estimate"]
        if estimate is not None:
            other = estimate["next_best"]
            instead = f"{other['cycles']:,} with {other['with']}" if other else "-"
            numbers = (estimate[key] for key in ("instructions", "barriers", "kept", "programs", "cycles"))
            rows.append([kernel["name"], *numbers, instead])
    header = ["a step, estimated", "instructions", "barriers", "kept", "programs", "cycles", "next best"]
    return ["", table(header, rows, width=width)] if rows else []


def _meetings(kernels: Sequence[dict[str, Any]], width: int) -> list[str]:
    """Of each kernel whose programs wait for each other how many run at once, how often they meet, and for what."""
    lines = []
    for kernel in kernels:
        if meets := kernel.get("meets"):
            times = "once" if meets["in_a_step"] == 1 else f"{meets['in_a_step']} times"
            lines.append(
                f"{kernel['name']}: its {meets['programs']} programs run at once and meet {times} in a step, of about "
                f"{meets['microseconds_of_a_step']:.1f} µs with that; they show each other {', '.join(meets['shown'])}"
            )
    return ["", *(paragraph(line, width, indent="  ") for line in lines)] if lines else []


def explain_grad(
    forward: Summary,
    backward: Summary,
    residuals: Sequence[Residual],
    name: str = "program",
    title: str = "",
    why: bool = False,
    cycles: Mapping[Kernel, Cycles] | None = None,
) -> str:
    """The same for a program and its gradient, and what the first saves for the second."""
    facts = _residual_facts(residuals)
    kernels = {kernel.name: kernel for half in (forward, backward) for kernel in half.kernels}
    own = sum(buffer.nbytes for kernel in kernels.values() for buffer in kernel.kept)
    title, ways = title or name, ((forward, "forward"), (backward, "backward"))
    halves = [explain(half, f"{title}, {way}", why=why, cycles=_of_these(half, cycles)) for half, way in ways]
    return "\n\n".join([halves[0], shown_residuals(title, facts, report_width(), own), halves[1]])


def _of_these(compiled: Summary, cycles: Mapping[Kernel, Cycles] | None) -> Mapping[Kernel, Cycles] | None:
    return None if cycles is None else {kernel: cycles[kernel] for kernel in compiled.kernels}


def explain_json(
    compiled: Summary, name: str = "program", cycles: Mapping[Kernel, Cycles] | None = None
) -> dict[str, Any]:
    """The facts behind `explain`, for programs to read, and the schedule of each kernel, for `schedules=` to read."""
    facts = _facts(compiled, name, cycles)
    schedules = {each.kernel: each.to_json() for each in compiled.schedules}
    facts["kernels"] = [kernel | {"schedule": schedules.get(kernel["name"])} for kernel in facts["kernels"]]
    return facts


def _facts(compiled: Summary, name: str, cycles: Mapping[Kernel, Cycles] | None) -> dict[str, Any]:
    times = {each.what: each.microseconds for each in _times(compiled, cycles)}
    read = sum(kernel.bytes_read for kernel in compiled.kernels)
    written = sum(kernel.bytes_written for kernel in compiled.kernels)
    return {
        "name": name,
        "inputs": [short_type(aval) for aval in compiled.in_avals],
        "outputs": [short_type(aval) for aval in compiled.out_avals],
        "bytes_read": read,
        "bytes_written": written,
        "bytes_asked": sum(kernel.bytes_asked for kernel in compiled.kernels),
        "bytes_least": least_bytes(compiled),
        "bytes_by_xla": sum(left.nbytes for left in compiled.leftovers),
        "microseconds": sum(time or 0 for time in times.values()),
        "flops": sum(kernel.flops for kernel in compiled.kernels),
        "xla_alone": {
            "beside_loops": compiled.alone.beside_loops,
            "loops": [{"primitive": name, **_launch_facts(launches)} for name, launches in compiled.alone.loops],
            "in_all": compiled.alone.in_all,
        },
        "kernels": [
            _kernel_facts(kernel, n, compiled.policy)
            | {"microseconds": times[kernel.name]}
            | ({} if cycles is None else {"cycles": cycle_facts(cycles[kernel])})
            for kernel, n in Counter(compiled.kernels).items()
        ],
        "steps": list(compiled.steps),
        "devices": [
            {"axes": list(each.places), "split": not each.why_whole, "meet": each.meets, "why_whole": each.why_whole}
            for each in compiled.divided
        ],
        "apart": [{**asdict(each), "others": list(each.others)} for each in compiled.apart],
        "leftovers": [_leftover_facts(left) for left in compiled.leftovers],
    }


def explain_grad_json(
    forward: Summary,
    backward: Summary,
    residuals: Sequence[Residual],
    name: str = "program",
    cycles: Mapping[Kernel, Cycles] | None = None,
) -> dict[str, Any]:
    """The facts behind `explain_grad`."""
    return {
        "forward": explain_json(forward, f"{name}, forward", cycles),
        "backward": explain_json(backward, f"{name}, backward", cycles),
        "residuals": _residual_facts(residuals),
    }


def _times(compiled: Summary, cycles: Mapping[Kernel, Cycles] | None) -> list[Spent]:
    return times_of(Counter(compiled.kernels), compiled.leftovers, compiled.policy, cycles)


def least_bytes(compiled: Summary) -> int:
    """Every input read once and every output written once."""
    return nbytes_of(*compiled.in_avals, *compiled.out_avals)


def short_type(aval: Any) -> str:
    """f32[128,64], as JAX prints it."""
    return f"{short_name(aval.dtype)}[{','.join(map(str, aval.shape))}]"


def _kernel_facts(kernel: Kernel, launches: int, policy: Policy) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "launches": launches,
        "axes": [
            {
                "name": axis.name,
                "size": None if axis.unbounded else axis.size,
                "role": str(axis.role),
                "block": axis.block,
                "text": str(axis),
            }
            for axis in kernel.axes
        ],
        "grid": list(kernel.grid),
        "num_warps": kernel.num_warps,
        "num_stages": kernel.num_stages,
        "inputs": [{"name": buffer.name, "type": short_type(buffer)} for buffer in kernel.inputs],
        "outputs": [{"name": buffer.name, "type": short_type(buffer)} for buffer in kernel.outputs],
        "flags": [buffer.name for buffer in kernel.outputs if buffer.is_flag],
        "kept": [{"name": buffer.name, "type": short_type(buffer)} for buffer in kernel.kept],
        "bytes_read": kernel.bytes_read,
        "bytes_written": kernel.bytes_written,
        "bytes_asked": kernel.bytes_asked,
        "flops": kernel.flops,
        "where": list(kernel.lines),
        "estimate": _choice_facts(kernel.choice),
        "warnings": list(doubts_about(kernel, policy)),
        **({"meets": _meeting_facts(kernel, policy)} if kernel.meets else {}),
    }


def _meeting_facts(kernel: Kernel, policy: Policy) -> dict[str, Any]:
    step = replace(kernel.steps, count=1) if kernel.steps else None
    return {
        "programs": math.prod(kernel.grid),
        "in_a_step": kernel.meetings,
        "microseconds_of_a_step": step.microseconds(policy.target.clock) if step else 0.0,
        "shown": [buffer.name for buffer in kernel.kept if buffer.is_exchanged],
    }


def _choice_facts(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    other = None if choice.of_other is None else {"with": choice.other, **asdict(choice.of_other)}
    return {**asdict(choice.chosen), "next_best": other, "compiled": list(choice.compiled)}


def _leftover_facts(left: Leftover) -> dict[str, Any]:
    return {
        **{fact: getattr(left, fact) for fact in ("primitive", "equation", "where", "why", "takes")},
        "bytes": left.nbytes,
        "microseconds": left.microseconds,
        "launches": left.launches and _launch_facts(left.launches),
        "obstacles": [asdict(each) for each in left.obstacles],
        "step": None if left.step is None else [kernel.name for kernel in left.step.kernels],
    }


def _launch_facts(launches: Launches) -> dict[str, Any]:
    return {**asdict(launches), "in_all": launches.in_all}


def _residual_facts(residuals: Sequence[Residual]) -> list[dict[str, Any]]:
    return [
        {
            "name": value.name,
            "source": value.source,
            "type": short_type(value),
            "bytes": value.nbytes,
            "where": value.where,
        }
        for value in residuals
    ]


def _launches(facts: dict[str, Any]) -> str:
    left = len(facts["leftovers"])
    launched, kinds = sum(kernel["launches"] for kernel in facts["kernels"]), len(facts["kernels"])
    text = f"launches  {f'{launched:,}, of ' if kinds < launched else ''}{count(kinds, 'kernel')}"
    return text + (f", and XLA for {count(left, 'equation')}" if left else ", nothing left to XLA")


def _alone(facts: dict[str, Any]) -> str:
    """XLA alone about 305 launches: 100 x 3 in a loop, 5 beside it."""
    beside, known = facts["beside_loops"], [loop for loop in facts["loops"] if loop["in_all"] is not None]
    endless = sum(loop["a_step"] for loop in facts["loops"] if loop["in_all"] is None)
    sure = beside + sum(loop["in_all"] for loop in known)
    text = f"about {count(sure, 'launch', 'launches')}" if sure or not endless else ""
    if 0 < len(known) <= LOOPS_SHOWN:
        text += ": " + " + ".join(f"{loop['steps']:,} x {loop['a_step']:,}" for loop in known)
        text += " in a loop" if len(known) == 1 else " in loops"
        text += f", {beside:,} beside {'it' if len(known) == 1 else 'them'}" if beside else ""
    more = f"about {count(endless, 'launch', 'launches')} in each step of a `while`" if endless else ""
    return "XLA alone " + ", and ".join(filter(None, (text, more)))


def _traffic(facts: dict[str, Any]) -> str:
    moved, least = facts["bytes_read"] + facts["bytes_written"], facts["bytes_least"]
    ratio = f", {moved / least:.2f}x the minimum" if least and facts["kernels"] and not facts["leftovers"] else ""
    by_xla = f"at least {facts['bytes_by_xla']:,} by XLA" if facts["leftovers"] else ""
    by_kernels = f"{moved:,} moved by the kernels" if facts["kernels"] else ""
    both = ", ".join(filter(None, (by_kernels, by_xla if by_kernels else "")))
    text = f"bytes     {both}{'; ' if both else ''}inputs and outputs are {least:,}{ratio}"
    asked = facts["bytes_asked"]
    return text + (f"; programs load {asked:,}, from caches" if asked > AGAIN * moved else "")


def _trimmed(grid: Sequence[int]) -> list[int]:
    sizes = list(grid)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return sizes
