"""The primitives that only this compiler binds: a region is one kernel, a boundary a value that must be in memory …"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import mlir

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, nbytes
from jaxpr2triton.ir.once import once

region_p = jex.Primitive("region")
region_p.multiple_results = True


@region_p.def_impl
def _region_impl(*args: Any, jaxpr: Any, name: str, apart: Any = None) -> list[Any]:
    return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)


@region_p.def_abstract_eval
def _region_avals(*args: Any, jaxpr: Any, name: str, apart: Any = None) -> list[Any]:
    return list(jaxpr.out_avals)


mlir.register_lowering(region_p, mlir.lower_fun(_region_impl, multiple_results=True))

# A `while` in the form that kernels have: the first carried value says whether to go on, and a step computes it anew.
# Where it has an axis, each lane goes on by itself, and the loop ends when none does. One that is `seldom` is there for
# what hardly ever happens.
repeat_p = jex.Primitive("repeat")
repeat_p.multiple_results = True


@repeat_p.def_impl
def _repeat_impl(*args: Any, jaxpr: Any, num_consts: int, seldom: bool = False) -> list[Any]:
    consts = args[:num_consts]

    def step(carried: list[Any]) -> list[Any]:
        return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *consts, *carried)

    return jax.lax.while_loop(lambda carried: jnp.any(carried[0]), step, list(args[num_consts:]))


@repeat_p.def_abstract_eval
def _repeat_avals(*args: Any, jaxpr: Any, num_consts: int, seldom: bool = False) -> list[Any]:
    return list(jaxpr.out_avals)


mlir.register_lowering(repeat_p, mlir.lower_fun(_repeat_impl, multiple_results=True))

# The partial results of a reduction, one for each chunk along `dim`.
boundary_p = jex.Primitive("boundary")


@boundary_p.def_impl
def _boundary_impl(x: Any, *, dim: int) -> Any:
    return x


@boundary_p.def_abstract_eval
def _boundary_aval(x: Any, *, dim: int) -> Any:
    return x


mlir.register_lowering(boundary_p, lambda ctx, x, dim: [x])

# What a kernel writes into a buffer of its own, all along `dims`, before it reads any of it.
keep_p = jex.Primitive("keep")


@keep_p.def_impl
def _keep_impl(x: Any, *, dims: tuple[int, ...]) -> Any:
    return x


@keep_p.def_abstract_eval
def _keep_aval(x: Any, *, dims: tuple[int, ...]) -> Any:
    return x


mlir.register_lowering(keep_p, lambda ctx, x, dims: [x])

# What programs that run at once show each other, all along `dims`: each writes what it has along `shared`, they meet,
# and any of them reads all of it. There are two buffers, which take turns: `turn` is 0 or 1, another one in each step.
exchange_p = jex.Primitive("exchange")


@exchange_p.def_impl
def _exchange_impl(x: Any, turn: Any, *, dims: tuple[int, ...], shared: tuple[int, ...]) -> Any:
    return x


@exchange_p.def_abstract_eval
def _exchange_aval(x: Any, turn: Any, *, dims: tuple[int, ...], shared: tuple[int, ...]) -> Any:
    return x


mlir.register_lowering(exchange_p, lambda ctx, x, turn, dims, shared: [x])

# What a kernel writes chunk by chunk along `dim`, `size` elements each; the last chunk may reach beyond the end.
chunked_p = jex.Primitive("chunked")


@chunked_p.def_impl
def _chunked_impl(x: Any, *, dim: int, size: int) -> Any:
    return x


@chunked_p.def_abstract_eval
def _chunked_aval(x: Any, *, dim: int, size: int) -> Any:
    return x


mlir.register_lowering(chunked_p, lambda ctx, x, dim, size: [x])

# What is not written but as a flag: whether it holds anywhere. The flag begins as zero, and programs that find that it
# holds set it to one.
#
#     shown:bool[1024] = flagged wrong
#     error:i32[] = flag[dtype=int32 shape=()] shown
flagged_p = jex.Primitive("flagged")


@flagged_p.def_impl
def _flagged_impl(x: Any) -> Any:
    return x


@flagged_p.def_abstract_eval
def _flagged_aval(x: Any) -> Any:
    return x


mlir.register_lowering(flagged_p, lambda ctx, x: [x])

flag_p = jex.Primitive("flag")


@flag_p.def_impl
def _flag_impl(x: Any, *, dtype: Any, shape: tuple[int, ...]) -> Any:
    return jnp.any(x).astype(dtype).reshape(shape)


@flag_p.def_abstract_eval
def _flag_aval(x: Any, *, dtype: Any, shape: tuple[int, ...]) -> Any:
    return jax.core.ShapedArray(shape, dtype)


mlir.register_lowering(flag_p, mlir.lower_fun(_flag_impl, multiple_results=False))

IN_MEMORY = (boundary_p, flag_p)  # their results are in memory, because a kernel wrote the operand


@once
def flags_of(jaxpr: Any) -> Mapping[Any, Any]:
    """The equations of the flags, by what they are flags of."""
    return {eqn.invars[0]: eqn for eqn in jaxpr.eqns if eqn.primitive is flag_p}


def stored_by(jaxpr: Any) -> list[Any]:
    """What the kernel of a region stores, for each of its results: in place of a flag that of which it is one."""
    flags = {eqn.outvars[0]: operand for operand, eqn in flags_of(jaxpr).items()}
    return [flags.get(atom, atom) if isinstance(atom, jex.Var) else atom for atom in jaxpr.outvars]


# A `dot_general`, or a convolution, that XLA's library computes, for the reason `why`.
library_p = jex.Primitive("dot_general")
library_convolution_p = jex.Primitive("conv_general_dilated")


def _kept_for_a_library(kept: Any, primitive: Any) -> None:
    def run(x: Any, y: Any, *, why: Any, **params: Any) -> Any:
        return primitive.bind(x, y, **params)

    def aval(x: Any, y: Any, *, why: Any, **params: Any) -> Any:
        made = jax.eval_shape(functools.partial(primitive.bind, **params), x, y)
        return jax.core.ShapedArray(made.shape, made.dtype, weak_type=made.weak_type)

    kept.def_impl(run)
    kept.def_abstract_eval(aval)
    mlir.register_lowering(kept, mlir.lower_fun(run, multiple_results=False))


_kept_for_a_library(library_p, jax.lax.dot_general_p)
_kept_for_a_library(library_convolution_p, jax.lax.conv_general_dilated_p)

# A write that XLA does in place, for the reason `why`, with the computation of its place: the last equation of `jaxpr`.
in_place_p = jex.Primitive("in_place")


@in_place_p.def_impl
def _in_place_impl(*args: Any, jaxpr: Any, why: Any) -> Any:
    return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)[0]


@in_place_p.def_abstract_eval
def _in_place_aval(*args: Any, jaxpr: Any, why: Any) -> Any:
    return jaxpr.out_avals[0]


mlir.register_lowering(in_place_p, mlir.lower_fun(_in_place_impl, multiple_results=False))


def moved_by(eqn: Eqn) -> int:
    """Bytes that XLA reads and writes at least; in place, no more than a part of an array."""
    arrays = dict.fromkeys(variables([*eqn.invars, *eqn.outvars]))
    if eqn.primitive is not in_place_p:
        return nbytes(*arrays)
    return 2 * nbytes(*(atom for atom in arrays if atom.aval.shape != eqn.outvars[0].aval.shape))


def name_in_program(eqn: Any) -> str:
    """Of its primitive, as the program has it: of a write in place that of the write."""
    made = eqn.params["jaxpr"].jaxpr.eqns[-1] if eqn.primitive is in_place_p else eqn
    return str(made.primitive.name)
