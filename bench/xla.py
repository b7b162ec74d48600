"""What XLA would launch for a function on an H200, and what that moves, from its optimised program.

Needs JAX's CUDA plugin, and no device. A loop whose trip count XLA knows counts as often as it runs. Of one that it
does not know, one round counts, with the copy of the condition's result to the host. Kernels that XLA puts into CUDA
graphs count one by one (`GRAPHS` says what that leaves out). Of slices and updates counts what is read and written;
scratch memory of libraries does not.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import triton
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98
  device_memory_size: 150754820096 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 13 minor: 0 patch: 0 }
device_description_str: "NVIDIA H200"
"""
# The driver's calls by XLA (JAX 0.10 and 0.11), counted by one that stands in for a GPU's and computes nothing.
GRAPHS = """\
Kernels and copies count one by one, though XLA packs five and more that follow each other into a CUDA graph, which is
launched as one: as a rule one launch for each step of a loop, which the host still runs. That of 100 steps of the noisy
chain is 100 graphs and 3 copies. `--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL` lets XLA put whole loops into a
graph, and yet a loop need not be one launch with it:

- The loop and what stands beside it have to be five commands too, and the loop is one. Otherwise there is no graph, and
  none of its steps any more: the chain, with 3 copies beside it, becomes 400 kernels and 103 copies, five times as many
  calls. With `--xla_gpu_graph_min_graph_size=1` as well it is one graph.
- A loop that copies slices of its inputs from places that it computes is not put into a graph: an LSTM (batch 32,
  hidden 64, 100 steps) stays at 100 graphs, with 200 of their nodes changed in between, and is 101 graphs with both
  flags. Of its gradient's 202 graphs 102 are left.
- The gradient of the chain with what is drawn is one graph, instead of 51 with 150 kernels and 50 copies beside them.
"""
_FREE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency", "opt-barrier"}
)
_SHAPE = re.compile(r"\b(pred|[a-z]+(\d+)[a-z0-9]*)\[([\d,]*)\]")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_NAME = re.compile(r"%([\w.\-]+(?:#\d+)*)")


@dataclass
class Equation:
    name: str
    result: str  # its type
    kind: str
    inside: str  # the parentheses
    rest: str  # what follows them

    @property
    def operands(self) -> list[str]:
        return _NAME.findall(self.inside)

    def attribute(self, key: str) -> str:
        found = re.search(key + r"=%?([\w.\-]+)", self.rest)
        return found[1] if found else ""


@dataclass
class Computation:
    equations: dict[str, Equation] = field(default_factory=dict)
    root: str = ""

    def result_of(self, reference: str) -> str:
        """The type of `x`, or of `x#1`, a part of a tuple."""
        name, *parts = reference.split("#")
        text = self.equations[name].result if name in self.equations else ""
        for part in parts:
            text = _elements(text)[int(part)]
        return text


@dataclass(frozen=True)
class Launches:
    """All in all; `rounds` describes the loops."""

    count: int = 0
    nbytes: int = 0
    rounds: tuple[str, ...] = ()

    def __add__(self, other: Launches) -> Launches:
        return Launches(self.count + other.count, self.nbytes + other.nbytes, self.rounds + other.rounds)


@functools.cache
def device() -> Any:
    """Stands for an H200; raises where the plugin is missing."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}{os.pathsep}{tools}"  # ptxas, for XLA
    found = topologies.get_topology_desc("h200", platform="cuda", target_config=_H200, topology="1x1x1")
    return NamedSharding(Mesh(np.array(found.devices), ("x",)), PartitionSpec())


class Bounded:
    """Calls functions in a process of its own, for some seconds each: XLA may evaluate long loops as it compiles."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._pool: Any = None

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """The result; `TimeoutError` when it takes too long."""
        self._pool = self._pool or multiprocessing.get_context("spawn").Pool(1)
        try:
            return self._pool.apply_async(function, args).get(self.seconds)
        except multiprocessing.TimeoutError:
            self.__exit__()
            raise TimeoutError(f"nothing after {self.seconds} seconds") from None

    def __enter__(self) -> Bounded:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = None


def launches(function: Callable[..., Any], *args: Any) -> Launches:
    """Compile for an H200, and count."""
    lowered = jax.jit(function, in_shardings=device(), out_shardings=device()).lower(*args)
    return counted(lowered.compile().as_text())


def counted(text: str) -> Launches:
    """Those of an optimised program, as XLA prints it."""
    entry, computations = _parsed(text)
    return _count(computations[entry], computations)


def _parsed(text: str) -> tuple[str, dict[str, Computation]]:
    found: dict[str, Computation] = {}
    entry, current = "", Computation()
    for line in text.splitlines():
        if head := _HEAD.match(line):
            current = found[head[2]] = Computation()
            entry = head[2] if head[1] else entry
        elif start := _LINE.match(line):
            rest = line[start.end() :]
            end = _closing(rest, 0) if rest.startswith("(") else rest.index(" ")
            result, rest = rest[:end], rest[end:].lstrip()
            opens = rest.index("(")
            closes = _closing(rest, opens)
            inside = rest[opens + 1 : closes - 1]
            current.equations[start[2]] = Equation(start[2], result, rest[:opens], inside, rest[closes:])
            current.root = start[2] if start[1] else current.root
    return entry, found


def _count(computation: Computation, others: Mapping[str, Computation]) -> Launches:
    total = Launches()
    for each in computation.equations.values():
        if each.kind in _FREE or each.kind.endswith("-done") or each.kind == "async-update":
            continue
        match each.kind:
            case "while":
                total += _loop(each, others)
            case "call":
                total += _count(others[each.attribute("to_apply")], others)
            case "conditional":
                branches = re.search(r"branch_computations=\{([^}]*)\}", each.rest)
                names = _NAME.findall(branches[1]) if branches else re.findall(r"_computation=%?([\w.\-]+)", each.rest)
                longest = max((_count(others[name], others) for name in names), key=lambda found: found.count)
                total += longest + Launches(1)  # the copy of the index to the host
            case "async-start":
                total += _count(others[each.attribute("calls")], others)
            case _:
                total += Launches(1, _moved(each, computation, others))
    return total


def _loop(each: Equation, others: Mapping[str, Computation]) -> Launches:
    body = _count(others[each.attribute("body")], others)
    known = re.search(r'"known_trip_count":\{"n":"(\d+)"', each.rest)
    if known:
        trips = int(known[1])
        return Launches(body.count * trips, body.nbytes * trips, (f"{trips:,} x {body.count}", *body.rounds))
    condition = _count(others[each.attribute("condition")], others)
    once = body + condition + Launches(1)
    return Launches(once.count, once.nbytes, (f"n x {once.count}", *body.rounds))


def _moved(each: Equation, computation: Computation, others: Mapping[str, Computation]) -> int:
    """Bytes of one launch."""
    written = _bytes(each.result)
    if each.kind == "custom-call" and each.result.startswith("("):
        written = sum(_bytes(part) for part in _elements(each.result) if not re.match(r"[su]8\[", part))
    if each.kind == "copy-start":
        return 2 * _bytes(computation.result_of(each.operands[0]))
    if each.kind in ("dynamic-slice", "slice", "gather"):
        return 2 * written
    if each.kind == "dynamic-update-slice":
        return 2 * _bytes(computation.result_of(each.operands[1]))
    inner = others.get(each.attribute("calls")) if each.kind.startswith("fusion") else None
    if inner is None:
        return written + sum(_bytes(computation.result_of(name)) for name in each.operands)
    reads = sum(_read(x, inner) for x in inner.equations.values() if x.kind == "parameter")
    return reads + _written(inner.root, inner)


def _read(value: Equation, inner: Computation) -> int:
    """What a fusion reads of a parameter."""
    whole, total = _bytes(value.result), 0
    for user in inner.equations.values():
        if value.name not in [name.split("#")[0] for name in user.operands]:
            continue
        first = user.operands[0] == value.name
        if user.kind == "bitcast":
            total += _read(user, inner)
        elif first and user.kind in ("dynamic-slice", "slice", "gather"):
            total += _bytes(user.result)
        elif not (first and user.kind == "dynamic-update-slice"):
            return whole
    return min(total, whole)


def _written(name: str, inner: Computation) -> int:
    """What a fusion writes for a result; a slice where it updates in place."""
    value = inner.equations[name.split("#")[0]]
    match value.kind:
        case "tuple":
            return sum(_written(part, inner) for part in value.operands)
        case "bitcast":
            return _written(value.operands[0], inner)
        case "dynamic-update-slice":
            return _bytes(inner.result_of(value.operands[1]))
        case _:
            return _bytes(value.result)


def _bytes(text: str) -> int:
    total = 0
    for kind, bits, sizes in _SHAPE.findall(text):
        each = 1 if kind == "pred" else max(1, int(bits) // 8)
        total += each * math.prod(int(size) for size in sizes.split(",") if size)
    return total


def _elements(text: str) -> list[str]:
    """`(a, (b, c))` as `a` and `(b, c)`."""
    parts, depth = [""], 0
    for letter in re.sub(r"/\*.*?\*/", "", text[1:-1]):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _closing(text: str, start: int) -> int:
    """The place after the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return place + 1
    return len(text)
