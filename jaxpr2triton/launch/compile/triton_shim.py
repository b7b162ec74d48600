"""The only way to the modules that import Triton, and the lock that guards Triton's global state.

Importing Triton costs half a second, and a warm cache of compiled kernels does not need it. So the modules of `launch/`
come in two kinds: those named in `TRITON_SIDE` import Triton when they are imported, all others never do, and
the second kind reaches the first only through `triton_side`.
"""

from __future__ import annotations

import functools
import importlib
import threading
from importlib import metadata
from types import ModuleType

from jaxpr2triton.errors import BackendError

TRITON_SIDE = (
    *("interpret.interpreter", "interpret.builder", "interpret.semantic", "interpret.reduce", "interpret.meetings"),
    "compile.triton_compiler",
)

# The interpreter replaces parts of `triton.language` while it runs. Whoever interprets, or compiles in this very
# process, holds this lock.
TRITON_LOCK = threading.Lock()


def triton_side(name: str) -> ModuleType:
    """The module `jaxpr2triton.launch.<name>`, imported on first use because it imports Triton."""
    triton_version()
    return importlib.import_module(f"jaxpr2triton.launch.{name}")


@functools.cache
def triton_version() -> str:
    """Triton's version, read from its metadata without importing it."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        raise BackendError("Triton is not installed", hint="pip install triton, or backend='xla'") from None
