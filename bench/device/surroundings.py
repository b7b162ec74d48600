"""What is on the machine, in five lines, and what to do about each that fails: `python -m bench.device.surroundings`.

    driver   580.159.04
    plugin   jax 0.11.2 sees 1 device of cuda
    ptxas    13.0, of /usr/local/cuda/bin/ptxas
    device   NVIDIA H100 80GB HBM3, sm_90, 1980 of 1980 MHz, 78.6 of 79.6 GiB free
    kernel   fused, launched and right

The last line that it prints is the same for programs, in JSON. Whatever is missing is said and does no harm, but where
a line begins with `!`: then nothing can be measured.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.device import REHEARSED

NEEDED = ("jax", "triton", "numpy")
OPTIONAL = {
    "hypothesis": "no drawn programs",
    "pytest": "no `pytest -m gpu`",
    "torch": "no torch.compile beside it",
}
OLDEST = 8.0  # compute capability
LITTLE = 8.0  # GiB: the largest programs take as much
GIB = 2.0**30
CLOCK_SM, TEMPERATURE = 1, 0  # NVML's numbers for them


@dataclass
class Found:
    """What is here; the first problem says what to do about it."""

    lines: list[str] = field(default_factory=list)
    problem: str = ""
    device: str = ""
    target: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def line(self, what: str, text: str) -> None:
        self.lines.append(f"  {what:8} {text}")

    def fail(self, what: str, text: str) -> None:
        self.lines.append(f"! {what:8} {text}")
        self.problem = self.problem or f"{what}: {text}"


class Nvml:
    """NVIDIA's library for managing devices, where it is: clocks and memory without a context on the device."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            self._library = None
        self._device = ctypes.c_void_p()
        if self._library is not None and (
            self._library.nvmlInit_v2() or self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device))
        ):
            self._library = None

    def driver(self) -> str:
        text = ctypes.create_string_buffer(96)
        if self._library is None or self._library.nvmlSystemGetDriverVersion(text, 96):
            return ""
        return text.value.decode()

    def clock(self, most: bool = False) -> float | None:
        """MHz of the processors, now or at most."""
        found = ctypes.c_uint()
        if self._library is None:
            return None
        ask = self._library.nvmlDeviceGetMaxClockInfo if most else self._library.nvmlDeviceGetClockInfo
        return None if ask(self._device, CLOCK_SM, ctypes.byref(found)) else float(found.value)

    def memory(self) -> tuple[float, float] | None:
        """GiB that are free, and all."""
        found = (ctypes.c_ulonglong * 3)()  # total, free, used
        if self._library is None or self._library.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(found)):
            return None
        return found[1] / GIB, found[0] / GIB


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in (*NEEDED, "jaxlib", "torch", "hypothesis"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def look() -> Found:
    found = Found(versions=versions())
    missing = [name for name in NEEDED if name not in found.versions]
    if missing:
        found.fail("python", f"{', '.join(missing)} cannot be imported: pip install {' '.join(missing)}")
        return found
    found.missing = [
        f"{name} is not here: {what}" for name, what in OPTIONAL.items() if not importlib.util.find_spec(name)
    ]
    nvml = Nvml()
    for step in (driver, plugin, ptxas, device, kernel):
        if not found.problem:
            step(found, nvml)
    return found


def driver(found: Found, nvml: Nvml) -> None:
    if os.environ.get(REHEARSED):
        found.line("driver", "none: the stand-in driver, which has no clock; times mean nothing")
        return
    if name := nvml.driver():
        found.versions["driver"] = name
        found.line("driver", name)
    elif os.path.exists("/dev/kfd"):
        found.line("driver", "AMD's")
    else:
        found.fail("driver", "none is loaded: install the driver, or give the device to the container (--gpus all)")


def plugin(found: Found, nvml: Nvml) -> None:
    jax = importlib.import_module("jax")
    try:
        devices = jax.devices()
    except RuntimeError as problem:
        found.fail("plugin", f"jax {jax.__version__} does not start: {' '.join(str(problem).split())[:200]}")
        return
    if devices[0].platform not in ("gpu", "cuda", "rocm"):
        found.fail("plugin", f"jax {jax.__version__} sees no device: pip install 'jax[cuda13]' (or jax[cuda12])")
        return
    found.device = devices[0].device_kind
    found.line("plugin", f"jax {jax.__version__} sees {len(devices)} device{'s'[: len(devices) > 1]}")


def ptxas(found: Found, nvml: Nvml) -> None:
    jax = importlib.import_module("jax")
    if "rocm" in str(jax.devices()[0].client.platform_version).lower():
        found.line("ptxas", "not needed for AMD")
        return
    place = shutil.which("ptxas") or next(
        (file for file in ("/usr/local/cuda/bin/ptxas", "/opt/cuda/bin/ptxas") if os.path.exists(file)), ""
    )
    if not place:
        found.line("ptxas", "none on PATH: the one of pip's packages is taken, if there is one")
        return
    told = subprocess.run([place, "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release ([\d.]+)", told)
    found.versions["ptxas"] = release[1] if release else "?"
    found.line("ptxas", f"{found.versions['ptxas']}, {place}")


def device(found: Found, nvml: Nvml) -> None:
    jax = importlib.import_module("jax")
    capability = str(jax.devices()[0].compute_capability)
    if re.fullmatch(r"[\d.]+", capability) and float(capability) < OLDEST:
        found.fail("device", f"{found.device} has compute capability {capability}: kernels need {OLDEST} or newer")
        return
    found.target = importlib.import_module("jaxpr2triton.launch.call.devices").planned_for().name
    clocks = "" if nvml.clock() is None else f", {nvml.clock():.0f} of {nvml.clock(most=True) or 0:.0f} MHz"
    memory = nvml.memory()
    free = "" if memory is None else f", {memory[0]:.1f} of {memory[1]:.1f} GiB free"
    little = memory is not None and memory[0] < LITTLE
    advice = "; the largest programs may not fit: end what else runs there" if little else ""
    found.line("device", f"{found.device}, {found.target}{clocks}{free}{advice}")


def kernel(found: Found, nvml: Nvml) -> None:
    """One that is fused and launched; the stand-in driver launches it and computes nothing."""
    jax, numpy = importlib.import_module("jax"), importlib.import_module("numpy")
    fuse = importlib.import_module("jaxpr2triton").fuse
    x = numpy.arange(5000, dtype=numpy.float32)
    try:
        result = numpy.asarray(jax.jit(fuse(lambda x: x * 2 + 1, backend="triton"))(x))
    except Exception as problem:  # whatever it is, nothing can be measured then
        text = " ".join(str(problem).split())[:300]
        found.fail("kernel", f"{type(problem).__name__}: {text}; the driver or ptxas may be too old for Triton's code")
        return
    if not os.environ.get(REHEARSED) and not numpy.array_equal(result, x * 2 + 1):
        found.fail("kernel", "a first kernel gave wrong numbers: is the device damaged? try another one")
        return
    found.line("kernel", "fused and launched" + ("" if os.environ.get(REHEARSED) else ", and right"))


def asked(rehearse: bool, seconds: float) -> Found:
    """What a process of its own finds, so that a driver that hangs is a line as well."""
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **({REHEARSED: "1"} if rehearse else {})}
    command: Sequence[str] = [sys.executable, "-m", "bench.device.surroundings"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
        words: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return Found(problem=f"the driver did not answer for {seconds:.0f} s: restart the machine or the container")
    except (IndexError, ValueError):
        return Found(problem=f"JAX ends the process: {' '.join(done.stderr.split())[-300:]}")
    return Found(**words)


if __name__ == "__main__":
    if os.environ.get(REHEARSED):
        importlib.import_module("tests.standin.start").started()
    print(json.dumps(asdict(look())))
