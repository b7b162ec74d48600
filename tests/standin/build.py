"""Compiles the stand-in driver, and the libraries that JAX's CUDA plugin loads beside it, with gcc.

    driver/*.c  →  libcuda.so.1, libcudart.so.13, libnvidia-ml.so.1, libcublas.so.13, libcublasLt.so.13, libcudnn.so.9,
                   and bin/ptxas, which leaves the PTX behind each cubin that the real one makes

Nobody writes down what the plugin may ask for: the names are found in the plugin, and those that `driver/` lacks become
entries that say so when they are called. The result is kept on disk, by a hash of all that goes into it. Nothing here
imports JAX, which loads the libraries of NVIDIA that it finds.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import mmap
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "driver"
PTXAS = SOURCES / "ptxas.sh"
# The driver writes through pointers of other types on purpose.
FLAGS = (
    "-O1", "-g", "-fPIC", "-shared", "-fno-strict-aliasing", "-fno-builtin", "-fvisibility=hidden", "-Wall", "-Werror",
)  # fmt: skip


@dataclass(frozen=True)
class Library:
    """A shared library, the sources that it is made of, and what names of its kind look like."""

    soname: str
    sources: tuple[str, ...]
    names: str
    missing: str  # the function that a name without a source calls
    needs: tuple[str, ...] = ()


DRIVER = Library(
    "libcuda.so.1",
    (
        "record", "memory", "conditions", "device", "streams", "launches", "graphs", "execs", "modules", "cubin",
    ),
    r"cu[A-Z][a-z]\w+",
    "missing",
)  # fmt: skip
LIBRARIES = (
    DRIVER,
    Library("libcudart.so.13", ("runtime",), r"(?:__)?cuda[A-Z][a-z]\w+", "cudart_missing", (DRIVER.soname,)),
    Library("libnvidia-ml.so.1", ("nvml",), r"nvml[A-Z]\w+", "nvml_missing"),
    *(
        Library(soname, ("libraries",), r"(?:cublas|cublasLt|cudnn)[A-Z]\w+", "library_missing")
        for soname in ("libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9")
    ),
)


@dataclass(frozen=True)
class Parts:
    """Where what it takes is found on this machine."""

    compiler: Path
    include: Path  # cuda.h
    ptxas: Path
    libdevice: Path
    plugin: tuple[Path, ...]  # whatever may call the driver


PLUGIN = ("jax_plugins.xla_cuda13", "jax_cuda13_plugin")
# of NVIDIA's wheels, if they are there, and else of Triton's
HEADER = (("nvidia", "cu13/include/cuda.h"), ("triton", "backends/nvidia/include/cuda.h"))
ASSEMBLER = (("nvidia", "cu13/bin/ptxas"), ("triton", "backends/nvidia/bin/ptxas"))
LIBDEVICE = (
    ("nvidia", "cu13/nvvm/libdevice/libdevice.10.bc"),
    ("triton", "backends/nvidia/lib/libdevice.10.bc"),
)


def why_not() -> str:
    """What is missing on this machine, or nothing."""
    if shutil.which("gcc") is None:
        return "the stand-in driver is compiled by gcc, and there is none here"
    if not all(folder_of(name) for name in PLUGIN):
        return "the stand-in driver needs JAX's plugin for CUDA 13: pip install 'jaxpr2triton[standin]'"
    return ""


def folder_of(module: str) -> str:
    """Of a package, which is not imported for it; nothing if it is not installed."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return ""
    return next(iter(spec.submodule_search_locations or ()), "") if spec else ""


def find(places: Iterable[tuple[str, str]]) -> Path:
    """The first of these files that is there."""
    files = [Path(folder_of(package)) / file for package, file in places if folder_of(package)]
    return next(file for file in files if file.exists())


def find_parts() -> Parts:
    """Only where `why_not` has nothing to say."""
    plugin = tuple(sorted(file for name in PLUGIN for file in Path(folder_of(name)).glob("*.so")))
    return Parts(Path(shutil.which("gcc") or "gcc"), find(HEADER).parent, find(ASSEMBLER), find(LIBDEVICE), plugin)


def built() -> Path:
    """The folder of the libraries; they are compiled when something that they are made of has changed."""
    parts = find_parts()
    cache = Path(os.environ.get("J2T_CACHE_DIR") or "~/.cache/jaxpr2triton").expanduser()
    folder = cache / "standin" / _key(parts)[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            build(parts, Path(made) / "made")
            if not folder.exists():  # another process may have been faster
                os.rename(Path(made) / "made", folder)
    return folder


def _key(parts: Parts) -> str:
    digest = hashlib.sha256(repr((FLAGS, LIBRARIES, parts)).encode())
    for file in sorted(SOURCES.iterdir()):
        digest.update(file.read_bytes())
    for file in (*parts.plugin, parts.ptxas):
        digest.update(f"{file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()


def build(parts: Parts, folder: Path) -> None:
    """Fill a new folder."""
    folder.mkdir()
    wanted = names_in(parts.plugin)
    for library in LIBRARIES:
        link(library, wanted, parts, folder)
    (folder / "bin").mkdir()
    write_wrapper(folder / "bin" / "ptxas", parts)
    libdevice = folder / "nvvm" / "libdevice" / "libdevice.10.bc"  # where XLA looks for it
    libdevice.parent.mkdir(parents=True)
    libdevice.symlink_to(parts.libdevice)


def write_wrapper(file: Path, parts: Parts) -> None:
    file.write_text(PTXAS.read_text().replace("REAL_PTXAS", str(parts.ptxas)))
    file.chmod(0o755)


def link(library: Library, wanted: Iterable[str], parts: Parts, folder: Path) -> None:
    sources = [SOURCES / f"{name}.c" for name in library.sources]
    stubs = folder / f"{library.soname}.c"
    stubs.write_text(written_stubs(library.missing, (name for name in wanted if re.fullmatch(library.names, name))))
    run(
        parts.compiler, *FLAGS, f"-I{parts.include}", f"-Wl,-soname,{library.soname}", "-o", folder / library.soname,
        *sources, stubs, f"-L{folder}", *(f"-l:{name}" for name in library.needs), "-ldl", "-lpthread",
    )  # fmt: skip


def written_stubs(missing: str, names: Iterable[str]) -> str:
    """An entry for each name, which says that it is missing; weak, so that what the sources define is taken."""
    lines = [f"int {missing}(const char *);", '#define STUB __attribute__((visibility("default"), weak)) int']
    return "\n".join([*lines, *(f'STUB {name}(void) {{ return {missing}("{name}"); }}' for name in sorted(names)), ""])


_NAME = re.compile(rb"(?<=\0)(?:__cuda|cu|nvml|cublas|cudnn)[A-Za-z]\w{3,90}(?=\0)")


@functools.cache
def names_in(files: tuple[Path, ...]) -> frozenset[str]:
    """Every string of a binary that could be the name of an entry."""
    found: set[bytes] = set()
    for file in files:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found.update(_NAME.findall(content))
    return frozenset(name.decode() for name in found)


def run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stderr[-3000:]}")
