"""Train an ensemble over eight devices: each has its members, whose whole training is one kernel with no collective.

    python examples/ensemble.py            # eight fake devices of the host, kernels in the interpreter
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")  # JAX reads it when it is imported

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxpr2triton as j2t

MEMBERS, STEPS, RATE = 32, 20, 0.1


def loss(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """How far the line of one member is from the data."""
    return ((x * weights[0] + weights[1] - y) ** 2).mean()


def train(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One member after some steps of gradient descent, and its loss before each."""

    def step(weights: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(weights, x, y)
        return weights - RATE * gradient, value

    return jax.lax.scan(step, weights, None, length=STEPS)


def main() -> None:
    mesh = jax.make_mesh((jax.device_count(),), ("member",), axis_types=(AxisType.Auto,))
    members, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["member"], []))
    x = jnp.linspace(-1.0, 1.0, 16)
    data = jax.device_put((x, 3.0 * x - 1.0), everywhere)
    weights = jax.device_put(jax.random.normal(jax.random.key(0), (MEMBERS, 2)), members)

    backend = "interpret" if jax.default_backend() == "cpu" else "auto"
    fused = jax.jit(j2t.fuse(jax.vmap(train, (0, None, None)), backend=backend))
    compiled = fused.lower(weights, *data).compile()
    weights, losses = compiled(weights, *data)

    collectives = [name for name in ("all-gather", "all-reduce", "all-to-all") if f" {name}(" in compiled.as_text()]
    print(f"{MEMBERS} members on {jax.device_count()} devices, sharded as {weights.sharding.spec}")
    print(f"loss {losses[:, 0].mean():.3f} -> {losses[:, -1].mean():.5f}; collectives: {collectives or 'none'}")


if __name__ == "__main__":
    main()
