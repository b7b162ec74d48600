"""`fuse` and `transpile`: what a user touches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, overload

import jax

from jaxpr2triton._compat import is_staging, stay_in_place
from jaxpr2triton.errors import UserError
from jaxpr2triton.front import lowering as lowering  # registers what the primitive becomes
from jaxpr2triton.front.arguments import Trace, trace
from jaxpr2triton.front.function import Fused, options_of
from jaxpr2triton.front.fused import bind
from jaxpr2triton.front.inner import with_options
from jaxpr2triton.front.naming import program_name
from jaxpr2triton.front.options import OF_JIT, Backend, Options, Settings, known_backend, unexpected_by_fuse
from jaxpr2triton.front.program import GradProgram, Program
from jaxpr2triton.front.schedules import read_schedules
from jaxpr2triton.front.transpiled import transpiled
from jaxpr2triton.front.whole import side_effects
from jaxpr2triton.ir.kernel import Kernel, Leftover, Residual
from jaxpr2triton.ir.roles import Checkpoint, Contractions, Schedule
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.trace import hoist
from jaxpr2triton.version import __version__

__all__ = ["Fused", "GradProgram", "Kernel", "Leftover", "Program", "Residual", "__version__", "fuse", "transpile"]


@overload
def fuse(
    function: Callable[..., Any],
    /,
    *,
    backend: Backend = ...,
    strict: bool = ...,
    roles: Mapping[str, str] | None = ...,
    contractions: Contractions = ...,
    checkpoint: Checkpoint = ...,
    exact_order: bool = ...,
    schedule: Schedule = ...,
    schedules: Any = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    keep_unused: bool = ...,
    inline: bool = ...,
    device: jax.Device | None = ...,
    compiler_options: dict[str, Any] | None = ...,
) -> Fused: ...
@overload
def fuse(
    function: None = None,
    /,
    *,
    backend: Backend = ...,
    strict: bool = ...,
    roles: Mapping[str, str] | None = ...,
    contractions: Contractions = ...,
    checkpoint: Checkpoint = ...,
    exact_order: bool = ...,
    schedule: Schedule = ...,
    schedules: Any = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    keep_unused: bool = ...,
    inline: bool = ...,
    device: jax.Device | None = ...,
    compiler_options: dict[str, Any] | None = ...,
) -> Callable[[Callable[..., Any]], Fused]: ...
def fuse(
    function: Callable[..., Any] | None = None,
    /,
    *,
    backend: Backend = "auto",
    strict: bool = False,
    roles: Mapping[str, str] | None = None,
    contractions: Contractions = "auto",
    checkpoint: Checkpoint = None,
    exact_order: bool = False,
    schedule: Schedule = "estimate",
    schedules: Any = None,
    **jit_options: Any,
) -> Any:
    """Compile a function into Triton kernels: `jax.jit`, with another compiler behind it.

    It takes the function and the options that `jax.jit` takes, and gives what `jax.jit` gives: something to call,
    differentiate, batch, `.lower(...)` and so on. Eight options are new:

    backend   "auto"       the kernels on a CUDA or ROCm device, XLA on any other (or what J2T_BACKEND says)
              "triton"     the kernels, on a CUDA or ROCm device; an error elsewhere
              "interpret"  the kernels in Triton's interpreter, on any machine; slow, for tests
              "machine"    the kernels compiled for an NVIDIA device, and their PTX run with every access checked,
                           on any machine with a C compiler; for tests
              "xla"        plain XLA, everywhere
    strict    raise `NotFusible` if any equation would be left to XLA, on every machine
    roles     what axes become, instead of what the compiler chooses, by the names that `explain` shows:
              {"k": "unroll"} for all kernels that have such an axis, {"rnn_bwd_0.col": "lane"} for one kernel;
              "grid", "lane", "loop" or "unroll", and an error where the axis is not there or cannot be that, on
              every machine
    contractions
              "triton"     matrix products are kernels as well, with what they are made of and what is made of them, as
                           exact as `precision` and `jax.default_matmul_precision` say
              "xla"        XLA's library multiplies, outside of loops
              "auto"       whichever takes less time, by an estimate that `explain` prints
    checkpoint
              "sqrt"       of a loop of n steps a gradient keeps about the square root of n states, and as many at a
                           time for the steps between two of these, which are computed again on the way back
              a number     … keeps so many states
              None         … keeps what each step needs; the derivatives that the function itself takes are JAX's own
    exact_order
              take the steps of every loop one after the other, even where what is carried is `a * c + b` and could be
              combined in tiles of steps, with other roundings; and make all rows of a product at once, even where that
              is too much to be stored
    schedule  "estimate"   of the schedules of a kernel with loops the one that is estimated to take least is chosen
              "compile"    the best three are compiled, and the one is chosen whose machine code takes least, by the
                           model of `explain --cycles`; for NVIDIA devices
    schedules a file with what `explain --json` printed, or that JSON itself: its kernels have the schedules that they
              had there, or those that you wrote instead. One that does not fit is ignored, with a `ScheduleWarning`

    A fused function inside another one is part of it, and the outer one's options count; but where it names an option
    otherwise than that one, this holds in it, and it has kernels of its own. Callbacks (`jax.debug.print`,
    `io_callback`) stay with XLA, in their order, and what is around them is fused; a function with references, or with
    collectives over an axis of a mesh, stays with XLA as a whole.
    """
    for option in jit_options:
        if option not in OF_JIT:
            raise unexpected_by_fuse(option)
    known_backend("backend", backend)
    static: dict[str, Any] = {option: jit_options.get(option) for option in ("static_argnums", "static_argnames")}
    given = read_schedules(schedules)
    options = Options(strict, roles, contractions, checkpoint, exact_order, schedule, given, **static)
    how = functools.partial(fuse, backend=backend, **options.of_plans, **jit_options)
    if function is None:
        return how
    if not callable(function):
        raise UserError(f"fuse takes a function, not {function!r}")
    settings = options.settings(program_name(function), backend)
    return Fused(jax.jit(_traced_when_called(function, settings, static), **jit_options), function, options, how)


def _traced_when_called(function: Callable[..., Any], asked: Settings, static: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that `jax.jit` traces: it binds one primitive that carries the user's function as a jaxpr."""
    name = program_name(function)

    @functools.wraps(function)
    def fused_function(*args: Any, **kwargs: Any) -> Any:
        # without jit, or when jit looks for the operation that made a NaN (jax_debug_nans), nothing is to be compiled
        if cast(Any, jax.config).jax_disable_jit or not is_staging():
            return function(*args, **kwargs)
        settings, environment = asked, read_knobs().backend or "auto"
        if asked.backend == "auto":
            settings = replace(asked, backend=known_backend("J2T_BACKEND", environment))
        traced = trace(function, args, kwargs, **static)
        # jit has made tracers of all arrays, so what is none is static
        leaves = [leaf for leaf in jax.tree.leaves((args, kwargs)) if isinstance(leaf, jax.core.Tracer)]
        if not stay_in_place(traced.jaxpr.effects):
            if settings.refuses_xla:
                raise side_effects(traced.jaxpr)
            outputs = run(traced.jaxpr, *traced.captured, *leaves)
        else:
            outputs = _bound(traced, leaves, name, settings)
        return jax.tree.unflatten(traced.out_tree, outputs)

    return fused_function


def _bound(traced: Trace, leaves: Sequence[Any], name: str, settings: Settings) -> list[Any]:
    try:
        program, captured = hoist(with_options(traced.jaxpr, settings), traced.captured)
    except Exception as problem:
        with settings.instead_of(problem, name, "XLA runs the whole program"):
            return run(traced.jaxpr, *traced.captured, *leaves)
    return bind(program, [*captured, *leaves], name, settings)


@overload
def transpile(
    function: Callable[..., Any],
    /,
    *args: Any,
    grad: None = ...,
    strict: bool = ...,
    roles: Mapping[str, str] | None = ...,
    contractions: Contractions = ...,
    checkpoint: Checkpoint = ...,
    exact_order: bool = ...,
    schedule: Schedule = ...,
    schedules: Any = ...,
    for_target: str | None = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    **kwargs: Any,
) -> Program: ...
@overload
def transpile(
    function: Callable[..., Any],
    /,
    *args: Any,
    grad: int | Sequence[int],
    strict: bool = ...,
    roles: Mapping[str, str] | None = ...,
    contractions: Contractions = ...,
    checkpoint: Checkpoint = ...,
    exact_order: bool = ...,
    schedule: Schedule = ...,
    schedules: Any = ...,
    for_target: str | None = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    **kwargs: Any,
) -> GradProgram: ...
def transpile(
    function: Callable[..., Any],
    /,
    *args: Any,
    grad: bool | int | Sequence[int] | None = None,
    strict: bool | None = None,
    roles: Mapping[str, str] | None = None,
    contractions: Contractions | None = None,
    checkpoint: Checkpoint = None,
    exact_order: bool | None = None,
    schedule: Schedule | None = None,
    schedules: Any = None,
    for_target: str | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    **kwargs: Any,
) -> Program | GradProgram:
    """The kernels of a function for arguments of these shapes (arrays, or `jax.ShapeDtypeStruct`), to look at and run.

    Without `grad` the result is a `Program`. With it, a `GradProgram`: `grad` is an argument's number or several, as
    `argnums` of `jax.grad` (True means 0). Static arguments are given here and left out when the program is called.
    `strict`, `roles`, `contractions`, `checkpoint`, `exact_order`, `schedule` and `schedules` are as in `fuse`; those
    that are not given, and what is static, are as `fuse` was told where the function is a fused one. `for_target` is
    the device that kernels are planned for (sm_90, gfx942, …), instead of what J2T_TARGET says, or else the local one,
    or else sm_90.
    """
    if not callable(function):
        raise UserError(f"transpile takes a function, not {function!r}")
    given: dict[str, Any] = {
        "strict": strict, "roles": roles, "contractions": contractions, "checkpoint": checkpoint,
        "exact_order": exact_order, "schedule": schedule, "schedules": schedules,
        "static_argnums": static_argnums, "static_argnames": static_argnames,
    }  # fmt: skip
    options = replace(options_of(function), **{option: said for option, said in given.items() if said is not None})
    plain = function.__wrapped__ if isinstance(function, Fused) else function
    return transpiled(plain, args, kwargs, options, grad, for_target)
