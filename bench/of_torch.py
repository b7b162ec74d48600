"""Some of the programs as a user of PyTorch writes them, for `torch.compile`; only where torch is, on a device.

f32 is multiplied with ten bits, as JAX does it by default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch
import torch.nn.functional as F

torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = True

Function = Callable[..., Any]


def linear(w: Any, x: Any, b: Any) -> Any:
    return w.T @ x + b[:, None]


def distances(w: Any, x: Any) -> Any:
    return ((w[:, :, None] - x[:, None, :]) ** 2).sum(0)


def perceptron(params: Sequence[Any], x: Any) -> Any:
    w1, b1, w2, b2 = params
    return ((torch.tanh(x @ w1 + b1) @ w2 + b2) ** 2).sum()


def gaussian_product(x: Any, y: Any, v: Any) -> Any:
    return torch.exp(-((x[:, None] - y[None]) ** 2).sum(-1)) @ v


def nearest(x: Any, y: Any) -> Any:
    return torch.argmin(((x[:, None] - y[None]) ** 2).sum(-1), 1)


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) / 4, -1) @ v


def swiglu(x: Any, a: Any, b: Any, c: Any) -> Any:
    return (F.silu(x @ a) * (x @ b)) @ c + x


def rms_norm(x: Any, scale: Any, w: Any) -> Any:
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * scale) @ w


def lora(x: Any, w: Any, a: Any, b: Any) -> Any:
    return x @ w + (x @ a) @ b


def losses(x: Any, w: Any, labels: Any) -> Any:
    return -torch.log_softmax(x @ w, -1).gather(1, labels.long()[:, None]).mean()


def normed_rows(x: Any, w: Any, b: Any) -> Any:
    y = x @ w + b
    y = y - y.mean(1, keepdim=True)
    return y * torch.rsqrt((y**2).mean(1, keepdim=True) + 1e-6)


def lenet(parameters: Sequence[Any], x: Any) -> Any:
    """Of images with the channel last, as they are given."""
    (w1, b1), (w2, b2), *dense, (w, b) = parameters
    x = x.permute(0, 3, 1, 2)
    for weight, bias in ((w1, b1), (w2, b2)):
        x = F.max_pool2d(F.relu(F.conv2d(x, weight.permute(3, 2, 0, 1), bias)), 2)
    x = x.permute(0, 2, 3, 1).reshape(len(x), -1)
    for matrix, bias in dense:
        x = F.relu(x @ matrix + bias)
    return ((x @ w + b) ** 2).sum()


def layer(x: Any, w: Any, b: Any) -> Any:
    return F.relu(F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), b)).permute(0, 2, 3, 1)


def of_statistics(x: Any, p: Any) -> Any:
    scale, shift, mean, variance = (each[:, None, None] for each in p)
    return (x - mean) * (scale * torch.rsqrt(variance + 1e-5)) + shift


def residual(x: Any, w1: Any, p1: Any, w2: Any, p2: Any) -> Any:
    y = F.relu(of_statistics(F.conv2d(x, w1.permute(3, 2, 0, 1), padding="same"), p1))
    return F.relu(of_statistics(F.conv2d(y, w2.permute(3, 2, 0, 1), padding="same"), p2) + x)


def separable(x: Any, depthwise: Any, p1: Any, pointwise: Any, p2: Any) -> Any:
    """An even size, a window of three and every second place: JAX pads at the end alone."""
    groups = depthwise.shape[-1]
    padded = F.pad(x, (0, 1, 0, 1))
    y = F.relu(of_statistics(F.conv2d(padded, depthwise.permute(3, 2, 0, 1), stride=2, groups=groups), p1))
    return F.relu(of_statistics(F.conv2d(y, pointwise.permute(3, 2, 0, 1)), p2))


def channels_last(block: Function) -> Function:
    def of_last(x: Any, *rest: Any) -> Any:
        return block(x.permute(0, 3, 1, 2), *rest).permute(0, 2, 3, 1)

    return of_last


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], scale, bias, 1e-6)


def mean_square(function: Function) -> Function:
    return lambda *args: (function(*args) ** 2).mean()


def squared(function: Function) -> Function:
    return lambda *args: (function(*args).float() ** 2).sum()


FORWARD = "forward"
GRADIENTS = "with gradients"
WRITTEN: dict[str, tuple[Function, tuple[int, ...] | None]] = {
    f"linear: {FORWARD}": (linear, None),
    f"linear_gradients: {GRADIENTS}": (mean_square(linear), (0, 1, 2)),
    f"distances: {FORWARD}": (distances, None),
    f"distances_gradients: {GRADIENTS}": (mean_square(distances), (0, 1)),
    f"perceptron: {FORWARD}": (perceptron, None),
    f"perceptron_gradients: {GRADIENTS}": (perceptron, (0, 1)),
    f"gaussian_product: {FORWARD}": (gaussian_product, None),
    f"gaussian_gradients: {GRADIENTS}": (mean_square(gaussian_product), (0, 1, 2)),
    f"nearest: {FORWARD}": (nearest, None),
    f"attention_bf16: {FORWARD}": (attention, None),
    f"attention_gradients: {GRADIENTS}": (mean_square(attention), (0, 1, 2)),
    f"swiglu: {FORWARD}": (swiglu, None),
    f"swiglu_gradients: {GRADIENTS}": (mean_square(swiglu), (0, 1, 2, 3)),
    f"rms_norm: {FORWARD}": (rms_norm, None),
    f"rms_norm_gradients: {GRADIENTS}": (mean_square(rms_norm), (0, 1, 2)),
    f"lora: {FORWARD}": (lora, None),
    f"lora_gradients: {GRADIENTS}": (mean_square(lora), (2, 3)),
    f"bf16: {FORWARD}": (lambda x, w: F.relu(x @ w), None),
    f"losses: {FORWARD}": (losses, None),
    f"losses_gradients: {GRADIENTS}": (losses, (0, 1)),
    f"normed_rows: {FORWARD}": (normed_rows, None),
    f"normed_rows_gradients: {GRADIENTS}": (mean_square(normed_rows), (0, 1, 2)),
    f"lenet, 128 images: {FORWARD}": (lenet, None),
    f"lenet, 128 images: {GRADIENTS}": (lenet, (0, 1)),
    **{
        f"{name}: {kind}": (function if kind == FORWARD else squared(function), None if kind == FORWARD else argnums)
        for name, function, argnums in (
            ("layer, 100 images", layer, (0, 1, 2)),
            ("layer, 1000 images", layer, (0, 1, 2)),
            ("residual NCHW", residual, (0, 1, 2, 3, 4)),
            ("residual NHWC", channels_last(residual), (0, 1, 2, 3, 4)),
            ("separable NCHW", separable, (0, 1, 2, 3, 4)),
            ("separable NHWC", channels_last(separable), (0, 1, 2, 3, 4)),
        )
        for kind in (FORWARD, GRADIENTS)
    },
}


def compiled(title: str, group: str, arguments: Callable[[], tuple[Any, ...]]) -> Callable[[], Any] | None:
    """What it takes no arguments to call, compiled and run once; None for what is not written for torch."""
    if title not in WRITTEN or group not in ("contractions", "windows"):
        return None
    function, argnums = WRITTEN[title]
    args = [jax.tree.map(_tensor, arg) for arg in arguments()]
    fast = torch.compile(function)
    if argnums is None:

        def forward() -> Any:
            with torch.no_grad():
                return fast(*args)

        forward()
        return forward
    wanted = [leaf for n in argnums for leaf in jax.tree.leaves(args[n])]
    for leaf in wanted:
        leaf.requires_grad_()

    def with_gradients() -> Any:
        value = fast(*args)
        return value, torch.autograd.grad(value, wanted)

    with_gradients()
    return with_gradients


def _tensor(array: jax.Array) -> Any:
    return torch.from_dlpack(array).clone()
