"""Stage: plan and graph → Triton source, as a person would write it."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxpr2triton.emit.emitter import Emitter
from jaxpr2triton.emit.scope import Line
from jaxpr2triton.emit.statements import Buffers
from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.rules.helpers import texts_of
from jaxpr2triton.rules.nodes import Graph, Keep

IMPORTS = "import triton\nimport triton.language as tl\n"
LIBDEVICE = "from triton.language.extra import libdevice\n"


def emit(plan: Plan, graph: Graph) -> Kernel:
    """The finished kernel of a plan; `graph` is what it computes."""
    jaxpr = plan.jaxpr.jaxpr
    inputs = _buffers(argument_names(plan.jaxpr), jaxpr.invars)
    outputs = _buffers(free_names("out", len(jaxpr.outvars), [b.name for b in inputs]), jaxpr.outvars)
    buffers = Buffers(inputs, outputs, _kept(graph, [b.name for b in (*inputs, *outputs)]))
    emitter = Emitter(plan, graph, buffers)
    lines = emitter.run()
    parameters = ", ".join(f"{buffer.name}_ptr" for buffer in buffers.all)
    body = "\n".join(_indented(lines, 1, iter(_with_least_parentheses(list(_statements(lines))))))
    helpers = texts_of(emitter.helpers) + emitter.calls.texts()
    imports = IMPORTS + (LIBDEVICE if "libdevice." in body + helpers else "")
    header = _header(plan, buffers)
    source = f"{imports}\n\n{helpers}{header}@triton.jit\ndef {plan.name}({parameters}):\n{body}\n"
    return Kernel(
        name=plan.name,
        source=source,
        inputs=inputs,
        outputs=outputs,
        kept=tuple(buffers.kept.values()),
        axes=plan.kernel_axes(),
        grid=emitter.grid(),
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
        bytes_read=emitter.bytes_read,
        bytes_written=sum(buffer.nbytes for buffer in (*outputs, *buffers.kept.values())),
        flops=emitter.flops,
        choice=plan.choice,
    )


def _buffers(names: Sequence[str], variables: Sequence[Any]) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, tuple(v.aval.shape), np.dtype(v.aval.dtype)) for name, v in zip(names, variables))


def free_names(stem: str, count: int, taken: Sequence[str]) -> list[str]:
    """`out`; or `out0`, `out1`, …; with a line below if something is called like that."""
    while any(name.startswith(stem) for name in taken):
        stem += "_"
    return [stem] if count == 1 else [f"{stem}{n}" for n in range(count)]


def _kept(graph: Graph, taken: Sequence[str]) -> dict[Any, Buffer]:
    found = {keep.slot: keep for keep in graph.of_kind(Keep)}
    names = free_names("kept", len(found), taken)
    return {slot: Buffer(name, keep.shape, keep.dtype) for name, (slot, keep) in zip(names, found.items())}


def _statements(lines: Sequence[Line]) -> Iterator[str]:
    """All lines that are neither comments nor headers."""
    for line in lines:
        if not isinstance(line, str):
            yield from _statements(line[1])
        elif not line.startswith("#"):
            yield line


def _with_least_parentheses(statements: Sequence[str]) -> list[str]:
    """Each in a line; all of them are parsed at once, which is what takes time."""
    return ast.unparse(ast.parse("\n".join(statements))).split("\n")


def _indented(lines: Sequence[Line], depth: int, statements: Iterator[str]) -> list[str]:
    pad = "    " * depth
    written: list[str] = []
    for line in lines:
        if isinstance(line, str):
            written.append(pad + (line if line.startswith("#") else next(statements)))
        else:
            header, inner = line
            written.append(pad + header)
            written.extend(_indented(inner, depth + 1, statements))
    return written


def _header(plan: Plan, buffers: Buffers) -> str:
    axes = " | ".join(str(axis) for axis in plan.kernel_axes()) or "one element"
    programs = math.prod([p.steps for p in plan.axes if p.role.value == "grid"])
    lines = [
        f"{axes}   ({_count(programs, 'program')} of {_count(plan.num_warps, 'warp')})",
        f"reads  {', '.join(map(_described, buffers.inputs)) or 'nothing'}",
        f"writes {', '.join(map(_described, buffers.outputs))}",
    ]
    if buffers.kept:
        lines.append(f"keeps  {', '.join(map(_described, buffers.kept.values()))}")
    return "".join(f"# {line}\n" for line in lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _described(buffer: Buffer) -> str:
    return f"{buffer.name} {buffer.dtype.name}[{','.join(map(str, buffer.shape))}]"
