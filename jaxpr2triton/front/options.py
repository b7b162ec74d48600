"""What a user asks for, beside a function and its arguments."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import jax

from jaxpr2triton.errors import UserError
from jaxpr2triton.front.fused import BACKENDS
from jaxpr2triton.front.schedules import read_schedules
from jaxpr2triton.ir.roles import Checkpoint, Contractions, Roles, Schedule, parse_roles


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

    def asked(self, function: str, backend: str = "auto") -> Roles:
        """For the program of that name, checked as far as that goes without the kernels."""
        if not isinstance(self.strict, bool):
            raise UserError(f"strict={self.strict!r} is not a choice", hint="True or False")
        options = self.contractions, self.checkpoint, self.exact_order, self.schedule
        return parse_roles(function, self.roles, *options, backend, read_schedules(self.schedules))


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
