"""Cases: functions that call Python, under every transformation; what is told, how often, and in which order."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import checkify, io_callback
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.transforms.functions import V, X, normal

ROWS = normal(8, 4)
Function = Callable[..., Any]


class _Notes:
    """What Python is told, in its order; each number with few digits."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def tell(self, what: str, value: Any, ordered: bool = False) -> None:
        jax.debug.callback(lambda value: self._note(what, value), value, ordered=ordered)

    def double(self, value: Any, ordered: bool = False) -> Any:
        return io_callback(lambda value: self._note("io", value), jax.typeof(value), value, ordered=ordered)

    def purely(self, value: Any) -> Any:
        called = lambda value: np.asarray(value) * 2  # noqa: E731
        return jax.pure_callback(called, jax.typeof(value), value, vmap_method="expand_dims")

    def after(self, results: Any) -> Any:
        results = jax.block_until_ready(results)
        jax.effects_barrier()
        return results, self.seen

    def after_all(self, results: Any) -> Any:
        """The same where no order is promised."""
        results, seen = self.after(results)
        return results, sorted(seen)

    def _note(self, what: str, value: Any) -> np.ndarray:
        self.seen.append((what, np.round(np.asarray(value, np.float64), 3).tolist()))
        return np.asarray(value) * 2


def _told(notes: _Notes, ordered: bool = False) -> Function:
    """Sums before each effect, so that kernels have to end."""

    def f(x: Any) -> Any:
        y = jnp.sin(x) / (1 + jnp.sum(x * x))
        notes.tell("late", y.sum(), ordered)
        notes.tell("early", x[0], ordered)
        z = jnp.exp(y) * y.max()
        notes.tell("last", z.min(), ordered)
        return jnp.cos(z) / (3 + jnp.sum(z * z))

    return f


def _loss(function: Function) -> Function:
    return lambda *args: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(function(*args)))


def told_in_order(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(_told(notes, ordered=True))
    return notes.after((f(V), jax.jit(lambda v: f(v * 2) + 1)(V)))


def told_without_order(wrap: Any) -> Any:
    notes = _Notes()
    return notes.after_all(wrap(_told(notes))(V))


def told_and_doubled_in_order(wrap: Any) -> Any:
    """What a callback gives back is wanted by what comes before another one."""
    notes = _Notes()

    def f(x: Any) -> Any:
        total = notes.double(jnp.sum(jnp.sin(x)), ordered=True)
        notes.tell("x", x.max(), ordered=True)
        y = notes.double(jnp.cos(x), ordered=True)
        z = jnp.exp(y) / jnp.sum(y) * total
        notes.double(x.min(), ordered=True)
        return z, notes.double(z.sum(), ordered=True)

    results, seen = notes.after(wrap(f)(V))
    return results, sorted(seen, key=lambda note: note[0])  # JAX orders those of each kind by themselves


def doubled_without_order(wrap: Any) -> Any:
    notes = _Notes()
    results, seen = notes.after(wrap(lambda x: notes.double(jnp.sin(x)).sum() + jnp.sum(x))(V))
    return results, seen, jax.vmap(wrap(lambda x: notes.double(x)))(X), len(seen)


def purely_called(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(lambda x: jnp.exp(notes.purely(jnp.sin(x) / jnp.sum(x))) * 2)
    return f(V), jax.vmap(f)(X)


def told_of_a_batch(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(_told(notes))
    return notes.after_all((jax.vmap(f)(X), jax.jit(jax.vmap(jax.vmap(f)))(X[None])))


def told_of_gradients(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(_loss(_told(notes, ordered=True)))
    return notes.after((jax.grad(f)(V), jax.jit(jax.value_and_grad(f))(V), jax.grad(jax.jit(f))(V)))


def told_of_forward_mode(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(_told(notes, ordered=True))
    value, push = jax.linearize(f, V)
    _, pull = jax.vjp(f, V)
    return notes.after((jax.jvp(f, (V,), (V,)), value, push(V), push(V * 2), pull(value), pull(value)))


def told_of_second_derivatives(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(_loss(_told(notes)))
    return notes.after_all(jax.grad(lambda v: jax.grad(f)(v).sum())(V))


def told_of_gradients_of_a_batch(wrap: Any) -> Any:
    notes = _Notes()
    return notes.after_all(jax.jit(jax.vmap(jax.value_and_grad(wrap(_loss(_told(notes))))))(X))


def told_in_calls(wrap: Any) -> Any:
    notes = _Notes()
    f = jax.jit(_told(notes, ordered=True))
    return notes.after(wrap(lambda x: jax.jit(lambda x: f(wrap(f)(x)) + 1)(x) * 2)(V))


def told_by_a_fused_part(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(_told(notes, ordered=True))

    def around(x: Any) -> Any:
        notes.tell("around", x.sum(), ordered=True)
        return f(f(x) * 2) + 1

    return notes.after(jax.jit(jax.value_and_grad(_loss(around)))(V))


def told_in_a_checkpoint(wrap: Any) -> Any:
    notes = _Notes()
    f = _told(notes)
    return notes.after_all((jax.grad(wrap(_loss(jax.checkpoint(f))))(V), wrap(jax.grad(_loss(jax.checkpoint(f))))(V)))


def told_in_a_checkpoint_around(wrap: Any) -> Any:
    notes = _Notes()
    f, policies = wrap(_told(notes)), jax.checkpoint_policies
    results = [
        jax.jit(jax.grad(_loss(jax.checkpoint(f, policy=policy))))(V)
        for policy in (None, policies.everything_saveable, policies.dots_saveable)
    ]
    return notes.after_all((results, jax.grad(_loss(jax.checkpoint(f)))(V)))


def told_in_steps_around(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(_told(notes, ordered=True))
    steps = lambda x: lax.scan(lambda c, y: (f(c + y), c.sum()), x, X)  # noqa: E731
    return notes.after((jax.jit(steps)(V), jax.grad(_loss(steps))(V)))


def told_in_steps(wrap: Any) -> Any:
    notes = _Notes()
    f = _told(notes, ordered=True)
    steps = wrap(lambda x: lax.scan(lambda c, y: (f(c + y), c.sum()), jnp.sin(x), X))
    return notes.after((steps(V), jax.grad(_loss(steps))(V), jax.vjp(steps, V)[0]))


def told_in_a_loop_of_unknown_length(wrap: Any) -> Any:
    notes = _Notes()
    f = _told(notes)
    steps = wrap(lambda x, n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, f(s[1])), (0, x))[1] * 2)
    return notes.after_all((steps(V, 3), jax.jvp(lambda v: steps(v, 2), (V,), (V,))))


def told_beside_a_loop(wrap: Any) -> Any:
    """The states of a loop are summed after it, which the loop does itself, and what is told waits for the sum."""
    notes = _Notes()

    def f(x: Any) -> Any:
        last, states = lax.scan(lambda c, y: (jnp.tanh(c + y), c), x, X)
        notes.tell("sum", jnp.sum(states**2), ordered=True)
        notes.tell("x", x[0], ordered=True)
        return last * 2

    return notes.after((wrap(f)(V), jax.grad(wrap(_loss(f)))(V)))


def told_in_a_branch(wrap: Any) -> Any:
    notes = _Notes()
    f = _told(notes)
    g = wrap(lambda p, x: lax.cond(p > 0, f, lambda x: x + 1, jnp.sin(x)) * 2)
    return notes.after_all((g(1.0, V), g(-1.0, V), jax.grad(_loss(g), 1)(1.0, V), jax.grad(_loss(g), 1)(-1.0, V)))


def told_in_a_rule_around(wrap: Any) -> Any:
    notes = _Notes()
    f = wrap(_told(notes, ordered=True))
    rule = jax.custom_vjp(f)
    rule.defvjp(lambda x: (f(x), x), lambda x, ct: (wrap(lambda x, ct: f(x) * ct)(x, ct),))
    return notes.after((rule(V), jax.grad(_loss(rule))(V), jax.grad(wrap(_loss(rule)))(V)))


def told_by_an_unused_value(wrap: Any) -> Any:
    """What nobody reads is not computed, but for what is told of it."""
    notes = _Notes()

    def f(x: Any) -> Any:
        notes.tell("unused", jnp.exp(x).sum(), ordered=True)
        jnp.sin(x).sum()
        return x, jnp.cos(x)

    return notes.after((jax.jit(lambda x: wrap(f)(x)[0])(V), jax.jit(lambda x: (wrap(f)(x), 1)[1])(V)))


def told_of_constants(wrap: Any) -> Any:
    notes = _Notes()

    def f() -> Any:
        notes.tell("constant", jnp.arange(3.0).sum(), ordered=True)
        notes.tell("number", 2.5, ordered=True)
        return jnp.ones(3) * 2

    return notes.after(wrap(f)())


def printed(wrap: Any) -> Any:
    def f(x: Any) -> Any:
        jax.debug.print("{x} and {}", x.max() * 0 + 1, x=jnp.round(x.sum() * 0), ordered=True)
        return jnp.sin(x) / jnp.sum(x)

    return wrap(f)(V), jax.vmap(wrap(lambda x: (jax.debug.print("{}", x), x * 2)[1]))(X), jax.grad(_loss(wrap(f)))(V)


def stopped_at_a_breakpoint(wrap: Any) -> Any:
    out = io.StringIO()

    def f(x: Any) -> Any:
        y = jnp.sin(x) / jnp.sum(x)
        jax.debug.breakpoint(stdin=io.StringIO("p y.shape\nc\n"), stdout=out, backend="cli")
        return jnp.exp(y)

    result = jax.block_until_ready(wrap(f)(V))
    jax.effects_barrier()
    return result, out.getvalue().splitlines()[-1]


def lowered_with_effects(wrap: Any) -> Any:
    notes = _Notes()
    compiled = wrap(_told(notes, ordered=True)).lower(V).compile()
    return notes.after((compiled(V), compiled(V * 2)))


def told_on_each_device(wrap: Any) -> Any:
    notes = _Notes()
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    f = wrap(lambda x: (notes.tell("row", x.sum()), jnp.sin(x))[1])
    return notes.after_all(jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("data"), out_specs=P("data")))(ROWS))


def checked(wrap: Any) -> Any:
    def f(x: Any) -> Any:
        checkify.check(jnp.all(x > -9), "too small: {}", x.min())
        y = jnp.log(x) / jnp.sum(x)
        return lax.scan(lambda c, v: (jnp.sin(c + v / (v - 2)), c), y, y)[0]

    errors = checkify.user_checks | checkify.float_checks | checkify.index_checks
    found = []
    for x in (jnp.abs(V) + 1, V - 99, -jnp.abs(V)):
        error, values = wrap(checkify.checkify(f, errors=errors))(x)
        found += [(error.get() or "").partition(" at ")[0], values]
    found.append(checkify.checkify(wrap(lambda x: x * 2))(V)[1])
    return found


def kept_in_place(wrap: Any) -> Any:
    """Names, barriers and shardings mean what they mean to JAX, in a gradient with a policy too."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, P("data", None))

    def f(x: Any) -> Any:
        y = checkpoint_name(jnp.sin(x), "sine")
        y, z = lax.optimization_barrier((y, y / jnp.sum(y)))
        return lax.with_sharding_constraint(jnp.exp(z) * y, sharding)

    named = jax.checkpoint_policies.save_only_these_names("sine")
    out = wrap(f)(ROWS)
    gradients = [jax.grad(_loss(g))(ROWS) for g in (wrap(f), wrap(jax.checkpoint(f, policy=named)))]
    return out, out.sharding.is_equivalent_to(sharding, 2), gradients, jax.grad(_loss(jax.checkpoint(wrap(f))))(ROWS)


CASES = (
    *(told_in_order, told_without_order, told_and_doubled_in_order, doubled_without_order, purely_called),
    *(told_of_a_batch, told_of_gradients, told_of_forward_mode, told_of_second_derivatives),
    *(told_of_gradients_of_a_batch, told_in_calls, told_by_a_fused_part, told_in_a_checkpoint),
    *(told_in_a_checkpoint_around, told_in_steps_around, told_in_steps, told_in_a_loop_of_unknown_length),
    *(told_beside_a_loop, told_in_a_branch, told_in_a_rule_around, told_by_an_unused_value, told_of_constants),
    *(printed, stopped_at_a_breakpoint, lowered_with_effects, told_on_each_device, checked, kept_in_place),
)
