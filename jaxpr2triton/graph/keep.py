"""What a loop has made, read again after it: written into a buffer of the kernel's own, and read from there.

    d, ys = scan f c xs             for t in range(512):
    kept = keep[dims=(0,)] ys           …
    e, zs = scan g d kept      →        tl.store(kept_ptr + t * 4096 + lane, y)
                                    tl.debug_barrier()
                                    for k in range(512):
                                        y = tl.load(kept_ptr + k * 4096 + lane)

Along `dims` any index may be wanted, so the program that wants one computes all of them. Along every other dimension
what is read is at the very index at which it is written, and programs share these out as always. The steps of a loop
that reads are not shared out: by then all has been written. What a step of a loop computes itself, and reads at other
places (`graph/crowded.py`), its lanes write at once, and read in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph import crowded
from jaxpr2triton.graph.builder import Builder
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.graph.demands import Demands, TooManyPlaces
from jaxpr2triton.graph.nodes import Demand, Keep, Kept, axes_in, axes_of
from jaxpr2triton.graph.reads import Written, every_place
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis, Index, computed_in, plain_axis
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Var
from jaxpr2triton.ir.once import once
from jaxpr2triton.ir.region import keep_p
from jaxpr2triton.ir.scans import Scan, scans_in


def ask(demands: Demands, number: Number, eqn: Eqn, wanted: Sequence[Demand]) -> None:
    """Choose along what is written, and ask for it all."""
    (operand,), (out,), dims = eqn.invars, eqn.outvars, eqn.params["dims"]
    _check_beside(demands, out, dims, wanted)
    written = _chosen(demands, number, operand, dims, wanted)
    demands.reduced_axes.update(axes_in(written, ()))
    over = tuple(dict.fromkeys(axis for axis in axes_in(written, ()) if axis not in demands.unrolled))
    for place, guard in wanted:
        usual = tuple(written[dims.index(d)] if d in dims else index for d, index in enumerate(place))
        places = tuple(every_place(usual, demands.unrolled))
        reads = [demands.want(operand, each, ()) for each in places]
        demands.reads[out, (place, guard)] = Written(number, places, reads, over)


def _check_beside(demands: Demands, out: Var, dims: tuple[int, ...], wanted: Sequence[Demand]) -> None:
    """Where a dimension is not one of `dims`, what is written is what is read: no computed place, no step of a reader.

    Otherwise the value is to be kept along that dimension too.
    """
    reading = demands.choose.steps - demands.steps
    for place, _ in wanted:
        beside = [(d, index, size) for d, (index, size) in enumerate(zip(place, out.aval.shape)) if d not in dims]
        conflicting = [d for d, index, size in beside if not can_be_written(index, size) or index.axes & reading]
        if conflicting:
            raise TooManyPlaces(out, tuple(sorted((*dims, *conflicting))))


def _chosen(
    demands: Demands, number: Number, operand: Atom, dims: tuple[int, ...], wanted: Sequence[Demand]
) -> tuple[Index, ...]:
    """What is written runs along none of the axes at which it is read; along the steps of the loop that makes it."""
    read = frozenset[Axis]().union(*(axes_in(place, guard) for place, guard in wanted))
    hints = demands.hints(operand, dims)
    scan = next((scan for scan in scans_in(demands.jaxpr) if any(result is operand for _, result in scan.ys)), None)
    if scan is None or 0 not in dims:
        if demands.steps and _is_in_lanes(demands, operand):
            return crowded.written_along(demands.choose, number, operand, dims, wanted)
        return demands.choose.reduction(number, operand, dims, read | demands.choose.steps, hints)
    loop = (*demands.path, demands.makers[scan.eqn.outvars[0]]), scan
    return demands.choose.stacked(number, operand, dims, read, [_steps_of(demands, scan), *hints[1:]], loop)


def _is_in_lanes(demands: Demands, operand: Atom) -> bool:
    """Whether a step of a loop has a value in its lanes, all at once: these write it, and then read it."""
    return isinstance(operand, Var) and operand in demands.makers and operand not in _multiplied(demands.jaxpr)


@once
def _multiplied(body: Jaxpr) -> frozenset[Var]:
    """What a step makes of products with matrices, which it may read block by block, and has not kept before."""
    found: set[Var] = set()
    for eqn in body.eqns:
        is_product = eqn.primitive.name == "dot_general" and not is_short_contraction(eqn)
        if eqn.primitive is not keep_p and (is_product or not found.isdisjoint(variables(eqn.invars))):
            found.update(eqn.outvars)
    return frozenset(found)


def _steps_of(demands: Demands, scan: Scan) -> Axis | None:
    """Along what the steps of a loop are wanted, so far: it runs once for all that it puts out."""
    places = [place for _, result in scan.ys for place, _ in demands.on(result)]
    return next((axis for place in places if (axis := plain_axis(place[0])) is not None), None)


def can_be_written(index: Index, size: int) -> bool:
    low, high = index.bounds
    return low >= 0 and high < size and not any(True for _ in computed_in(index))


def build(builder: Builder, eqn: Eqn, written: Written, demand: Demand) -> Kept:
    """What is read of the buffer at one place, after all of it is written."""
    places, over = written.places, written.over
    dtype = np.dtype(eqn.outvars[0].aval.dtype)
    operands = tuple(builder.node(*read) for read in written.operands)
    builder.needs(index for each in places for index in each)
    axes = frozenset(a for each in places for i in each for a in i.axes) | axes_of(operands)
    beyond = axes_of(operands) - frozenset(a for each in places for i in each for a in i.axes) - builder.demands.steps
    if beyond:
        raise CompilerBug(f"what is kept varies along {', '.join(a.name for a in beyond)}, its place does not")
    keep = builder.make(
        ("keep", written.number, places, operands),
        lambda n: Keep(n, axes - frozenset(over), dtype, eqn, operands, over, places, written.number),
    )
    return read_of(builder, keep, demand)


def read_of(builder: Builder, keep: Keep, demand: Demand) -> Kept:
    """What is read of a buffer at one place."""
    place, guard = demand
    needs = builder.needs([*place, *(condition.index for condition in guard)])
    axes = frozenset(axes_in(place, guard)) | axes_of(needs) | keep.axes
    return builder.make(("kept", keep, demand), lambda n: Kept(n, axes, keep.dtype, keep, place, guard, needs))
