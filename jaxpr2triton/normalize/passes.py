"""The passes, in the order in which they run, and why in this one.

`tests/normalize/test_order.py` holds what is said here: a pass that runs twice changes nothing the second time, what it
needs is there when it runs, and it may as well run before its neighbour, unless it needs what that one gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Flag, auto

from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.arrays.applied import apply_functions
from jaxpr2triton.normalize.arrays.associative import join_scans, join_short_scans
from jaxpr2triton.normalize.arrays.contractions import split_contractions, turn_contractions
from jaxpr2triton.normalize.arrays.indices import compose_indices
from jaxpr2triton.normalize.arrays.scatters import lower_places, lower_places_inside
from jaxpr2triton.normalize.arrays.sizes import fold_empty
from jaxpr2triton.normalize.arrays.structural import expand_structure
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.calls.identities import drop_identities
from jaxpr2triton.normalize.calls.inline import inline_calls
from jaxpr2triton.normalize.calls.reduced import reduce_in_branches
from jaxpr2triton.normalize.calls.sharing import share_equal
from jaxpr2triton.normalize.loops.ahead import make_ahead
from jaxpr2triton.normalize.loops.bodies import normalize_bodies
from jaxpr2triton.normalize.loops.carry import carry_reductions
from jaxpr2triton.normalize.loops.defer import defer_accumulation
from jaxpr2triton.normalize.loops.handed import hand_on
from jaxpr2triton.normalize.loops.invariant_motion import move_invariant_loops
from jaxpr2triton.normalize.loops.lanes import part_lanes
from jaxpr2triton.normalize.loops.last import carry_last
from jaxpr2triton.normalize.loops.logs_of_sums import join_logs
from jaxpr2triton.normalize.loops.parts import part_loops
from jaxpr2triton.normalize.loops.products_apart import products_apart
from jaxpr2triton.normalize.loops.prune import prune_scans
from jaxpr2triton.normalize.loops.recompute import recompute_stored
from jaxpr2triton.normalize.loops.specialise import specialise_loops
from jaxpr2triton.normalize.loops.stored import compute_in_tiles
from jaxpr2triton.normalize.loops.sums_apart import sums_apart
from jaxpr2triton.normalize.loops.sweep import sweep_affine
from jaxpr2triton.normalize.loops.unrolled import unroll_short
from jaxpr2triton.normalize.loops.written import write_loops
from jaxpr2triton.normalize.numbers.algebra import simplify_algebra
from jaxpr2triton.normalize.numbers.begun_sums import begin_sums
from jaxpr2triton.normalize.numbers.decompose import decompose, decompose_inside
from jaxpr2triton.normalize.numbers.folding import fold_constants
from jaxpr2triton.normalize.numbers.round_compared import round_compared
from jaxpr2triton.normalize.numbers.round_measured import round_measured
from jaxpr2triton.normalize.random.unkey import unkey, unkey_outside
from jaxpr2triton.normalize.rewrite import without_empty_shardings


class Fact(Flag):
    """What may be true of a program; it is if the pass that gives it would leave the program as it is."""

    NO_CALLS = auto()  # what is called is written out; what loops and branches run is not called
    LOOPS_WRITTEN = auto()  # no primitive is there that is written as a loop of others
    USUAL_SCATTERS = auto()  # a scatter does what its name says, and applies no function of the user's
    ROUNDED = auto()  # 16-bit values that lead to a choice are rounded after each step
    MEASURED = auto()  # what a program measures the rounding of is rounded by itself
    NO_KEYS = auto()  # random bits are integer arithmetic on words
    KNOWN_INSIDE = auto()  # what is known before the program runs is made where it is read
    KINDS_PARTED = auto()  # what is affine has a loop of its own beside what is not, where that pays
    STEPS_SWEPT = auto()  # what is affine in its value of the step before is combined in tiles, where that pays
    SUMS_CARRIED = auto()  # what is summed over the steps of a loop is carried by it, where that pays
    LAST_CARRIED = auto()  # so is what is read of its last step
    LIVE_SCANS = auto()  # scans carry, read and write what leads to an output
    PRODUCTS_APART = auto()  # what contracts in a loop waits for what it carries, and the other way round
    CORE_BODIES = auto()  # what loops run is normalised, and nothing is a `while` or `cond` that can be something else
    INVARIANT_LOOPS_BEFORE = auto()  # no step of a loop runs what is the same in each of them, where that pays
    HANDED_ON = auto()  # what a step computes of what it carries on, no next step computes again, where that pays
    SUMS_APART = auto()  # no scan sums for others alone what is spread out or keeps lanes together, where that pays
    LEAST_STORED = auto()  # a scan stores as little as the rest can be computed from
    SUMS_DEFERRED = auto()  # what a scan only ever adds to is summed after it, where that pays
    MADE_AHEAD = auto()  # what nothing else that is carried has a part in is made a step ahead, where that pays
    NOTHING_DEAD = auto()  # every equation leads to an output or has an effect
    SCANS_JOINED = auto()  # an associative scan is one equation for each result
    NO_IDENTITIES = auto()  # no equation returns its operand
    NO_COMPOUNDS = auto()  # no primitive is there that is written in terms of others
    PLAIN_STRUCTURE = auto()  # neither is one that means several moves
    PLACES = auto()  # gathers and scatters are left where places are computed, and there one at a time
    NOTHING_EMPTY = auto()  # nothing is computed of arrays without elements
    SUMS_BEGUN = auto()  # a sum that is zero is 0.0 where the program asks for its sign
    FOLDED = auto()  # a number that is known is a literal
    SIMPLE = auto()  # arithmetic changes something
    TURNED = auto()  # contractions have the order in which they are read
    COMPOSED = auto()  # two moves of one kind are one
    SHARED = auto()  # nothing is computed twice
    ASKED_WITHIN = auto()  # what only a branch of XLA's asks is reduced there


@dataclass(frozen=True)
class Pass:
    """A function from programs to programs, and its place in the order.

    What it needs it does not have to have: values are right in any order, but it would find less to do.
    """

    name: str  # of its file in tests/normalize/pairs
    run: Callable[[Closed], Closed]
    gives: Fact
    needs: Fact = Fact(0)


def _bodies(closed: Closed) -> Closed:
    return normalize_bodies(closed, _body)


def _apart(closed: Closed) -> Closed:
    return products_apart(closed, _plain)


def _parted(closed: Closed) -> Closed:
    return part_loops(closed, _plain)


def _swept(closed: Closed) -> Closed:
    swept = sweep_affine(closed, _plain)
    return swept if swept is closed else compute_in_tiles(swept)


def _plain(closed: Closed) -> Closed:
    return normalize(decompose_inside(inline_calls(closed)), inside=True)


def _moved(closed: Closed) -> Closed:
    """What only they have read, no step makes any more."""
    changed = move_invariant_loops(closed)
    return closed if changed is closed else normalize_bodies(changed, _plain)


def _recomputed(closed: Closed) -> Closed:
    """What is not stored any more, nobody reads beside the sums that it is part of."""
    changed = recompute_stored(closed)
    return closed if changed is closed else normalize_bodies(changed, _joined)


def _joined(closed: Closed) -> Closed:
    changed = join_logs(closed)
    return closed if changed is closed else normalize(changed, inside=True)


def _body(closed: Closed) -> Closed:
    plain = _plain(closed)
    changed = join_logs(split_contractions(unroll_short(plain)))
    return plain if changed is plain else normalize(changed, inside=True)


INLINE = Pass("inline_calls", inline_calls, gives=Fact.NO_CALLS)
APPLY = Pass("apply_functions", apply_functions, gives=Fact.USUAL_SCATTERS, needs=Fact.NO_CALLS)
ROUND = Pass("round_compared", round_compared, gives=Fact.ROUNDED, needs=Fact.NO_CALLS)
MEASURE = Pass("round_measured", round_measured, gives=Fact.MEASURED)
SPECIALISE = Pass("specialise_loops", specialise_loops, gives=Fact.KNOWN_INSIDE, needs=Fact.NO_CALLS)
DROP = Pass("drop_identities", drop_identities, gives=Fact.NO_IDENTITIES, needs=Fact.NO_CALLS)
PLACES = Pass("lower_places", lower_places, gives=Fact.PLACES, needs=Fact.NO_CALLS)
JOIN = Pass("join_scans", join_scans, gives=Fact.SCANS_JOINED, needs=Fact.NO_CALLS)
JOIN_INSIDE = replace(JOIN, run=join_short_scans)
PLACES_INSIDE = replace(PLACES, run=lower_places_inside)
CLEAN = Pass("remove_dead", remove_dead, gives=Fact.NOTHING_DEAD)

APART = Pass(  # before contractions over joined values become several
    "products_apart",
    _apart,
    gives=Fact.PRODUCTS_APART,
    needs=Fact.NO_CALLS,
)

PARTS = Pass("part_loops", _parted, gives=Fact.KINDS_PARTED, needs=Fact.NO_CALLS)

SWEEP = Pass(  # before a sum over its steps is one more value that a loop carries
    "sweep_affine",
    _swept,
    gives=Fact.STEPS_SWEPT,
    needs=Fact.NO_CALLS | Fact.KINDS_PARTED,
)

AHEAD = Pass("make_ahead", make_ahead, gives=Fact.MADE_AHEAD, needs=Fact.NO_CALLS)

LOOPS: tuple[Pass, ...] = (
    INLINE,
    APPLY,  # what it writes out may hold calls and loops
    Pass("write_loops", write_loops, gives=Fact.LOOPS_WRITTEN, needs=Fact.NO_CALLS),
    ROUND,
    MEASURE,  # before anything makes use of the laws of sums
    Pass("unkey", unkey, gives=Fact.NO_KEYS),  # bodies too, whose carried keys become words
    SPECIALISE,
    PARTS,
    SWEEP,
    Pass("carry_reductions", carry_reductions, gives=Fact.SUMS_CARRIED, needs=Fact.NO_CALLS),
    Pass("carry_last", carry_last, gives=Fact.LAST_CARRIED, needs=Fact.NO_CALLS),
    Pass(  # what a loop sums itself need not be written by it
        "prune_scans",
        prune_scans,
        gives=Fact.LIVE_SCANS,
        needs=Fact.NO_CALLS | Fact.KNOWN_INSIDE | Fact.SUMS_CARRIED | Fact.LAST_CARRIED,
    ),
    APART,
    Pass(  # all that is written into bodies is there
        "normalize_bodies",
        _bodies,
        gives=Fact.CORE_BODIES,
        needs=Fact.NO_CALLS
        | Fact.LOOPS_WRITTEN
        | Fact.NO_KEYS
        | Fact.KNOWN_INSIDE
        | Fact.SUMS_CARRIED
        | Fact.LIVE_SCANS,
    ),
    Pass(  # once it is known what steps run
        "move_invariant_loops", _moved, gives=Fact.INVARIANT_LOOPS_BEFORE, needs=Fact.NO_CALLS | Fact.CORE_BODIES
    ),
    Pass("hand_on", hand_on, gives=Fact.HANDED_ON, needs=Fact.NO_CALLS | Fact.CORE_BODIES),
    Pass("sums_apart", sums_apart, gives=Fact.SUMS_APART, needs=Fact.NO_CALLS | Fact.CORE_BODIES),
    Pass("recompute_stored", _recomputed, gives=Fact.LEAST_STORED, needs=Fact.NO_CALLS | Fact.CORE_BODIES),
    Pass("defer_accumulation", defer_accumulation, gives=Fact.SUMS_DEFERRED, needs=Fact.NO_CALLS | Fact.CORE_BODIES),
    AHEAD,
)

AROUND_LOOPS: tuple[Pass, ...] = (  # for programs whose loops stay with XLA
    INLINE,
    APPLY,
    ROUND,
    MEASURE,
    Pass("unkey_outside", unkey_outside, gives=Fact.NO_KEYS),
    SPECIALISE,
)

PASSES: tuple[Pass, ...] = (
    INLINE,  # also of what writing out loops and branches has written
    CLEAN,  # before work is spent on it
    JOIN,  # before anything else changes what JAX has written
    DROP,  # before they are decomposed: a reduce_precision that keeps everything
    Pass("decompose", decompose, gives=Fact.NO_COMPOUNDS, needs=Fact.NO_CALLS),
    Pass("expand_structure", expand_structure, gives=Fact.PLAIN_STRUCTURE, needs=Fact.NO_CALLS),
    PLACES,
    Pass("fold_empty", fold_empty, gives=Fact.NOTHING_EMPTY, needs=Fact.NO_CALLS),
    Pass("begin_sums", begin_sums, gives=Fact.SUMS_BEGUN, needs=Fact.NO_CALLS),
    Pass("fold_constants", fold_constants, gives=Fact.FOLDED, needs=Fact.NO_CALLS | Fact.PLAIN_STRUCTURE),
    Pass("simplify_algebra", simplify_algebra, gives=Fact.SIMPLE, needs=Fact.NO_CALLS | Fact.FOLDED),
    Pass("turn_contractions", turn_contractions, gives=Fact.TURNED, needs=Fact.NO_CALLS),
    Pass(  # once nothing stands between two moves any more
        "compose_indices",
        compose_indices,
        gives=Fact.COMPOSED,
        needs=Fact.NO_CALLS | Fact.NOTHING_EMPTY | Fact.FOLDED | Fact.SIMPLE,
    ),
    DROP,
    Pass(  # once what is equal is written alike
        "share_equal",
        share_equal,
        gives=Fact.SHARED,
        needs=Fact.NO_CALLS | Fact.NO_COMPOUNDS | Fact.PLAIN_STRUCTURE | Fact.PLACES | Fact.FOLDED | Fact.TURNED,
    ),
    Pass(  # once nobody else reads what is reduced
        "reduce_in_branches", reduce_in_branches, gives=Fact.ASKED_WITHIN, needs=Fact.NO_CALLS | Fact.SHARED
    ),
    CLEAN,
)
_OF_BODIES = {PLACES.name: PLACES_INSIDE, JOIN.name: JOIN_INSIDE}
INSIDE = tuple(_OF_BODIES.get(each.name, each) for each in PASSES)


def normalize(
    closed: Closed, loops: bool = True, inside: bool = False, apart: bool = False, exact_order: bool = False
) -> Closed:
    """The program as core primitives: no calls, no identities, nothing computed twice or for nobody.

        b = jit[name=relu jaxpr=...] a   →   b = max a 0.0

    Every pass keeps the values, the types of the outputs and the user's line of each equation. Programs come here after
    differentiation. Primitives without a rule stay as they are, and without `loops` so do loops.
    What is `inside` of a loop runs in each step. Contractions stay in loops unless they are to be `apart`, and steps
    are taken one after the other in an `exact_order`.
    """
    closed = without_empty_shardings(closed)
    left = {APART: not apart, PARTS: exact_order or inside, SWEEP: exact_order or inside, AHEAD: inside}
    for each in (*(LOOPS if loops else AROUND_LOOPS), *(INSIDE if inside else PASSES)):
        closed = closed if left.get(each) else each.run(closed)
    return part_lanes(closed, _body)  # once what is equal is seen to be, and nobody reads what nobody needs
