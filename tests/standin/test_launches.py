"""What one call launches, and that a launch which is not what was meant is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from examples import gallery
from jaxpr2triton.launch.call import bridge
from tests.programs import Arguments, floats, integers, join, layer_norm
from tests.standin.checks import noting_kernels
from tests.standin.record import Record, recording
from tests.standin.start import ALLOCATOR, EACH_BY_ITSELF
from tests.works import launched_names

pytestmark = pytest.mark.standin

ROWS, COLUMNS = 512, 256
IS_EXACT = os.environ.get(ALLOCATOR) == EACH_BY_ITSELF  # every array is an allocation of its own


def ones(*shape: int) -> Any:
    return jax.device_put(np.ones(shape, np.float32))


def recorded(function: Callable[..., Any], *args: Any, calls: int = 1) -> Record:
    """What happens when everything has been compiled."""
    jax.block_until_ready(function(*args))
    with recording() as record:
        for _ in range(calls):
            out = function(*args)
        jax.block_until_ready(out)
    return record


def test_arguments_are_the_arrays_in_their_order() -> None:
    args = ones(ROWS, COLUMNS), ones(COLUMNS), ones(COLUMNS)
    fused = j2t.fuse(layer_norm, backend="triton")
    fused(*args)
    with recording() as record:
        out = jax.block_until_ready(fused(*args))
    (launch,) = record.launches
    assert launch["kernel"] == "layer_norm" and launch["grid"] == [ROWS, 1, 1] and launch["graph"] == 0
    addresses = [array.unsafe_buffer_pointer() for array in (*args, out)]
    assert [each.get("at", each.get("value")) for each in launch["arguments"]] == [*addresses, 0, 0]
    assert not record.refusals


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (gallery.layer_norm, floats((128, 64), (64,), (64,))),
        (gallery.cross_entropy, join(floats((32, 100)), integers((32,), low=0))),
        (gallery.gelu_block, floats((32, 256), (32, 256), (256,))),
        (gallery.softmax, floats((64, 100))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_explain_says_what_the_gallery_launches(function: Callable[..., Any], arguments: Arguments) -> None:
    args = jax.device_put(arguments(np.random.default_rng(0)))
    said = j2t.transpile(function, *args).explain_json()
    with noting_kernels() as meant:
        record = recorded(j2t.fuse(function, backend="triton"), *args)
    assert launched_names(said) == meant.launched(record.launches)
    assert len(record.launches) == record.counts.calls == 1
    assert not meant.problems(record.launches)


def test_a_flag_costs_the_bytes_that_are_cleared() -> None:
    """One kernel in place of two, after a fill that waits for nothing."""
    x = ones(70_007)
    some = j2t.fuse(lambda x: jax.numpy.any(x > 1), backend="triton")
    record = recorded(some, x)
    (launch,), (fill,) = record.launches, record.of("memset")
    assert fill["bytes"] == 1
    assert fill["to"] == launch["arguments"][1].get("at", launch["arguments"][1].get("value"))
    assert not record.refusals


SURROUNDINGS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda f: f,
    "jit with work around it": lambda f: jax.jit(lambda x, s, b: jax.numpy.sort(f(x * 2, s, b), -1) + 1),
    "vmap": lambda f: jax.jit(lambda x, s, b: jax.vmap(f, (0, None, None))(x.reshape(4, -1, x.shape[-1]), s, b)),
    "gradient": lambda f: jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1, 2))),
    "inside of a scan": lambda f: jax.jit(
        lambda x, s, b: jax.lax.scan(lambda c, _: (f(c, s, b), None), x, None, length=10)[0]
    ),
    "gradient of a scan": lambda f: jax.jit(
        jax.grad(lambda x, s, b: jax.lax.scan(lambda c, _: (f(c, s, b), None), x, None, length=10)[0].sum())
    ),
}


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_launches_are_what_was_meant(surroundings: str) -> None:
    args = ones(ROWS, COLUMNS), ones(COLUMNS), ones(COLUMNS)
    with noting_kernels() as meant:
        record = recorded(SURROUNDINGS[surroundings](j2t.fuse(layer_norm, backend="triton")), *args)
    assert meant.launched(record.launches)
    assert not meant.problems(record.launches) and not record.refusals
    if not IS_EXACT:
        assert record.counts.synchronisations == 0


def test_kernels_in_loops_are_counted() -> None:
    args = ones(ROWS, COLUMNS), ones(COLUMNS), ones(COLUMNS)
    with noting_kernels() as meant:
        function = SURROUNDINGS["inside of a scan"](j2t.fuse(layer_norm, backend="triton"))
        record = recorded(function, *args)
    assert meant.launched(record.launches).total() == 10


Message = tuple[str, str, int, int, int, tuple[int, int, int], int]

MESSAGES: dict[str, Callable[..., Message]] = {
    "warps doubled": lambda e, p, w, s, c, g, n: (e, p, 2 * w, s, c, g, n),
    "grid halved": lambda e, p, w, s, c, g, n: (e, p, w, s, c, (g[0] // 2, *g[1:]), n),
    "more shared memory": lambda e, p, w, s, c, g, n: (e, p, w, s + 128, c, g, n),
    "60,000 bytes of shared memory": lambda e, p, w, s, c, g, n: (e, p, w, 60_000, c, g, n),
    "300,000 bytes of shared memory": lambda e, p, w, s, c, g, n: (e, p, w, 300_000, c, g, n),
    "another entry": lambda e, p, w, s, c, g, n: (e + "x", p, w, s, c, g, n),
    "broken PTX": lambda e, p, w, s, c, g, n: (e, p.replace("ret;", "rat;"), w, s, c, g, n),
}
WHAT_IS_SEEN = {
    "warps doubled": "CUDA_ERROR_INVALID_VALUE",
    "grid halved": "sabotaged: grid [256, 1, 1] instead of [512, 1, 1]",
    "more shared memory": "sabotaged: shared 128 instead of 0",
    "60,000 bytes of shared memory": "sabotaged: shared 60000 instead of 0",
    "300,000 bytes of shared memory": "Shared memory requested (300000 b) exceeds device resources (232448 b)",
    "another entry": "CUDA_ERROR_NOT_FOUND",
    "broken PTX": "Not a name of any known instruction: 'rat'",
    "one parameter too many": "sabotaged: 6 arguments for 4 buffers",
    "arguments in another order": "sabotaged: args_0 needs 524288 bytes, and ",
}


def seen_of(patch: Any) -> str:
    """What the driver, jaxlib or the comparison with the kernel says of a sabotaged launch."""

    def sabotaged(*args: Any) -> Any:  # a function that JAX does not know yet
        return layer_norm(*args)

    fused = j2t.fuse(sabotaged, backend="triton")
    args = ones(ROWS, COLUMNS), ones(COLUMNS), ones(COLUMNS)
    with patch, noting_kernels() as meant, recording() as record:
        try:
            jax.block_until_ready(fused(*args))
        except jax.errors.JaxRuntimeError as error:
            return str(error)
    return " ".join(meant.problems(record.launches))


@pytest.mark.parametrize("name", MESSAGES)
def test_another_message_is_noticed(name: str) -> None:
    encode = bridge.encode_kernel_call
    other = mock.patch.object(bridge, "encode_kernel_call", lambda *message: encode(*MESSAGES[name](*message)))
    assert WHAT_IS_SEEN[name] in seen_of(other)


def test_one_parameter_too_many_is_noticed() -> None:
    """jaxlib hands over as many arrays as the message says."""
    encode, call = bridge.encode_kernel_call, jax.ffi.ffi_call

    def with_another(target: str, results: Any, **options: Any) -> Any:
        return call(target, [*results, jax.ShapeDtypeStruct((8,), np.float32)], **options)

    with mock.patch.object(bridge, "encode_kernel_call", lambda *message: encode(*message[:-1], [*message[-1], 0])):
        assert WHAT_IS_SEEN["one parameter too many"] in seen_of(mock.patch.object(jax.ffi, "ffi_call", with_another))


@pytest.mark.skipif(not IS_EXACT, reason="sizes are known where arrays share no memory")
def test_another_order_of_arguments_is_noticed() -> None:
    call = jax.ffi.ffi_call

    def reordered(*target: Any, **options: Any) -> Any:
        return lambda x, scale, bias, **named: call(*target, **options)(scale, x, bias, **named)

    assert WHAT_IS_SEEN["arguments in another order"] in seen_of(mock.patch.object(jax.ffi, "ffi_call", reordered))
