"""The one primitive: a program that runs as kernels on a GPU and as plain XLA elsewhere.

It carries a jaxpr and is compiled only when it is lowered, after every transformation: `vmap(grad(fuse(f)))` is planned
as a whole. Its rules come from JAX's public registries:

    jvp        binds two programs, `forward` (with the chosen residuals) and `linear`
    transpose  of `linear` binds the backward program
    vmap       binds the program of the batch
    dce        binds the program of the outputs that somebody reads
    remat      computes what a checkpoint does not keep again, with the same effects

Where a mistake of ours keeps one of them from its program, JAX does the same to the jaxpr, and a `BugWarning` says so.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import jax
import jax.extend.core as jex
from jax.interpreters import ad, batching, mlir, xla
from jax.interpreters import partial_eval as pe

from jaxpr2triton._compat import (
    device_count,
    is_recomputed,
    lowered_for_any,
    set_lowering_of_high_level,
    stay_in_place,
    user_frame,
)
from jaxpr2triton.autodiff import split
from jaxpr2triton.autodiff.parts import Parts, parts_of, run_in_parts
from jaxpr2triton.autodiff.stretches import in_stretches
from jaxpr2triton.autodiff.tracing import flatten, lower, prune
from jaxpr2triton.collector import seldom_collected
from jaxpr2triton.errors import BackendError, Mistake, NotFusible
from jaxpr2triton.front.devices import Cut, Splittable, lying_as_before, over_devices, splittable
from jaxpr2triton.front.log import log_plan
from jaxpr2triton.front.whole import no_numbers, side_effects, symbolic_shape
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.jaxprs import equations
from jaxpr2triton.ir.kernel import Leftover
from jaxpr2triton.ir.roles import NO_ROLES, Checkpoint, Roles
from jaxpr2triton.ir.tracing import avals, is_differentiable, run
from jaxpr2triton.launch.call.callbacks import calling_through, reserve_callbacks
from jaxpr2triton.launch.call.devices import planned_for
from jaxpr2triton.launch.call.primitive import Mode
from jaxpr2triton.mistakes import instead_of, raise_with_context, tell
from jaxpr2triton.normalize.arrays.associative import join_parts
from jaxpr2triton.normalize.arrays.structural import STRUCTURAL
from jaxpr2triton.normalize.loops.recompute import recompute_stored
from jaxpr2triton.normalize.numbers.round_compared import round_compared
from jaxpr2triton.pipeline.compile import compile_jaxpr
from jaxpr2triton.pipeline.compiled import Compiled
from jaxpr2triton.policy import Policy, policy_of
from jaxpr2triton.progress import LOGGER, working
from jaxpr2triton.report.reasons import leftovers_of
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.products import is_unsaid
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS
from jaxpr2triton.shards.constraints import run_between
from jaxpr2triton.watching import Watched

# What a user may ask for.
Backend = Literal["auto", "triton", "interpret", "machine", "xla"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
# Inside the package also: kernels everywhere, on the device where there is one and in the interpreter elsewhere.
KERNELS = "kernels"
HOST_ONLY = ("interpret", "machine")  # those that run kernels on the host, whatever the program is lowered for

fused_p = jex.Primitive("fused")
fused_p.multiple_results = True


def bind(
    jaxpr: Any,
    args: Sequence[Any],
    *,
    name: str,
    backend: str,
    strict: bool,
    roles: Roles,
    target: Target | None = None,
) -> list[Any]:
    """The outputs of a program; one with references, named axes or symbolic shapes is run equation by equation.

    Without a target it is planned for the one that it is lowered for.
    """
    if not stay_in_place(jaxpr.effects):
        if strict and backend != "xla":
            raise side_effects(jaxpr)
        return run(jaxpr, *args)
    if (symbolic := symbolic_shape(jaxpr)) is not None:
        if strict and backend != "xla":
            raise no_numbers(name, symbolic)
        return run(jaxpr, *args)
    settings = {"name": name, "backend": backend, "strict": strict, "roles": roles, "target": target}
    return fused_p.bind(*args, jaxpr=jaxpr, **settings)


# ---------------------------------------------------------------------------------------------- memory
_DERIVED: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
_DERIVED_LOCK = threading.Lock()


def _derived(jaxpr: Any, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What was made from this jaxpr before. Two threads may both make it, but both get the same one.

    What has captured tracers is made again each time, as it must not outlive their trace.
    """
    with _DERIVED_LOCK:
        table = _DERIVED.setdefault(jaxpr, {})
    if key in table:
        LOGGER.debug("%s: the program was made before", key[0])
    else:
        before = time.perf_counter()
        made = make()
        LOGGER.debug("%s: made a program in %.2f s", key[0], time.perf_counter() - before)
        if any(isinstance(value, jax.core.Tracer) for value in getattr(made, "captured", ())):
            return made
        table.setdefault(key, made)
    return table[key]


class _Slot:
    """One compiled program, compiled by the first thread that asks for it while the others wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.compiled: Compiled | None = None


@functools.lru_cache(maxsize=512)
def _slot(jaxpr: Any, name: str, roles: Roles, policy: Policy) -> _Slot:
    return _Slot()


LOWERED: Watched[Compiled] = Watched()  # programs


def compiled_program(
    jaxpr: Any, name: str, roles: Roles = NO_ROLES, strict: bool = False, target: Target | None = None
) -> Compiled:
    """The kernels of a program for a target; compiled once in a process. Under `strict` nothing may stay with XLA."""
    policy, roles = policy_of(target or planned_for()), replace(roles, strict=strict, backend="auto", apart=())
    slot = _slot(jaxpr, name, roles, policy)
    with slot.lock:
        if slot.compiled is None:
            # a constant that is folded need not be a result
            with working(f"planning {name}") as work, seldom_collected(), jax.debug_nans(False), jax.debug_infs(False):
                slot.compiled = compile_jaxpr(jaxpr, name, roles, policy)
            log_plan(slot.compiled, jaxpr, roles, work)
        else:
            LOGGER.debug("%s was planned before", name)
    compiled = slot.compiled
    LOWERED.tell(compiled)
    for mistake in compiled.mistakes:
        if strict:
            raise_with_context(mistake, name)
        tell(mistake, name, _instead(compiled, mistake))
    if strict:
        refuse_leftovers(leftovers_of(compiled))
    return compiled


def _instead(compiled: Compiled, mistake: Mistake) -> str:
    if compiled.why_nothing:
        return "XLA runs the whole program"
    decided = compiled.decisions
    if mistake in (*decided.refused.values(), *compiled.lost.values(), decided.because):
        return "XLA runs what could not be compiled, and `explain` tells what that is"
    return "the kernels are made in another way"


# ---------------------------------------------------------------------------------------------- running
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


def _on_host(
    *args: Any, jaxpr: Any, name: str, backend: str, strict: bool, roles: Roles, target: Target | None
) -> list[Any]:
    """Where there is no GPU, XLA runs the program, unless the kernels were asked for."""
    if backend == "triton":
        raise BackendError(
            'backend="triton" runs on CUDA and ROCm devices only, and this program is to run elsewhere',
            hint='backend="auto" to let XLA run it there, or backend="interpret" to run the kernels in Triton\'s '
            "interpreter",
        )
    if backend in ("interpret", "machine", KERNELS):
        mode: Mode = "machine" if backend == "machine" else "interpret"
        return _run_kernels(mode, jaxpr, name, strict, roles, target, args)
    if backend != "xla" and (strict or roles.asked):  # what a GPU would refuse is refused here too
        compiled_program(jaxpr, name, roles, strict, target)
    return run(jaxpr, *args)


def _on_gpu(
    platform: str, *args: Any, jaxpr: Any, name: str, backend: str, strict: bool, roles: Roles, target: Target | None
) -> list[Any]:
    if backend == "xla":
        return run(jaxpr, *args)
    mode: Mode = "interpret" if backend == "interpret" else "machine" if backend == "machine" else "device"
    return _run_kernels(mode, jaxpr, name, strict, roles, target or planned_for(platform), args)


def _run_kernels(
    mode: Mode, jaxpr: Any, name: str, strict: bool, roles: Roles, target: Target | None, args: Sequence[Any]
) -> list[Any]:
    if mode != "device" and _multiplies_as_usual(jaxpr):  # which is all bits, on a CPU
        target = replace(target or planned_for(), tf32=False)
    try:
        return compiled_program(jaxpr, name, roles, strict, target).run(mode, strict, *args)
    except Exception as problem:
        with instead_of(problem, name, strict, "XLA runs the whole program"):
            return run(jaxpr, *args)


def _multiplies_as_usual(jaxpr: Any) -> bool:
    """Whether it has contractions of f32 of which nobody said how exact they are."""
    return any(eqn.primitive.name == "dot_general" and is_unsaid(eqn) for eqn in equations(jaxpr.jaxpr))


def _lowered(platform: str | None, ctx: Any, *args: Any, jaxpr: Any, **settings: Any) -> Any:
    """On several devices each runs its part, as far as the program can be split."""
    run_here = _on_host if platform is None else functools.partial(_on_gpu, platform)
    count = device_count(ctx)
    splits = count > 1 and _has_kernels(platform, settings["backend"]) and not settings["roles"].asked
    found = _found_splittable(jaxpr, settings["name"], settings["strict"]) if splits else None
    if isinstance(found, Cut):
        between = functools.partial(_bind_again, settings)
        over = functools.partial(run_between, found.jaxpr, go=between)

        def cut(*values: Any) -> list[Any]:
            operands = [*found.held, *values]
            return lying_as_before(found.jaxpr, operands, over(operands), count)

        return mlir.lower_fun(cut, multiple_results=True)(lowered_for_any(ctx), *args)
    if found is None:
        return mlir.lower_fun(functools.partial(run_here, jaxpr=jaxpr, **settings), multiple_results=True)(ctx, *args)
    callbacks = None if platform and settings["backend"] not in HOST_ONLY else reserve_callbacks(ctx)

    def whole(program: Any, operands: Sequence[Any]) -> list[Any]:
        with calling_through(callbacks):
            return run_here(*operands, jaxpr=program, **settings)

    def tell(problem: Exception) -> contextlib.AbstractContextManager[None]:
        return instead_of(problem, settings["name"], settings["strict"], "every device runs the whole program")

    over = functools.partial(over_devices, found, count=count, whole=whole, tell=tell)
    return mlir.lower_fun(lambda *values: over(values), multiple_results=True)(lowered_for_any(ctx), *args)


def _bind_again(settings: Mapping[str, Any], program: Any, operands: Sequence[Any]) -> list[Any]:
    return fused_p.bind(*operands, jaxpr=program, **settings)


def _has_kernels(platform: str | None, backend: str) -> bool:
    return backend in (*HOST_ONLY, KERNELS) or (platform is not None and backend != "xla")


def _found_splittable(jaxpr: Any, name: str, strict: bool) -> Splittable | Cut | None:
    try:
        found: list[Splittable | Cut | None] = _derived(jaxpr, ("splittable",), lambda: [splittable(jaxpr)])
    except Exception as problem:
        with instead_of(problem, name, strict, "every device runs the whole program"):
            return None
    return found[0]


mlir.register_lowering(fused_p, functools.partial(_lowered, None))
for _platform in ("cuda", "rocm"):
    mlir.register_lowering(fused_p, functools.partial(_lowered, _platform), platform=_platform)


def refuse_leftovers(leftovers: Sequence[Leftover]) -> None:
    """Under `strict=True`, the first equation that would stay with XLA is an error."""
    left = [leftover for leftover in leftovers if not leftover.is_fused]  # those are as strict as the program around
    if not left:
        return
    first, others = left[0], len(left) - 1
    more = f" (and {others} more)" if others else ""
    raise NotFusible(
        f"cannot compile `{first.equation}`: {first.why}{more}",
        where=first.where or None,
        hint="leave it to XLA (drop strict=True), or see `jaxpr2triton explain` for what it costs",
    )


FREE = frozenset({"iota", "name", "copy_p", *STRUCTURAL, *DECOMPOSITIONS})  # no rows, but nothing more than those have


def recomputable(eqn: Any) -> bool:
    """Elementwise and index work costs nothing to do twice; a call does if all of its body does."""
    bodies = list(jex.jaxprs_in_params(eqn.params))
    if bodies:
        return eqn.primitive.name.startswith("custom_") and all(recomputable(e) for body in bodies for e in body.eqns)
    name = eqn.primitive.name
    return name in FREE or isinstance(TABLE.get(name), Pointwise | Indexing)


def split_program(jaxpr: Any, nonzero: tuple[bool, ...], checkpoint: Checkpoint = None) -> split.Split:
    """The forward and the linear program of a derivative along the marked inputs; in stretches if that keeps less."""

    def make() -> split.Split:
        scanned = _with_scans(jaxpr)
        plain = split.linearize(scanned, nonzero, recomputable, _prepare)
        written = in_stretches(scanned, nonzero, checkpoint)
        if written is scanned:
            return plain
        found = split.linearize(written, nonzero, recomputable, _prepare)
        return found if found.nbytes < plain.nbytes else plain

    found: split.Split = _derived(jaxpr, ("linearize", nonzero, checkpoint), make)
    return found


def _with_scans(jaxpr: Any) -> Any:
    """Associative scans are found before JAX differentiates their recursions."""
    flat = flatten(jaxpr)
    joined = join_parts(flat)
    return jaxpr if joined is flat else joined


def _prepare(forward: Any, num_outputs: int) -> Any:
    """Loops do not store what is better computed again, and both programs round what they compare alike."""
    return round_compared(recompute_stored(forward, num_outputs, recomputable, flatten))


def transposed_program(jaxpr: Any, linear: tuple[bool, ...], nonzero: tuple[bool, ...]) -> split.Transposed:
    """The backward program."""
    key = ("transpose", linear, nonzero)
    with pointing_at_loops(jaxpr):
        found: split.Transposed = _derived(jaxpr, key, lambda: split.transpose(jaxpr, linear, nonzero))
        return found


@contextlib.contextmanager
def pointing_at_loops(jaxpr: Any) -> Iterator[None]:
    """JAX says that it cannot go back through a `while_loop`, but not through which one."""
    try:
        yield
    except ValueError as problem:
        if "while_loop" not in str(problem):
            raise
        frames = [user_frame(eqn) for eqn in equations(jaxpr.jaxpr) if eqn.primitive.name == "while"]
        for frame in dict.fromkeys(filter(None, frames)):
            problem.add_note(f"  at   {frame}")
        problem.add_note("  try  a `lax.scan` as long as the loop may ever run, or a `fori_loop` with static bounds")
        raise


def backward_name(name: str) -> str:
    return f"{name[:-4]}_bwd" if name.endswith("_lin") else f"{name}_transposed"


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, name: str, **settings: Any) -> Any:
    nonzero = tuple(type(t) is not ad.Zero and is_differentiable(a) for t, a in zip(tangents, avals(jaxpr)))
    zeros = [ad.Zero(aval.to_tangent_aval()) for aval in jaxpr.out_avals]
    if not any(nonzero):
        return bind(jaxpr, primals, name=name, **settings), zeros
    moving = [tangent for tangent, moves in zip(tangents, nonzero) if moves]
    try:
        halves = split_program(jaxpr, nonzero, settings["roles"].checkpoint)
    except split.NotSplit as refusal:
        if settings["strict"] and settings["backend"] != "xla":
            raise not_split(name) from refusal
        return split.plain_jvp(jaxpr, nonzero, primals, moving, _in_parts(name, settings))
    except Exception as problem:
        with instead_of(problem, name, settings["strict"], "JAX differentiates it, and XLA runs that"):
            return split.plain_jvp(jaxpr, nonzero, primals, moving)
    results = bind(halves.forward, [*halves.captured, *primals], name=f"{name}_fwd", **settings)
    outputs, new = results[: len(zeros)], results[len(zeros) :]
    if not any(halves.nonzero_outputs):
        return outputs, zeros
    operands = [*halves.residuals(primals, outputs, new), *moving]
    directions = iter(bind(halves.linear, operands, name=f"{name}_lin", **settings))
    return outputs, [next(directions) if moves else zero for moves, zero in zip(halves.nonzero_outputs, zeros)]


def _in_parts(name: str, settings: Mapping[str, Any]) -> Callable[..., list[Any]]:
    """What is beside and in the checkpoints that have effects stays fused; they themselves are JAX's."""

    def evaluated(jaxpr: Any, *args: Any) -> list[Any]:
        found: Parts | None = _derived(jaxpr, ("parts",), lambda: [parts_of(jaxpr)])[0]
        if found is None:
            return run(jaxpr, *args)
        return run_in_parts(jaxpr, found, lambda part, values: bind(part, values, name=name, **settings), args)

    return evaluated


def not_split(name: str) -> NotFusible:
    return NotFusible(
        f"the derivative of {name} stays with XLA: a derivative rule in it has side effects, or cannot be linearized",
        hint="differentiate outside of the fused function, or leave it to XLA (drop strict=True)",
    )


def _transpose(cotangents: Sequence[Any], *args: Any, jaxpr: Any, name: str, **settings: Any) -> list[Any]:
    linear = tuple(ad.is_undefined_primal(arg) for arg in args)
    nonzero = tuple(type(ct) is not ad.Zero for ct in cotangents)
    operands = [arg for arg, is_linear in zip(args, linear) if not is_linear]
    operands += [ct for ct, is_nonzero in zip(cotangents, nonzero) if is_nonzero]
    try:
        back = transposed_program(jaxpr, linear, nonzero)
    except Exception as problem:
        instead = "JAX makes its gradient, and XLA runs that"
        with instead_of(problem, name, settings["strict"], instead), pointing_at_loops(jaxpr):
            results = iter(split.plain_transpose(jaxpr, linear, nonzero, operands))
            return [next(results) if is_linear else None for is_linear in linear]
    operands = [*back.captured, *operands]
    results = iter(bind(back.program, operands, name=backward_name(name), **settings) if any(back.reaching) else ())
    reaches = iter(back.reaching)
    return [
        None if not is_linear else next(results) if next(reaches) else ad.Zero(arg.aval)
        for arg, is_linear in zip(args, linear)
    ]


def _batch(axis: Any, args: Sequence[Any], dims: Sequence[Any], *, jaxpr: Any, name: str, **settings: Any) -> Any:
    key = ("batch", tuple(dims), axis.size, axis.name, axis.spmd_name, tuple(jax.typeof(arg) for arg in args))
    try:
        batch = _derived(jaxpr, key, lambda: split.batch(jaxpr, args, dims, axis.size, axis.name, axis.spmd_name))
    except Exception as problem:
        with instead_of(problem, name, settings["strict"], "JAX batches it, and XLA runs that"):
            batched, out_dims = split.plain_batch(jaxpr, dims, axis.size, axis.name, axis.spmd_name)
            return batched(*args), list(out_dims)
    return bind(batch.program, [*batch.captured, *args], name=f"{name}_vmap", **settings), list(batch.out_dims)


def _dce(used_outputs: list[bool], *rest: Any) -> tuple[list[bool], Any]:
    eqn = rest[-1]  # since 0.12 the references that are still alive come before it
    if not any(used_outputs) and not eqn.effects:
        return [False] * len(eqn.invars), None
    jaxpr = eqn.params["jaxpr"]
    try:
        program, used_inputs = _derived(jaxpr, ("prune", tuple(used_outputs)), lambda: prune(jaxpr, used_outputs))
    except Exception as problem:
        with instead_of(problem, eqn.params["name"], eqn.params["strict"], "all of its outputs are computed"):
            return [True] * len(eqn.invars), eqn
    if all(used_outputs) and all(used_inputs):
        return used_inputs, eqn
    return used_inputs, eqn.replace(
        invars=[atom for atom, used in zip(eqn.invars, used_inputs) if used],
        outvars=[var for var, used in zip(eqn.outvars, used_outputs) if used],
        params={**eqn.params, "jaxpr": program},
        effects=program.effects,
    )


def _remat(
    policy: Callable[..., Any], unknown: Sequence[bool], there: Sequence[bool], eqn: Any
) -> tuple[Any, Any, list[bool], list[bool], list[Any]]:
    """What JAX does where there is no rule, but for effects: what is computed a second time tells it a second time.

    It is the equation before, and that after; which outputs are known after only, and which are there again; what has
    to be kept.
    """
    wanted = [atom for atom, again in zip(eqn.invars, there) if not again and not isinstance(atom, jex.Literal)]
    none, every = [False] * len(eqn.outvars), [True] * len(eqn.outvars)
    if any(unknown):
        return None, eqn, every, every, wanted
    if not is_recomputed(policy(eqn.primitive, *[atom.aval for atom in eqn.invars], **eqn.params)):
        return eqn, None, none, none, []
    return eqn, eqn, none, every, wanted


def _to_low(*args: Any, jaxpr: Any, **settings: Any) -> list[Any]:
    """Since 0.11 some functions, such as `custom_root`, stay high-level as long as one may ask for a derivative."""
    try:
        low = _derived(jaxpr, ("lower",), lambda: lower(jaxpr))
    except Exception as problem:
        with instead_of(problem, settings["name"], settings["strict"], "XLA runs the whole program"):
            return run(jaxpr, *args)
    return bind(low.program, [*low.captured, *args], **settings)


ad.primitive_jvps[fused_p] = _jvp
ad.primitive_transposes[fused_p] = _transpose
batching.fancy_primitive_batchers[fused_p] = _batch
pe.dce_rules[fused_p] = _dce
pe.partial_eval_jaxpr_custom_rules[fused_p] = _remat
set_lowering_of_high_level(fused_p, _to_low)
