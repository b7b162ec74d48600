"""Primitives that no table knows → calls of their implementations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax.extend.core as jex
from jax.interpreters import mlir

from jaxpr2triton._compat import CALLS, is_familiar
from jaxpr2triton.graph import dynamic
from jaxpr2triton.graph.needless import OURS
from jaxpr2triton.ir import build
from jaxpr2triton.ir.foreign import implementation
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.arrays.scatters import WRITES
from jaxpr2triton.normalize.arrays.structural import STRUCTURAL
from jaxpr2triton.normalize.calls.identities import IDENTITIES
from jaxpr2triton.normalize.random.key_loops import LOOPS
from jaxpr2triton.normalize.random.unkey import RANDOM
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.written import linalg, pools, ranks
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS

KNOWN = frozenset(
    {
        *(*TABLE, *DECOMPOSITIONS, *STRUCTURAL, *IDENTITIES, *RANDOM, *WRITES, *LOOPS, *CALLS, *OURS, "iota"),
        *(*dynamic.TABLE, *linalg.TABLE, *pools.TABLE, *ranks.TABLE),
    }
)


def call_implementations(closed: Closed, but: Sequence[str] = ()) -> Closed:
    """Call the JAX function behind each primitive that no table knows, in bodies and branches too.

        b = double a   →   b = closed_call[call_jaxpr={ lambda ; c. let d = mul c 2.0 in (d,) }] a

    That is right only where nothing is differentiated, batched or transposed any more: until then a primitive has rules
    of its own for that, which need not be those of its implementation. Left alone: primitives without one that can be
    traced. If they are called what one of JAX's is called, they are given another name, so that no table takes them for
    that one. Left alone, too: what is called like one of `but`.
    """
    changed: Closed = _inside(closed, False, but, {})
    return changed


def is_foreign(eqn: Any) -> bool:
    """Whether no table knows the primitive of an equation."""
    return eqn.primitive.name not in KNOWN or not is_familiar(eqn.primitive)


def _inside(jaxpr: Any, in_loop: bool, but: Sequence[str], done: dict[Any, Any]) -> Any:
    """The same jaxpr, or a new one; one that is the body of several equations stays so."""
    if (jaxpr, in_loop) not in done:
        eqns = getattr(jaxpr, "jaxpr", jaxpr).eqns
        new = [_written(eqn, in_loop, but, done) for eqn in eqns]
        same = all(now is eqn for now, eqn in zip(new, eqns))
        done[jaxpr, in_loop] = jaxpr if same else build.with_equations(jaxpr, new)
    return done[jaxpr, in_loop]


def _written(eqn: Any, in_loop: bool, but: Sequence[str], done: dict[Any, Any]) -> Any:
    if eqn.primitive.name in but:
        return eqn
    if not is_foreign(eqn):
        inner = in_loop or eqn.primitive.name in ("scan", "while")
        return build.with_bodies(eqn, lambda body: _inside(body, inner, but, done))
    found = implementation(eqn, in_loop)
    if isinstance(found, Closed):
        return build.calling(eqn, _inside(found, in_loop, but, done))
    if is_familiar(eqn.primitive) or eqn.primitive.name not in KNOWN or eqn.effects:
        return eqn
    return eqn.replace(primitive=_by_another_name(eqn.primitive))


@lru_cache(maxsize=64)
def _by_another_name(primitive: Any) -> Any:
    """A primitive that runs this one."""
    other = jex.Primitive(f"{primitive.name} (not JAX's)")
    other.multiple_results = primitive.multiple_results
    other.def_abstract_eval(lambda *avals, **params: primitive.abstract_eval(*avals, **params)[0])
    other.def_impl(primitive.bind)
    mlir.register_lowering(other, mlir.lower_fun(primitive.bind, primitive.multiple_results))
    return other
