"""What an equation says about splitting its operands and results over devices, dimension by dimension.

    z:f32[8,4] = add x y                     x's 0, y's 0 and z's 0 are split together, and so are the 1s
    s:f32[4]   = reduce_sum[axes=(0,)] z     z's 1 and s's 0 together; z's 0 may be split, and s is a sum over devices
    r:f32[32]  = reshape x                   x's 0 and r's 0 together: a part of r is some rows of x; x's 1 is whole
    i:f32[8]   = sort k                      k's 0 has to be whole, and i's, which then lies as k does

What nobody knows has to be whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxpr2triton.ir.dtypes import threefry_keys
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Var
from jaxpr2triton.rules.dims import dims_of
from jaxpr2triton.rules.indexing import groups_of_reshape
from jaxpr2triton.rules.written import pools
from jaxpr2triton.rules.written.convolutions import CONVOLUTION

Dim = tuple[Var, int]
How = Literal["sum", "max", "min"]  # what makes one result of those of the devices

_HOW: dict[str, How] = {
    **dict.fromkeys(("reduce_sum", "dot_general", CONVOLUTION), "sum"),
    "reduce_max": "max",
    "reduce_min": "min",
}
_OF_TRUTHS: dict[str, How] = {"reduce_or": "max", "reduce_and": "min"}
_REARRANGED = ("sort", "rev", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")  # all along one dimension
_MATRICES = ("cholesky", "triangular_solve", "lu", "qr", "eigh", "eig", "svd", "householder_product", "geqrf", "schur")
_WRITTEN_OUT = ("threefry2x32", "iota_2x32_shape", "rng_bit_generator", "empty", "empty2", "tile")
CONSTRAINTS = ("sharding_constraint", "reshard")
CUT = ("random_bits", "random_split")  # made as a whole by every device, which takes its part


@dataclass(frozen=True)
class Walk:
    together: tuple[tuple[Dim, Dim], ...]
    whole: tuple[Dim, ...]  # two of them together lie alike before and after, though nothing is computed in parts
    met: tuple[Dim, ...] = ()  # dimensions that the equation sums or compares over
    how: How = "sum"


def walk_of(eqn: Eqn) -> Walk:
    """For equations that run no jaxpr of their own."""
    together, free = tuple(_together(eqn)), set(_fresh(eqn))
    met = tuple(_met(eqn))
    free.update(met, *together)
    every = [(var, d) for var in (*variables(eqn.invars), *eqn.outvars) for d in range(len(shape_of(var)))]
    whole = tuple(dim for dim in every if dim not in free)
    how = {**_HOW, **_OF_TRUTHS}.get(eqn.primitive.name, "sum")
    return Walk((*together, *_contracted(eqn), *_lying_alike(eqn)), whole, met, how)


def is_known(eqn: Eqn) -> bool:
    """Whether an equation may be in a kernel, or is known to go along with those that are."""
    name = eqn.primitive.name
    return name in _PAIRED or name in _WRITTEN_OUT or bool(eqn.outvars) and dims_of(eqn) is not None


def shape_of(var: Atom) -> tuple[int, ...]:
    return tuple(getattr(var.aval, "shape", ()))


def _together(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    name = eqn.primitive.name
    if name in _PAIRED:
        yield from _PAIRED[name](eqn)
        return
    if name == "reshape":
        yield from _leading_of_groups(eqn)
    dims = dims_of(eqn)
    for kept in dims.kept if dims else ():
        operand = eqn.invars[kept.operand]
        if kept.exact and isinstance(operand, Var):
            yield (operand, kept.dim), (eqn.outvars[0], kept.place)


def _leading_of_groups(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """Of dimensions that a reshape joins or cuts the leading ones: a part of one is whole rows of the other."""
    operand, out = eqn.invars[0], eqn.outvars[0]
    if eqn.params["dimensions"] is None and isinstance(operand, Var) and 0 not in shape_of(operand):
        shape = shape_of(operand)
        for dims, places in groups_of_reshape([d for d, size in enumerate(shape) if size != 1], shape, shape_of(out)):
            yield (operand, dims[0]), (out, places[0])


def _lying_alike(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    if eqn.primitive.name in _REARRANGED:
        yield from _but(eqn, ())


def _but(eqn: Eqn, gone: Sequence[int]) -> Iterator[tuple[Dim, Dim]]:
    """All operands and results have the same dimensions, but for these."""
    first, *others = (*eqn.outvars, *(var for var in variables(eqn.invars) if shape_of(var)))
    for var in others:
        yield from (((var, d), (first, d)) for d in range(len(shape_of(var))) if d not in gone)


def _sorted(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    last = len(shape_of(eqn.outvars[0])) - 1
    yield from _but(eqn, [eqn.params.get("dimension", eqn.params.get("axis", last))])


def _one_by_one(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    for atom, out in zip(eqn.invars, eqn.outvars):
        if isinstance(atom, Var):
            yield from (((atom, d), (out, d)) for d in range(len(shape_of(out))))


def _each_of_keys(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """What each key makes is its own, but of kinds that draw for a batch with the first key of it."""
    if all(var.aval.dtype == threefry_keys() for var in variables(eqn.invars)):
        yield from _leading(eqn)


def _leading(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """The batch of a decomposition of matrices, and of what is made of keys."""
    operands = variables(eqn.invars)
    apart = 2 if eqn.primitive.name in _MATRICES else 0
    count = min((len(shape_of(var)) - apart for var in operands), default=0)
    for var in (*operands[1:], *eqn.outvars):
        yield from (((var, d), (operands[0], d)) for d in range(count) if shape_of(var)[d] == shape_of(operands[0])[d])


def _cut_and_glued(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """The parts have a dimension less than the whole, or a shorter one."""
    axis, one_less = eqn.params["axis"], eqn.primitive.name != "split"
    many: Sequence[Atom]
    many, whole = (eqn.invars, eqn.outvars[0]) if eqn.primitive.name == "stack" else (eqn.outvars, eqn.invars[0])
    if not isinstance(whole, Var):
        return
    for part in variables(many):
        rest = [d for d in range(len(shape_of(whole))) if d != axis]
        yield from (((part, n if one_less else d), (whole, d)) for n, d in enumerate(rest))


def _left(eqn: Eqn, gone: Sequence[int]) -> Iterator[tuple[Dim, Dim]]:
    """Of operands and results of one reduction what it leaves; one device has all that a function combines."""
    first, *others = eqn.outvars
    kept = [d for d in range(len(eqn.invars[0].aval.shape)) if d not in gone]
    for operand in variables(eqn.invars[: len(eqn.outvars)]):
        yield from (((operand, d), (first, place)) for place, d in enumerate(kept))
    for other in others:
        yield from (((other, d), (first, d)) for d in range(len(kept)))


def _full_slices(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """A dimension that is taken as a whole can only be taken from its start."""
    operand, out = eqn.invars[0], eqn.outvars[0]
    pieces = [operand] if eqn.primitive.name == "dynamic_slice" else list(eqn.invars[:2])
    sizes = [piece.aval.shape for piece in (*pieces, out)]
    for d, size in enumerate(out.aval.shape):
        if all(other[d] == size for other in sizes):
            yield from (((piece, d), (out, d)) for piece in variables(pieces))


def _gathered(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    numbers, (operand, indices), out = eqn.params["dimension_numbers"], eqn.invars, eqn.outvars[0]
    shape = operand.aval.shape
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [d for d in range(len(shape)) if d not in gone]
    for d, place in zip(kept, numbers.offset_dims):
        if eqn.params["slice_sizes"][d] == shape[d] and d not in numbers.start_index_map and isinstance(operand, Var):
            yield (operand, d), (out, place)
    rows = [place for place in range(len(shape_of(out))) if place not in numbers.offset_dims]
    if isinstance(indices, Var):
        yield from (((indices, d), (out, place)) for d, place in enumerate(rows))
    for d, batch in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims):
        if isinstance(operand, Var):
            yield (operand, d), (out, rows[batch])


def _scattered(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """Along batching dimensions, and along windows as large as what is written to."""
    numbers, (operand, indices, updates), out = eqn.params["dimension_numbers"], eqn.invars, eqn.outvars[0]
    rows = [d for d in range(len(updates.aval.shape)) if d not in numbers.update_window_dims]
    pairs: list[tuple[tuple[Atom, int], tuple[Atom, int]]] = []
    for d, batch in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims):
        pairs += [((operand, d), (out, d)), ((indices, batch), (out, d)), ((updates, rows[batch]), (out, d))]
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    windows = [d for d in range(len(shape_of(out))) if d not in gone]
    for d, place in zip(windows, numbers.update_window_dims):
        whole = updates.aval.shape[place] == out.aval.shape[d]
        if whole and d not in numbers.scatter_dims_to_operand_dims:
            pairs += [((operand, d), (out, d)), ((updates, place), (out, d))]
    if eqn.primitive.name == "scatter-add":
        pairs += [((indices, d), (updates, row)) for d, row in enumerate(rows)]
    for (one, d), (other, e) in pairs:
        if isinstance(one, Var) and isinstance(other, Var):
            yield (one, d), (other, e)


def _leading_of_result(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """What the words of keys become: they are the last dimension."""
    for words in variables(eqn.invars):
        yield from (((words, d), (eqn.outvars[0], d)) for d in range(len(shape_of(eqn.outvars[0]))))


def _beside_windows(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions along which every element is a window."""
    params = eqn.params
    every = zip(params["window_dimensions"], params["window_strides"], params["padding"])
    moved = [d for d, (size, stride, around) in enumerate(every) if size > 1 or stride > 1 or any(around)]
    moved += [d for d, step in enumerate(params.get("base_dilation", ())) if step > 1]
    yield from _but(eqn, moved)


def _beside_kernels(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    """A convolution's images, and what it makes of each; of groups neither is a dimension by itself."""
    numbers, (image, kernel), out = eqn.params["dimension_numbers"], eqn.invars, eqn.outvars[0]
    if isinstance(image, Var) and eqn.params["batch_group_count"] == 1:
        yield (image, numbers.lhs_spec[0]), (out, numbers.out_spec[0])
    if isinstance(kernel, Var) and eqn.params["batch_group_count"] == eqn.params["feature_group_count"] == 1:
        yield (kernel, numbers.rhs_spec[0]), (out, numbers.out_spec[1])


def _summed_channels(eqn: Eqn) -> list[tuple[Atom, int]]:
    """The dimension of the image and that of the kernel, if there are no groups."""
    numbers = eqn.params["dimension_numbers"]
    if eqn.params["batch_group_count"] != 1 or eqn.params["feature_group_count"] != 1:
        return []
    return list(zip(eqn.invars, (numbers.lhs_spec[1], numbers.rhs_spec[1])))


_PAIRED: dict[str, Callable[[Eqn], Iterator[tuple[Dim, Dim]]]] = {
    "reduce": lambda eqn: _left(eqn, eqn.params["dimensions"]),
    **dict.fromkeys(_MATRICES, _leading),
    **dict.fromkeys(("random_bits", "random_split"), _each_of_keys),
    "random_unwrap": _leading,
    **dict.fromkeys(("optimization_barrier", "name", *CONSTRAINTS), _one_by_one),
    **dict.fromkeys(("stack", "unstack", "split"), _cut_and_glued),
    **dict.fromkeys(("random_seed", "random_fold_in", "random_clone"), lambda eqn: _but(eqn, ())),
    "random_wrap": _leading_of_result,
    "lu_pivots_to_permutation": lambda eqn: _but(eqn, [len(shape_of(eqn.outvars[0])) - 1]),
    # its row says nothing of operands without elements
    "concatenate": lambda eqn: _but(eqn, [eqn.params["dimension"]]),
    "sort": _sorted,
    "top_k": _sorted,
    **dict.fromkeys(pools.TABLE, _beside_windows),
    CONVOLUTION: _beside_kernels,
    "dynamic_slice": _full_slices,
    "dynamic_update_slice": _full_slices,
    "gather": _gathered,
    **dict.fromkeys(("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"), _scattered),
}


def _fresh(eqn: Eqn) -> Iterator[Dim]:
    """Dimensions of the result that are made here, and can be made in parts."""
    if eqn.primitive.name in CUT:
        keys = len(eqn.invars[0].aval.shape)
        yield from ((eqn.outvars[0], place) for place in range(keys, len(shape_of(eqn.outvars[0]))))
        return
    dims = dims_of(eqn) if eqn.primitive.name in ("broadcast_in_dim", "iota") else None
    yield from ((eqn.outvars[0], place) for place in (dims.fresh if dims else ()))


def _met(eqn: Eqn) -> Iterator[Dim]:
    name = eqn.primitive.name
    if name == "dot_general":
        for operand, summed in zip(eqn.invars, eqn.params["dimension_numbers"][0]):
            yield from ((operand, d) for d in summed if isinstance(operand, Var))
    elif name == CONVOLUTION:
        yield from ((operand, d) for operand, d in _summed_channels(eqn) if isinstance(operand, Var))
    elif name == "scatter-add":  # each row is added to what it is written to
        numbers, updates = eqn.params["dimension_numbers"], eqn.invars[2]
        rows = [d for d in range(len(updates.aval.shape)) if d not in numbers.update_window_dims]
        batches = [rows[batch] for batch in numbers.scatter_indices_batching_dims]
        yield from ((updates, d) for d in rows if d not in batches and isinstance(updates, Var))
    elif _is_met(eqn) and isinstance(operand := eqn.invars[0], Var):
        yield from ((operand, d) for d in eqn.params["axes"])


def _is_met(eqn: Eqn) -> bool:
    """Bits of numbers are not compared."""
    return eqn.primitive.name in _HOW or eqn.primitive.name in _OF_TRUTHS and eqn.invars[0].aval.dtype == np.bool_


def _contracted(eqn: Eqn) -> Iterator[tuple[Dim, Dim]]:
    if len(operands := variables(eqn.invars)) != 2:
        return
    left, right = operands
    if eqn.primitive.name == "dot_general":
        yield from (((left, a), (right, b)) for a, b in zip(*eqn.params["dimension_numbers"][0]))
    elif eqn.primitive.name == CONVOLUTION and (summed := _summed_channels(eqn)):
        (_, a), (_, b) = summed
        yield (left, a), (right, b)
