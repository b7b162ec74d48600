"""Has JAX take the stand-in driver, in this process and from now on; and everything private of JAX that this needs."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from tests.standin import build

FLAGS = (
    "--xla_gpu_autotune_level=0",  # else XLA takes times of candidates, and chooses by noise
)
ENVIRONMENT = {
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # NVIDIA's other libraries are not there
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
ALLOCATOR = "XLA_PYTHON_CLIENT_ALLOCATOR"
POOL = "default"  # as on a device
COMPUTED = "STANDIN_COMPUTES"  # whether pytest's plugin has kernels computed
EACH_BY_ITSELF = "platform"  # every array is an allocation: bounds are exact, and XLA waits before it frees


@functools.cache
def started() -> ctypes.CDLL:
    """The driver, where `build.why_not` has nothing to say. The first call comes before JAX is imported.

    JAX loads NVIDIA's libraries where it finds them, and the loader takes those first whose names it has seen. Arrays
    are taken from a pool, unless `ALLOCATOR` says something else in the environment.
    """
    if "jax" in sys.modules:
        raise RuntimeError("the stand-in driver is to be started before JAX is imported")
    folder = build.built()
    for library in build.LIBRARIES:
        ctypes.CDLL(str(folder / library.soname), ctypes.RTLD_GLOBAL)
    os.environ.update(ENVIRONMENT)
    os.environ.setdefault(ALLOCATOR, POOL)
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS]).strip()
    os.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"  # the ptxas of our own calls
    let_jax_believe(folder)
    return ctypes.CDLL(str(folder / build.DRIVER.soname))


def is_started() -> bool:
    return started.cache_info().currsize > 0


def let_jax_believe(folder: Path) -> None:
    """What JAX has no setting for."""
    replace("jax._src.hardware_utils", "has_visible_nvidia_gpu", lambda: True)  # it looks for /dev/nvidia0
    replace("jax._src.lib", "cuda_path", str(folder))  # where XLA looks for ptxas and libdevice
    replace("jax_plugins.xla_cuda13", "_load_nvidia_libraries", lambda: None)  # ours are loaded


def replace(module: str, name: str, value: str | Callable[[], object]) -> None:
    """A private name of JAX gets another value; a name that is gone is an error that says what to look for."""
    found = importlib.import_module(module)
    if not hasattr(found, name):
        raise RuntimeError(
            f"jax {version('jax')} has no {module}.{name}, which the stand-in driver replaces: "
            "look for what does its work now, and change tests/standin/start.py"
        )
    setattr(found, name, value)
