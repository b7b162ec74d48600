"""What is known about a kernel before its first line is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import digits
from typing import Any

from jaxpr2triton.emit.names import Wishes
from jaxpr2triton.graph.nodes import Collected, Compute, Graph, Node, operands_of
from jaxpr2triton.ir.dataflow import readers_of
from jaxpr2triton.ir.kernel import Buffer


@dataclass(frozen=True)
class Buffers:
    """What the pointers of a kernel point to."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    kept: Mapping[Any, Buffer]  # by the number of the equation that keeps something there
    counter: Buffer | None = None  # of the programs that have come to a meeting

    @property
    def own(self) -> tuple[Buffer, ...]:
        """Those of no operand and no result."""
        return *self.kept.values(), *((self.counter,) if self.counter else ())

    @property
    def all(self) -> tuple[Buffer, ...]:
        return *self.inputs, *self.outputs, *self.own


def ranks(own: Iterable[str], buffers: Buffers) -> dict[str, int]:
    """How telling names are."""
    inputs = (buffer.name for buffer in buffers.inputs)
    own = [*own, "turn"]
    return dict.fromkeys(("state", "cotangent", "going", "total"), 1) | dict.fromkeys(inputs, 2) | dict.fromkeys(own, 3)


def users(graph: Graph) -> dict[Node, list[Any]]:
    users: dict[Node, list[Any]] = {node: [] for node in graph.nodes} | readers_of(graph.nodes, operands_of)
    for store in graph.stores:
        users[store.value].append(store)
    return users


def stored(graph: Graph, buffers: Buffers, wish: Wishes) -> dict[int, str]:
    """What has no name of the user's is called as the buffer that it is written to, if that says what it holds."""
    found: dict[int, str] = {}
    for store in graph.stores:
        name = buffers.outputs[store.output].name
        stem = name.rstrip(digits)
        if stem.rstrip("_") == "out" or stem[-4:] == "_out" or not isinstance(store.value, Compute | Collected):
            continue
        if wish[store.value] not in wish.own:
            found.setdefault(id(store.value.eqn), name)
    return found
