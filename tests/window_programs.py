"""Programs with convolutions and pools, as people write them; sizes for tests here, and for counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.image
import jax.numpy as jnp
import jax.scipy.signal
import numpy as np
from jax import lax

Layout = str


def convolved(x: Any, w: Any, stride: int = 1, padding: str = "SAME", layout: Layout = "NHWC", groups: int = 1) -> Any:
    numbers = (layout, "HWIO", layout)
    return lax.conv_general_dilated(x, w, (stride, stride), padding, None, None, numbers, groups)


def along_features(b: Any, layout: Layout) -> Any:
    return b if layout == "NHWC" else b[:, None, None]


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def lenet(parameters: Any, x: Any) -> Any:
    (w1, b1), (w2, b2), *dense, (w, b) = parameters
    x = pooled(jax.nn.relu(convolved(x, w1, padding="VALID") + b1))
    x = pooled(jax.nn.relu(convolved(x, w2, padding="VALID") + b2))
    x = x.reshape(x.shape[0], -1)
    for matrix, bias in dense:
        x = jax.nn.relu(x @ matrix + bias)
    return jnp.sum(jnp.abs(x @ w + b) ** 2)


def layer(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.relu(convolved(x, w, padding="VALID") + b)


def of_statistics(x: Any, p: Any, layout: Layout) -> Any:
    scale, shift, mean, variance = (along_features(each, layout) for each in p)
    return (x - mean) * (scale * lax.rsqrt(variance + 1e-5)) + shift


def residual(layout: Layout) -> Callable[..., Any]:
    def block(x: Any, w1: Any, p1: Any, w2: Any, p2: Any) -> Any:
        y = jax.nn.relu(of_statistics(convolved(x, w1, layout=layout), p1, layout))
        return jax.nn.relu(of_statistics(convolved(y, w2, layout=layout), p2, layout) + x)

    return block


def separable(layout: Layout) -> Callable[..., Any]:
    def block(x: Any, depthwise: Any, p1: Any, pointwise: Any, p2: Any) -> Any:
        groups = depthwise.shape[-1]
        y = jax.nn.relu(of_statistics(convolved(x, depthwise, 2, "SAME", layout, groups), p1, layout))
        return jax.nn.relu(of_statistics(convolved(y, pointwise, layout=layout), p2, layout))

    return block


def grouped_norm(x: Any, w: Any, scale: Any) -> Any:
    y = convolved(x, w)
    parts = y.reshape(*y.shape[:3], 4, -1)
    mean, variance = (f(parts, axis=(1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
    return ((parts - mean) * lax.rsqrt(variance + 1e-5)).reshape(y.shape) * scale


def resized(x: Any) -> Any:
    return jax.image.resize(x, (x.shape[0], 7, 9, x.shape[3]), "bilinear")


def smoothed(x: Any, w: Any) -> Any:
    return jax.scipy.signal.convolve(x, w, mode="same")


def transposed(x: Any, w: Any) -> Any:
    return lax.conv_transpose(x, w, (2, 2), "SAME")


def patches(x: Any) -> Any:
    return lax.conv_general_dilated_patches(x, (3, 3), (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def averaged(x: Any) -> Any:
    return lax.reduce_window(jnp.tanh(x), 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9


@dataclass(frozen=True)
class WindowProgram:
    name: str
    fn: Callable[..., Any]
    args: Callable[[np.random.Generator], tuple[Any, ...]]
    kernels: int  # as few as there are now
    backward: int  # those of its value and its gradients with respect to everything

    def with_gradients(self) -> Callable[..., Any]:
        """Its value and its gradients with respect to everything."""

        def both(*args: Any) -> Any:
            made, back = jax.vjp(self.fn, *args)
            return made, back(jnp.cos(made))

        return both


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) / np.sqrt(max(np.prod(shape[:-1]), 1))).astype(np.float32)


def parameters_of_lenet(rng: np.random.Generator) -> Any:
    shapes = [(5, 5, 1, 6), (5, 5, 6, 16), (256, 120), (120, 84), (84, 10)]
    return [(numbers(rng, *shape), numbers(rng, shape[-1])) for shape in shapes]


def statistics(rng: np.random.Generator, features: int) -> Any:
    return tuple(rng.uniform(0.5, 1.5, features).astype(np.float32) for _ in range(4))


def image(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def of_a_block(layout: Layout, *weights: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    def args(rng: np.random.Generator) -> tuple[Any, ...]:
        x = image(rng, 2, 8, 8, 16)
        found = [x if layout == "NHWC" else np.moveaxis(x, -1, 1)]
        for shape in weights:
            found += [numbers(rng, *shape), statistics(rng, shape[-1])]
        return tuple(found)

    return args


THREES, DEPTHWISE, POINTWISE = (3, 3, 16, 16), (3, 3, 1, 16), (1, 1, 16, 24)
PROGRAMS = [
    WindowProgram("lenet", lenet, lambda rng: (parameters_of_lenet(rng), image(rng, 4, 28, 28, 1)), 3, 18),
    WindowProgram(
        "layer", layer, lambda rng: (image(rng, 4, 12, 12, 3), numbers(rng, 5, 5, 3, 8), numbers(rng, 8)), 1, 3
    ),
    *(
        WindowProgram(f"residual_{layout}", residual(layout), of_a_block(layout, THREES, THREES), kernels, backward)
        for layout, kernels, backward in (("NHWC", 2, 6), ("NCHW", 2, 7))
    ),
    *(
        WindowProgram(f"separable_{layout}", separable(layout), of_a_block(layout, DEPTHWISE, POINTWISE), 1, backward)
        for layout, backward in (("NHWC", 6), ("NCHW", 6))
    ),
    WindowProgram(
        "grouped_norm",
        grouped_norm,
        lambda rng: (image(rng, 2, 8, 8, 8), numbers(rng, 3, 3, 8, 16), numbers(rng, 16)),
        2,
        6,
    ),
    WindowProgram("resized", resized, lambda rng: (image(rng, 2, 5, 6, 3),), 1, 4),
    WindowProgram("smoothed", smoothed, lambda rng: (image(rng, 12, 13), image(rng, 3, 5)), 1, 2),
    WindowProgram("transposed", transposed, lambda rng: (image(rng, 2, 5, 6, 8), numbers(rng, 3, 3, 8, 12)), 1, 3),
    WindowProgram("patches", patches, lambda rng: (image(rng, 2, 7, 8, 3),), 1, 2),
    WindowProgram("averaged", averaged, lambda rng: (image(rng, 2, 7, 8, 3),), 1, 3),
]
