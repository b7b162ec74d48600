"""From a jaxpr to kernels: the stages in their order, and the one loop that runs, checks and records them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.extend.core as jex

from jaxpr2triton._compat import source_of, user_frame
from jaxpr2triton.autodiff.tracing import Lowered, lower
from jaxpr2triton.beside_xla import left_by, parted_by
from jaxpr2triton.emit.emit import emit
from jaxpr2triton.errors import Mistake, Reason, ScheduleWarning, UserError, WhyNot, warn
from jaxpr2triton.graph.compared import check_compared
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.graph.nodes import Graph
from jaxpr2triton.graph.planned import graph_of
from jaxpr2triton.graph.show import show_graph
from jaxpr2triton.inside import run_loop, steps_worth_planning
from jaxpr2triton.ir.check import check_plan, check_program
from jaxpr2triton.ir.evaluate import read, run
from jaxpr2triton.ir.hoisting import hoist_everything
from jaxpr2triton.ir.jaxprs import calls_python
from jaxpr2triton.ir.kernel import Alone, Apart, Divided, Kernel, Leftover, Role, StepOfLoop
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.recorded import Recorded, key_of
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.roles import NO_ROLES, Roles
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.launch.call.primitive import Mode, launch_kernel
from jaxpr2triton.mistakes import mistake_of, tell
from jaxpr2triton.normalize.arrays.convolved import write_convolutions
from jaxpr2triton.normalize.arrays.doubled import double_sums
from jaxpr2triton.normalize.arrays.factors import take_out_factors
from jaxpr2triton.normalize.arrays.grouped import write_grouped
from jaxpr2triton.normalize.foreign import call_implementations, is_foreign
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.plan.convolved import convolutions_left, remain
from jaxpr2triton.plan.decisions import UNDECIDED, WISHES, Decisions, DropRoles, Reach, Refuse, Tile, Wish
from jaxpr2triton.plan.library import left_to_library, multiplied
from jaxpr2triton.plan.partition.keeping import Copies
from jaxpr2triton.plan.partition.partition import partition
from jaxpr2triton.plan.refusal import body_of, or_refuse, refused_for_code
from jaxpr2triton.plan.rounds import said
from jaxpr2triton.plan.schedule.replay import recorded_of, replayed
from jaxpr2triton.plan.schedule.schedule import schedule
from jaxpr2triton.plan.schedule.tiled_products import large_products
from jaxpr2triton.plan.schedule.wishes import wished_for
from jaxpr2triton.plan.search import Round, search
from jaxpr2triton.policy import DEFAULT_POLICY, Policy
from jaxpr2triton.progress import counted, during
from jaxpr2triton.quickest import quickest, schedules_compiled
from jaxpr2triton.report.equations import name_of, nbytes_of, printed, result_of
from jaxpr2triton.report.launches import launches_alone, launches_of
from jaxpr2triton.report.obstacles import obstacles_of
from jaxpr2triton.report.times import busy_of
from jaxpr2triton.shards.told import divided
from jaxpr2triton.xla_time import Taken, time_of_parts, time_of_step

RAW_LOOPS = ("scan", "while", "cond")
Made = TypeVar("Made")
SHRINKS = (1, 2, 3)  # the smaller schedules to try when Triton refuses a kernel


@dataclass(frozen=True)
class Plans:
    """The result of scheduling: one plan for each kernel, in order; regions of one name are one kernel."""

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
    kernels: tuple[Kernel, ...]  # one for each launch, in order
    lost: Mapping[str, Mistake] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n\n".join(dict.fromkeys(kernel.source for kernel in self.kernels)) or "# no kernels\n"


def _schedule_all(program: Any, name: str, decisions: Decisions, roles: Roles, policy: Policy) -> Plans | Wish:
    plans = []
    lost: dict[str, Mistake] = {}
    records = {record.key: record for record in roles.schedules}
    for kernel, region in counted("kernel", _regions(program).items()):
        plan = _or_lose(functools.partial(_scheduled, region, kernel, records, policy), kernel, region, lost)
        if isinstance(plan, WISHES):
            return plan
        if plan is None:
            continue
        if (wish := _wish_of(plan, decisions, roles)) is not None:
            return wish
        plans.append(plan)
    # the axes that roles were asked for may be those of lost ones
    asked = _as_asked(plans, name, roles) if decisions.with_roles and not lost else plans
    if isinstance(asked, DropRoles):
        return asked
    if roles.schedule == "compile":
        searched = iter(quickest([plan for plan in asked if not plan.recorded], name, policy.target))
        asked = [plan if plan.recorded else next(searched) for plan in asked]
    return Plans(program, tuple(asked), lost)


def _wish_of(plan: Plan, decisions: Decisions, roles: Roles) -> Wish | None:
    """What had better be decided otherwise, as a schedule shows."""
    large = large_products(plan.jaxpr.jaxpr, plan.policy.loops.large_product) if plan.reload else {}
    if more := decisions.not_tried(large):
        return Tile(more)
    if roles.contractions != "triton" and (dearer := left_by(plan)) is not None:
        return dearer
    if (endless := refused_for_code(plan)) is not None:
        return endless
    stays = decisions.apart or roles.strict or roles.contractions == "triton"
    return None if stays else parted_by(plan)


def _as_asked(plans: Sequence[Plan], name: str, roles: Roles) -> list[Plan] | DropRoles:
    """The plans with the roles that were asked for their axes."""
    wishes = wished_for(roles, name, {plan.name: plan.names for plan in plans})
    found = list(plans)
    for number, plan in enumerate(plans):
        if (asked := wishes.get(plan.name)) and not (plan.recorded and asked == plan.roles):
            other = _or_without_roles(functools.partial(_with_roles, plan, asked), plan.jaxpr, asked)
            if isinstance(other, DropRoles):
                return other
            found[number] = other
    return found


def _scheduled(region: Any, name: str, records: Mapping[str, Recorded], policy: Policy) -> Plan:
    """The plan of a region: as a given schedule says, if there is one for it that can be had."""
    if records and (record := records.get(key_of(region, policy.target.name))) is not None:
        found = replayed(region, name, record, policy)
        if isinstance(found, Plan):
            return found
        warn(f"the schedule of {name} is ignored: {found}", ScheduleWarning)
    return schedule(region, name, policy=policy)


def _with_roles(plan: Plan, roles: Mapping[str, Role]) -> Plan:
    """The plan of the same region with these roles."""
    found = schedule(plan.jaxpr, plan.name, 0, roles, plan.policy)
    check_plan(found)
    return found


def _launched(program: Any) -> list[str]:
    """The name of the kernel of each region, in order."""
    return [eqn.params["name"] for eqn in program.jaxpr.eqns if eqn.primitive is region_p]


def _regions(program: Any) -> dict[str, Any]:
    """The region that each kernel is made for: of those of one name the first one."""
    regions: dict[str, Any] = {}
    for eqn in program.jaxpr.eqns:
        if eqn.primitive is region_p:
            regions.setdefault(eqn.params["name"], eqn.params["jaxpr"])
    return regions


def _or_lose(make: Callable[[], Made], name: str, region: Any, lost: dict[str, Mistake]) -> Made | Refuse | None:
    """A mistake of ours here costs the loops of a region; a region without any is lost."""
    try:
        return or_refuse(make, region.jaxpr.eqns, passing=(UserError,))
    except UserError:
        raise
    except Exception as problem:
        lost[name] = mistake_of(problem, region.jaxpr.eqns)
        return None


def _or_without_roles(make: Callable[[], Made], region: Any, roles: Mapping[str, Role]) -> Made | DropRoles:
    """A mistake of ours here costs the roles that were asked for, if any were: without them all is well."""
    try:
        return make()
    except UserError:
        raise
    except Exception as problem:
        if not roles:
            raise
        return DropRoles(mistake_of(problem, region.jaxpr.eqns))


def _of_all(
    plans: Sequence[Plan], make: Callable[[Plan], Made], lost: dict[str, Mistake]
) -> dict[str, Made] | Refuse | DropRoles:
    """What is made of each plan, by the names of the kernels."""
    made = {}
    for plan in counted("kernel", plans):
        one = functools.partial(_or_without_roles, functools.partial(make, plan), plan.jaxpr, plan.roles)
        found = _or_lose(one, plan.name, plan.jaxpr, lost)
        if isinstance(found, (Refuse, DropRoles)):
            return found
        if found is not None:
            made[plan.name] = found
    return made


def _graph_all(plans: Plans) -> Graphs | Wish:
    lost = dict(plans.lost)
    graphs = _of_all(plans.plans, graph_of, lost)
    if isinstance(graphs, WISHES):
        return graphs
    check_compared(plans.program.jaxpr, {plan.name: plan.jaxpr for plan in plans.plans}, graphs)
    return Graphs(plans, graphs, lost)


def _emit_all(graphs: Graphs) -> Kernels | Wish:
    lost = dict(graphs.lost)
    kernels = _of_all(list(graphs.made), lambda plan: emit(plan, graphs.graphs[plan.name]), lost)
    if isinstance(kernels, WISHES):
        return kernels
    launched = (kernels[kernel] for kernel in _launched(graphs.plans.program) if kernel in kernels)
    return Kernels(graphs.plans, tuple(launched), lost)


def _weighed(program: Any, decisions: Decisions, roles: Roles, policy: Policy, told: list[str]) -> Any:
    """The program with what a library computes marked; what it does not convolve is written out."""
    loops, apart = decisions.reach is Reach.ALL, decisions.apart or roles.contractions == "triton"
    normal = functools.partial(normalize, loops=loops, apart=apart, exact_order=roles.exact_order)
    plain, told[:] = convolutions_left(normal(program), roles.contractions, policy)
    if remain(plain):
        plain = normal(write_convolutions(plain))
    return double_sums(take_out_factors(left_to_library(plain, roles.contractions, policy)))


Stage = tuple[str, Callable[[Any, str], Any]]


def stages(
    decisions: Decisions = UNDECIDED,
    roles: Roles = NO_ROLES,
    copies: Copies | None = None,
    policy: Policy = DEFAULT_POLICY,
    told: list[str] | None = None,
) -> tuple[Stage, ...]:
    """The stages in their order. What one of them gives back may be a wish: then the others wait."""
    return (
        ("trace", lambda program, name: program),
        ("normalize", lambda program, name: _weighed(program, decisions, roles, policy, [] if told is None else told)),
        ("partition", lambda program, name: partition(program, name, decisions, copies, policy)),
        ("schedule", lambda program, name: _schedule_all(program, name, decisions, roles, policy)),
        ("graph", lambda plans, name: _graph_all(plans)),
        ("emit", lambda graphs, name: _emit_all(graphs)),
    )


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program as kernels and leftovers, ready to be run inside of a trace."""

    name: str
    stages: Mapping[str, Any]  # what each stage made, printable
    decisions: Decisions = UNDECIDED  # with which they made it
    rounds: tuple[Round, ...] = ()  # that led to those
    captured: tuple[Any, ...] = ()  # the leading operands of the program
    policy: Policy = DEFAULT_POLICY  # of the machine that it is for
    convolved: tuple[str, ...] = ()  # what is, in kernels, each with what it would take otherwise
    steps_of: Mapping[int, Compiled] = field(default_factory=dict)  # the steps of loops that XLA runs, by their places

    @property
    def refused(self) -> Mapping[int, Reason]:
        """Why loops were left to XLA, by their bodies."""
        return self.decisions.refused

    @property
    def why_no_loops(self) -> Reason:
        """… and why all of them were, if they were."""
        return self.decisions.because if self.decisions.reach is Reach.NO_LOOPS else ""

    @property
    def why_nothing(self) -> Reason:
        """… and why the whole program was, if it was."""
        return self.decisions.because if self.decisions.reach is Reach.NOTHING else ""

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Whatever went wrong in this compiler."""
        inside = (mistake for step in self.steps_of.values() for mistake in step.mistakes)
        return (*self.decisions.mistakes, *self.lost.values(), *inside)

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
    def all_kernels(self) -> tuple[Kernel, ...]:
        """Those in the steps of loops that XLA runs, too."""
        return (*self.kernels, *(kernel for step in self.steps_of.values() for kernel in step.all_kernels))

    @property
    def apart(self) -> tuple[Apart, ...]:
        """Why each kernel is not one with those before it."""
        regions = [eqn.params for eqn in self.program.jaxpr.eqns if eqn.primitive is region_p]
        return tuple(each["apart"] for each in regions if "apart" in each and each["name"] not in self.lost)

    @cached_property
    def schedules(self) -> tuple[Recorded, ...]:
        """Those of its kernels, also of those in the steps of loops that XLA runs."""
        own = (recorded_of(plan) for plan in self.stages["schedule"].plans)
        return (*own, *(each for step in self.steps_of.values() for each in step.schedules))

    @cached_property
    def taken(self) -> Taken:
        """What it takes by an estimate, and all that is launched for it; launches outside of loops are pending."""
        kernels = {kernel.name: busy_of(kernel, self.policy) for kernel in self.kernels}
        steps = {place: step.taken for place, step in self.steps_of.items()}
        return time_of_parts(self.program, kernels, steps, self.policy)

    @cached_property
    def alone(self) -> Alone:
        """What XLA would launch for the program without any kernel."""
        return launches_alone(self.stages["trace"])

    @property
    def lost(self) -> Mapping[str, Mistake]:
        """The regions that stay with XLA because of a mistake, by their names."""
        return self.stages["emit"].lost

    @cached_property
    def leftovers(self) -> tuple[Leftover, ...]:
        found: list[Leftover] = []
        for place, eqn in enumerate(self.program.jaxpr.eqns):
            if eqn.primitive is not region_p:
                if self.why_nothing or not _is_free(eqn):
                    found.append(replace(self._leftover(eqn, self.why_nothing), step=self._step(place)))
            elif mistake := self.lost.get(eqn.params["name"]):
                found += [self._leftover(inner, mistake) for inner in eqn.params["jaxpr"].jaxpr.eqns]
        return tuple(found)

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """How it was planned: what stood in the way, and what was decided then."""
        products = multiplied(self.stages["normalize"], self.policy)
        compiled = schedules_compiled(self.stages["schedule"].plans)
        return (*said(self.rounds, self.stages["normalize"]), *self.convolved, *products, *compiled)

    @cached_property
    def divided(self) -> tuple[Divided, ...]:
        """Which axes of its inputs and outputs several devices may split."""
        return divided(self.stages["trace"])

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
        text = " ".join(printed(eqn).split())
        where = str(user_frame(eqn) or "")
        obstacles = () if because or self.why_no_loops else obstacles_of(eqn)  # else its body is as the user wrote it
        if (reasons := len({each.why for each in obstacles})) > 1:
            why += f" (the first of {reasons} reasons)"
        takes = reason.takes if isinstance(reason, WhyNot) else ""
        arrays = {atom: None for atom in (*eqn.invars, *eqn.outvars) if not isinstance(atom, jex.Literal)}
        nbytes = sum(nbytes_of(atom.aval) for atom in arrays)
        is_fused = eqn.primitive.name == "fused" and eqn.params["backend"] != "xla"
        return Leftover(name_of(eqn), text, where, why, takes, launches_of(eqn), obstacles, None, is_fused, nbytes)

    def _step(self, place: int) -> StepOfLoop | None:
        step = self.steps_of.get(place)
        return None if step is None else StepOfLoop(step.all_kernels, tuple(left.primitive for left in step.leftovers))

    @cached_property
    def alternatives(self) -> Mapping[str, tuple[Kernel, ...]]:
        """For each kernel the same one in smaller schedules."""
        plans = [plan for plan in self.stages["schedule"].plans if plan.name not in self.lost]
        return {plan.name: tuple(self._smaller(plan)) for plan in plans}

    def _smaller(self, plan: Plan) -> Iterator[Kernel]:
        for shrink in SHRINKS:
            try:
                smaller = schedule(plan.jaxpr, plan.name, shrink, plan.roles, plan.policy)
                yield emit(smaller, graph_of(smaller))
            except Exception as problem:
                mistake = mistake_of(problem, plan.jaxpr.jaxpr.eqns)
                tell(mistake, self.name, f"kernel {plan.name} has other schedules")

    def run(self, mode: Mode, strict: bool, *args: Any) -> list[Any]:
        """The outputs, from kernels and from what XLA keeps; traceable."""
        inner = self.program.jaxpr
        env = dict(zip(inner.invars, [*self.captured, *args], strict=True))
        kernels = {kernel.name: kernel for kernel in self.kernels}
        smaller = self.alternatives if mode == "device" else {}

        steps = {id(inner.eqns[place]): step for place, step in self.steps_of.items()}

        def launch(eqn: Any, values: list[Any]) -> list[Any] | None:
            if id(eqn) in steps:
                return run_loop(eqn, values, functools.partial(steps[id(eqn)].run, mode, strict))
            if eqn.primitive is not region_p or eqn.params["name"] in self.lost:
                return None
            kernel, region = kernels[eqn.params["name"]], eqn.params["jaxpr"]
            with source_of(result_of(region)), jax.named_scope(kernel.name):  # profiles have the user's scopes
                return launch_kernel(kernel, region, values, mode, strict, smaller.get(kernel.name, ()))

        run(inner.eqns, env, launch)
        return [read(env, atom) for atom in inner.outvars]


def compile_jaxpr(jaxpr: Any, name: str, roles: Roles = NO_ROLES, policy: Policy = DEFAULT_POLICY) -> Compiled:
    """Run all stages, check what each of them made, and keep it.

    A program with a loop that turns out to be beyond the compiler is compiled again with that loop left to XLA, or all
    of them if it is not known which. A mistake of ours costs as little as can be: the roles that were asked for, one
    region, one loop, all loops, the whole program; it is the reason that is given for what stays with XLA.
    """
    attempt = _Attempt(jaxpr, name, roles, policy)
    # a primitive that no table knows may be made of loops
    has_loops = any(eqn.primitive.name in RAW_LOOPS or is_foreign(eqn) for eqn in equations(jaxpr.jaxpr))
    decisions, rounds = search(attempt, has_loops, jaxpr.jaxpr.eqns)
    if decisions.reach is not Reach.NOTHING:
        compiled = Compiled(name, attempt.made, decisions, rounds, attempt.captured, policy, tuple(attempt.convolved))
        return replace(compiled, steps_of=dict(_steps_in_kernels(compiled, replace(roles, function="", asked=()))))
    nothing = Plans(jaxpr, ())
    made = {"trace": jaxpr, "normalize": jaxpr, "partition": jaxpr, "schedule": nothing}
    made |= {"graph": Graphs(nothing, {}), "emit": Kernels(nothing, ())}
    return Compiled(name, made, decisions, rounds, policy=policy)


def _steps_in_kernels(compiled: Compiled, roles: Roles) -> Iterator[tuple[int, Compiled]]:
    """The steps of loops that XLA runs, where kernels take clearly less time for one than XLA's launches."""
    policy = compiled.policy
    loops = steps_worth_planning(compiled.program.jaxpr.eqns, policy.cuts.launches_of_a_step)
    for number, (place, body) in enumerate(loops):
        name = f"{compiled.name}_step{number or ''}"
        step = compile_jaxpr(body, name, roles, policy)
        kernels, launches = (each.priced(policy.loops.launch) for each in (step.taken, time_of_step(body, policy)))
        if step.all_kernels and policy.loops.longer * kernels.microseconds < launches.microseconds:
            yield place, step


class _Attempt:
    """Runs the stages, with one set of decisions after the other; what those have no part in is made once."""

    def __init__(self, jaxpr: Any, name: str, roles: Roles, policy: Policy) -> None:
        self.name, self.roles, self.policy, self.copies = name, roles, policy, Copies()
        self.made: dict[str, Any] = {}
        self.convolved: list[str] = []
        self._jaxpr, self._lowered, self._normal = jaxpr, Lowered(jaxpr), (Reach.ALL, False)

    @property
    def captured(self) -> tuple[Any, ...]:
        return self._lowered.captured

    def __call__(self, decisions: Decisions) -> Wish | None:
        if not self.made and decisions.reach is Reach.ALL:
            self._lowered = _plain(self._jaxpr, self.roles.contractions)
        same = ("trace", "normalize") if (decisions.reach, decisions.apart) == self._normal else ()
        self.made = {stage: self.made[stage] for stage in same if stage in self.made}
        self._normal = decisions.reach, decisions.apart
        steps = stages(decisions, self.roles, self.copies, self.policy, self.convolved)
        return _run_stages(self._lowered.program, self.name, steps, self.made)


def _plain(jaxpr: Any, contractions: str) -> Lowered:
    """All that was to be differentiated is: the program without what would still mean more than what it computes."""
    lowered = lower(jaxpr)
    program = lowered.program
    if contractions != "xla":
        program = write_grouped(program)
    if contractions == "triton":
        program = write_convolutions(program)
    program, captured = hoist_everything(call_implementations(program), lowered.captured)
    return Lowered(program, tuple(captured))


def _run_stages(jaxpr: Any, name: str, stages: tuple[Stage, ...], made: dict[str, Any]) -> Wish | None:
    """Run the stages whose results are not there yet, as far as they can do without other decisions."""
    current = jaxpr
    for stage, step in stages:
        if stage not in made:
            with during(stage):
                current = step(current, name)
            match current:
                case Plans():
                    for plan in current.plans:
                        check_plan(plan)
                case Graphs() | Kernels():
                    pass
                case _ if isinstance(current, WISHES):
                    return current
                case _:
                    check_program(current, jaxpr)
            made[stage] = current
        current = made[stage]
    return None


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr and of the calls in it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jex.jaxprs_in_params(eqn.params):
            yield from equations(inner)


def _is_free(eqn: Any) -> bool:
    """XLA launches nothing for a reshape of what is in memory already, nor for results without elements.

    What calls Python or has effects is told all the same.
    """
    if eqn.effects or calls_python(eqn):
        return False
    renames = eqn.primitive.name in ("random_wrap", "random_unwrap")  # keys and their words are the same memory
    renames = renames or (eqn.primitive.name in ("reshape", "squeeze") and why_not(eqn) is None)
    return renames or all(0 in getattr(var.aval, "shape", ()) for var in eqn.outvars)
