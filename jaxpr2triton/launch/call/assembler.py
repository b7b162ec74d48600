"""Which ptxas JAX will give our PTX to, and whether that one can read it.

jaxlib's call takes PTX, and looks for a ptxas by itself: in ./bin, on PATH, where toolkits usually lie, and last among
pip's packages, which are the first that XLA takes for its own kernels. So an old toolkit on the machine breaks our
kernels alone, and it does so when XLA compiles, where nothing can be done instead. Hence the same search here, earlier.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from jaxpr2triton.errors import AssemblerTooOld
from jaxpr2triton.hardware import Target
from jaxpr2triton.launch.compile.compile import ptx_version

# JAX's plugins, in the order in which it takes them, and where pip puts a ptxas for each.
_PLUGINS = {"jax_cuda13_plugin": "nvidia/cu13", "jax_cuda12_plugin": "nvidia/cuda_nvcc"}
_USUAL = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_OLDEST, _LEFT_OUT = (11, 8, 0), (12, 3, 103)  # jaxlib goes on looking when it meets an older one, or this one
_SECONDS = 5  # for a ptxas to say its version


@dataclass(frozen=True)
class Assembler:
    """A ptxas, and the version of its toolkit."""

    path: str
    version: tuple[int, ...]  # 12, 4, 131

    def __str__(self) -> str:
        return f"{self.path} of CUDA {self.version[0]}.{self.version[1]}"

    @property
    def newest_ptx(self) -> int:
        """The newest PTX that it reads: CUDA 12.4 → 84, which is 8.4. Only 12.6 came without a new one."""
        major, minor, *_ = self.version
        match major:
            case 11:
                return 70 + minor
            case 12:
                return 80 + minor - (minor > 5)
            case _:
                return 90 + 10 * (major - 13) + minor


def check_assembler(target: Target) -> None:
    """`AssemblerTooOld` if the ptxas that JAX will take cannot read our kernels for the target.

    It knows the device if it can: `ptx_version` is never older than the PTX that came with the device. Where JAX has no
    plugin for CUDA, or there is no ptxas, nothing is known, and nothing is said.
    """
    assert isinstance(target.arch, int)
    found = assemblers()
    taken, needed = next(found, None), ptx_version(target.arch)
    if taken is None or taken.newest_ptx >= needed:
        return
    better = next((each for each in (*found, *_tritons()) if each.newest_ptx >= needed), None)
    where = f", as in {os.path.dirname(better.path)}," if better else " (pip install nvidia-cuda-nvcc has one)"
    raise AssemblerTooOld(
        f"JAX would assemble kernels for {target.name} with {taken}, which reads PTX {_dotted(taken.newest_ptx)} "
        f"at most, and they need {_dotted(needed)}",
        hint=f"put a newer ptxas{where} first on PATH",
    )


def assemblers() -> Iterator[Assembler]:
    """Those that jaxlib would take, the first one first; each is asked for its version when its turn comes.

    Like jaxlib it passes over those that cannot say their version.
    """
    for folder in _folders():
        each = _assembler(folder)
        if each and each.version >= _OLDEST and each.version != _LEFT_OUT:
            yield each


def _folders() -> list[str]:
    """Where jaxlib looks; Bazel's folders are left out. The last two are for conda: the prefix of an environment."""
    plugin = next(filter(_place, _PLUGINS), "")
    if not plugin:
        return []
    path = os.environ["PATH"].split(os.pathsep) if "PATH" in os.environ else []
    pips = _PLUGINS[plugin]
    roots = [f"../{pips}", f"../../{pips}", "cuda", "../../../..", "../../../../.."]
    inside = [os.path.join(_place(plugin), root, "bin") for root in roots]
    return ["bin", *path, *_USUAL, *inside]


def _tritons() -> list[Assembler]:
    """The one that Triton's wheel brings along: JAX does not look there."""
    each = _assembler(os.path.join(_place("triton"), "backends", "nvidia", "bin"))
    return [each] if each else []


def _place(package: str) -> str:
    """The folder of a package; empty if it is not installed."""
    spec = importlib.util.find_spec(package)
    return next(iter(spec.submodule_search_locations or ()), "") if spec else ""


def _assembler(folder: str) -> Assembler | None:
    path = os.path.abspath(os.path.join(folder, "ptxas"))
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError:  # most folders have none
        return None
    version = _version(path, changed)
    return Assembler(path, version) if version else None


@functools.lru_cache(maxsize=64)
def _version(path: str, changed: int) -> tuple[int, ...]:
    """What `ptxas --version` says: V12.4.131 → (12, 4, 131). Empty if it fails or says something else."""
    command = [path, "--version"]
    try:
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.search(rb"\bV(\d+)\.(\d+)\.(\d+)\b", said.stdout)
    return tuple(map(int, found.groups())) if found else ()


def _dotted(ptx: int) -> str:
    """84 → 8.4."""
    return f"{ptx // 10}.{ptx % 10}"
