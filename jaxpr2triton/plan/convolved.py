"""Which convolutions XLA's library computes, and which a kernel does, weighed as products are in `plan/library.py`.

    y = conv x w     x: bf16[64,56,56,128] w: bf16[3,3,128,128]     79 µs by a library, 98 µs in a kernel, nothing saved
    z = max_pool (tanh y)     x: f32[128,28,28,1] w: f32[5,5,1,6]      3 µs either way, and a launch and a pass saved

A library has units that multiply matrices, for 8 channels and 8 results at once, and computes with what it has to fill
up as well: of few channels, or of one for each group, as a kernel need not. Only what is computed of the result is
saved: what a convolution reads is read again for each tap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir import build
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.ir.jaxprs import Aval, Closed, Eqn, nbytes_of
from jaxpr2triton.ir.region import library_convolution_p
from jaxpr2triton.plan.library import ASKED_FOR, TAKES, Around, Estimate, rate_of
from jaxpr2triton.plan.rounds import named
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.products import LEAST
from jaxpr2triton.rules.written.convolutions import CONVOLUTION, is_term_by_term, sizes_of


def convolutions_left(closed: Closed, contractions: str, policy: Policy) -> tuple[Closed, tuple[str, ...]]:
    """The program with those convolutions marked that a library computes, and a sentence for each of the others."""
    if contractions == "triton" or not any(map(_may_be_ours, closed.jaxpr.eqns)):
        return closed, ()
    around, told = Around(closed.jaxpr, policy), []

    def marked(eqn: Eqn) -> Eqn:
        if not _may_be_ours(eqn):
            return eqn
        found = None if contractions == "xla" else _estimate(eqn, around, policy)
        if found is not None and found.is_ours:
            told.append(f"{named(eqn.outvars[0], eqn)} is convolved in a kernel: {found}")
            return eqn
        why = ASKED_FOR if found is None else WhyNot(str(found), TAKES)
        return eqn.replace(primitive=library_convolution_p, params={**eqn.params, "why": why})

    eqns = [marked(eqn) for eqn in closed.jaxpr.eqns]
    return build.with_equations(closed, eqns), tuple(told)


def remain(closed: Closed) -> bool:
    """Whether there are convolutions for kernels."""
    return any(map(_may_be_ours, closed.jaxpr.eqns))


def _may_be_ours(eqn: Eqn) -> bool:
    if eqn.primitive.name != CONVOLUTION or eqn.primitive is library_convolution_p:
        return False
    return not any(unsupported(atom.aval.dtype) for atom in (*eqn.invars, *eqn.outvars))


def _estimate(eqn: Eqn, around: Around, policy: Policy) -> Estimate:
    products, target = policy.products, policy.target
    arrays, made = [atom.aval for atom in eqn.invars], eqn.outvars[0].aval
    moved = target.moving(nbytes_of(*arrays, made))
    sizes = sizes_of(arrays[1].shape, eqn.params)
    rate, is_exact = rate_of(eqn, policy)
    terms = made.size * sizes.terms
    whole = terms / math.prod(eqn.params["lhs_dilation"])  # a library leaves out the zeros between elements

    def time(terms: float, rate: float, share: float) -> float:
        return terms / (rate * target.processors * target.clock * 1000) / share

    units = 1.0 if is_exact else _filled(sizes.channels, 8) * _filled(sizes.results, 8)
    library = time(whole * units, rate, products.library)
    if is_term_by_term(arrays[1].shape, made.dtype, eqn.params):
        own = time(terms, target.cores, products.library)
    else:
        longer = products.odd if _is_odd(arrays[0], eqn.params["dimension_numbers"].lhs_spec[2:]) else 1
        share = products.library if is_exact else products.own_windows
        own = longer * time(terms * _filled(sizes.results, LEAST), rate, share)
    saved = 0.0
    if around.goes_on(eqn):
        saved = target.moving(2 * nbytes_of(made)) + products.launch_after_gap_us
    return Estimate(max(moved, library), max(moved, own), saved, products.launch_after_gap_us)


def _filled(size: int, unit: int) -> float:
    """How many times more are computed where so many are at once."""
    return -(-size // unit) * unit / size


def _is_odd(x: Aval, places: Sequence[int]) -> bool:
    """Whether rows of 16 bits are along a window, or begin where nothing wider can be loaded."""
    return x.dtype.itemsize == 2 and (len(x.shape) - 1 in places or x.shape[-1] % 8 > 0)
