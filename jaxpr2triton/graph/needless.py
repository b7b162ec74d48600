"""What may be computed although nobody asked for it: a branch that is not taken, where both are and one is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax.extend.core as jex
from jax.extend.core import primitives

from jaxpr2triton._compat import CALLS
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.graph import dynamic
from jaxpr2triton.ir.hashing import philox_p, threefry_p
from jaxpr2triton.ir.hoisting import is_scalar
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, calls_python, jaxprs_in
from jaxpr2triton.ir.members import member_p
from jaxpr2triton.ir.region import repeat_p
from jaxpr2triton.ir.rounded import rounded_p
from jaxpr2triton.ir.scanned_slopes import affine_scanned_p, scanned_parts_p
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS

_OURS = (repeat_p, rounded_p, member_p, threefry_p, philox_p, scanned_parts_p, affine_scanned_p)
OURS = {str(each.name) for each in _OURS}
PUBLIC = {str(value.name) for value in vars(primitives).values() if isinstance(value, jex.Primitive)}
OTHERS = {
    *("broadcast_to", "cholesky_update", "copy_p", "empty", "geqp3", "geqrf", "iota_2x32_shape", "layout_constraint"),
    *("lu_pivots_to_permutation", "one_minus_square", "optimization_barrier", "ormqr", "philox2x32", "philox4x32"),
    *("platform_index", "pvary", "ragged_dot_general", "random_clone", "random_unwrap", "random_wrap", "reshard"),
    *("scaled_dot", "scatter-sub", "split", "stack", "symmetric_product", "threefry4x32", "tile", "unstack"),
    "with_memory_space_constraint",
}
HARMLESS = frozenset({*PUBLIC, *OURS, *OTHERS, *CALLS, *TABLE, *dynamic.TABLE, *DECOMPOSITIONS})


BY_NATURE = "it stays with XLA by design"


def only_if_taken(jaxpr: Jaxpr) -> Iterator[tuple[Eqn, WhyNot]]:
    """The equations because of which a branch must not be computed unless it is taken; of arithmetic nobody notices.

    A `pure_callback` has no effect that JAX knows of, but calls Python, which may raise an error, and what a primitive
    does that no table knows is anybody's guess. Loops that may not end are another matter: they run where the branch is
    taken and nowhere else, in kernels too (normalize/loops/bodies.py).
    """
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if eqn.effects or name not in HARMLESS:
            what = "has side effects" if eqn.effects else "calls Python" if calls_python(eqn) else "is not known here"
            why = f"`{name}` in a branch {what}, so that only the branch that is taken may be computed"
            yield eqn, WhyNot(why, BY_NATURE if eqn.effects or calls_python(eqn) else "")
        else:
            for inner in jaxprs_in(eqn):
                yield from only_if_taken(inner)


def why_not_chosen(branches: Sequence[Closed]) -> WhyNot | None:
    """Why a `cond` or `switch` of these branches is more than a choice."""
    return next((reason for _, reason in all_why_not_chosen(branches)), None)


def all_why_not_chosen(branches: Sequence[Closed]) -> Iterator[tuple[Eqn | None, WhyNot]]:
    """All that makes it more than a choice, each with the equation in a branch that does, if it is one."""
    if not all(is_scalar(const) for branch in branches for const in branch.consts):
        yield None, WhyNot("a branch of the `cond` holds an array, which is not among its operands")
    for branch in branches:
        yield from only_if_taken(branch.jaxpr)
