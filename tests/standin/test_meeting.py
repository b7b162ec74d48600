"""Kernels whose programs wait for each other: what is launched, and that one that does not fit is an error there."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.call import primitive
from jaxpr2triton.launch.call.devices import target_for
from jaxpr2triton.launch.call.primitive import launch_kernel
from tests.launch.handmade import shift_kernel
from tests.standin.checks import noting_kernels
from tests.standin.record import beside_others, recording

pytestmark = pytest.mark.standin


def launched(kernel: Kernel) -> Any:
    region = jax.make_jaxpr(lambda x: [x])(jax.ShapeDtypeStruct(kernel.inputs[0].shape, np.float32))
    x = jax.device_put(np.ones(kernel.inputs[0].shape, np.float32))
    return jax.block_until_ready(jax.jit(lambda x: launch_kernel(kernel, region, [x], "device", strict=True))(x))


def test_the_device_says_how_many_processors_it_has() -> None:
    assert target_for("cuda") is TARGETS["sm_90"]


def test_the_counter_is_zeroed_before_each_launch() -> None:
    kernel = shift_kernel(132, steps=1000)
    with noting_kernels() as meant, recording() as record:
        launched(kernel)
    assert [meant.launched(record.launches), meant.problems(record.launches)] == [{"shift": 1}, []]
    counter = record.launches[0]["arguments"][3]["at"]
    cleared = [event for event in record.of("memset") if event["to"] == counter]
    assert [event["bytes"] for event in cleared] == [kernel.kept[1].nbytes]


def test_two_of_a_program_are_never_side_by_side() -> None:
    """Each could hold processors that the other one waits for. XLA's graphs are chains, whoever needs whom."""
    kernel = shift_kernel(132, steps=1000)
    region = jax.make_jaxpr(lambda x: [x])(jax.ShapeDtypeStruct(kernel.inputs[0].shape, np.float32))
    xs = [jax.device_put(np.ones(kernel.inputs[0].shape, np.float32)) for _ in range(6)]
    step = jax.jit(lambda *xs: [launch_kernel(kernel, region, [x], "device", strict=True)[0] + 1 for x in xs])
    before = beside_others()
    with recording() as record:
        for _ in range(3):
            jax.block_until_ready(step(*xs))
    assert record.counts.graphs == 2 and record.counts.kernels_in_graphs == 24
    assert beside_others() == before


@pytest.mark.parametrize(("programs", "fits"), [(132 * 16, True), (132 * 16 + 1, False)])
def test_a_grid_that_does_not_fit_is_an_error_and_no_hang(programs: int, fits: bool) -> None:
    """The compiler would have refused it, but for a device that is said to be larger than it is."""
    larger = dataclasses.replace(TARGETS["sm_90"], processors=133)
    with recording() as record, mock.patch.object(primitive, "target_for", lambda platform: larger):
        if fits:
            launched(shift_kernel(programs, steps=1000))
        else:
            with pytest.raises(jax.errors.JaxRuntimeError, match="CUDA_ERROR_ASSERT"):
                launched(shift_kernel(programs, steps=1000))
    assert record.refusals == ([] if fits else ["2113 programs that wait for each other, and 2112 run at once"])
