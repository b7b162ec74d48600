"""Every environment variable of the package, typed, in one place."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from jaxpr2triton.errors import UserError

PREFIX = "J2T_"


@dataclass(frozen=True)
class Knobs:
    """J2T_CACHE_DIR, J2T_CACHE, J2T_CACHE_SIZE, J2T_TARGET, J2T_BACKEND, J2T_RAISE."""

    cache_dir: Path = Path("~/.cache/jaxpr2triton")  # compiled kernels; in XDG_CACHE_HOME if it is set
    cache: bool = True  # keep compiled kernels on disk
    cache_size: int = 1000  # megabytes of them; what was used least recently goes first
    target: str = ""  # compile for this target when no device says otherwise: sm_90, gfx942, ...
    backend: str = ""  # what backend="auto" means: auto, triton, interpret, machine or xla
    raise_: bool = False  # a mistake of this compiler's is raised where it happens, and nothing is left to XLA for it


def _flag(text: str) -> bool:
    match text.strip().lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off" | "":
            return False
        case _:
            raise ValueError("expected 0 or 1")


def _megabytes(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("expected a number of megabytes")
    return int(text)


def _default_folder(environ: Mapping[str, str]) -> Path:
    caches = environ.get("XDG_CACHE_HOME", "")
    return Path(caches) / "jaxpr2triton" if os.path.isabs(caches) else Knobs.cache_dir.expanduser()


_PARSERS: dict[str, Callable[[str], object]] = {
    "cache_dir": lambda text: Path(text).expanduser(),
    "cache": _flag,
    "cache_size": _megabytes,
    "target": str,
    "backend": str,
    "raise_": _flag,
}


def read_knobs(environ: Mapping[str, str] | None = None) -> Knobs:
    """The knobs as the environment sets them now; a misspelt variable is an error that lists the known ones."""
    environ = os.environ if environ is None else environ
    known = {PREFIX + field.name.rstrip("_").upper(): field.name for field in fields(Knobs)}
    values: dict[str, object] = {"cache_dir": _default_folder(environ)}
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        if variable not in known:
            names = [name.removeprefix(PREFIX) for name in known]
            close = difflib.get_close_matches(variable.removeprefix(PREFIX), names, 1)
            raise UserError(
                f"unknown environment variable {variable}; known are {', '.join(sorted(known))}",
                hint=PREFIX + close[0] if close else None,
            )
        name = known[variable]
        if name == "cache_dir" and not environ[variable]:  # as if it were not set
            continue
        try:
            values[name] = _PARSERS[name](environ[variable])
        except ValueError as problem:
            raise UserError(f"{variable}={environ[variable]!r}: {problem}") from None
    return Knobs(**values)  # type: ignore[arg-type]  # the parsers above give each field its type
