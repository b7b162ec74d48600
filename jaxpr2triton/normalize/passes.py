"""The passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

import jax.extend.core as jex

from jaxpr2triton.normalize.arrays.applied import apply_functions
from jaxpr2triton.normalize.arrays.contractions import split_contractions, turn_contractions
from jaxpr2triton.normalize.arrays.indices import compose_indices
from jaxpr2triton.normalize.arrays.scatters import lower_places
from jaxpr2triton.normalize.arrays.sizes import fold_empty
from jaxpr2triton.normalize.arrays.structural import expand_structure
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.calls.identities import drop_identities
from jaxpr2triton.normalize.calls.inline import inline_calls
from jaxpr2triton.normalize.calls.sharing import share_equal
from jaxpr2triton.normalize.loops.bodies import normalize_bodies
from jaxpr2triton.normalize.loops.carry import carry_reductions
from jaxpr2triton.normalize.loops.defer import defer_accumulation
from jaxpr2triton.normalize.loops.prune import prune_scans
from jaxpr2triton.normalize.loops.recompute import recompute_stored
from jaxpr2triton.normalize.loops.specialise import specialise_loops
from jaxpr2triton.normalize.numbers.algebra import simplify_algebra
from jaxpr2triton.normalize.numbers.decompose import decompose, decompose_inside
from jaxpr2triton.normalize.numbers.folding import fold_constants
from jaxpr2triton.normalize.numbers.round_compared import round_compared
from jaxpr2triton.normalize.random.unkey import unkey, unkey_outside
from jaxpr2triton.normalize.rewrite import without_empty_shardings

Pass = Callable[[jex.ClosedJaxpr], jex.ClosedJaxpr]


def _bodies(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    return normalize_bodies(closed, _body)


def _body(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    plain = normalize(decompose_inside(inline_calls(closed)))
    split = split_contractions(plain)
    return plain if split is plain else normalize(split)


LOOPS: tuple[Pass, ...] = (
    inline_calls,
    apply_functions,  # which may hold calls and loops
    round_compared,
    unkey,  # bodies too, whose carried keys become words
    specialise_loops,
    carry_reductions,
    prune_scans,
    _bodies,
    recompute_stored,
    defer_accumulation,
)

AROUND_LOOPS: tuple[Pass, ...] = (  # for programs whose loops stay with XLA
    inline_calls,
    apply_functions,
    round_compared,
    unkey_outside,
    specialise_loops,
)

PASSES: tuple[Pass, ...] = (
    inline_calls,  # also of what writing out loops and branches has written
    remove_dead,  # before work is spent on it
    drop_identities,  # before they are decomposed: a reduce_precision that keeps everything
    decompose,
    expand_structure,
    lower_places,
    fold_empty,
    fold_constants,
    simplify_algebra,
    turn_contractions,
    compose_indices,
    drop_identities,
    share_equal,
    remove_dead,
)


def normalize(closed: jex.ClosedJaxpr, loops: bool = True) -> jex.ClosedJaxpr:
    """The program as core primitives: no calls, no identities, nothing computed twice or for nobody.

        b = jit[name=relu jaxpr=...] a   →   b = max a 0.0

    Every pass keeps the values, the types of the outputs and the user's line of each equation. Programs come here after
    differentiation. Primitives without a rule stay as they are, and without `loops` so do loops.
    """
    closed = without_empty_shardings(closed)
    for each in (*(LOOPS if loops else AROUND_LOOPS), *PASSES):
        closed = each(closed)
    return closed
