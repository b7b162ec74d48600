"""The primitives that only this compiler binds: a region is one kernel, a boundary a value that must be in memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.core as jex
from jax.interpreters import mlir

region_p = jex.Primitive("region")
region_p.multiple_results = True


@region_p.def_impl
def _region_impl(*args: Any, jaxpr: Any, name: str) -> list[Any]:
    return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)


@region_p.def_abstract_eval
def _region_avals(*args: Any, jaxpr: Any, name: str) -> list[Any]:
    return list(jaxpr.out_avals)


mlir.register_lowering(region_p, mlir.lower_fun(_region_impl, multiple_results=True))

boundary_p = jex.Primitive("boundary")


@boundary_p.def_impl
def _boundary_impl(x: Any) -> Any:
    return x


@boundary_p.def_abstract_eval
def _boundary_aval(x: Any) -> Any:
    return x


mlir.register_lowering(boundary_p, lambda ctx, x: [x])
