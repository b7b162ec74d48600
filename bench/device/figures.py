"""What an NVIDIA device is: figures that are measured on it, each beside the numbers that the models use for it."""

from __future__ import annotations

import functools
from collections.abc import Callable

from bench.device import figure_kernels as kernels
from bench.device.figure_kernels import FACTORS, Repeated
from bench.device.figure_readings import (
    CHAIN,
    IN_THE_CACHE,
    STEPS,
    WARMING,
    Figure,
    Said,
    amount_of_a_cycle,
    amount_of_all_in_a_cycle,
    by_its_clock,
    call_from_python,
    cycles_of_each,
    factors,
    gigahertz,
    in_a_while,
    launched_again,
    library,
    load_from_memory,
    microseconds_of_each,
    one_by_one,
    rate_of_memory,
    saying,
    teraflops,
)
from jaxpr2triton.hardware import Target
from jaxpr2triton.launch.cycles.latencies import Machine
from jaxpr2triton.policy import Policy


def _latencies(machine: Machine | None, *kinds: str, warps: int = 1) -> dict[str, float]:
    """Of instructions one after the other."""
    if machine is None:
        return {}
    return {"latencies." + " + ".join(kinds): sum(machine.latency(kind, False, warps) for kind in kinds)}


def _of_machine(machine: Machine | None, *names: str) -> dict[str, float]:
    return {f"latencies.Machine.{name}": getattr(machine, name) for name in names} if machine else {}


def _instruction(name: str, made: Callable[[], Repeated], said: Said) -> Figure:
    return by_its_clock(name, "cycles", lambda _: made(), cycles_of_each, said)


def _barrier(warps: int) -> Figure:
    def said(policy: Policy, machine: Machine | None) -> dict[str, float]:
        return {"policy.cost.barrier": policy.cost.barrier + warps * policy.cost.barrier_of_a_warp} | _latencies(
            machine, "BAR", warps=warps
        )

    name = f"barrier of {warps} warps" if warps > 1 else "barrier of one warp"
    return _instruction(name, functools.partial(kernels.barriers, warps), said)


def _meeting(warps: int) -> Figure:
    """Cycles until each warp has what another one wrote, and may write again."""

    def said(policy: Policy, machine: Machine | None) -> dict[str, float]:
        cost = policy.cost
        barriers = cost.barriers_of_a_meeting * (cost.barrier + warps * cost.barrier_of_a_warp)
        said_of_it = {"policy.cost.barriers_of_a_meeting": cost.shared + barriers}
        return said_of_it | _latencies(machine, "STS", "BAR", "LDS", "BAR", warps=warps)

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

    return by_its_clock(
        f"products of matrices, {dtype}",
        "products/cycle",
        lambda target: kernels.products(dtype, target.processors),
        amount_of_a_cycle,
        said,
        functools.partial(factors, dtype),
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


def _loading_from_memory(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"policy.loops.under_way": policy.loops.under_way} | _of_machine(machine, "load_from_memory")


def _loading_from_cache(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"policy.loops.cached": policy.loops.cached} | _of_machine(machine, "load")


def _launch(policy: Policy, machine: Machine | None) -> dict[str, float]:
    return {"policy.products.launch_after_gap_us": policy.products.launch_after_gap_us}


def _asking(policy: Policy, machine: Machine | None) -> dict[str, float]:
    """The launches of a step, those for its counting, and the question: too few launches for XLA to make a graph of."""
    launches = 1 + policy.loops.loop_overhead_launches
    return {"policy.loops.asking": policy.loops.asking + launches * policy.products.launch_after_gap_us}


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
        Figure("dependent load, device memory", "cycles", saying(_loading_from_memory), load_from_memory),
    ]


def _rates() -> list[Figure]:
    return [
        by_its_clock("clock, f32 work", "GHz", _many_sums, gigahertz, _clock),
        by_its_clock(
            "clock, products of matrices",
            "GHz",
            lambda target: kernels.products("bf16", target.processors),
            gigahertz,
            _clock,
            functools.partial(factors, "bf16"),
            WARMING,
        ),
        by_its_clock("f32 products of a processor", "products/cycle", _many_sums, amount_of_a_cycle, _cores),
        by_its_clock("f32 products of all processors", "TFLOP/s", _many_sums, teraflops, _all_cores),
        *map(_products, FACTORS),
        by_its_clock(
            "second-level cache, all processors",
            "bytes/cycle",
            lambda target: kernels.cache_read(IN_THE_CACHE, target.processors),
            amount_of_all_in_a_cycle,
            _cache,
        ),
        by_its_clock(
            "second-level cache, one processor",
            "bytes/cycle",
            lambda _: kernels.cache_read(IN_THE_CACHE, 1),
            amount_of_a_cycle,
            _cache_of_one,
        ),
        rate_of_memory(
            "device memory, copied", kernels.copied, lambda kernel: kernel.bytes_read + kernel.bytes_written
        ),
        rate_of_memory("device memory, read", kernels.read, lambda kernel: kernel.bytes_read),
        by_its_clock(
            "meeting of the whole grid",
            "µs",
            lambda target: kernels.grid_meetings(target.processors),
            microseconds_of_each,
            lambda p, m: {},
        ),
    ]


def _programs() -> list[Figure]:
    return [
        Figure("call of a jitted function", "µs", lambda _: {}, call_from_python),
        Figure("launch in a program", "µs", saying(_launch), launched_again(one_by_one, CHAIN)),
        Figure("step of a while loop of XLA", "µs", saying(_asking), launched_again(in_a_while, STEPS)),
        Figure("product of 8192 by 8192 by XLA, bf16", "TFLOP/s", saying(_multiplying), library),
    ]


FIGURES: tuple[Figure, ...] = (*_instructions(), *_rates(), *_programs())
