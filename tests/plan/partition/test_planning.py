"""What planning costs grows with the program: twice the equations, about twice the values that all walks find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from bench.planning import FAMILIES
from jaxpr2triton.graph import live, space
from jaxpr2triton.graph.nodes import Compute, Graph, Node, Store
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.jaxprs import equations
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.plan.decisions import FIRM
from jaxpr2triton.plan.partition.alike import alike
from jaxpr2triton.plan.partition.cut import Pending, find_cuts
from jaxpr2triton.plan.partition.first_cuts import first_cuts
from jaxpr2triton.plan.partition.segments import dominators, pieces
from jaxpr2triton.policy import DEFAULT_POLICY
from tests.policies import moved
from tests.programs import windows

GROWTH = 2.3  # for twice the equations


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many values each walk has found."""
    sizes: list[int] = []
    walk = space.walk

    def counted(*args: Any, **kwargs: Any) -> Graph:
        graph = walk(*args, **kwargs)
        sizes.append(len(graph.nodes))
        return graph

    monkeypatch.setattr(space, "walk", counted)
    return sizes


@pytest.mark.parametrize(
    ("family", "size"),
    [
        ("chain", 1600),
        ("chain gradient", 1000),  # of so many kernels that one more or less is little
        ("mlp gradient", 12),
        ("transformer", 2),
        ("carries", 24),
        ("carries gradient", 12),
        ("physics", 6),
        ("ode", 2),
    ],
)
def test_twice_the_equations_are_twice_the_work(family: str, size: int, found: list[int]) -> None:
    work, counts = [], []
    for each in (size, 2 * size):
        fn, args = FAMILIES[family].make(each)
        found.clear()
        j2t.transpile(fn, *args)
        work.append(sum(found))
        counts.append(sum(1 for _ in equations(jax.make_jaxpr(fn)(*args).jaxpr)))
    assert work[1] / work[0] <= GROWTH / 2 * counts[1] / counts[0]


# no recursion along a chain


@pytest.mark.parametrize(
    ("step", "length"),
    [
        (lambda x, y: x + y, 1200),  # sums of one reader wait for it
        (lambda x, y: y[jnp.clip(x.astype(jnp.int32), 0, 7)], 100),  # each place is computed from the one before
    ],
)
def test_a_chain_may_be_longer_than_the_stack(step: Callable[[Any, Any], Any], length: int) -> None:
    def fn(x: Any, y: Any) -> Any:
        for _ in range(length):
            x = step(x, y)
        return x

    assert j2t.transpile(fn, floats(8), floats(8)).kernels


def test_ten_thousand_equations() -> None:
    jaxpr = jax.make_jaxpr(lambda x, y: _added(x, y, 10_000))(floats(8), floats(8)).jaxpr
    cuts = find_cuts(jaxpr)
    assert len(jaxpr.eqns) == 10_000
    assert len(cuts.roots) <= 2 * 10_000 // DEFAULT_POLICY.cuts.steps + 1


def _added(x: Any, y: Any, count: int) -> Any:
    for _ in range(count):
        x = x + y
    return x


def test_a_long_gradient_is_right() -> None:
    def loss(x: Any) -> Any:
        for n in range(600):
            x = jnp.sin(x) * 1.01 if n % 2 else x + 0.5
        return jnp.sum(x)

    x = np.linspace(-1, 1, 8, dtype=np.float32)
    program = j2t.transpile(jax.grad(loss), x)
    np.testing.assert_allclose(program(x), jax.jit(jax.grad(loss))(x), rtol=1e-5)
    assert len(program.kernels) <= 4


# pieces of what is too long


def node(number: int, *operands: Node) -> Compute:
    (eqn,) = jax.make_jaxpr(lambda x: jnp.sin(x))(1.0).jaxpr.eqns  # traced anew, so that it has a result of its own
    return Compute(number, frozenset({Axis("i", 8)}), np.dtype(np.float32), eqn, operands)


def graph(nodes: list[Compute], *stored: Compute) -> Graph:
    return Graph(tuple(nodes), tuple(Store(n, (), value) for n, value in enumerate(stored)))


def test_what_all_ways_lead_through() -> None:
    start = node(0)
    left, right = node(1, start), node(2, start)
    meeting = node(3, left, right)
    end = node(4, meeting)
    nodes = [start, left, right, meeting, end]
    assert [dominators(graph(nodes, end))[each] for each in nodes] == [meeting, meeting, meeting, end, None]
    assert dominators(graph(nodes, end, left))[start] is None


def cut_at(nodes: list[Compute], most: int, *stored: Compute) -> list[int]:
    """The numbers of the nodes that a kernel of all of them is cut at."""
    values, shorter = [node.eqn.outvars[0] for node in nodes], moved(cuts={"steps": most})
    return [values.index(value) for value in pieces(graph(nodes, *stored), nodes, shorter)]


def test_a_chain_is_cut_into_equal_pieces() -> None:
    nodes = [node(0)]
    for number in range(1, 100):
        nodes.append(node(number, nodes[-1]))
    assert cut_at(nodes, 100, nodes[-1]) == [49]
    assert cut_at(nodes, 50, nodes[-1]) == [24, 49, 74]


def test_a_chain_of_twice_the_length_has_twice_the_kernels_and_the_same_ones() -> None:
    for size, kernels in ((2000, 2), (4000, 4)):  # no rest of some steps
        program = _planned("chain", size)
        assert (len(program.kernels), len(set(program.kernels))) == (kernels, 1)


def test_what_a_piece_reads_of_the_rest_is_cut_with_it() -> None:
    """Up and down a chain, as gradients go: each step down reads a step up, which all steps below it need as well."""
    up = [node(0)]
    for number in range(1, 50):
        up.append(node(number, up[-1]))
    down = [node(50, up[-1])]
    for number in range(51, 100):
        down.append(node(number, down[-1], up[99 - number]))
    nodes = [*up, *down]
    assert cut_at(nodes, 100, down[-1]) == [24, 74]  # the piece begins after the first, and ends with the second
    program = _planned("chain gradient", 4000)
    assert (len(program.kernels), len(set(program.kernels))) == (15, 5)
    assert sum(kernel.source.count("\n") for kernel in program.kernels) < 12_000


def test_what_takes_few_steps_is_made_again_beside_a_cut() -> None:
    short = [node(0)]
    for number in range(1, 4):
        short.append(node(number, short[-1]))
    nodes = list(short)
    for number in range(4, 100):
        nodes.append(node(number, nodes[-1], short[-1]))
    assert cut_at(nodes, 100, nodes[-1]) == [53]


def test_two_chains_that_cross_are_cut_at_both() -> None:
    nodes = [node(0), node(1)]
    for number in range(2, 100, 2):
        nodes += [node(number, *nodes[-2:]), node(number + 1, *nodes[-2:])]
    first, second = cut_at(nodes, 100, *nodes[-2:])
    assert (first % 2, second) == (0, first + 1)


def test_what_is_wide_is_cut_at_many_values_at_once() -> None:
    parts: list[list[Compute]] = []
    for number in range(20):
        start = node(100 * number)
        parts.append([start])
        for step in range(1, 10):
            parts[-1].append(node(100 * number + step, parts[-1][-1], start))
    ends = [part[-1] for part in parts]
    last = node(3000, *ends)
    nodes = [*(part[step] for step in range(10) for part in parts), last]  # all parts are alive in the middle
    cut = cut_at(nodes, 150, last)
    assert len(cut) >= 10 and {nodes[each] for each in cut} <= set(ends)


# shared values


def test_steps_of_a_solver_read_what_the_step_before_has_made() -> None:
    programs = [_planned("ode", steps) for steps in (2, 4)]
    assert bytes_read(programs[1]) <= GROWTH * bytes_read(programs[0])
    assert len(programs[1].kernels) <= GROWTH * len(programs[0].kernels)


def test_steps_of_a_solver_are_right_and_alike() -> None:
    fn, (shape,) = FAMILIES["ode"].make(2)
    y = np.random.default_rng(0).normal(size=shape.shape).astype(np.float32)
    program = j2t.transpile(fn, y)
    np.testing.assert_allclose(program(y), jax.jit(fn)(y), rtol=1e-5, atol=1e-6)
    assert (len(program.kernels), len(set(program.kernels))) == (14, 7)


def layers(count: int) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        for _ in range(count):
            x = x + windows(jnp.tanh(x) * 0.001)
        return x

    return fn


def _planned(family: str, size: int) -> Any:
    fn, args = FAMILIES[family].make(size)
    return j2t.transpile(fn, *args)


def bytes_read(program: Any) -> int:
    return sum(kernel.bytes_read for kernel in program.kernels)


def test_kernels_do_not_add_up_all_that_came_before() -> None:
    few, many = (j2t.transpile(layers(count), floats(512)) for count in (10, 20))
    assert bytes_read(many) <= 2.3 * bytes_read(few)
    assert len(many.kernels) == 21
    assert max(len(kernel.inputs) for kernel in many.kernels) <= DEFAULT_POLICY.cuts.reads + 1


def test_what_is_shared_is_right() -> None:
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    program = j2t.transpile(layers(12), x)
    np.testing.assert_allclose(program(x), jax.jit(layers(12))(x), rtol=1e-5)


def test_few_reads_are_done_again() -> None:
    cuts = find_cuts(normalize(jax.make_jaxpr(layers(DEFAULT_POLICY.cuts.reads - 1))(floats(512))).jaxpr)
    assert not cuts.shared


# loops


def test_all_results_of_a_loop_share_a_kernel() -> None:
    fn, _ = FAMILIES["carries"].make(DEFAULT_POLICY.groups.outputs + 8)
    rng = np.random.default_rng(0)
    starts = [rng.standard_normal(4).astype(np.float32) for _ in range(DEFAULT_POLICY.groups.outputs + 8)]
    xs = rng.standard_normal((3, 4)).astype(np.float32)

    def gradient(starts: Any, xs: Any) -> Any:
        return jax.grad(lambda starts, xs: sum(jnp.sum(out) for out in jax.tree.leaves(fn(starts, xs))))(starts, xs)

    for each in (fn, gradient):
        program = j2t.transpile(each, starts, xs)
        assert len(program.kernels) == 1
        jax.tree.map(
            lambda got, want: np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6),
            program(starts, xs),
            jax.jit(each)(starts, xs),
        )


def test_what_results_of_a_loop_need_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    of = live._bits
    monkeypatch.setattr(live, "_bits", lambda mask: asked.append(mask.bit_count()) or of(mask))
    work = []
    for count in (32, 64):
        fn, args = FAMILIES["carries"].make(count)
        cuts = first_cuts(normalize(jax.make_jaxpr(fn)(*args)).jaxpr, FIRM, DEFAULT_POLICY)
        asked.clear()
        (batch,) = {tuple(batch) for batch in alike(cuts).values()}
        work.append(sum(asked))
        assert len(batch) == count
    assert work[1] <= GROWTH * work[0]


def test_roots_that_share_a_space_are_noted_with_it() -> None:
    fn, args = FAMILIES["carries"].make(12)
    cuts = find_cuts(normalize(jax.make_jaxpr(fn)(*args)).jaxpr)
    (loop,) = (eqn for eqn in cuts.inside if eqn.primitive.name == "scan")
    assert set(cuts.spaces.computing(loop)) == set(cuts.roots)
    assert len({id(space) for space in cuts.spaces.values()}) <= 2  # the ys have one of their own
    readers, first = cuts.spaces.computing(loop), cuts.roots[0]
    for _ in range(2):  # a space of its own, and another one
        alone = cuts.space_of([first])
        assert alone is not None
        cuts.note(first, alone)
        assert cuts.spaces.computing(loop) == readers


# what partition is made of


def test_a_region_is_an_excerpt() -> None:
    program = j2t.transpile(lambda left, right: windows(left * right) + left, floats(8), floats(8))
    regions = [eqn.params["jaxpr"] for eqn in program.compiled.program.jaxpr.eqns if eqn.primitive is region_p]
    names = [region.jaxpr.debug_info.arg_names for region in regions]
    assert names == [("left", "right"), ("reduce_window_sum", "left")]
    for region in regions:
        assert len(jax.core.eval_jaxpr(region.jaxpr, region.consts, *[np.ones(8, np.float32)] * 2)) == 1


def test_a_root_is_pending_once() -> None:
    pending = Pending("abc")
    pending.extend("ad")
    assert [pending.pop() for _ in range(4)] == ["d", "a", "c", "b"]
    pending.extend("ab")
    pending.drop("bc")
    assert pending.pop() == "a"
    assert not pending
