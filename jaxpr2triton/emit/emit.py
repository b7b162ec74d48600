"""Stage: plan and graph → Triton source, as a person would write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jaxpr2triton.emit.ahead import read_ahead
from jaxpr2triton.emit.axes import grid_of
from jaxpr2triton.emit.distinct import with_distinct_starts
from jaxpr2triton.emit.held import hold_pieces
from jaxpr2triton.emit.known import Buffers
from jaxpr2triton.emit.layout import WIDTH, filled, text_of
from jaxpr2triton.emit.sound import check_offsets
from jaxpr2triton.emit.streams import StreamEmitter
from jaxpr2triton.emit.tidy import tidy
from jaxpr2triton.emit.walks import names_in
from jaxpr2triton.graph.nodes import Exchange, Graph, Keep
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.kernel import Buffer, Kernel, KernelAxis
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import stored_by
from jaxpr2triton.ir.tracing import argument_names, result_names
from jaxpr2triton.ir.value_names import value_names
from jaxpr2triton.rules.helpers import texts_of

IMPORTS = "import triton\nimport triton.language as tl\n"
LIBDEVICE = "from triton.language.extra import libdevice\n"


def emit(plan: Plan, graph: Graph) -> Kernel:
    """The finished kernel of a plan; `graph` is what it computes."""
    jaxpr = plan.jaxpr.jaxpr
    inputs = _buffers(argument_names(plan.jaxpr), jaxpr.invars)
    outputs = _buffers(_output_names(plan.jaxpr, [b.name for b in inputs]), jaxpr.outvars)
    outputs = tuple(replace(b, is_flag=s is not v) for b, s, v in zip(outputs, stored_by(jaxpr), jaxpr.outvars))
    buffers = _with_own(inputs, outputs, jaxpr, graph)
    emitter = StreamEmitter(plan, graph, buffers)
    lines = emitter.run()
    parameters = [buffer.parameter for buffer in buffers.all]
    written = {buffer.parameter for buffer in buffers.own}
    same = _same_variables(plan)
    tidied, names = tidy(lines, emitter.names, emitter.axis_names, same, written)
    held, short = hold_pieces(tidied, plan, names, inputs)
    early = read_ahead(held, plan, names, short)
    statements = with_distinct_starts(early)
    check_offsets(statements, grid_of(plan.axes), emitter.numbers, emitter.axis_names)
    body = "\n".join(text_of(statements))
    helpers = texts_of(emitter.helpers | emitter.calls.helpers) + emitter.functions.texts() + emitter.calls.texts()
    is_called = "libdevice." in helpers or any(name.id == "libdevice" for name in names_in(*statements))
    imports = IMPORTS + LIBDEVICE * is_called
    header = _header(plan, buffers, emitter.band)
    source = f"{imports}\n\n{helpers}{header}@triton.jit\n{_signature(plan.name, parameters)}\n{body}\n"
    return Kernel(
        name=plan.name,
        source=source,
        inputs=inputs,
        outputs=outputs,
        kept=buffers.own,
        axes=plan.kernel_axes(),
        grid=grid_of(plan.axes),
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
        bytes_read=emitter.bytes_read,
        bytes_asked=max(emitter.bytes_asked, emitter.bytes_read),
        bytes_written=sum(buffer.nbytes for buffer in (*outputs, *buffers.own)),
        flops=emitter.flops,
        choice=plan.choice,
        steps=plan.steps,
        meetings=emitter.meetings,
    )


def _same_variables(plan: Plan) -> dict[str, str]:
    """The variables of lanes that are the same as those of an axis before, and theirs.

    Where several warps meet, every axis has lanes of its own: tiles that are loaded once for two axes have to change
    places for one of them, and do so at a barrier.
    """
    first: dict[tuple[int, int], str] = {}
    found: dict[str, str] = {}
    for planned in plan.axes:
        if planned.role.is_vectorized and planned.block > 1 and plan.num_warps == 1:
            name = planned.axis.name
            known = first.setdefault((planned.axis.size, planned.block), name)
            found |= {name + end: known + end for end in ("", "_ok") if known != name}
    return found


def _buffers(names: Sequence[str], variables: Sequence[Any]) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, tuple(v.aval.shape), np.dtype(v.aval.dtype)) for name, v in zip(names, variables))


def _output_names(closed: Any, taken: Sequence[str]) -> list[str]:
    """What the region calls them; else `out`, or `out0`, `out1`, …"""
    others = free_names("out", len(closed.jaxpr.outvars), taken)
    return [name or other for name, other in zip(result_names(closed), others)]


def free_names(stem: str, count: int, taken: Sequence[str]) -> list[str]:
    """`out`; or `out0`, `out1`, …; with a line below if something is called like that."""
    while any(name[: len(stem)] == stem for name in taken):
        stem += "_"
    return [stem] if count == 1 else [f"{stem}{n}" for n in range(count)]


def _with_own(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], jaxpr: Any, graph: Graph) -> Buffers:
    taken = [buffer.name for buffer in (*inputs, *outputs)]
    kept = _kept(jaxpr, graph, taken)
    if not any(buffer.is_exchanged for buffer in kept.values()):
        return Buffers(inputs, outputs, kept)
    (name,) = free_names("met", 1, [*taken, *(buffer.name for buffer in kept.values())])
    return Buffers(inputs, outputs, kept, Buffer(name, (1,), np.dtype(np.int32), is_met=True))


def _kept(jaxpr: Any, graph: Graph, taken: Sequence[str]) -> dict[Any, Buffer]:
    """`kept_hs` for what the user's loop computes as h in each step; `kept`, or `kept0`, `kept1`, … for all others.

    What programs show each other is `shown_h`.
    """
    found = {keep.slot: keep for keep in graph.of_kind(Keep)}
    if not found:
        return {}
    known, others = value_names(jaxpr), free_names("kept", len(found), taken)
    names: list[str] = []
    for keep, other in zip(found.values(), others):
        stem = "shown" if isinstance(keep, Exchange) else "kept"
        wishes = [f"{stem}_{known[var]}" for var in variables(keep.eqn.invars[:1]) if var in known]
        wishes.append(other.replace("kept", stem))
        names.append(next((name for name in wishes if name not in (*names, *taken)), other))
    shown = {slot: isinstance(keep, Exchange) for slot, keep in found.items()}
    return {
        slot: Buffer(name, keep.shape, keep.dtype, is_exchanged=shown[slot])
        for name, (slot, keep) in zip(names, found.items())
    }


def _header(plan: Plan, buffers: Buffers, band: int) -> str:
    same = _same_variables(plan)
    axes = [_axis_text(axis, same) for axis in plan.kernel_axes()] or ["one element"]
    walk = f", down bands of {band} blocks" if band else ""
    axes[-1] += f"   ({_count(plan.programs, 'program')} of {_count(plan.num_warps, 'warp')}{walk})"
    lines = filled("# ", axes, " | ", "#   ")
    kept = [buffer for buffer in buffers.own if not buffer.is_exchanged and not buffer.is_met]
    shown = [buffer for buffer in buffers.own if buffer.is_exchanged or buffer.is_met]
    listings = ("reads ", buffers.inputs), ("writes", buffers.outputs), ("keeps ", kept), ("shows ", shown)
    for verb, listed in listings:
        if listed or verb == "reads ":
            lines += filled(f"# {verb} ", [*map(_described, listed)] or ["nothing"], ", ", "#        ")
    if shown:
        lines.append("#        (what programs show each other is read when all have met, and they run at once)")
    if kept:
        lines.append("#        (what is kept is read after a barrier, by lanes that have not written it)")
    return "\n".join(lines) + "\n"


def _axis_text(axis: KernelAxis, same: Mapping[str, str]) -> str:
    return f"{axis.name}: as {same[axis.name]}" if axis.name in same else str(axis)


def _signature(name: str, parameters: Sequence[str]) -> str:
    line = f"def {name}({', '.join(parameters)}):"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"def {name}(", *filled("    ", parameters, ", ", "    "), "):"])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _described(buffer: Buffer) -> str:
    said = " (zero before, and only set)" if buffer.is_flag else " (zero before)" if buffer.is_met else ""
    return f"{buffer.name} {buffer.dtype.name}[{','.join(map(str, buffer.shape))}]{said}"
