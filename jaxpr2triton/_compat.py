"""The only door to `jax._src`: one function for each thing that the public API does not offer or that changed."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax._src import config, core, effects, sharding_impls, source_info_util
from jax._src import mesh as mesh_lib
from jax._src.interpreters import mlir, partial_eval
from jax.interpreters import xla

# The lines of this package are never the user's lines.
source_info_util.register_exclusion(os.path.dirname(os.path.abspath(__file__)) + os.sep)


def implementation_of_keys(dtype: Any) -> Any:
    """What computes with keys of a dtype: `key_shape`, and functions `seed`, `split`, `fold_in` and `random_bits`."""
    return dtype._impl


def wrapped_keys(words: Any, dtype: Any) -> Any:
    """uint32[..., *key_shape] → keys of that dtype, also of kinds that have no name."""
    return jax.random.wrap_key_data(words, impl=implementation_of_keys(dtype))


@dataclass(frozen=True)
class Frame:
    """A line of the user's program; `via` is the line of a library that it runs, if that made the equation."""

    file: str
    line: int
    function: str
    span: tuple[int, int, int, int] = (0, 0, 0, 0)  # of the expression: first line and column, last line and column
    via: Frame | None = None

    def __str__(self) -> str:
        through = f" via {os.path.basename(self.via.file)}:{self.via.line}" if self.via else ""
        function = self.function.rpartition("<locals>.")[2]  # of one in another one its own name
        return f"{os.path.basename(self.file)}:{self.line} ({function}){through}"


def user_frame(eqn: Any) -> Frame | None:
    """The user's line that an equation came from, if JAX remembers one: `model.py:12 (step) via _unvmap.py:50`."""
    return _user_frame(eqn.source_info.traceback)


def innermost_frame(eqn: Any) -> Frame | None:
    """The line that an equation came from, of the user's program or of a library that it uses."""
    frame = user_frame(eqn)
    return frame.via or frame if frame else None


@lru_cache(maxsize=8192)
def _user_frame(traceback: Any) -> Frame | None:
    """The innermost line in a file of the user's; where there is none, the innermost one of a library."""
    innermost = source_info_util.user_frame(traceback) if traceback is not None else None
    if innermost is None:
        return None
    frames = source_info_util.user_frames(traceback)
    own = next((frame for frame in frames if not _is_installed(frame.file_name)), innermost)
    found = _without_span(own)
    return found if own == innermost else replace(found, via=_without_span(innermost))


def _without_span(frame: source_info_util.Frame) -> Frame:
    return Frame(frame.file_name, frame.start_line, frame.function_name)


@lru_cache(maxsize=1024)
def _is_installed(file: str) -> bool:
    """Whether a file was installed, as libraries and the commands that start programs are."""
    folders = os.path.normpath(file).split(os.sep)
    return not _INSTALLED.isdisjoint(folders) or os.path.dirname(file) == sysconfig.get_path("scripts")


_INSTALLED = frozenset({"site-packages", "dist-packages"})


def captured_by(traced: jax.stages.Traced) -> list[Any]:
    """The tracers and such that a traced function closes over; its jaxpr takes them first."""
    return list(traced._consts)


def is_staging() -> bool:
    """Whether what is computed now becomes equations, as inside of `jax.jit`, and not numbers."""
    return isinstance(core.trace_ctx.trace, partial_eval.DynamicJaxprTrace)


def user_frames(eqn: Any) -> tuple[Frame, ...]:
    """All lines of the user's that were being run when an equation was made, the outermost one first."""
    return _frames_of(eqn.source_info.traceback)


@functools.lru_cache(maxsize=1024)
def _frames_of(traceback: Any) -> tuple[Frame, ...]:
    frames = [
        Frame(f.file_name, f.start_line, f.function_name, (f.start_line, f.start_column, f.end_line, f.end_column))
        for f in source_info_util.user_frames(traceback)
    ]
    return tuple(frames[::-1])


def is_transposed(eqn: Any) -> bool:
    """Whether an equation is part of a derivative that is taken backwards; what is computed again for it is not."""
    names = str(eqn.source_info.name_stack)
    return "transpose(" in names and "rematted" not in names


def is_differentiated(eqn: Any) -> bool:
    return "jvp(" in str(eqn.source_info.name_stack)


def bind_equation(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """The outputs of one equation for these inputs, with its context and the user's line kept."""
    with source_of(eqn):
        return bind_with(eqn, eqn.params, values)


def bind_with(eqn: Any, params: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
    """The outputs of the equation's primitive with other parameters, in the context that is there."""
    outputs = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
    return list(outputs) if eqn.primitive.multiple_results else [outputs]


@contextmanager
def source_of(eqn: Any) -> Iterator[None]:
    """Equations traced inside get the line and the context of `eqn`; without a line of its own, the line around it."""
    info = eqn.source_info
    names = source_info_util.current_name_stack() + info.name_stack
    traceback = info.traceback if _user_frame(info.traceback) is not None else None
    with source_info_util.user_context(traceback, name_stack=names), eqn.ctx.manager:
        yield


@dataclass(frozen=True)
class Here:
    """What an equation that is traced now would remember: the user's line and the context."""

    source_info: Any
    ctx: Any

    def inside(self, eqn: Any) -> Here:
        """The same within `source_of(eqn)`."""
        own = eqn.source_info
        names = self.source_info.name_stack + own.name_stack
        traceback = own.traceback if _user_frame(own.traceback) is not None else self.source_info.traceback
        return Here(source_info_util.SourceInfo(traceback, names), eqn.ctx)


def here() -> Here:
    return Here(source_info_util.current(), core.current_jaxpr_eqn_context())


class _Nowhere(core.Trace):
    """The trace of values that no equation may be about; whoever traces makes them constants."""


class StandIn(core.Tracer):
    """A variable of a program that is being put together, as a value that JAX functions take."""

    __slots__ = ("variable",)

    def __init__(self, var: Any) -> None:
        super().__init__(_NOWHERE, var.aval)
        self.variable = var


_NOWHERE = _Nowhere()


_CALLED = ("jaxpr", "call_jaxpr", "call")
_SOLVE = "custom_linear_solve"


def called_jaxpr(name: str, params: Mapping[str, Any]) -> tuple[Any, Sequence[Any]] | None:
    """The jaxpr that a call primitive runs on its operands, and its constants; None for every other primitive.

    A `jit` that asks for shardings or compiler options means more than its jaxpr, so it does not count; nor does a
    fused function that names options of its own.
    """
    if name not in CALLS or (name == "fused" and params["roles"].apart):
        return None
    shardings = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
    if any(isinstance(sharding, jax.sharding.Sharding) for sharding in shardings) or params.get("compiler_options_kvs"):
        return None
    inner = params["jaxprs"].solve if name == _SOLVE else next(params[key] for key in _CALLED if key in params)
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


def operands_of_call(name: str, params: Mapping[str, Any], operands: Sequence[Any]) -> Sequence[Any]:
    """The operands of a call that its jaxpr takes: all, but a linear solve has others for its derivatives."""
    if name != _SOLVE:
        return operands
    lengths = params["const_lengths"]
    first, solve = lengths.matvec + lengths.vecmat, lengths.solve
    return [*operands[first : first + solve], *operands[first + solve + lengths.transpose_solve :]]


CALLS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "call", "eval_jaxpr", "custom_jvp_call", "custom_vjp_call"),
        *("custom_vjp_call_jaxpr", "checkpoint", "remat", "remat2", "custom_vmap_call", "fused"),
        _SOLVE,
    }
)


def varies_over_mesh(aval: Any) -> bool:
    """True for values that differ between the devices of a `shard_map`, which JAX tracks in their type."""
    return bool(aval.manual_axis_type.varying)


def without_empty_sharding(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of an equation; a sharding over no mesh, as derivatives of conversions have it, is none."""
    mesh = getattr(params.get("sharding"), "mesh", None)
    return params if mesh is None or not mesh.empty else {**params, "sharding": None}


def close_like(closed: Any, inner: Any) -> Any:
    """`inner`, made from `closed.jaxpr`, as a closed jaxpr; since 0.11 every jaxpr is closed already."""
    return closed.replace(jaxpr=inner) if type(closed) is not type(inner) else inner


def inside_of(jaxpr: Any, **changes: Any) -> Any:
    """The jaxpr with other equations, outputs or constants, which `changes` name, and the names of its arguments."""
    return jaxpr.replace(debug_info=jaxpr.debug_info, **changes)


def closed_with(inner: Any, consts: Sequence[Any]) -> Any:
    return jex.ClosedJaxpr(inner, consts)


def is_high_level(eqn: Any) -> bool:
    return bool(eqn.primitive.is_high(*[atom.aval for atom in eqn.invars], **eqn.params))


def low_level_results(eqn: Any, values: Sequence[Any]) -> list[Any] | None:
    """The outputs of a high-level equation, one that JAX keeps for its derivative rule; None for all others."""
    if not is_high_level(eqn):
        return None
    with source_of(eqn):
        outputs = eqn.primitive.to_lojax(*values, **eqn.params)
    return list(outputs) if eqn.primitive.multiple_results else [outputs]


def set_lowering_of_high_level(primitive: Any, rule: Any) -> None:
    """What replaces a primitive whose jaxpr holds high-level equations, once nothing can be differentiated any more."""
    primitive.to_lojax = rule


def stay_in_place(found: Iterable[Any]) -> bool:
    """Whether XLA can run the equations that have these effects where they stand: callbacks, but neither references to
    arrays nor collectives over an axis of a mesh.
    """
    of_xla = effects.lowerable_effects
    return all(of_xla.contains(e) and not isinstance(e, core.NamedAxisEffect) for e in side_effects_of(found))


def has_ordered_effects(found: Iterable[Any]) -> bool:
    return any(effects.ordered_effects.contains(effect) for effect in found)


def is_recomputed(case: Any) -> bool:
    """Whether this is what a checkpoint's policy says of a result that is not kept."""
    return isinstance(partial_eval.ensure_enum(case), partial_eval.RecomputeType)


def scan_counts_of(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a scan with these parameters are constants, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carried, _ = params["ft_in"].unpack()
    return len(consts), len(carried)


def without_line(eqn: Any) -> Any:
    """The equation as one of no line: written out in another program, it has the line of what stood there."""
    return eqn.replace(source_info=source_info_util.SourceInfo(None, eqn.source_info.name_stack))


def context_of(eqn: Any) -> Any:
    """What is traced inside has the context of the equation."""
    return eqn.ctx.manager


def settings_around(eqn: Any) -> tuple[Hashable, ...]:
    """All that decides what a function becomes if it is traced now in the place of an equation."""
    return config.trace_context(), id(eqn.ctx)


def is_familiar(primitive: Any) -> bool:
    """Whether a primitive is one of JAX's own, or of this package: somebody else's may be called `exp`, too."""
    return id(primitive) in _familiar_primitives(len(sys.modules))


@lru_cache(maxsize=1)
def _familiar_primitives(modules_loaded: int) -> frozenset[int]:
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in ("jax", _PACKAGE)]
    return frozenset(
        id(value) for module in modules for value in list(vars(module).values()) if isinstance(value, jex.Primitive)
    )


_PACKAGE = __name__.partition(".")[0]


def function_behind(eqn: Any, on_gpus: bool = True) -> Callable[..., Any] | None:
    """The JAX function of operands that an equation stands for; None where its primitive is no more than its own name.

    That is what the primitive is lowered by, if that was made by `mlir.lower_fun`; else the implementation by which it
    runs outside of `jit`. One that GPUs have a lowering of their own for has none, unless `on_gpus` is false.
    """
    primitive, params = eqn.primitive, eqn.params
    if on_gpus and any(primitive in mlir._platform_specific_lowerings[platform] for platform in ("cuda", "rocm")):
        return None
    lowering = mlir._lowerings.get(primitive)
    function = None if lowering is None else _lowered_function(lowering.rule)
    if function is not None:
        return functools.partial(function, **params)
    implementation = primitive.impl
    if getattr(implementation, "__func__", None) is core.Primitive.impl:  # nobody has given it one
        return None
    if isinstance(implementation, functools.partial) and implementation.func is xla.apply_primitive:
        return None
    return functools.partial(implementation, **primitive.get_bind_params(params))


def _lowered_function(rule: Any) -> Callable[..., Any] | None:
    """f, if the rule is `mlir.lower_fun(f)`."""
    if getattr(rule, "__code__", None) is not _LOWERED_FUNCTION:
        return None
    held = dict(zip(rule.__code__.co_freevars, rule.__closure__))
    function: Callable[..., Any] = held["fun"].cell_contents
    return function


_LOWERED_FUNCTION = mlir.lower_fun(lambda: None).__code__


def side_effects_of(found: Iterable[Any]) -> list[Any]:
    """What is an effect at all: a collective over the axis of a `vmap` is none, and gone when that batches it.

    Over an axis of a mesh it is one, as it is what the devices do at the same time.
    """
    manual = jax.sharding.get_abstract_mesh().axis_names
    return [each for each in found if not isinstance(each, core.NamedAxisEffect) or each.name in manual]


def is_along(eqn: Any, axis_name: Any) -> bool:
    """Whether an equation is a collective over this axis, asks for the place along it, or calls what does."""
    return core.NamedAxisEffect(axis_name) in eqn.effects


def device_count(ctx: Any) -> int:
    """The number of devices that the partitioner shares out the program to that is being lowered; 1 if it does not."""
    context = ctx.module_context.axis_context
    exporting = ctx.module_context.lowering_parameters.for_export
    return context.num_devices if isinstance(context, sharding_impls.ShardingContext) and not exporting else 1


def any_device() -> Any:
    """Stands for each of the devices of a program, which nobody may know yet: only their number matters."""
    return jax.local_devices()[0]


def lowered_for_any(ctx: Any) -> Any:
    """The same context, with devices: `custom_partitioning` does not go without, though it only counts them."""
    count = device_count(ctx)
    context = sharding_impls.ShardingContext(count, (any_device(),) * count, None)
    return ctx.replace(module_context=ctx.module_context.replace(axis_context=context))


def tiles_of(sharding: Any, rank: int) -> tuple[np.ndarray[Any, Any], bool] | None:
    """The numbers of the devices, by the tile that they have, and whether the last dimension counts copies of a tile.

    None where all devices have all of the array, or what nobody can say.
    """
    tiling = None if sharding is None else sharding._to_xla_hlo_sharding(rank)
    if tiling is None or not tiling.is_tiled() or len(tiling.subgroup_types()) > 1:
        return None
    devices = np.reshape(tiling.tile_assignment_devices(), tiling.tile_assignment_dimensions())
    return devices, bool(tiling.replicate_on_last_tile_dim() or tiling.subgroup_types())


def is_resharded_to_the_same(eqn: Any) -> bool:
    """Derivatives reshard what they begin with to what a mesh says of it: nothing, if no axis of that is explicit."""
    before, after = eqn.invars[0].aval.sharding, eqn.outvars[0].aval.sharding
    says_nothing = jax.sharding.AxisType.Explicit not in after.mesh.axis_types
    return eqn.primitive.name == "reshard" and (says_nothing or before == after)


@contextmanager
def on_one_device() -> Iterator[None]:
    """What is traced inside is about arrays of one device, which are not shared out."""
    with mesh_lib.use_abstract_mesh(mesh_lib.empty_abstract_mesh):
        yield
