"""Schedules as data, in JSON and back: what is decided about a kernel, apart from what the kernel computes.

    {"key": "3f9a…", "kernel": "rnn", "axes": [["row", 4096, "grid", 8], ["t", 512, "loop", 1], …],
     "num_warps": 4, "num_stages": 2, "form": null, "reload": false, "roles": {}}

The key says for which region, device and version of this compiler it is: others have axes of other meanings.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.version import __version__

_ADDRESS = re.compile(r"0x[0-9a-f]+")


class RecordedAxis(NamedTuple):
    name: str
    size: int
    role: str
    block: int

    def __str__(self) -> str:
        return f"{self.name}: {self.role} {self.size} by {self.block}"


@dataclass(frozen=True)
class Recorded:
    """The schedule of one kernel."""

    key: str
    kernel: str  # its name, for readers
    axes: tuple[RecordedAxis, ...]  # in the order of tile dimensions
    num_warps: int
    num_stages: int
    form: str | None  # of a kernel that contracts two sides
    reload: bool  # whether large tiles are read again in each step
    roles: tuple[tuple[str, str], ...] = ()  # those that were asked for when it was made

    def to_json(self) -> dict[str, Any]:
        axes, roles = [list(axis) for axis in self.axes], dict(self.roles)
        return {**vars(self), "axes": axes, "roles": roles}


def key_of(region: Closed, target: str) -> str:
    """What a region computes, for which device and by which version, in 32 letters."""
    text = _ADDRESS.sub("", str(region.jaxpr))
    return hashlib.sha256(f"{__version__} {target} {text}".encode()).hexdigest()[:32]


def records_in(found: Any) -> Iterator[Any]:
    """All that stands where a schedule does, in what `explain --json` prints or in a list of schedules; unchecked."""
    stack = [found]
    while stack:
        each = stack.pop()
        if isinstance(each, Mapping):
            if "key" in each:
                yield each
            else:
                stack += reversed([*each.values()])
        elif isinstance(each, Sequence) and not isinstance(each, str | bytes):
            stack += reversed(each)


def parsed(record: Any) -> Recorded:
    """A schedule from JSON; a `ValueError` says what is wrong with it."""
    try:
        axes = tuple(map(_axis, record["axes"]))
        roles = tuple((_checked(name, str), Role(role).value) for name, role in dict(record["roles"]).items())
        form = record["form"]
        return Recorded(
            _checked(record["key"], str),
            _checked(record["kernel"], str),
            axes,
            _checked(record["num_warps"], int),
            _checked(record["num_stages"], int),
            None if form is None else _checked(form, str),
            _checked(record["reload"], bool),
            roles,
        )
    except KeyError as problem:
        raise ValueError(f"it has no {problem}") from problem
    except TypeError as problem:
        raise ValueError(str(problem)) from problem


def _axis(axis: Any) -> RecordedAxis:
    if not isinstance(axis, list | tuple) or len(axis) != 4:
        raise ValueError(f"{axis!r} is no axis: a name, a size, a role and a block")
    name, size, role, block = axis
    return RecordedAxis(_checked(name, str), _checked(size, int), Role(role).value, _checked(block, int))


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is not of type {kind.__name__}")
    return value
