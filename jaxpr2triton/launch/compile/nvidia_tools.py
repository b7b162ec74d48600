"""The assembler and the disassembler that Triton's wheel brings along."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from jaxpr2triton.errors import BackendError


@dataclass(frozen=True)
class Resources:
    """What one thread, or for shared memory one program, takes."""

    registers: int
    stack: int  # bytes of local memory
    spill_stores: int  # bytes
    spill_loads: int
    shared: int

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads


def ptxas_resources(ptx: str, arch: int | str) -> Resources:
    """Assemble once more, and read what ptxas says about it."""
    with tempfile.TemporaryDirectory(prefix="jaxpr2triton-") as folder:
        return _assembled(ptx, arch, Path(folder, "kernel.cubin"))


def machine_code(ptx: str, arch: int | str) -> tuple[str, Resources]:
    """Assemble once more; the SASS, and what ptxas says about it."""
    with tempfile.TemporaryDirectory(prefix="jaxpr2triton-") as folder:
        cubin = Path(folder, "kernel.cubin")
        resources = _assembled(ptx, arch, cubin)
        return _run([_tool("cuobjdump"), "-sass", str(cubin)]), resources


def _assembled(ptx: str, arch: int | str, cubin: Path) -> Resources:
    target = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE)
    if target is None:
        raise BackendError("this PTX names no target")
    tool = _tool("ptxas-blackwell" if isinstance(arch, int) and arch >= 100 else "ptxas")
    text = cubin.with_suffix(".ptx")
    text.write_text(ptx)
    said = _run([tool, "-v", f"--gpu-name={target.group(1)}", str(text), "-o", str(cubin)])
    return Resources(
        registers=_number(r"Used (\d+) registers", said),
        stack=_number(r"(\d+) bytes stack frame", said),
        spill_stores=_number(r"(\d+) bytes spill stores", said),
        spill_loads=_number(r"(\d+) bytes spill loads", said),
        shared=_number(r"(\d+) bytes smem", said),
    )


def _number(pattern: str, text: str) -> int:
    """The largest number so described; 0 if there is none."""
    return max((int(number) for number in re.findall(pattern, text)), default=0)


def _tool(name: str) -> str:
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise BackendError("Triton is not installed", hint="pip install triton")
    path = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / name
    if not path.exists():
        raise BackendError(f"this build of Triton does not bring {name} along ({path})")
    return str(path)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise BackendError(f"{command[0]} cannot be run ({problem.strerror})") from problem
    if done.returncode != 0:
        raise BackendError(f"{Path(command[0]).name} fails: {done.stderr.strip()[:300]}")
    return done.stdout + done.stderr
