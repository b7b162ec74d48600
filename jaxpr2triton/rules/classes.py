"""Which dimensions walk together.

Two dimensions are of one class when an elementwise step, a broadcast, a transpose … lets one index run over both.
Classes only steer which axis a reduction is given, and which outputs share a kernel; coarse ones are not wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import jax.extend.core as jex

from jaxpr2triton.rules.scans import Dim, Scan, outer_dims, scan_of, ties, time_dims


class Classes:
    """Union-find over the dimensions of a jaxpr's variables."""

    def __init__(self, jaxpr: Any, tied: Iterable[tuple[Dim, Dim]] = ()) -> None:
        self._parent: dict[Any, Any] = {}
        self._derived: dict[Any, Any] = {}
        for one, other in itertools.chain(tied, *map(_joined, jaxpr.eqns)):
            self._union(one, other)
        for eqn in jaxpr.eqns:
            for dim, origin in _derived(eqn):
                key = (origin[0], self.find(origin[1]), *origin[2:])
                self._union(dim, self._derived.setdefault(key, dim))

    def find(self, dim: Any) -> Any:
        root = dim
        while self._parent.get(root, root) != root:
            root = self._parent[root]
        while self._parent.get(dim, dim) != root:
            self._parent[dim], dim = root, self._parent[dim]
        return root

    def of(self, var: Any) -> tuple[Any, ...]:
        return tuple(self.find((var, d)) for d in range(len(var.aval.shape)))

    def _union(self, one: Any, other: Any) -> None:
        self._parent[self.find(one)] = self.find(other)


def body_classes(scan: Scan) -> Classes:
    """The classes of a loop's body, with the carried values of one step joined to those of the next."""
    return Classes(scan.body, ties(scan))


def _joined_by_scan(eqn: Any) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions outside of a loop that walk together inside."""
    scan = scan_of(eqn)
    classes = body_classes(scan)
    first: dict[Any, Dim] = {}
    for outside, inside in outer_dims(scan):
        kind = classes.find(inside)
        yield first.setdefault(kind, outside), outside
    times = time_dims(scan)
    yield from ((times[0], other) for other in times[1:])


def _joined_by_dot(eqn: Any) -> Iterator[tuple[Dim, Dim]]:
    (left_sums, right_sums), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left, right = eqn.invars
    out = eqn.outvars[0]
    pairs = [*zip(left_sums, right_sums), *zip(left_batch, right_batch)]
    yield from (((left, a), (right, b)) for a, b in pairs)
    kept = [(left, d) for d in left_batch]
    kept += [(left, d) for d in range(len(left.aval.shape)) if d not in (*left_sums, *left_batch)]
    kept += [(right, d) for d in range(len(right.aval.shape)) if d not in (*right_sums, *right_batch)]
    yield from ((dim, (out, place)) for place, dim in enumerate(kept))


def _joined(eqn: Any) -> Iterator[tuple[Dim, Dim]]:
    """Pairs of dimensions, of an operand and of the result, that the same index runs over."""
    if not eqn.outvars or not hasattr(eqn.outvars[0].aval, "shape"):
        return
    out = eqn.outvars[0]
    operands = [v for v in eqn.invars if not isinstance(v, jex.Literal)]
    if not operands:
        return
    match eqn.primitive.name:
        case "scan" | "repeat":
            yield from _joined_by_scan(eqn)
        case "dot_general":
            if len(operands) == 2:
                yield from _joined_by_dot(eqn)
        case "broadcast_in_dim":
            for d, place in enumerate(eqn.params["broadcast_dimensions"]):
                if operands[0].aval.shape[d] == out.aval.shape[place]:
                    yield (operands[0], d), (out, place)
        case "transpose":
            for place, d in enumerate(eqn.params["permutation"]):
                yield (operands[0], d), (out, place)
        case "squeeze":
            dropped = {d % len(operands[0].aval.shape) for d in eqn.params["dimensions"]}
            kept = (d for d in range(len(operands[0].aval.shape)) if d not in dropped)
            yield from (((operands[0], d), (out, place)) for place, d in enumerate(kept))
        case "reshape" if eqn.params["dimensions"] is None:
            yield from (((operands[0], d), (out, place)) for d, place in kept_by_reshape(operands[0], out))
        case "reshape":
            pass
        case name if "axes" in eqn.params and (name.startswith("reduce_") or name in ("argmax", "argmin")):
            kept = (d for d in range(len(operands[0].aval.shape)) if d not in eqn.params["axes"])
            yield from (((operands[0], d), (out, place)) for place, d in enumerate(kept))
        case _:
            for var in operands:
                same_rank = len(getattr(var.aval, "shape", ())) == len(out.aval.shape)
                for d, size in enumerate(var.aval.shape if same_rank else ()):
                    if size == out.aval.shape[d]:
                        yield (var, d), (out, d)


def kept_by_reshape(source: Any, out: Any) -> Iterator[tuple[int, int]]:
    """Dimensions that a reshape leaves as they are: the same size, with as many elements before them."""
    before, starts = 1, {}
    for d, size in enumerate(source.aval.shape):
        if size != 1:
            starts[before, size] = d
        before *= size
    before = 1
    for place, size in enumerate(out.aval.shape):
        if (before, size) in starts:
            yield starts[before, size], place
        before *= size


def _derived(eqn: Any) -> Iterator[tuple[Dim, tuple[Any, ...]]]:
    """Dimensions made from another one in a way that repeats: split by a reshape, lengthened by a pad."""
    operands = [v for v in eqn.invars if not isinstance(v, jex.Literal)]
    match eqn.primitive.name:
        case "pad" if operands:
            for d, config in enumerate(eqn.params["padding_config"]):
                if any(config):
                    yield (eqn.outvars[0], d), ("pad", (operands[0], d), config)
        case "reshape" if operands and eqn.params["dimensions"] is None:
            kept = {place for _, place in kept_by_reshape(operands[0], eqn.outvars[0])}
            before = 1
            for place, size in enumerate(eqn.outvars[0].aval.shape):
                first = next((d for d, s in enumerate(operands[0].aval.shape) if s > 1), None)
                if place not in kept and first is not None:
                    yield (eqn.outvars[0], place), ("split", (operands[0], first), before, size)
                before *= size
