"""Named little programs, shared by the tests and the benchmarks.

Sizes are small, because Triton's interpreter is slow; `bench_args` makes the full ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Rng = np.random.Generator
Arguments = Callable[[Rng], tuple[Any, ...]]


@dataclass(frozen=True)
class Program:
    """A function, its random arguments, and which of them it is differentiated by (its outputs are summed first).

    Tags: `one kernel` (nothing may be left over), `leftovers` (something has no rule), `integer` (results are exact),
    `low` (16-bit floats), `x64` (run it under `jax.enable_x64`), `long` (too long for the interpreter).
    """

    name: str
    fn: Callable[..., Any]
    args: Arguments
    grad: tuple[int, ...] | None = (0,)
    tags: frozenset[str] = frozenset()
    bench_args: Arguments | None = None

    def __str__(self) -> str:
        return self.name

    def precision(self) -> AbstractContextManager[Any]:
        """Everything that traces or runs the program happens inside this."""
        return jax.enable_x64("x64" in self.tags)

    def gradient(self) -> Callable[..., Any]:
        """The gradient of the sum of all floating-point outputs, by the arguments in `grad`."""
        if self.grad is None:
            raise ValueError(f"{self.name} is not differentiated")

        def loss(*args: Any) -> Any:
            outputs = [out for out in jax.tree.leaves(self.fn(*args)) if jnp.issubdtype(out.dtype, jnp.floating)]
            return sum(jnp.sum(out) for out in outputs)

        vars(loss)["__signature__"] = inspect.signature(self.fn)  # the names of the arguments
        return jax.grad(loss, argnums=self.grad)


def floats(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Arguments:
    """Normal numbers, one array for each shape."""
    return lambda rng: tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def positive(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Arguments:
    return lambda rng: tuple(rng.uniform(0.1, 2.0, shape).astype(dtype) for shape in shapes)


def integers(*shapes: tuple[int, ...], dtype: Any = np.int32, low: int = -50, high: int = 50) -> Arguments:
    return lambda rng: tuple(rng.integers(low, high, shape, dtype=dtype) for shape in shapes)


def bools(*shapes: tuple[int, ...]) -> Arguments:
    return lambda rng: tuple(rng.random(shape) < 0.5 for shape in shapes)


def join(*parts: Arguments) -> Arguments:
    """The arguments of all parts, one after the other."""
    return lambda rng: tuple(arg for part in parts for arg in part(rng))


# normalisations


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-6) * scale + bias


def rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def batch_norm_statistics(x: Any) -> Any:
    return x.mean(0), x.var(0)


def logsumexp_of_difference(x: Any, y: Any) -> Any:
    return jax.nn.logsumexp(x - y, axis=-1)


def cross_entropy(logits: Any, labels: Any) -> Any:
    one_hot = (labels[:, None] == lax.broadcasted_iota(labels.dtype, logits.shape, 1)).astype(logits.dtype)
    return -jnp.mean(jnp.sum(one_hot * jax.nn.log_softmax(logits), axis=-1))


# activations and layers


def swiglu(gate: Any, up: Any) -> Any:
    return jax.nn.silu(gate) * up


def gelu_tanh(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=True)


def gelu_erf(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=False)


def rotary_halves(x: Any, cos: Any, sin: Any) -> Any:
    left, right = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-right, left], axis=-1) * sin


def rotary_interleaved(x: Any, cos: Any, sin: Any) -> Any:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def bias_relu_residual(x: Any, bias: Any, residual: Any) -> Any:
    return jax.nn.relu(x + bias) + residual


def dense_relu(x: Any, params: dict[str, Any]) -> Any:
    return jax.nn.relu(x @ params["w"] + params["b"])


def activations(x: Any) -> tuple[Any, ...]:
    names = ("relu", "elu", "selu", "silu", "softplus", "mish", "hard_swish", "leaky_relu", "celu", "glu")
    return tuple(getattr(jax.nn, name)(x) for name in names)


# losses and updates


def adam(p: Any, m: Any, v: Any, g: Any, step: Any) -> tuple[Any, Any, Any]:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    scaled = m / (1 - 0.9**step) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return p - 1e-3 * scaled, m, v


def huber(x: Any, y: Any) -> Any:
    error = jnp.abs(x - y)
    return jnp.mean(jnp.where(error < 1.0, 0.5 * error**2, error - 0.5))


def sum_of_squares(x: Any) -> Any:
    return jnp.sum(jnp.abs(x) ** 2)


def sum_of_atan2(x: Any) -> Any:
    return jnp.sum(jnp.arctan2(x, 2))


def adam_tree(params: dict[str, Any], grads: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda p, g: p - 0.1 * g / (1 + jnp.abs(g)), params, grads)


# reductions


def reductions(x: Any) -> tuple[Any, ...]:
    return x.sum(0), x.prod(1), x.min((0, 2)), x.max(), x.mean(2)


def logical_reductions(x: Any) -> tuple[Any, ...]:
    return (x > 0).any(0), (x > -1).all(1), jnp.count_nonzero(x > 0)


def arg_extremes(x: Any) -> tuple[Any, Any, Any]:
    return x.argmax(0), x.argmin(1), x.argmax()


# moving elements


def transposes(x: Any) -> tuple[Any, Any]:
    return x.transpose(2, 0, 1) * 2, x.swapaxes(0, 2) + 1


def pieces(x: Any) -> Any:
    padded = jnp.pad(x[:, ::-1], ((1, 2), (0, 3)), constant_values=1.0)
    return jnp.concatenate([padded[1:-2, ::2], jnp.flip(x, 0)[:, 1:4]], axis=1)


def split_and_merge(x: Any) -> Any:
    a, b, c = jnp.split(x, [2, 5], axis=1)
    halves = x.reshape(4, 3, 2, -1).transpose(0, 2, 1, 3).reshape(8, -1)
    return a.sum(), jnp.concatenate([c, b], 1), halves, jnp.stack([x, -x], 1)


def where_clamp_iota(x: Any) -> Any:
    column = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return jnp.where(column < 5, jnp.clip(x, -0.5, 0.5), x * column)


def causal_mask(x: Any) -> Any:
    return jnp.where(jnp.tril(jnp.ones(x.shape, bool)), x, -jnp.inf).max(-1)


def outer_sum(x: Any, y: Any) -> Any:
    return jnp.tanh(x[:, None] + y[None, :]).sum(0)


# integers and bools


def hash_mix(x: Any) -> Any:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return (x ^ (x >> 16)) % 1000


def integer_arithmetic(x: Any, y: Any) -> tuple[Any, ...]:
    return x // y, x % y, lax.div(x, y), lax.rem(x, y), (x << 2) - y, x * y & 0xFF, jnp.sign(x) * abs(y)


def bool_logic(a: Any, b: Any) -> tuple[Any, ...]:
    return (a & ~b) | (b ^ a), a == b, jnp.where(a, b, True).sum()


# shapes


def shape_corners(empty: Any, single: Any, scalar: Any) -> tuple[Any, ...]:
    total = jnp.sum(empty * 2.0, axis=0)
    return total, jnp.sum(single, axis=1), single.max(1, keepdims=True) * scalar, jnp.concatenate([empty, empty + 1])


def several_shapes(x: Any, y: Any) -> dict[str, Any]:
    return {"row": x.sum(1), "all": x.mean(), "outer": x * y, "same": jnp.exp(y), "given": x}


def constants_only(x: Any) -> tuple[Any, ...]:
    return x, 3.0, jnp.zeros((2, 3)), jnp.arange(6).reshape(2, 3) * 2


# calls


def softmax_told(x: Any) -> Any:
    """Beside its result it says whether there is a row with one large element."""
    p = jax.nn.softmax(x)
    return p, jnp.any(p > 0.5)


@jax.custom_jvp
def clipped_log(x: Any) -> Any:
    return jnp.log(jnp.maximum(x, 1e-3))


@clipped_log.defjvp
def _clipped_log_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return clipped_log(x), t / jnp.maximum(x, 1e-3)


@jax.custom_vjp
def straight_through(x: Any) -> Any:
    return jnp.round(x * 4) / 4


straight_through.defvjp(lambda x: (straight_through(x), None), lambda _, g: (g,))


@jax.jit
def _helper(x: Any) -> Any:
    return jnp.where(x > 0, x, 0.1 * x)


def nested_calls(x: Any) -> Any:
    block = jax.checkpoint(lambda x: jnp.sin(_helper(x)) * _helper(-x))
    return block(block(x)) + lax.stop_gradient(x)


# what has no rule, in the middle


def windows(x: Any) -> Any:
    """Sums of so many neighbours that they stay with XLA."""
    return lax.reduce_window(x, 0.0, lax.add, (1,) * (x.ndim - 1) + (4097,), (1,) * x.ndim, "SAME")


def sort_inside(x: Any) -> Any:
    return jnp.tanh(jnp.sort(x * 2, axis=1) + 1)


def dot_inside(x: Any, w: Any) -> Any:
    return jax.nn.relu((x - 1) @ w) * 2


def cumsum_inside(x: Any) -> Any:
    return jnp.exp(-jnp.cumsum(x * x, axis=1))


def gather_inside(table: Any, indices: Any) -> Any:
    return jnp.sum(jnp.tanh(table)[indices % table.shape[0]] ** 2, axis=-1)


def special_functions(x: Any) -> tuple[Any, ...]:
    return jnp.expm1(x), jnp.log1p(x * x), lax.erf(x), lax.erfc(x), lax.cbrt(x), lax.logistic(x), jnp.sinh(x), x**3


def rounding(x: Any) -> tuple[Any, ...]:
    return jnp.floor(x), jnp.ceil(x), jnp.round(x), jnp.sign(x), jnp.isfinite(x), (x * 8).astype(jnp.int32)


def _softmax_programs() -> list[Program]:
    found = []
    for row in (1, 17, 1000, 4096):
        many = floats((4096, row))
        for fn in (jax.nn.softmax, jax.nn.log_softmax):
            name = f"{fn.__name__}_{row}"
            found.append(Program(name, fn, floats((3 if row < 1000 else 2, row)), tags=ONE, bench_args=many))
    for fn in (jax.nn.softmax, jax.nn.log_softmax):
        long = floats((2, 1_000_000))
        tags = ONE | {"long"}
        found.append(Program(f"{fn.__name__}_1000000", fn, long, tags=tags, bench_args=floats((64, 1_000_000))))
    return found


ONE = frozenset({"one kernel"})
LEFT = frozenset({"leftovers"})
INT = frozenset({"integer"})
LOW = frozenset({"low"})
X64 = frozenset({"x64"})
BF16, F16, F64 = jnp.bfloat16, np.float16, np.float64
IMAGES = floats((28, 28, 1, 128))
ACTIVATIONS = floats((8192, 4096))

PROGRAMS: tuple[Program, ...] = (
    Program(
        "layer_norm", layer_norm, floats((6, 40), (40,), (40,)), (0, 1, 2), ONE, floats((8192, 4096), (4096,), (4096,))
    ),
    Program("rms_norm", rms_norm, floats((5, 33), (33,)), (0, 1), ONE, floats((8192, 4096), (4096,))),
    *_softmax_programs(),
    Program(
        "logsumexp_of_difference",
        logsumexp_of_difference,
        floats((7, 50), (7, 50)),
        (0, 1),
        ONE,
        floats((8192, 2048), (8192, 2048)),
    ),
    Program(
        "cross_entropy",
        cross_entropy,
        join(floats((9, 20)), integers((9,), low=0, high=20)),
        bench_args=join(floats((8192, 8192)), integers((8192,), low=0, high=8192)),
    ),
    Program("batch_norm_statistics", batch_norm_statistics, floats((64, 12)), bench_args=floats((65536, 256))),
    Program("gelu_tanh", gelu_tanh, floats((130,)), tags=ONE, bench_args=ACTIVATIONS),
    Program("gelu_erf", gelu_erf, floats((130,)), tags=ONE, bench_args=ACTIVATIONS),
    Program("swiglu", swiglu, floats((5, 31), (5, 31)), (0, 1), ONE, floats((8192, 4096), (8192, 4096))),
    Program(
        "rotary_halves",
        rotary_halves,
        floats((2, 3, 5, 8), (5, 8), (5, 8)),
        (0,),
        ONE,
        floats((8, 16, 2048, 128), (2048, 128), (2048, 128)),
    ),
    Program(
        "rotary_interleaved",
        rotary_interleaved,
        floats((2, 3, 5, 8), (5, 4), (5, 4)),
        (0,),
        ONE,
        floats((8, 16, 2048, 128), (2048, 64), (2048, 64)),
    ),
    Program(
        "bias_relu_residual",
        bias_relu_residual,
        floats((6, 20), (20,), (6, 20)),
        (0, 1, 2),
        bench_args=floats((8192, 4096), (4096,), (8192, 4096)),
    ),
    Program("activations", activations, floats((4, 18)), bench_args=floats((4096, 1024))),
    Program(
        "adam",
        adam,
        join(floats((77,), (77,)), positive((77,)), floats((77,)), lambda rng: (np.float32(3),)),
        None,
        ONE,
        join(
            floats((4_000_000,), (4_000_000,)),
            positive((4_000_000,)),
            floats((4_000_000,)),
            lambda rng: (np.float32(3),),
        ),
    ),
    Program(
        "adam_tree",
        adam_tree,
        lambda rng: tuple(
            {"w": rng.standard_normal((3, 5)).astype(np.float32), "b": [rng.standard_normal(4).astype(np.float32)]}
            for _ in range(2)
        ),
        (0, 1),
    ),
    Program("huber", huber, floats((11, 23), (11, 23)), (0, 1), bench_args=floats((4096, 4096), (4096, 4096))),
    Program("sum_of_squares", sum_of_squares, floats((4, 4, 1, 24)), bench_args=IMAGES),
    Program("sum_of_atan2", sum_of_atan2, floats((4, 4, 1, 24)), bench_args=IMAGES),
    Program("column_sum", lambda x: x.sum(0), floats((500, 6)), bench_args=floats((100_000, 64))),
    Program("full_mean", jnp.mean, floats((40, 50)), bench_args=floats((10_000, 1000))),
    Program("reductions", reductions, positive((5, 6, 7))),
    Program("logical_reductions", logical_reductions, floats((6, 7)), None, INT),
    Program("arg_extremes", arg_extremes, floats((6, 7)), None, INT),
    Program("transposes", transposes, floats((3, 4, 5)), bench_args=floats((256, 256, 256))),
    Program("pieces", pieces, floats((5, 6))),
    Program("split_and_merge", split_and_merge, floats((12, 8))),
    Program("where_clamp_iota", where_clamp_iota, floats((5, 9)), bench_args=ACTIVATIONS),
    Program("causal_mask", causal_mask, floats((9, 9))),
    Program("outer_sum", outer_sum, floats((6,), (10,)), (0, 1)),
    Program("hash_mix", hash_mix, integers((100,), dtype=np.uint32, low=0, high=2**32), None, INT),
    Program("integer_arithmetic", integer_arithmetic, join(integers((40,)), integers((40,), low=1)), None, INT),
    Program("bool_logic", bool_logic, bools((30,), (30,)), None, INT),
    Program("shape_corners", shape_corners, floats((0, 4), (3, 1), ()), (0, 1, 2)),
    Program("scalars", lambda x, y: (jnp.sin(x) * y, x > y), floats((), ()), (0, 1)),
    Program(
        "python_scalars", lambda x, n: (x * 2, n + 1, x**n), lambda rng: (float(rng.random()), int(rng.integers(1, 5)))
    ),
    Program("several_shapes", several_shapes, floats((4, 6), (6,)), (0, 1)),
    Program("constants_only", constants_only, floats((3,)), None),
    Program("softmax_told", softmax_told, floats((400, 33)), tags=ONE),
    Program("clipped_log", clipped_log, floats((25,))),
    Program("straight_through", straight_through, floats((25,))),
    Program("nested_calls", nested_calls, floats((25,))),
    Program("special_functions", special_functions, floats((40,))),
    Program("rounding", rounding, floats((40,)), None),
    Program(
        "dense_relu",
        dense_relu,
        lambda rng: (floats((4, 6))(rng)[0], dict(zip("wb", floats((6, 3), (3,))(rng)))),
        (0, 1),
        LEFT,
    ),
    Program("sort_inside", sort_inside, floats((4, 9))),
    Program("dot_inside", dot_inside, floats((5, 7), (7, 4)), (0, 1), LEFT),
    Program("cumsum_inside", cumsum_inside, floats((4, 9))),
    Program("gather_inside", gather_inside, join(floats((8, 5)), integers((6,), low=0, high=30)), (0,), LEFT),
    Program(
        "layer_norm_bf16",
        layer_norm,
        floats((6, 40), (40,), (40,), dtype=BF16),
        (0, 1, 2),
        LOW | ONE,
        floats((8192, 4096), (4096,), (4096,), dtype=BF16),
    ),
    Program("softmax_f16", jax.nn.softmax, floats((5, 33), dtype=F16), tags=LOW | ONE),
    Program(
        "gelu_bf16", gelu_tanh, floats((130,), dtype=BF16), tags=LOW | ONE, bench_args=floats((8192, 4096), dtype=BF16)
    ),
    Program(
        "mixed_precision",
        lambda x, w: (x.astype(jnp.float32) * w).astype(x.dtype) + x,
        lambda rng: (*floats((5, 8), dtype=BF16)(rng), *floats((8,))(rng)),
        (0, 1),
        LOW,
    ),
    Program("layer_norm_f64", layer_norm, floats((6, 40), (40,), (40,), dtype=F64), (0, 1, 2), X64),
    Program("special_functions_f64", special_functions, floats((40,), dtype=F64), tags=X64),
    Program(
        "integers_i64",
        integer_arithmetic,
        join(integers((40,), dtype=np.int64), integers((40,), dtype=np.int64, low=1)),
        None,
        X64 | INT,
    ),
)
