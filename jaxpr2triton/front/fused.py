"""The one primitive: a program that runs as kernels on a GPU and as plain XLA elsewhere.

It carries a jaxpr and is compiled only when it is lowered (`lowering.py`), after every transformation (`rules.py`):
`vmap(grad(fuse(f)))` is planned as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
from jax.interpreters import xla

from jaxpr2triton._compat import stay_in_place
from jaxpr2triton.autodiff.tracing import flatten
from jaxpr2triton.front.options import Settings
from jaxpr2triton.front.whole import no_numbers, side_effects, symbolic_shape
from jaxpr2triton.ir.tracing import run

fused_p = jex.Primitive("fused")
fused_p.multiple_results = True


def bind(jaxpr: Any, args: Sequence[Any], name: str, settings: Settings) -> list[Any]:
    """The outputs of a program; one with references, named axes or symbolic shapes is run equation by equation."""
    if not stay_in_place(jaxpr.effects):
        if settings.refuses_xla:
            raise side_effects(jaxpr)
        return run(jaxpr, *args)
    if (symbolic := symbolic_shape(jaxpr)) is not None:
        if settings.refuses_xla:
            raise no_numbers(name, symbolic)
        return run(jaxpr, *args)
    return fused_p.bind(*args, jaxpr=jaxpr, name=name, **vars(settings))


@fused_p.def_impl
def _impl(*args: Any, jaxpr: Any, **settings: Any) -> list[Any]:
    try:
        return list(xla.apply_primitive(fused_p, *args, jaxpr=jaxpr, **settings))
    except FloatingPointError:  # jax_debug_nans: the equation that made the NaN says so itself, as in `jax.jit`
        run(flatten(jaxpr), *args)
        raise


@fused_p.def_effectful_abstract_eval
def _abstract_eval(*args: Any, jaxpr: Any, **settings: Any) -> tuple[list[Any], Any]:
    """Collectives over the axis of a `vmap` around are effects until that batches them, as they are of JAX's own."""
    return list(jaxpr.out_avals), jaxpr.effects
