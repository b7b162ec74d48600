"""From a jaxpr to kernels: the stages in their order, and the one loop that runs, checks and records them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax.extend.core as jex

from jaxpr2triton._compat import user_frame
from jaxpr2triton.emit.emit import emit
from jaxpr2triton.errors import KeepsTooMuch, LoopsRefused, RunsTwice, UserError, WantsPieces, WantsToKeep, WhyNot
from jaxpr2triton.ir.check import check_plan, check_program
from jaxpr2triton.ir.evaluate import read, run
from jaxpr2triton.ir.kernel import Kernel, Leftover, Role
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.roles import NO_ROLES, Roles
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.launch.primitive import Mode, launch_kernel
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.partition.keeping import Keeping
from jaxpr2triton.partition.partition import partition
from jaxpr2triton.report.launches import launches_of
from jaxpr2triton.rules.coverage import why_not
from jaxpr2triton.rules.nodes import Graph
from jaxpr2triton.rules.planned import graph_of
from jaxpr2triton.rules.refusal import ALL, body_of, no_kernel_because, refusing_loops
from jaxpr2triton.rules.scans import LOOPS
from jaxpr2triton.rules.show import show_graph
from jaxpr2triton.schedule.pieces import large_products
from jaxpr2triton.schedule.schedule import schedule
from jaxpr2triton.schedule.wishes import wished_for

RAW_LOOPS = ("scan", "while", "cond")
SHRINKS = (1, 2, 3)  # the smaller schedules to try when Triton refuses a kernel


@dataclass(frozen=True)
class Plans:
    """The result of scheduling: one plan for each region, in order."""

    program: Any  # the partitioned jaxpr
    plans: tuple[Plan, ...]

    def __str__(self) -> str:
        return "\n\n".join(str(plan) for plan in self.plans) or "no kernels"


@dataclass(frozen=True)
class Graphs:
    """The values of each kernel, one by one: what is written as Triton code next."""

    plans: Plans
    graphs: tuple[Graph, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(_shown, self.plans.plans, self.graphs)) or "no kernels"


def _shown(plan: Plan, graph: Graph) -> str:
    lines = show_graph(graph, argument_names(plan.jaxpr)).splitlines()
    return "\n".join([plan.title, *(f"  {line}" for line in lines)])


@dataclass(frozen=True)
class Kernels:
    plans: Plans
    kernels: tuple[Kernel, ...]

    def __str__(self) -> str:
        return "\n\n".join(kernel.source for kernel in self.kernels) or "# no kernels\n"


def _schedule_all(program: Any, name: str, roles: Roles, keeping: Keeping | None) -> Plans:
    plans = []
    for eqn in program.jaxpr.eqns:
        if eqn.primitive is region_p:
            region = eqn.params["jaxpr"]
            with refusing_loops(region.jaxpr.eqns):
                plan = schedule(region, eqn.params["name"])
                if plan.reload and keeping and (more := keeping.wanted_in_pieces(large_products(region.jaxpr))):
                    raise WantsPieces(more)
            plans.append(plan)
    wishes = wished_for(roles, name, {plan.name: plan.names for plan in plans})
    return Plans(program, tuple(_asked_for(plan, wishes.get(plan.name, {})) for plan in plans))


def _asked_for(plan: Plan, roles: Mapping[str, Role]) -> Plan:
    """The plan of the same region with these roles."""
    if not roles:
        return plan
    with _blaming(plan.name, roles):
        found = schedule(plan.jaxpr, plan.name, 0, roles)
        check_plan(found)
        return found


@contextlib.contextmanager
def _blaming(kernel: str, roles: Mapping[str, Role]) -> Iterator[None]:
    """Whatever goes wrong here is a mistake of whom asked for these roles, if anybody did: without them all is well."""
    try:
        yield
    except UserError:
        raise
    except Exception as problem:  # of any sort: the same stages have passed without these roles
        if not roles:
            raise
        asked = ", ".join(f"{axis}: {role}" for axis, role in roles.items())
        what = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise UserError(f"roles: kernel {kernel} cannot be made with {asked} ({what})") from problem


def _graph_all(plans: Plans, name: str) -> Graphs:
    graphs = []
    for plan in plans.plans:
        with refusing_loops(plan.jaxpr.jaxpr.eqns, passing=(UserError,)), _blaming(plan.name, plan.roles):
            graphs.append(graph_of(plan))
    return Graphs(plans, tuple(graphs))


def _emit_all(graphs: Graphs, name: str) -> Kernels:
    kernels = []
    for plan, graph in zip(graphs.plans.plans, graphs.graphs):
        with refusing_loops(plan.jaxpr.jaxpr.eqns, passing=(UserError,)), _blaming(plan.name, plan.roles):
            kernels.append(emit(plan, graph))
    return Kernels(graphs.plans, tuple(kernels))


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
    refused: Mapping[int, str] = field(default_factory=dict)  # why loops were left to XLA, by their bodies
    why_no_loops: str = ""  # … and why all of them were, if they were

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

    @cached_property
    def leftovers(self) -> tuple[Leftover, ...]:
        outside = (eqn for eqn in self.program.jaxpr.eqns if eqn.primitive is not region_p)
        return tuple(self._leftover(eqn) for eqn in outside if not _is_free(eqn))

    def _leftover(self, eqn: Any) -> Leftover:
        reason = why_not(eqn)
        if self.why_no_loops and eqn.primitive.name in RAW_LOOPS:
            reason = WhyNot(self.why_no_loops)
        elif reason is None and eqn.primitive.name in LOOPS:
            reason = WhyNot(self.refused[body_of(eqn)])
        why = reason.reason if reason is not None else "it is part of a computation that stays with XLA"
        text = " ".join(_printed(eqn).split())
        return Leftover(eqn.primitive.name, text, str(user_frame(eqn) or ""), why, launches_of(eqn))

    @cached_property
    def _alternatives(self) -> tuple[tuple[Kernel, ...], ...]:
        """For each kernel the same one in smaller schedules."""
        plans = self.stages["schedule"].plans
        smaller = [[schedule(p.jaxpr, p.name, shrink, p.roles) for shrink in SHRINKS] for p in plans]
        return tuple(tuple(emit(plan, graph_of(plan)) for plan in each) for each in smaller)

    def run(self, mode: Mode, strict: bool, *args: Any) -> list[Any]:
        """The outputs, from kernels and from what XLA keeps; traceable."""
        inner = self.program.jaxpr
        env = dict(zip(inner.invars, args, strict=True))
        smaller = iter(self._alternatives if mode == "device" else [()] * len(self.kernels))
        kernels = iter(self.kernels)

        def launch(eqn: Any, values: list[Any]) -> list[Any] | None:
            if eqn.primitive is not region_p:
                return None
            return launch_kernel(next(kernels), eqn.params["jaxpr"], values, mode, strict, next(smaller))

        run(inner.eqns, env, launch)
        return [read(env, atom) for atom in inner.outvars]


def compile_jaxpr(jaxpr: Any, name: str, roles: Roles = NO_ROLES) -> Compiled:
    """Run all stages, check what each of them made, and keep it.

    A program with a loop that turns out to be beyond the compiler is compiled again with that loop left to XLA, or all
    of them if it is not known which; what went wrong is the reason that is given for them.
    """
    try:
        return _compile(jaxpr, name, roles)
    except UserError:
        raise
    except Exception as problem:  # of any sort, as for a single loop; a program without loops hands it on
        if not any(eqn.primitive.name in RAW_LOOPS for eqn in equations(jaxpr.jaxpr)):
            raise
        reason = no_kernel_because(problem)
        made: dict[str, Any] = {}
        _run_stages(jaxpr, name, stages(loops=False, roles=roles), made)
        return Compiled(name, made, {}, reason)


def _compile(jaxpr: Any, name: str, roles: Roles) -> Compiled:
    made: dict[str, Any] = {}
    refused: dict[int, str] = {}
    keeping = Keeping()
    while True:
        try:
            try:
                _run_stages(jaxpr, name, stages(True, refused, roles, keeping), made)
                return Compiled(name, made, refused)
            except WantsToKeep as wish:
                keeping.add(wish)
            except WantsPieces as wish:
                keeping.pieces |= wish.dims
            except KeepsTooMuch as problem:
                keeping.decline(problem)
            except RunsTwice:
                keeping.give_up_choices()
        except LoopsRefused as problem:
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
