"""What a user asks for, beside a function and its arguments, and what follows from it for one program."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import jax

from jaxpr2triton.errors import UserError
from jaxpr2triton.front.schedules import read_schedules
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.roles import NO_ROLES, Checkpoint, Contractions, Roles, Schedule, parse_roles
from jaxpr2triton.mistakes import instead_of

# What a user may ask for.
Backend = Literal["auto", "triton", "interpret", "machine", "xla"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
# Inside the package also: kernels everywhere, on the device where there is one and in the interpreter elsewhere.
KERNELS = "kernels"
HOST_ONLY = ("interpret", "machine")  # those that run kernels on the host, whatever the program is lowered for


@dataclass(frozen=True)
class Settings:
    """How a program is compiled and run: the parameters of the primitive, beside the program and its name."""

    backend: str = KERNELS
    strict: bool = False
    roles: Roles = NO_ROLES
    target: Target | None = None  # None: it is planned for the one that it is lowered for

    @property
    def refuses_xla(self) -> bool:
        return self.strict and self.backend != "xla"

    def instead_of(self, problem: Exception, name: str, instead: str) -> contextlib.AbstractContextManager[None]:
        """For the other way to what a mistake kept the program from; an error under `strict`."""
        return instead_of(problem, name, self.strict, instead)


@dataclass(frozen=True)
class Options:
    """How a function is to be planned; of a function that is fused, what `fuse` was told."""

    strict: bool = False
    roles: Mapping[str, str] | None = None
    contractions: Contractions = "auto"
    checkpoint: Checkpoint = None
    exact_order: bool = False
    schedule: Schedule = "estimate"
    schedules: Any = None
    static_argnums: int | Sequence[int] | None = None
    static_argnames: str | Iterable[str] | None = None

    @property
    def of_plans(self) -> dict[str, Any]:
        """All but what is static."""
        return {name: value for name, value in vars(self).items() if name in OF_PLANS}

    @property
    def static(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in OF_PLANS}

    def settings(self, function: str, backend: str, target: Target | None = None) -> Settings:
        """For the program of that name, checked as far as that goes without the kernels."""
        if not isinstance(self.strict, bool):
            raise UserError(f"strict={self.strict!r} is not a choice", hint="True or False")
        options = self.contractions, self.checkpoint, self.exact_order, self.schedule
        own = "auto" if backend == KERNELS else backend
        roles = parse_roles(function, self.roles, *options, own, read_schedules(self.schedules))
        return Settings(backend, self.strict, roles, target)


OF_PLANS = frozenset(each.name for each in fields(Options) if not each.name.startswith("static"))
OF_JIT = frozenset(inspect.signature(jax.jit).parameters) - {"fun", "backend"}
OF_FUSE = OF_PLANS | OF_JIT | {"backend"}
OF_TRANSPILE = OF_PLANS | {"static_argnums", "static_argnames", "grad", "for_target"}
OF_EXPLAIN = frozenset({"grad", "why", "cycles"})
_TAKEN = {
    "fuse": (OF_FUSE, "fuse({}, {}=...)"),
    "transpile": (OF_TRANSPILE, "transpile({}, {}=...)"),
    "explain": (OF_EXPLAIN, "transpile({}, ...).explain({}=...)"),
}  # whose options, and how they are given


def known_backend(option: str, backend: str) -> str:
    if backend not in BACKENDS:
        raise UserError(f"{option}={backend!r} is not a backend", hint="one of " + ", ".join(BACKENDS))
    return backend


def unexpected_by_fuse(option: str) -> TypeError:
    return TypeError(f"fuse() got an unexpected keyword argument {option!r}{_meant(option, OF_FUSE)}")


def _meant(option: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(option, sorted(known), 1)
    return f". Did you mean {close[0]!r}?" if close else ""


def refuse_options_of_others(function: Callable[..., Any], name: str, keywords: Iterable[str], asker: str) -> None:
    """Keywords that are no arguments of the function, but options of ours that the asker has not, or nearly its own."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins have no signature
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    for word in keywords:
        if any(each.name == word for each in parameters):
            continue
        what = f"{word!r} is neither an argument of {name} nor an option of {asker}"
        for other, (known, given) in _TAKEN.items():
            if word in known:
                raise UserError(what, hint=f"it is an option of {other}: {given.format(name, word)}")
        if close := _meant(word, _TAKEN[asker][0]):
            raise UserError(f"{what}{close}")
