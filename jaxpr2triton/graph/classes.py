"""Which dimensions walk together.

Two dimensions are of one class when an elementwise step, a broadcast, a transpose … lets one index run over both.
Classes only steer which axis a reduction is given, and which outputs share a kernel; coarse ones are not wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

from jax import lax

from jaxpr2triton.ir.accumulate import accumulate_p
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import once
from jaxpr2triton.ir.region import exchange_p
from jaxpr2triton.ir.scans import LOOPS, Dim, Scan, outer_dims, scan_of, scans_in, ties, time_dims
from jaxpr2triton.rules.dims import Kept, beside_places, dims_of
from jaxpr2triton.rules.indexing import groups_of_reshape
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.sweeps import Sweep, axis_of

Origin = tuple[str, Dim, tuple[Hashable, ...]]  # how a dimension is made, of which one, and with which numbers


class Classes:
    """Union-find over the dimensions of the variables of some equations."""

    def __init__(self, eqns: Sequence[Eqn], tied: Iterable[tuple[Dim, Dim]] = ()) -> None:
        self._parent: dict[Dim, Dim] = {}
        self._derived: dict[Origin, Dim] = {}
        for one, other in itertools.chain(tied, *map(_joined, eqns)):
            self._union(one, other)
        for eqn in eqns:
            for dim, origin in _derived(eqn):
                how, whole, numbers = origin
                key = (how, self.find(whole), numbers)
                self._union(dim, self._derived.setdefault(key, dim))

    def find(self, dim: Dim) -> Dim:
        root = dim
        while self._parent.get(root, root) != root:
            root = self._parent[root]
        while self._parent.get(dim, dim) != root:
            self._parent[dim], dim = root, self._parent[dim]
        return root

    def of(self, var: Var) -> tuple[Dim, ...]:
        return tuple(self.find((var, d)) for d in range(len(var.aval.shape)))

    def _union(self, one: Dim, other: Dim) -> None:
        self._parent[self.find(one)] = self.find(other)


@once
def classes_of(jaxpr: Jaxpr) -> Classes:
    return Classes(jaxpr.eqns)


def body_classes(scan: Scan) -> Classes:
    """The classes of a loop's body, with the carried values of one step joined to those of the next."""
    return Classes(scan.body.eqns, ties(scan))


@once
def counted_in(jaxpr: Jaxpr) -> frozenset[Dim]:
    """The dimensions along which loops count their steps, and along which loops in their bodies do."""
    found: set[Dim] = set()
    for scan in scans_in(jaxpr):
        found.update(time_dims(scan))
        if inner := counted_in(scan.body):
            classes = body_classes(scan)
            kinds = set(map(classes.find, inner))
            found.update(outside for outside, inside in outer_dims(scan) if classes.find(inside) in kinds)
    return frozenset(found)


def _joined_by_scan(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions outside of a loop that walk together inside."""
    scan = scan_of(eqn)
    classes = body_classes(scan)
    first: dict[Dim, Dim] = {}
    for outside, inside in outer_dims(scan):
        kind = classes.find(inside)
        yield first.setdefault(kind, outside), outside
    times = time_dims(scan)
    yield from ((times[0], other) for other in times[1:])


def _joined(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """Pairs of dimensions, of an operand and of the result, that the same index runs over."""
    if eqn.primitive.name in LOOPS:
        yield from _joined_by_scan(eqn)
        return
    if not eqn.outvars or not hasattr(eqn.outvars[0].aval, "shape"):
        return
    if isinstance(TABLE.get(eqn.primitive.name), Sweep):
        yield from (((operand, axis_of(eqn)), (eqn.outvars[0], axis_of(eqn))) for operand in variables(eqn.invars))
    if isinstance(TABLE.get(eqn.primitive.name), Reduction):  # of elements that may have several parts
        parts = variables(eqn.invars)
        yield from (((parts[0], d), (other, d)) for other in parts[1:] for d in eqn.params["axes"])
    dims = dims_of(eqn)
    for kept in dims.kept if dims else (*_beside_places(eqn), *_of_one_size(eqn)):
        if not isinstance(operand := eqn.invars[kept.operand], Literal):
            yield (operand, kept.dim), (eqn.outvars[0], kept.place)
    if eqn.primitive.name == "dot_general" and len(operands := variables(eqn.invars)) == 2:
        (left, right), summed = operands, eqn.params["dimension_numbers"][0]
        yield from (((left, a), (right, b)) for a, b in zip(*summed))


def _beside_places(eqn: Eqn) -> tuple[Kept, ...]:
    """What goes on where places are computed."""
    dims = beside_places(eqn)
    return dims.kept if dims else ()


def _of_one_size(eqn: Eqn) -> Iterator[Kept]:
    """What a primitive without a row keeps, for all one knows."""
    if eqn.primitive is accumulate_p:
        return
    if eqn.primitive is exchange_p:  # along what programs share out, others are read
        yield from (Kept(0, d, d) for d in range(len(eqn.outvars[0].aval.shape)) if d not in eqn.params["shared"])
        return
    out = eqn.outvars[0].aval.shape
    numbered = _numbered(eqn)
    for operand, atom in enumerate(eqn.invars):
        shape = getattr(atom.aval, "shape", ())
        if len(shape) == len(out):
            known = range(len(shape)) if operand != 1 or numbered is None else numbered
            yield from (Kept(operand, d, d) for d, size in enumerate(shape) if size == out[d] and d in known)


def _numbered(eqn: Eqn) -> Collection[int] | None:
    """Of a gather or a scatter the dimensions of its indices that are the result's of the same number.

    out[lane, k] = table[lane, indices[k, 0]]      k is another one than lane, however many there are of both
    """
    numbers = eqn.params.get("dimension_numbers")
    if isinstance(numbers, lax.GatherDimensionNumbers):
        batch = [d for d in range(len(eqn.outvars[0].aval.shape)) if d not in numbers.offset_dims]
        return [d for d, place in enumerate(batch) if d == place]
    if isinstance(numbers, lax.ScatterDimensionNumbers):
        pairs = zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims)
        return [d for d, place in pairs if d == place]
    return None


def _derived(eqn: Eqn) -> Iterator[tuple[Dim, Origin]]:
    """Dimensions made from another one in a way that repeats: split by a reshape, lengthened by a pad."""
    operands = variables(eqn.invars)
    match eqn.primitive.name:
        case "pad" if operands:
            for d, config in enumerate(eqn.params["padding_config"]):
                if any(config):
                    yield (eqn.outvars[0], d), ("pad", (operands[0], d), tuple(config))
        case "reshape" if operands and eqn.params["dimensions"] is None:
            yield from _parted(operands[0], eqn.outvars[0])
        case "slice" if operands and not eqn.params["strides"] and not any(eqn.params["start_indices"]):
            sizes = zip(operands[0].aval.shape, eqn.outvars[0].aval.shape)
            for d, (whole, size) in enumerate(sizes):
                if whole != size:  # the inverse of a pad
                    yield (operands[0], d), ("pad", (eqn.outvars[0], d), (0, whole - size, 0))
        case "chunked" if operands:
            yield from _chunks(eqn)


def _parted(operand: Var, out: Var) -> Iterator[tuple[Dim, Origin]]:
    """The dimensions that several others are parts of; those that become one as that one, reshaped back, has them."""
    shape, target = operand.aval.shape, out.aval.shape
    for dims, places in groups_of_reshape([d for d, size in enumerate(shape) if size != 1], shape, target):
        if (len(dims), len(places)) != (1, 1):
            yield from _parts((operand, dims[0]), [((out, place), target[place]) for place in places])
            yield from _parts((out, places[0]), [((operand, d), shape[d]) for d in dims])


def _parts(whole: Dim, parts: Iterable[tuple[Dim, int]]) -> Iterator[tuple[Dim, Origin]]:
    """What a dimension, or several beside each other of which it is the first, becomes."""
    before = 1
    for part, size in parts:
        yield part, ("split", whole, (before, size))
        before *= size


def chunk_and_row(out: Var) -> tuple[Dim, Dim]:
    """The two dimensions in which a kernel sees the one that an equation `chunked` is about."""
    return ((out, "chunk"), 0), ((out, "row"), 0)


def _chunks(eqn: Eqn) -> Iterator[tuple[Dim, Origin]]:
    """The chunks and the rows of one: the same as those of an array that is padded to whole chunks and reshaped."""
    (operand,), (out,) = variables(eqn.invars), eqn.outvars
    dim, size = eqn.params["dim"], eqn.params["size"]
    length = operand.aval.shape[dim]
    chunks = -(-length // size)
    origin: Dim = (operand, dim)
    if beyond := chunks * size - length:
        padded: Dim = ((out, "padded"), dim)
        yield padded, ("pad", origin, (0, beyond, 0))
        origin = padded
    chunk, row = chunk_and_row(out)
    yield from _parts(origin, [(chunk, chunks), (row, size)])
