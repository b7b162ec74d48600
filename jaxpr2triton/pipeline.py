"""From a jaxpr to kernels: the stages in their order, and the one loop that runs, checks and records them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax.extend.core as jex

from jaxpr2triton._compat import user_frame
from jaxpr2triton.autodiff.tracing import Lowered, lower
from jaxpr2triton.emit.emit import emit
from jaxpr2triton.errors import (
    KeepsTooMuch,
    LoopsRefused,
    Mistake,
    PlannedAgain,
    Reason,
    RolesFail,
    RunsTwice,
    UserError,
    WantsPieces,
    WantsToKeep,
)
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.graph.nodes import Graph
from jaxpr2triton.graph.planned import graph_of
from jaxpr2triton.graph.show import show_graph
from jaxpr2triton.ir.check import check_plan, check_program
from jaxpr2triton.ir.evaluate import read, run
from jaxpr2triton.ir.kernel import Kernel, Leftover, Role
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.roles import NO_ROLES, Roles
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.launch.call.primitive import Mode, launch_kernel
from jaxpr2triton.mistakes import mistake_of, tell
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.plan.partition.keeping import Keeping
from jaxpr2triton.plan.partition.partition import partition
from jaxpr2triton.plan.refusal import ALL, body_of, refusing_loops
from jaxpr2triton.plan.schedule.schedule import schedule
from jaxpr2triton.plan.schedule.tiled_products import large_products
from jaxpr2triton.plan.schedule.wishes import wished_for
from jaxpr2triton.report.launches import launches_of

RAW_LOOPS = ("scan", "while", "cond")
SHRINKS = (1, 2, 3)  # the smaller schedules to try when Triton refuses a kernel


@dataclass(frozen=True)
class Plans:
    """The result of scheduling: one plan for each region, in order."""

    program: Any  # the partitioned jaxpr
    plans: tuple[Plan, ...]
    lost: Mapping[str, Mistake] = field(default_factory=dict)  # regions that stay with XLA, by their names

    def __str__(self) -> str:
        return "\n\n".join(str(plan) for plan in self.plans) or "no kernels"


@dataclass(frozen=True)
class Graphs:
    """The values of each kernel, one by one: what is written as Triton code next."""

    plans: Plans
    graphs: Mapping[str, Graph]  # by the kernels' names
    lost: Mapping[str, Mistake] = field(default_factory=dict)

    @property
    def made(self) -> Iterator[Plan]:
        """The plans that have a graph."""
        return (plan for plan in self.plans.plans if plan.name in self.graphs)

    def __str__(self) -> str:
        return "\n\n".join(_shown(plan, self.graphs[plan.name]) for plan in self.made) or "no kernels"


def _shown(plan: Plan, graph: Graph) -> str:
    lines = show_graph(graph, argument_names(plan.jaxpr)).splitlines()
    return "\n".join([plan.title, *(f"  {line}" for line in lines)])


@dataclass(frozen=True)
class Kernels:
    plans: Plans
    kernels: tuple[Kernel, ...]
    lost: Mapping[str, Mistake] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n\n".join(kernel.source for kernel in self.kernels) or "# no kernels\n"


def _schedule_all(program: Any, name: str, roles: Roles, keeping: Keeping | None) -> Plans:
    plans = []
    lost: dict[str, Mistake] = {}
    for eqn in program.jaxpr.eqns:
        if eqn.primitive is region_p:
            region = eqn.params["jaxpr"]
            with _losing(eqn.params["name"], region, lost):
                plan = schedule(region, eqn.params["name"])
                if plan.reload and keeping and (more := keeping.wanted_in_pieces(large_products(region.jaxpr))):
                    raise WantsPieces(more)
                plans.append(plan)
    if lost:  # the axes that roles were asked for may be theirs
        return Plans(program, tuple(plans), lost)
    wishes = wished_for(roles, name, {plan.name: plan.names for plan in plans})
    return Plans(program, tuple(_asked_for(plan, wishes.get(plan.name, {})) for plan in plans))


@contextlib.contextmanager
def _losing(name: str, region: Any, lost: dict[str, Mistake]) -> Iterator[None]:
    """A mistake of ours here costs the loops of a region; a region without any is lost."""
    try:
        with refusing_loops(region.jaxpr.eqns, passing=(UserError,)):
            yield
    except (PlannedAgain, UserError):
        raise
    except Exception as problem:
        lost[name] = mistake_of(problem, region.jaxpr.eqns)


def _asked_for(plan: Plan, roles: Mapping[str, Role]) -> Plan:
    """The plan of the same region with these roles."""
    if not roles:
        return plan
    with _without_roles_if_need_be(plan.jaxpr, roles):
        found = schedule(plan.jaxpr, plan.name, 0, roles)
        check_plan(found)
        return found


@contextlib.contextmanager
def _without_roles_if_need_be(region: Any, roles: Mapping[str, Role]) -> Iterator[None]:
    """A mistake of ours here costs the roles that were asked for, if any were: without them all is well."""
    try:
        yield
    except UserError:
        raise
    except Exception as problem:
        if not roles:
            raise
        raise RolesFail(mistake_of(problem, region.jaxpr.eqns)) from problem


def _graph_all(plans: Plans, name: str) -> Graphs:
    graphs = {}
    lost = dict(plans.lost)
    for plan in plans.plans:
        with _losing(plan.name, plan.jaxpr, lost), _without_roles_if_need_be(plan.jaxpr, plan.roles):
            graphs[plan.name] = graph_of(plan)
    return Graphs(plans, graphs, lost)


def _emit_all(graphs: Graphs, name: str) -> Kernels:
    kernels = []
    lost = dict(graphs.lost)
    for plan in graphs.made:
        with _losing(plan.name, plan.jaxpr, lost), _without_roles_if_need_be(plan.jaxpr, plan.roles):
            kernels.append(emit(plan, graphs.graphs[plan.name]))
    return Kernels(graphs.plans, tuple(kernels), lost)


Stage = tuple[str, Callable[[Any, str], Any]]


def stages(
    loops: bool, refused: Container[int] = (), roles: Roles = NO_ROLES, keeping: Keeping | None = None
) -> tuple[Stage, ...]:
    """The stages in their order; without `loops` those stay with XLA as they are, and so do refused ones."""
    return (
        ("trace", lambda program, name: program),
        ("normalize", lambda program, name: normalize(program, loops)),
        ("partition", lambda program, name: partition(program, name, refused if loops else ALL, keeping)),
        ("schedule", lambda program, name: _schedule_all(program, name, roles, keeping)),
        ("graph", _graph_all),
        ("emit", _emit_all),
    )


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program as kernels and leftovers, ready to be run inside of a trace."""

    name: str
    stages: Mapping[str, Any]  # what each stage made, printable
    refused: Mapping[int, Reason] = field(default_factory=dict)  # why loops were left to XLA, by their bodies
    why_no_loops: Reason = ""  # … and why all of them were, if they were
    why_nothing: Reason = ""  # … and why the whole program was, if it was
    mistakes: tuple[Mistake, ...] = ()  # whatever went wrong in this compiler
    captured: tuple[Any, ...] = ()  # the leading operands of the program

    @property
    def program(self) -> Any:
        return self.stages["partition"]

    @property
    def in_avals(self) -> Sequence[Any]:
        return self.program.in_avals

    @property
    def out_avals(self) -> Sequence[Any]:
        return self.program.out_avals

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.stages["emit"].kernels

    @property
    def lost(self) -> Mapping[str, Mistake]:
        """The regions that stay with XLA because of a mistake, by their names."""
        return self.stages["emit"].lost

    @cached_property
    def leftovers(self) -> tuple[Leftover, ...]:
        found: list[Leftover] = []
        for eqn in self.program.jaxpr.eqns:
            if eqn.primitive is not region_p:
                if self.why_nothing or not _is_free(eqn):
                    found.append(self._leftover(eqn, self.why_nothing))
            elif mistake := self.lost.get(eqn.params["name"]):
                found += [self._leftover(inner, mistake) for inner in eqn.params["jaxpr"].jaxpr.eqns]
        return tuple(found)

    @property
    def shares(self) -> tuple[int, int]:
        """How many equations are in kernels, and how many stay with XLA; those in the bodies of loops count too."""
        kernels = {kernel.name for kernel in self.kernels}
        inside = outside = 0
        for eqn in self.program.jaxpr.eqns:
            inner = sum(1 for body in jex.jaxprs_in_params(eqn.params) for _ in equations(body))
            if eqn.primitive is not region_p:
                outside += 0 if _is_free(eqn) else 1 + inner
            elif eqn.params["name"] in kernels:
                inside += inner
            else:
                outside += inner
        return inside, outside

    def _leftover(self, eqn: Any, because: Reason) -> Leftover:
        reason: Any = because or why_not(eqn)
        if self.why_no_loops and eqn.primitive.name in RAW_LOOPS:
            reason = self.why_no_loops
        elif reason is None and eqn.primitive.name in LOOPS:
            reason = self.refused[body_of(eqn)]
        why = str(reason) if reason is not None else "it is part of a computation that stays with XLA"
        text = " ".join(_printed(eqn).split())
        return Leftover(eqn.primitive.name, text, str(user_frame(eqn) or ""), why, launches_of(eqn))

    @cached_property
    def _alternatives(self) -> tuple[tuple[Kernel, ...], ...]:
        """For each kernel the same one in smaller schedules."""
        plans = [plan for plan in self.stages["schedule"].plans if plan.name not in self.lost]
        return tuple(tuple(self._smaller(plan)) for plan in plans)

    def _smaller(self, plan: Plan) -> Iterator[Kernel]:
        for shrink in SHRINKS:
            try:
                smaller = schedule(plan.jaxpr, plan.name, shrink, plan.roles)
                yield emit(smaller, graph_of(smaller))
            except Exception as problem:
                mistake = mistake_of(problem, plan.jaxpr.jaxpr.eqns)
                tell(mistake, self.name, f"kernel {plan.name} has other schedules")

    def run(self, mode: Mode, strict: bool, *args: Any) -> list[Any]:
        """The outputs, from kernels and from what XLA keeps; traceable."""
        inner = self.program.jaxpr
        env = dict(zip(inner.invars, [*self.captured, *args], strict=True))
        smaller = iter(self._alternatives if mode == "device" else [()] * len(self.kernels))
        kernels = iter(self.kernels)

        def launch(eqn: Any, values: list[Any]) -> list[Any] | None:
            if eqn.primitive is not region_p or eqn.params["name"] in self.lost:
                return None
            return launch_kernel(next(kernels), eqn.params["jaxpr"], values, mode, strict, next(smaller))

        run(inner.eqns, env, launch)
        return [read(env, atom) for atom in inner.outvars]


def compile_jaxpr(jaxpr: Any, name: str, roles: Roles = NO_ROLES) -> Compiled:
    """Run all stages, check what each of them made, and keep it.

    A program with a loop that turns out to be beyond the compiler is compiled again with that loop left to XLA, or all
    of them if it is not known which. A mistake of ours costs as little as can be: the roles that were asked for, one
    region, one loop, all loops, the whole program; it is the reason that is given for what stays with XLA.
    """
    try:
        return _as_far_as_possible(jaxpr, name, roles)
    except RolesFail as problem:
        found = _as_far_as_possible(jaxpr, name, NO_ROLES)
        return replace(found, mistakes=(problem.mistake, *found.mistakes))


def _as_far_as_possible(jaxpr: Any, name: str, roles: Roles) -> Compiled:
    mistakes: list[Mistake] = []
    made: dict[str, Any] = {}
    low = Lowered(jaxpr)
    try:
        low = lower(jaxpr)
        return replace(_compile(low.program, name, roles, mistakes), captured=low.captured)
    except RolesFail:
        raise
    except Exception as problem:
        reason = _reason(problem, jaxpr, mistakes)
    if any(eqn.primitive.name in RAW_LOOPS for eqn in equations(jaxpr.jaxpr)):
        try:
            _run_stages(low.program, name, stages(loops=False, roles=NO_ROLES if mistakes else roles), made)
            lost = made["emit"].lost.values()
            return Compiled(name, made, {}, reason, mistakes=(*mistakes, *lost), captured=low.captured)
        except RolesFail:
            raise
        except Exception as problem:
            reason = _reason(problem, jaxpr, mistakes)
    nothing = Plans(jaxpr, ())
    made = {"trace": jaxpr, "normalize": jaxpr, "partition": jaxpr, "schedule": nothing}
    made |= {"graph": Graphs(nothing, {}), "emit": Kernels(nothing, ())}
    return Compiled(name, made, why_nothing=reason, mistakes=tuple(mistakes))


def _reason(problem: Exception, jaxpr: Any, mistakes: list[Mistake]) -> Reason:
    """Why a program cannot be compiled; that it holds a loop which no kernel can hold is no mistake."""
    if isinstance(problem, LoopsRefused) and problem.loops:
        return next(iter(problem.mistakes), str(problem))
    mistakes.append(mistake_of(problem, jaxpr.jaxpr.eqns))
    return mistakes[-1]


def _compile(jaxpr: Any, name: str, roles: Roles, mistakes: list[Mistake]) -> Compiled:
    made: dict[str, Any] = {}
    refused: dict[int, Reason] = {}
    keeping = Keeping()
    while True:
        try:
            try:
                _run_stages(jaxpr, name, stages(True, refused, roles, keeping), made)
                return Compiled(name, made, refused, mistakes=(*mistakes, *made["emit"].lost.values()))
            except WantsToKeep as wish:
                keeping.add(wish)
            except WantsPieces as wish:
                keeping.pieces |= wish.dims
            except KeepsTooMuch as problem:
                keeping.decline(problem)
            except RunsTwice:
                keeping.give_up_choices()
        except LoopsRefused as problem:
            mistakes += problem.mistakes
            roles = NO_ROLES if mistakes else roles  # they may have been asked for axes of these loops
            if keeping.pieces:
                keeping.make_whole(keeping.pieces)
            elif keeping.by_choice:
                keeping.give_up_choices()
            elif problem.loops.keys() <= refused.keys():
                raise
            else:
                refused |= problem.loops
        made = {stage: made[stage] for stage in ("trace", "normalize")}


def _run_stages(jaxpr: Any, name: str, stages: tuple[Stage, ...], made: dict[str, Any]) -> None:
    """Run the stages whose results are not there yet."""
    current = jaxpr
    for stage, step in stages:
        if stage not in made:
            current = step(current, name)
            match current:
                case Plans():
                    for plan in current.plans:
                        check_plan(plan)
                case Graphs() | Kernels():
                    pass
                case _:
                    check_program(current, jaxpr)
            made[stage] = current
        current = made[stage]


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr and of the calls in it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jex.jaxprs_in_params(eqn.params):
            yield from equations(inner)


def _is_free(eqn: Any) -> bool:
    """XLA launches nothing for a reshape of what is in memory already, nor for results without elements."""
    renames = eqn.primitive.name in ("random_wrap", "random_unwrap")  # keys and their words are the same memory
    renames = renames or (eqn.primitive.name == "reshape" and why_not(eqn) is None)
    return renames or all(0 in getattr(var.aval, "shape", ()) for var in eqn.outvars)


def _printed(eqn: Any) -> str:
    """`b:f32[8] = sort[num_keys=1] a`."""
    names: dict[Any, str] = {}
    for atom in [*eqn.invars, *eqn.outvars]:
        if not isinstance(atom, jex.Literal):
            names.setdefault(atom, "abcdefghijklmnopqrstuvwxyz"[len(names) % 26])
    outputs = " ".join(f"{names[v]}:{v.aval.str_short(short_dtypes=True)}" for v in eqn.outvars)
    params = " ".join(
        f"{key}={value}" for key, value in eqn.params.items() if isinstance(value, int | str | bool | tuple)
    )
    operands = " ".join(str(v.val) if isinstance(v, jex.Literal) else names[v] for v in eqn.invars)
    return f"{outputs} = {eqn.primitive.name}{f'[{params}]' if params else ''} {operands}"
