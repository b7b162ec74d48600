"""How the primitive is lowered: as kernels or as XLA's, for one device or for several."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jax.interpreters import mlir

from jaxpr2triton._compat import device_count, lowered_for_any
from jaxpr2triton.errors import BackendError
from jaxpr2triton.front.derived_programs import derived
from jaxpr2triton.front.devices import Cut, Splittable, lying_as_before, over_devices, splittable
from jaxpr2triton.front.fused import bind, fused_p
from jaxpr2triton.front.options import HOST_ONLY, KERNELS, Settings
from jaxpr2triton.front.planning import compiled_program
from jaxpr2triton.ir.jaxprs import equations
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.launch.call.callbacks import calling_through, reserve_callbacks
from jaxpr2triton.launch.call.devices import planned_for
from jaxpr2triton.launch.call.primitive import Mode
from jaxpr2triton.rules.products import is_unsaid
from jaxpr2triton.shards.constraints import run_between


def _outputs(platform: str | None, name: str, settings: Settings, jaxpr: Any, *args: Any) -> list[Any]:
    """Where there is no GPU, XLA runs the program, unless the kernels were asked for."""
    backend = settings.backend
    if platform is None and backend == "triton":
        raise BackendError(
            'backend="triton" runs on CUDA and ROCm devices only, and this program is to run elsewhere',
            hint='backend="auto" to let XLA run it there, or backend="interpret" to run the kernels in Triton\'s '
            "interpreter",
        )
    if _has_kernels(platform, backend):
        on_device = platform is not None and backend not in HOST_ONLY
        mode: Mode = "device" if on_device else "machine" if backend == "machine" else "interpret"
        return _run_kernels(platform, mode, jaxpr, name, settings, args)
    if backend != "xla" and (settings.strict or settings.roles.asked):  # what a GPU would refuse is refused here too
        compiled_program(jaxpr, name, settings)
    return run(jaxpr, *args)


def _run_kernels(
    platform: str | None, mode: Mode, jaxpr: Any, name: str, settings: Settings, args: Sequence[Any]
) -> list[Any]:
    target = settings.target or (None if platform is None else planned_for(platform))
    if mode != "device" and _multiplies_as_usual(jaxpr):  # which is all bits, on a CPU
        target = replace(target or planned_for(), tf32=False)
    try:
        compiled = compiled_program(jaxpr, name, replace(settings, target=target))
        return compiled.run(mode, settings.strict, *args)
    except Exception as problem:
        with settings.instead_of(problem, name, "XLA runs the whole program"):
            return run(jaxpr, *args)


def _multiplies_as_usual(jaxpr: Any) -> bool:
    """Whether it has contractions of f32 of which nobody said how exact they are."""
    return any(eqn.primitive.name == "dot_general" and is_unsaid(eqn) for eqn in equations(jaxpr.jaxpr))


def _lowered(platform: str | None, ctx: Any, *args: Any, jaxpr: Any, name: str, **params: Any) -> Any:
    """On several devices each runs its part, as far as the program can be split."""
    settings, count = Settings(**params), device_count(ctx)
    splits = count > 1 and _has_kernels(platform, settings.backend) and not settings.roles.asked
    found = _found_splittable(jaxpr, name, settings) if splits else None
    here = functools.partial(_outputs, platform, name, settings)
    if found is None:
        return mlir.lower_fun(functools.partial(here, jaxpr), multiple_results=True)(ctx, *args)
    if isinstance(found, Cut):
        over = functools.partial(run_between, found.jaxpr, go=lambda part, values: bind(part, values, name, settings))

        def cut(*values: Any) -> list[Any]:
            operands = [*found.held, *values]
            return lying_as_before(found.jaxpr, operands, over(operands), count)

        return mlir.lower_fun(cut, multiple_results=True)(lowered_for_any(ctx), *args)
    callbacks = None if platform and settings.backend not in HOST_ONLY else reserve_callbacks(ctx)

    def whole(program: Any, operands: Sequence[Any]) -> list[Any]:
        with calling_through(callbacks):
            return here(program, *operands)

    def tell(problem: Exception) -> contextlib.AbstractContextManager[None]:
        return settings.instead_of(problem, name, "every device runs the whole program")

    over = functools.partial(over_devices, found, count=count, whole=whole, tell=tell)
    return mlir.lower_fun(lambda *values: over(values), multiple_results=True)(lowered_for_any(ctx), *args)


def _has_kernels(platform: str | None, backend: str) -> bool:
    return backend in (*HOST_ONLY, KERNELS) or (platform is not None and backend != "xla")


def _found_splittable(jaxpr: Any, name: str, settings: Settings) -> Splittable | Cut | None:
    try:
        return derived(jaxpr, ("splittable",), lambda: [splittable(jaxpr)])[0]
    except Exception as problem:
        with settings.instead_of(problem, name, "every device runs the whole program"):
            return None


mlir.register_lowering(fused_p, functools.partial(_lowered, None))
for _platform in ("cuda", "rocm"):
    mlir.register_lowering(fused_p, functools.partial(_lowered, _platform), platform=_platform)
