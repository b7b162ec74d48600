"""Makes a failing program small, in ways that hypothesis cannot know of: a line becomes an input."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax

from tests.drawn.check import check
from tests.drawn.patience import TooLong, limited
from tests.drawn.program import DTYPES, Input, Program
from tests.drawn.reduce_loops import simpler_loops

TRIES_AT_MOST = 300
SECONDS_AT_MOST = 120
PATIENCE = 20  # seconds for one candidate


def failure(problem: BaseException) -> str:
    """What sort of failure it is: the exception, and where it was raised."""
    trace = problem.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "jaxpr2triton" in code.co_filename or "drawn" in code.co_filename:
            place = f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_name}"
        trace = trace.tb_next
    return f"{type(problem).__name__} in {place}"


def reduced(program: Program, kind: str, backend: str = "interpret") -> Program:
    """The smallest program found that fails in the same way."""
    tries, end = TRIES_AT_MOST, time.monotonic() + SECONDS_AT_MOST
    progress = True
    while progress and tries > 0 and time.monotonic() < end:
        progress = False
        for candidate in simpler(program):
            tries -= 1
            if tries <= 0 or time.monotonic() > end:
                break
            if fails(candidate, kind, backend):
                program, progress = candidate, True
                break
    return program


def fails(program: Program, kind: str, backend: str) -> bool:
    try:
        with limited(PATIENCE):
            check(program, backend=backend)
    except (Exception, TooLong) as problem:
        return failure(problem) == kind
    return False


def simpler(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        for output in program.outputs:
            yield program.replace(outputs=(output,)).without_dead_lines()
        for n in range(len(program.outputs)):
            rest = program.outputs[:n] + program.outputs[n + 1 :]
            yield program.replace(outputs=rest).without_dead_lines()
    if program.transform != "plain":
        yield program.replace(transform="plain", batched=(), outside=False)
        if program.transform == "vmap_grad":
            yield program.replace(transform="grad", batched=())
    for output in program.outputs:
        line = next((line for line in program.lines if output in line.results), None)
        for name in line.reads if line else ():
            yield program.replace(outputs=(name,)).without_dead_lines()
    yield from simpler_loops(program)
    yield from _lines_as_inputs(program)
    for setting in ("small", "spread", "in_order", "x64", "outside"):
        if getattr(program, setting):
            yield program.replace(**{setting: False})
    for n, axis in enumerate(program.batched):
        if axis and sum(a is not None for a in program.batched) > 1:
            yield program.replace(batched=(*program.batched[:n], None, *program.batched[n + 1 :]))
    for n, each in enumerate(program.inputs):
        if each.values != "normal":
            plain = Input(each.name, each.shape, each.dtype, "normal")
            yield program.replace(inputs=(*program.inputs[:n], plain, *program.inputs[n + 1 :]))


def _lines_as_inputs(program: Program) -> Iterator[Program]:
    avals = _avals(program)
    for n, line in enumerate(program.lines):
        if any(name not in avals or avals[name].dtype.name not in DTYPES for name in line.results):
            continue
        new = [Input(name, avals[name].shape, avals[name].dtype.name, "normal") for name in line.results]
        yield program.replace(
            inputs=(*program.inputs, *new),
            lines=program.lines[:n] + program.lines[n + 1 :],
            batched=(*program.batched, *(0 for _ in new)) if program.batched else (),
        ).without_dead_lines()


def _avals(program: Program) -> dict[str, Any]:
    """The types of the lines' values."""
    everything = program.replace(outputs=tuple(name for line in program.lines for name in line.results))
    structs = [jax.ShapeDtypeStruct(each.shape, DTYPES[each.dtype]) for each in program.inputs]
    with jax.enable_x64(program.x64):
        found = jax.eval_shape(everything.function, *structs)
    return dict(zip(everything.outputs, found))
