"""What a kernel takes without its launch, in microseconds: what moves, what is computed, steps of loops."""

from __future__ import annotations

import math

from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.policy import Policy

EXACT, TF32 = "input_precision='ieee'", "input_precision='tf32'"


def busy_of(kernel: Kernel, policy: Policy) -> float:
    """… without the launch, and as if each loop of a data-dependent trip count had a few steps."""
    if kernel.steps is None:
        return working_of(kernel, policy)
    return max(_moved(kernel, policy), kernel.steps.microseconds(policy.target.clock))


def working_of(kernel: Kernel, policy: Policy) -> float:
    """Of what moves and of operations alone, where no step waits for another, by the processors that have programs."""
    operations = kernel.flops / (_rate(kernel, policy) * _processors(kernel, policy) * 1000 * policy.target.clock)
    return max(_moved(kernel, policy), operations)


def _moved(kernel: Kernel, policy: Policy) -> float:
    target = policy.target
    rate = min(target.memory_rate, _processors(kernel, policy) * policy.cost.cached_for_one * target.clock)
    return (kernel.bytes_read + kernel.bytes_written) / rate / 1000


def _processors(kernel: Kernel, policy: Policy) -> int:
    """That have programs."""
    return max(1, min(math.prod(kernel.grid), policy.target.processors))


def _rate(kernel: Kernel, policy: Policy) -> float:
    """Operations of a processor in a cycle: products, where it has units for matrices."""
    target = policy.target
    if "tl.dot(" not in kernel.source or EXACT in kernel.source:
        return target.cores
    narrow = 1.0 if TF32 not in kernel.source and "input_precision=" not in kernel.source else 0.5
    return target.products * narrow * policy.products.own
