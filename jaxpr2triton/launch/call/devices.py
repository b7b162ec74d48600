"""Which target a kernel is compiled for: the knob's, else the local device's, else a default."""

from __future__ import annotations

import dataclasses

import jax

from jaxpr2triton.errors import KernelRefused, UserError
from jaxpr2triton.hardware import DEFAULT_TARGET, TARGETS, Target, target_named
from jaxpr2triton.knobs import read_knobs

_DEFAULTS = {"cuda": DEFAULT_TARGET, "rocm": TARGETS["gfx942"]}
_BACKENDS = {"cuda": "cuda", "rocm": "hip"}


def planned_for(platform: str = "") -> Target:
    """The target that a program is planned for, on the platform for which it is lowered, or else by itself.

    What no platform says, the knob does, or a local device, or the default. A device that is refused when its kernels
    are compiled counts as its platform's default until then.
    """
    if not platform:
        if wanted := _wanted():
            return wanted
        platform = next((each for each in _DEFAULTS if _local_capability(each)), "cuda")
    try:
        return target_for(platform)
    except KernelRefused:
        return _DEFAULTS[platform]


def target_for(platform: str) -> Target:
    """The target for code that is lowered for `platform`, cuda or rocm; no device is needed.

    A local device has as many processors as it says: fewer than others of its kind, or a part of them.
    """
    wanted = _wanted()
    if wanted and wanted.backend == _BACKENDS[platform]:
        found = wanted
    else:
        capability = _local_capability(platform)
        found = _DEFAULTS[platform] if capability is None else target_of_capability(capability)
    processors = _local_processors(platform)
    return dataclasses.replace(found, processors=processors) if processors not in (0, found.processors) else found


def _wanted() -> Target | None:
    """The knob's."""
    name = read_knobs().target
    try:
        return target_named(name) if name else None
    except UserError as problem:
        raise UserError(f"J2T_TARGET: {problem.what}", hint=problem.hint) from None


def _local_capability(platform: str) -> str | None:
    """What the first local device of that platform says it is: 9.0, or gfx942:sramecc+:xnack-."""
    devices = _local_devices(platform)
    return str(devices[0].compute_capability) if devices else None


def _local_processors(platform: str) -> int:
    """Of the local device of that platform that has the fewest; zero if none says how many it has."""
    return min((getattr(device, "core_count", 0) for device in _local_devices(platform)), default=0)


def _local_devices(platform: str) -> list[jax.Device]:
    try:
        return jax.local_devices(backend=platform)
    except RuntimeError:  # there is no such backend on this machine
        return []


def target_of_capability(capability: str) -> Target:
    """9.0 → sm_90. A device that is not listed takes the limits of the nearest listed one before it."""
    if capability.startswith("gfx"):
        name = capability.partition(":")[0]
        if name not in TARGETS:
            raise KernelRefused(f"kernels are not compiled for {name}, only for " + ", ".join(TARGETS))
        return TARGETS[name]
    arch = int(capability.replace(".", ""))
    name = f"sm_{arch}"
    if name in TARGETS:
        return TARGETS[name]
    older = [target for target in TARGETS.values() if isinstance(target.arch, int) and target.arch < arch]
    if not older:
        raise KernelRefused(f"devices of compute capability {capability} are too old for Triton's kernels")
    nearest = max(older, key=lambda target: target.arch)
    return dataclasses.replace(nearest, name=name, arch=arch)
