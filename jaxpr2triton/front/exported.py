"""Programs in other processes: what can be pickled of them is what there is to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.kernel import Alone, Apart, Divided, Kernel, Leftover
from jaxpr2triton.ir.recorded import Recorded
from jaxpr2triton.pipeline import Compiled
from jaxpr2triton.policy import Policy


@dataclass(frozen=True)
class Exported:
    """A compiled program without the jaxprs that running it takes; they become text."""

    name: str
    kernels: tuple[Kernel, ...]
    leftovers: tuple[Leftover, ...]
    apart: tuple[Apart, ...]
    alone: Alone
    steps: tuple[str, ...]
    divided: tuple[Divided, ...]
    schedules: tuple[Recorded, ...]
    in_avals: tuple[jax.ShapeDtypeStruct, ...]
    out_avals: tuple[jax.ShapeDtypeStruct, ...]
    stages: Mapping[str, str]
    policy: Policy


def exported(compiled: Compiled | Exported) -> Exported:
    if isinstance(compiled, Exported):
        return compiled
    inputs, outputs = (tuple(map(_shaped, avals)) for avals in (compiled.in_avals, compiled.out_avals))
    stages = {name: str(stage) for name, stage in compiled.stages.items()}
    return Exported(
        compiled.name,
        compiled.kernels,
        compiled.leftovers,
        compiled.apart,
        compiled.alone,
        compiled.steps,
        compiled.divided,
        compiled.schedules,
        inputs,
        outputs,
        stages,
        compiled.policy,
    )


def _shaped(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


@dataclass(frozen=True)
class NotCallable:
    """What an unpickled program runs: nothing."""

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise not_callable(self.name)


def not_callable(name: str) -> UserError:
    return UserError(
        f"{name} was unpickled: it can be looked at, but not called",
        hint="transpile the function again in this process",
    )
