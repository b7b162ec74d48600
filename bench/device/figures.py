"""What an NVIDIA device is: figures that are measured on it, each beside the numbers that the models use for it.

A figure is prepared first, which compiles all it needs, and then measured, in some milliseconds. Cycles are read from
the clock of a processor, by the kernels of `figure_kernels.py`, launched as everybody's kernels are. A measurement that
makes no sense, as where nothing is computed, is NaN.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
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


# what the figures share


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


def _small(kernel: Kernel) -> list[Any]:
    """Arguments between -1 and 1, on the device."""
    random = np.random.default_rng(0)
    return [jax.device_put(random.uniform(-1, 1, each.shape).astype(each.dtype)) for each in kernel.inputs]


def _factors(dtype: str, kernel: Kernel) -> list[Any]:
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


def _saying(said: Said) -> Callable[[Target], dict[str, float]]:
    """Of the policy, and of the machine where that is known."""

    def of_target(target: Target) -> dict[str, float]:
        found = said(policy_of(target), MACHINES.get(target.name))
        return {name: float(value) for name, value in found.items()}

    return of_target


def _latencies(machine: Machine | None, *kinds: str) -> dict[str, float]:
    """Of instructions one after the other."""
    return {"latencies." + " + ".join(kinds): sum(machine.latency(kind, False) for kind in kinds)} if machine else {}


def _of_machine(machine: Machine | None, *names: str) -> dict[str, float]:
    return {f"latencies.Machine.{name}": getattr(machine, name) for name in names} if machine else {}


# figures that the clock of a processor measures


Reading = Callable[[Sequence[Any], Repeated], float]  # of a kernel's outputs


def _cycles_of_each(out: Sequence[Any], repeated: Repeated) -> float:
    return _ratio(_of_a_turn(out[0]), repeated.amount)


def _amount_of_a_cycle(out: Sequence[Any], repeated: Repeated) -> float:
    return _ratio(repeated.amount, _of_a_turn(out[0]))


def _amount_of_all_in_a_cycle(out: Sequence[Any], repeated: Repeated) -> float:
    return repeated.kernel.grid[0] * _amount_of_a_cycle(out, repeated)


def _teraflops(out: Sequence[Any], repeated: Repeated) -> float:
    """Of all programs; a product and its addition are two."""
    return _ratio(2 * repeated.amount * repeated.kernel.grid[0], 1000 * _of_a_turn(out[1]))


def _gigahertz(out: Sequence[Any], repeated: Repeated) -> float:
    del repeated  # what was done does not matter
    return _ratio(_of_a_turn(out[0]), _of_a_turn(out[1]))


def _microseconds_of_each(out: Sequence[Any], repeated: Repeated) -> float:
    """NaN where programs gave up waiting for each other."""
    in_time = bool((np.asarray(out[2]) > 0).all())
    return _ratio(_of_a_turn(out[1]), 1000 * repeated.amount) if in_time else math.nan


def _by_its_clock(
    name: str,
    unit: str,
    made: Callable[[Target], Repeated],
    read: Reading,
    said: Said,
    arguments: Callable[[Kernel], list[Any]] = _small,
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

    return Figure(name, unit, _saying(said), prepare)


def _instruction(name: str, made: Callable[[], Repeated], said: Said) -> Figure:
    return _by_its_clock(name, "cycles", lambda _: made(), _cycles_of_each, said)


def _barrier(warps: int) -> Figure:
    def said(policy: Policy, machine: Machine | None) -> dict[str, float]:
        return {"policy.cost.barrier": policy.cost.barrier + warps * policy.cost.barrier_of_a_warp} | _latencies(
            machine, "BAR"
        )

    name = f"barrier of {warps} warps" if warps > 1 else "barrier of one warp"
    return _instruction(name, functools.partial(kernels.barriers, warps), said)


def _meeting(warps: int) -> Figure:
    """Cycles until each warp has what another one wrote, and may write again."""

    def said(policy: Policy, machine: Machine | None) -> dict[str, float]:
        cost = policy.cost
        barriers = cost.barriers_of_a_meeting * warps * cost.barrier_of_a_warp
        return {"policy.cost.meeting": cost.meeting + barriers} | _latencies(machine, "STS", "BAR", "LDS", "BAR")

    return _instruction(f"meeting of {warps} warps", functools.partial(kernels.meetings, warps), said)


def _sum_of_warps(warps: int) -> Figure:
    """The same with a sum, as Triton writes it; `plan/schedule/walked.py` says what it counts for that."""

    def said(policy: Policy, machine: Machine | None) -> dict[str, float]:
        cost = policy.cost
        barriers = cost.barriers_of_a_meeting * warps * cost.barrier_of_a_warp
        shuffles = (warps.bit_length() - 1) * cost.shuffle
        return {"policy.cost.meeting": cost.meeting + barriers + shuffles + cost.latency}

    return _instruction(f"sum across {warps} warps", functools.partial(kernels.sums_of_warps, warps), said)


def _products(dtype: str) -> Figure:
    itemsize = FACTORS[dtype][1].itemsize

    def said(policy: Policy, machine: Machine | None) -> dict[str, float]:
        found = {"target.products": policy.target.products * 2 / itemsize}
        return found | ({"policy.cost.multiplied": policy.cost.multiplied} if itemsize == 2 else {})

    return _by_its_clock(
        f"products of matrices, {dtype}",
        "products/cycle",
        lambda target: kernels.products(dtype, target.processors),
        _amount_of_a_cycle,
        said,
        functools.partial(_factors, dtype),
    )


def _clock(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"target.clock": policy.target.clock}


def _cores(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"target.cores": policy.target.cores}


def _all_cores(policy: Policy, machine: Machine | None) -> dict[str, float]:
    target = policy.target
    return {"target.cores": 2 * target.cores * target.processors * target.clock / 1000}


def _cache(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"policy.cost.cached": policy.cost.cached * policy.target.processors} | _of_machine(machine, "cache_rate")


def _cache_of_one(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"policy.cost.cached_for_one": policy.cost.cached_for_one} | _of_machine(machine, "cache_rate_of_one")


def _many_sums(target: Target) -> Repeated:
    return kernels.many_sums(target.processors)


# figures of memory


def _moved(name: str, made: Callable[[int], Kernel], moved: Callable[[Kernel], int]) -> Figure:
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


def _load_from_memory(target: Target) -> Values:
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
            return _cycles_of_each(launch(chain), repeated)

        return _repeated(once)

    return values


def _loading_from_memory(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"policy.loops.under_way": policy.loops.under_way} | _of_machine(machine, "load_from_memory")


def _loading_from_cache(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"policy.loops.cached": policy.loops.cached} | _of_machine(machine, "load")


# figures of launches, and of XLA


def _tiny() -> tuple[Kernel, Any]:
    kernel = kernels.counted()
    return kernel, jax.ShapeDtypeStruct(kernel.inputs[0].shape, kernel.inputs[0].dtype)


def _call_from_python(target: Target) -> Values:
    kernel, shape = _tiny()
    call = _call(kernel, target)
    function = jax.jit(lambda x: call(x)[0])
    function.lower(shape).compile()  # JAX keeps what it compiled, and so does the device's assembler

    def values() -> list[float]:
        x = jnp.zeros(shape.shape, shape.dtype)
        return _repeated(lambda: 1e6 * _seconds(lambda: function(x), CALLS_IN_A_ROW))

    return values


def _launched_again(step: Callable[[Callable[..., Any]], Callable[..., Any]], launches: int) -> Any:
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


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def chain(x: Any) -> Any:
        for _ in range(CHAIN):
            x = function(x)
        return x

    return chain


def _while(function: Callable[..., Any]) -> Callable[..., Any]:
    """How long it goes on is what the kernel counts."""
    return lambda x: jax.lax.while_loop(lambda x: x[0] < STEPS, function, x)


def _launch(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"policy.products.launch": policy.products.launch, "policy.loops.launch": policy.loops.launch}


def _asking(policy: Policy, machine: Machine | None) -> dict[str, float]:
    """As `beside_xla.py` counts: the launches of a step, those for its counting, and the question."""
    loops = policy.loops
    return {"policy.loops.asking": loops.asking + (1 + loops.launches_of_a_step) * loops.launch}


def _matrix(factor: int) -> Any:
    """Different numbers between -1 and 1, without a generator of random numbers."""
    places = jnp.arange(SIDE, dtype=jnp.int32)
    numbers = (places[:, None] * factor + places[None, :] * 40_503) % 251
    return ((numbers - 125) / 125).astype(jnp.bfloat16)


def _library(target: Target) -> Values:
    shape = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.bfloat16)
    multiply = _compiled(jnp.matmul, shape, shape)
    left, right = (_compiled(functools.partial(_matrix, factor)) for factor in (7919, 6361))

    def values() -> list[float]:
        call = functools.partial(multiply, left(), right())
        return _repeated(lambda: _ratio(2 * SIDE**3, 1e12 * _seconds(call, PASSES)))

    return values


def _multiplying(policy: Policy, machine: Machine | None) -> dict[str, float]:
    target = policy.target
    whole = 2 * target.products * target.processors * target.clock / 1000
    return {"target.products": whole, "policy.products.library": policy.products.library * whole}


# all of them


def _instructions() -> list[Figure]:
    return [
        _instruction("dependent f32 sum", kernels.dependent_sums, lambda p, m: {"policy.cost.latency": p.cost.latency}),
        _instruction(
            "instruction of a warp alone", kernels.independent_sums, lambda p, m: {"policy.cost.alone": p.cost.alone}
        ),
        _instruction(
            "dependent special function",
            kernels.dependent_exponentials,
            lambda p, m: {"policy.cost.special": p.cost.special} | _latencies(m, "MUFU"),
        ),
        _instruction("dependent shuffle", kernels.dependent_shuffles, lambda p, m: _latencies(m, "SHFL")),
        _instruction(
            "shuffle and addition of a sum", kernels.sums_of_lanes, lambda p, m: {"policy.cost.shuffle": p.cost.shuffle}
        ),
        _instruction(
            "shared memory, written and read",
            kernels.written_and_read,
            lambda p, m: {"policy.cost.shared": p.cost.shared} | _latencies(m, "STS", "LDS"),
        ),
        *map(_barrier, (1, 4, 8, 16)),
        *map(_meeting, (4, 8)),
        _sum_of_warps(4),
        _instruction(
            "dependent load, first-level cache", kernels.first_level, lambda p, m: _of_machine(m, "load_again")
        ),
        _instruction("dependent load, second-level cache", kernels.second_level, _loading_from_cache),
        Figure("dependent load, device memory", "cycles", _saying(_loading_from_memory), _load_from_memory),
    ]


def _rates() -> list[Figure]:
    return [
        _by_its_clock("clock, f32 work", "GHz", _many_sums, _gigahertz, _clock),
        _by_its_clock(
            "clock, products of matrices",
            "GHz",
            lambda target: kernels.products("bf16", target.processors),
            _gigahertz,
            _clock,
            functools.partial(_factors, "bf16"),
            WARMING,
        ),
        _by_its_clock("f32 products of a processor", "products/cycle", _many_sums, _amount_of_a_cycle, _cores),
        _by_its_clock("f32 products of all processors", "TFLOP/s", _many_sums, _teraflops, _all_cores),
        *map(_products, FACTORS),
        _by_its_clock(
            "second-level cache, all processors",
            "bytes/cycle",
            lambda target: kernels.cache_read(IN_THE_CACHE, target.processors),
            _amount_of_all_in_a_cycle,
            _cache,
        ),
        _by_its_clock(
            "second-level cache, one processor",
            "bytes/cycle",
            lambda _: kernels.cache_read(IN_THE_CACHE, 1),
            _amount_of_a_cycle,
            _cache_of_one,
        ),
        _moved("device memory, copied", kernels.copied, lambda kernel: kernel.bytes_read + kernel.bytes_written),
        _moved("device memory, read", kernels.read, lambda kernel: kernel.bytes_read),
        _by_its_clock(
            "meeting of the whole grid",
            "µs",
            lambda target: kernels.grid_meetings(target.processors),
            _microseconds_of_each,
            lambda p, m: {},
        ),
    ]


def _programs() -> list[Figure]:
    nothing: Mapping[str, float] = {}
    return [
        Figure("call of a jitted function", "µs", lambda _: dict(nothing), _call_from_python),
        Figure("launch in a program", "µs", _saying(_launch), _launched_again(_one_by_one, CHAIN)),
        Figure("step of a while loop of XLA", "µs", _saying(_asking), _launched_again(_while, STEPS)),
        Figure("product of 8192 by 8192 by XLA, bf16", "TFLOP/s", _saying(_multiplying), _library),
    ]


FIGURES: tuple[Figure, ...] = (*_instructions(), *_rates(), *_programs())
