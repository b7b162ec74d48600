"""What a scan carries, reads or writes for nobody → nothing; what it carries without changing it → constants.

Arrays without elements are such constants, whatever makes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn
from jaxpr2triton.ir.scans import body_of
from jaxpr2triton.normalize.calls.dead import live_part
from jaxpr2triton.normalize.loops.distribute import Stage, distribute
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, is_plain, primitive_names, rewrite


def prune_scans(closed: Closed) -> Closed:
    """Leave out of a scan what leads to no output that anybody reads.

        a, b, c, ys = scan (λ a b c x. (a + c * x, b * a, c, sin b)) a0 b0 c0 xs   in (a, c)
            →    a = scan (λ a x. (a + c0 * x,)) a0 xs;  c = c0   in (a, c)

    A carry stays if a live one needs it, or a live `ys`; that is JAX's own dead code elimination, of which nothing is
    left alone but effects.
    """
    if "scan" not in primitive_names(closed):
        return closed
    return live_part(rewrite(closed, _known))


def _known(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    """What is no result of an equation: what has no elements, and what a scan does not change."""
    eqn: Eqn = node.equation
    if node.effects:
        return None
    if evaluate.variables(eqn.invars) and eqn.outvars and all(map(_is_empty, eqn.outvars)):
        return [lax.full(aval.shape, 0, aval.dtype) for aval in node.out_avals]
    if node.name != "scan":
        return None
    body = body_of(node.params)
    same = {n for n, pair in enumerate(zip(body.befores, body.afters)) if pair[0] is pair[1] or _is_empty(pair[0])}
    written = [y for y, result in zip(body.ys, eqn.outvars[body.num_carry :]) if not _is_empty(result)]
    if not same and len(written) == len(body.ys):
        return None
    moving = tuple(place for place in body.places if place not in same)
    return distribute(node, body, [Stage(moving, tuple(dict.fromkeys(evaluate.variables(written))))], same)


def _is_empty(atom: Atom) -> bool:
    return 0 in getattr(atom.aval, "shape", ()) and is_plain(atom.aval.dtype)
