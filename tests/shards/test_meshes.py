"""Axes found from the numbers of devices."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxpr2triton._compat import any_device, tiles_of
from jaxpr2triton.shards.meshes import Sizes, Spec, Tiles, common_axes

P = PartitionSpec
ORDERED = np.arange(8)


def tiles(shape: tuple[int, ...], spec: PartitionSpec) -> Tiles | None:
    mesh = Mesh(np.full(shape, any_device()), [f"a{n}" for n in range(len(shape))])
    found = tiles_of(NamedSharding(mesh, spec), 3)
    return Tiles(*found) if found else None


@pytest.mark.parametrize(
    ("arrays", "sizes", "specs"),
    [
        ([((8,), P("a0"))], (8,), [((0,), (), ())]),
        ([((8,), P())], (8,), [()]),
        ([((4, 2), P("a0"))], (4, 2), [((0,), (), ())]),
        ([((4, 2), P("a1", "a0"))], (4, 2), [((1,), (0,), ())]),
        ([((4, 2), P(("a1", "a0")))], (4, 2), [((1, 0), (), ())]),
        ([((8,), P("a0")), ((4, 2), P("a0", None, "a1"))], (4, 2), [((0, 1), (), ()), ((0,), (), (1,))]),
        ([((4, 2), P("a1")), ((2, 4), P("a0"))], (2, 2, 2), [((2,), (), ()), ((0,), (), ())]),
        ([((3, 2), P("a1"))], (3, 2), [((1,), (), ())]),
        ([((2, 3), P("a1"))], (2, 3), [((1,), (), ())]),
        ([((6,), P("a0")), ((3, 2), P("a0"))], (3, 2), [((0, 1), (), ()), ((0,), (), ())]),
    ],
    ids=str,
)
def test_arrays_of_meshes(arrays: list[tuple[Sizes, PartitionSpec]], sizes: Sizes, specs: list[Spec]) -> None:
    count = int(np.prod(arrays[0][0]))
    assert common_axes(count, [tiles(*each) for each in arrays]) == (sizes, specs)


@pytest.mark.parametrize("order", [[1, 0, 2, 3, 4, 5, 6, 7], [0, 2, 1, 3, 4, 5, 6, 7]], ids=str)
def test_what_lies_along_no_axes_counts_as_whole(order: list[int]) -> None:
    odd = Tiles(np.array(order), False)
    assert common_axes(8, [odd, Tiles(ORDERED, False)]) == ((8,), [(), ((0,),)])


def test_most_arrays_decide() -> None:
    """Six devices are three times two for one, and two times three for the others: no axes serve both."""
    arrays = [tiles((3, 2), P("a1")), tiles((2, 3), P("a1")), tiles((2, 3), P("a0", "a1"))]
    assert common_axes(6, arrays) == ((2, 3), [(), ((1,), (), ()), ((0,), (1,), ())])


def test_all_devices_have_all_of_it() -> None:
    mesh = Mesh(np.full((8,), any_device()), ["a"])
    assert tiles_of(NamedSharding(mesh, P()), 2) is None
    assert tiles_of(None, 2) is None
    assert any_device() in jax.devices()
