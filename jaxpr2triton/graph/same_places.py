"""Whether what is made of a value has its elements at the same places, equation by equation.

    m[b,h] = reduce_max s[b,h,k];  d = sub s (broadcast_in_dim m);  e = exp d     d, e: as s; of m: b, h, none

Each dimension of a result goes along one of the value, or none. So it is through what is computed element by element,
and through what turns dimensions, adds them or leaves out those of one element; whatever else there is may be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Var
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE

Dims = tuple[int | None, ...]
Summed = tuple[tuple[int, ...], tuple[int, ...]]  # the shape of what is summed, and along which of its dimensions
EXTREMES = ("reduce_max", "reduce_min")
REDUCED = (*EXTREMES, "reduce_sum")
ONE_BY_ONE = frozenset({"select_n", "convert_element_type", "copy", "stop_gradient"})


def reduced_of(eqn: Eqn) -> Summed:
    return tuple(eqn.invars[0].aval.shape), tuple(eqn.params["axes"])


def reduces_alike(eqn: Eqn, other: Eqn) -> bool:
    """Whether both reduce as much, along the same dimensions."""
    return eqn.primitive.name in REDUCED and reduced_of(eqn) == reduced_of(other)


def dims_along(eqns: Sequence[Eqn], value: Var) -> Mapping[Var, Dims | None]:
    """Of all that is made of a value: along which of its dimensions each of theirs goes; None where that is unknown."""
    found: dict[Var, Dims | None] = {value: tuple(range(len(value.aval.shape)))}
    for eqn in eqns:
        read = [var for var in variables(eqn.invars) if var in found]
        if read and value not in eqn.outvars:
            known = [dims for var in read if (dims := found[var]) is not None]
            through = _through(eqn, read, known) if len(known) == len(read) else None
            found.update(dict.fromkeys(eqn.outvars, through))
    return found


def is_at(dims: Dims | None, atom: Atom, wanted: Sequence[int | None]) -> bool:
    """Whether these are the dimensions that are wanted, but for those of one element."""
    return dims is not None and all(
        one == other for one, other, size in zip(dims, wanted, atom.aval.shape, strict=True) if size > 1
    )


def _through(eqn: Eqn, read: Sequence[Var], dims: Sequence[Dims]) -> Dims | None:
    name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
    if name in ONE_BY_ONE or isinstance(TABLE.get(name), Pointwise):
        return _of_all(read, dims, shape)
    if len(read) > 1 or len(eqn.outvars) > 1:
        return None
    (var,), (known,) = read, dims
    match name:
        case "transpose":
            return tuple(known[d] for d in eqn.params["permutation"])
        case "broadcast_in_dim":
            places = {d: n for n, d in enumerate(eqn.params["broadcast_dimensions"])}
            sizes = {d: var.aval.shape[n] for d, n in places.items()}
            return tuple(known[places[d]] if sizes.get(d) == size else None for d, size in enumerate(shape))
        case "reshape" | "squeeze":
            return _without_ones(var.aval.shape, known, shape)
        case _:
            return None


def _of_all(read: Sequence[Var], dims: Sequence[Dims], shape: Sequence[int]) -> Dims | None:
    """The dimensions of the first one, if those of all others are the same."""
    alike = all(var.aval.shape == shape and is_at(each, var, dims[0]) for var, each in zip(read, dims))
    return dims[0] if alike else None


def _without_ones(before: Sequence[int], dims: Dims, after: Sequence[int]) -> Dims | None:
    kept = [d for d, size in zip(dims, before) if size > 1]
    if [size for size in before if size > 1] != [size for size in after if size > 1]:
        return None
    rest = iter(kept)
    return tuple(next(rest) if size > 1 else None for size in after)
