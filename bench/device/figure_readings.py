"""How figures of a device are taken: by a processor's own clock, by bytes that pass, by many launches of XLA.

A figure is prepared first, which compiles all it needs, and then measured, in some milliseconds. Cycles are read by the
kernels of `figure_kernels.py`, launched as everybody's kernels are. A measurement that makes no sense, as where nothing
is computed, is NaN.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.device import figure_kernels as kernels
from bench.device.figure_kernels import F32, FACTORS, I32, Repeated
from jaxpr2triton.errors import UserError
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.launch.call.bridge import ffi_call
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.cycles.latencies import MACHINES, Machine
from jaxpr2triton.policy import Policy, policy_of

REPETITIONS = 5
LARGE = 1 << 26  # numbers of an array in device memory: 256 MiB, of which there are three at once at most
IN_THE_CACHE = 1 << 22  # numbers of an array in the second-level cache
SIDE = 8192  # of the matrices that XLA's library multiplies
PASSES = 16  # launches that are timed together where each is long
CHAIN = 50  # launches of one program, one after the other
CALLS = 30  # of a program of launches, timed one by one
CALLS_IN_A_ROW = 300  # … and of which nobody waits for one before the last
STEPS = 100  # of a loop that XLA runs
WARMING = 16  # launches of products, 40 ms, until the clock is what it is under load

Values = Callable[[], list[float]]
Said = Callable[[Policy, Machine | None], dict[str, float]]


@dataclass(frozen=True)
class Figure:
    """A number of a device."""

    name: str
    unit: str
    said: Callable[[Target], dict[str, float]]  # what models say, by the name of their number, in this unit
    prepare: Callable[[Target], Values]  # compiles; what it gives back measures, and gives the value of each repetition


# what they share


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else math.nan


def _compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """For this device, so that the first call does not compile."""
    return jax.jit(function).lower(*arguments).compile()


def _call(kernel: Kernel, target: Target) -> Callable[..., list[Any]]:
    """The kernel as a function that can be traced."""
    if target.backend != "cuda":
        raise UserError(f"figures are measured on NVIDIA's devices, of which {target.name} is none")
    if jax.default_backend() != "gpu":
        raise UserError(f"figures are measured on a device, and JAX has found none but the {jax.default_backend()}")
    return functools.partial(ffi_call, compile_kernel(kernel, target), kernel)


def _launching(kernel: Kernel, target: Target) -> Callable[..., list[Any]]:
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in kernel.inputs]
    return _compiled(_call(kernel, target), *shapes)


def small(kernel: Kernel) -> list[Any]:
    """Arguments between -1 and 1, on the device."""
    random = np.random.default_rng(0)
    return [jax.device_put(random.uniform(-1, 1, each.shape).astype(each.dtype)) for each in kernel.inputs]


def factors(dtype: str, kernel: Kernel) -> list[Any]:
    """Different numbers, as zeros take less power than others, as the bits that the kernel takes them for."""
    numbers, random = FACTORS[dtype][1], np.random.default_rng(0)
    scale = 100 if numbers.kind == "i" else 1

    def made(each: Buffer) -> np.ndarray:
        return (scale * random.uniform(-1, 1, each.shape)).astype(numbers).view(each.dtype)

    return [jax.device_put(made(each)) for each in kernel.inputs]


def _seconds(call: Callable[[], Any], times: int) -> float:
    """Of one call of many, of which only the last is waited for."""
    start = time.perf_counter()
    for _ in range(times):
        out = call()
    jax.block_until_ready(out)
    return (time.perf_counter() - start) / times


def _seconds_alone(call: Callable[[], Any]) -> float:
    """Of one call that is waited for: the median of some."""
    return float(np.median([_seconds(call, 1) for _ in range(CALLS)]))


def _repeated(once: Callable[[], float], times: int = REPETITIONS) -> list[float]:
    """Once to warm up."""
    once()
    return [once() for _ in range(times)]


def _of_a_turn(out: Any) -> float:
    """Cycles or nanoseconds of the median program; of turns the median, but for the first one."""
    turns = np.asarray(out).reshape(-1, kernels.TURNS)
    return float(np.median(np.median(turns, axis=0)[1:]))


def _fitting(arrays: int) -> int:
    """Numbers of a large array: less than usual where so many arrays leave no room on the device."""
    facts = jax.devices()[0].memory_stats() or {}
    free = facts["bytes_limit"] - facts.get("bytes_in_use", 0) if "bytes_limit" in facts else math.inf
    size = LARGE
    while size > IN_THE_CACHE and arrays * size * F32.itemsize > free * 0.9:
        size //= 2
    return size


def saying(said: Said) -> Callable[[Target], dict[str, float]]:
    """Of the policy, and of the machine where that is known."""

    def of_target(target: Target) -> dict[str, float]:
        found = said(policy_of(target), MACHINES.get(target.name))
        return {name: float(value) for name, value in found.items()}

    return of_target


# by the clock of a processor


Reading = Callable[[Sequence[Any], Repeated], float]  # of a kernel's outputs


def cycles_of_each(out: Sequence[Any], repeated: Repeated) -> float:
    return _ratio(_of_a_turn(out[0]), repeated.amount)


def amount_of_a_cycle(out: Sequence[Any], repeated: Repeated) -> float:
    return _ratio(repeated.amount, _of_a_turn(out[0]))


def amount_of_all_in_a_cycle(out: Sequence[Any], repeated: Repeated) -> float:
    return repeated.kernel.grid[0] * amount_of_a_cycle(out, repeated)


def teraflops(out: Sequence[Any], repeated: Repeated) -> float:
    """Of all programs; a product and its addition are two."""
    return _ratio(2 * repeated.amount * repeated.kernel.grid[0], 1000 * _of_a_turn(out[1]))


def gigahertz(out: Sequence[Any], repeated: Repeated) -> float:
    del repeated  # what was done does not matter
    return _ratio(_of_a_turn(out[0]), _of_a_turn(out[1]))


def microseconds_of_each(out: Sequence[Any], repeated: Repeated) -> float:
    """NaN where programs gave up waiting for each other."""
    in_time = bool((np.asarray(out[2]) > 0).all())
    return _ratio(_of_a_turn(out[1]), 1000 * repeated.amount) if in_time else math.nan


def by_its_clock(
    name: str,
    unit: str,
    made: Callable[[Target], Repeated],
    read: Reading,
    said: Said,
    arguments: Callable[[Kernel], list[Any]] = small,
    launches: int = 1,
) -> Figure:
    """A figure that a kernel takes the time of."""

    def prepare(target: Target) -> Values:
        repeated = made(target)
        launch = _launching(repeated.kernel, target)

        def values() -> list[float]:
            given = arguments(repeated.kernel)

            def once() -> float:
                for _ in range(launches):
                    out = launch(*given)
                return read(out, repeated)

            return _repeated(once)

        return values

    return Figure(name, unit, saying(said), prepare)


# memory


def rate_of_memory(name: str, made: Callable[[int], Kernel], moved: Callable[[Kernel], int]) -> Figure:
    """Bytes of device memory in a nanosecond."""

    def prepare(target: Target) -> Values:
        size = _fitting(3)
        kernel = made(size)
        launch, filled = _launching(kernel, target), _compiled(lambda: jnp.full(size, 1.0, jnp.float32))

        def values() -> list[float]:
            x = filled()
            call = functools.partial(launch, x)
            return _repeated(lambda: _ratio(moved(kernel), 1e9 * _seconds(call, PASSES)))

        return values

    return Figure(name, "bytes/ns", lambda target: {"target.memory_rate": float(target.memory_rate)}, prepare)


def _chain_through_memory(size: int) -> Any:
    """At each place how many bytes from the beginning the next one is."""
    apart = size // kernels.PLACES_IN_MEMORY
    return (jnp.arange(size, dtype=jnp.int32) + apart) % size * I32.itemsize


def load_from_memory(target: Target) -> Values:
    """The second-level cache is full of something else before each launch."""
    size = _fitting(2)
    repeated = kernels.loads_from_memory(size)
    launch, chained = _launching(repeated.kernel, target), _compiled(functools.partial(_chain_through_memory, size))
    other = kernels.read(size)
    flush, filled = _launching(other, target), _compiled(lambda: jnp.full(size, 1.0, jnp.float32))

    def values() -> list[float]:
        chain, x = chained(), filled()

        def once() -> float:
            jax.block_until_ready(flush(x))
            return cycles_of_each(launch(chain), repeated)

        return _repeated(once)

    return values


# launches, and XLA


def _tiny() -> tuple[Kernel, Any]:
    kernel = kernels.counted()
    return kernel, jax.ShapeDtypeStruct(kernel.inputs[0].shape, kernel.inputs[0].dtype)


def call_from_python(target: Target) -> Values:
    kernel, shape = _tiny()
    call = _call(kernel, target)
    function = jax.jit(lambda x: call(x)[0])
    function.lower(shape).compile()  # JAX keeps what it compiled, and so does the device's assembler

    def values() -> list[float]:
        x = jnp.zeros(shape.shape, shape.dtype)
        return _repeated(lambda: 1e6 * _seconds(lambda: function(x), CALLS_IN_A_ROW))

    return values


def launched_again(step: Callable[[Callable[..., Any]], Callable[..., Any]], launches: int) -> Any:
    """Microseconds of each launch but the first, where a program has so many of them."""

    def prepare(target: Target) -> Values:
        kernel, shape = _tiny()
        call = _call(kernel, target)
        one = _compiled(lambda x: call(x)[0], shape)
        many = _compiled(step(lambda x: call(x)[0]), shape)

        def values() -> list[float]:
            x = jnp.zeros(shape.shape, shape.dtype)

            def once() -> float:
                longer = _seconds_alone(lambda: many(x)) - _seconds_alone(lambda: one(x))
                return 1e6 * longer / (launches - 1)

            return _repeated(once)

        return values

    return prepare


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def chain(x: Any) -> Any:
        for _ in range(CHAIN):
            x = function(x)
        return x

    return chain


def in_a_while(function: Callable[..., Any]) -> Callable[..., Any]:
    """How long it goes on is what the kernel counts."""
    return lambda x: jax.lax.while_loop(lambda x: x[0] < STEPS, function, x)


def _matrix(factor: int) -> Any:
    """Different numbers between -1 and 1, without a generator of random numbers."""
    places = jnp.arange(SIDE, dtype=jnp.int32)
    numbers = (places[:, None] * factor + places[None, :] * 40_503) % 251
    return ((numbers - 125) / 125).astype(jnp.bfloat16)


def library(target: Target) -> Values:
    shape = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.bfloat16)
    multiply = _compiled(jnp.matmul, shape, shape)
    left, right = (_compiled(functools.partial(_matrix, factor)) for factor in (7919, 6361))

    def values() -> list[float]:
        call = functools.partial(multiply, left(), right())
        return _repeated(lambda: _ratio(2 * SIDE**3, 1e12 * _seconds(call, PASSES)))

    return values
