"""From a jaxpr to kernels: the stages in their order, and the one loop that runs, checks and records them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from jaxpr2triton.autodiff.tracing import Lowered, lower
from jaxpr2triton.ir.check import check_program
from jaxpr2triton.ir.chunks import chunks_p
from jaxpr2triton.ir.hoisting import hoist_everything
from jaxpr2triton.ir.jaxprs import equations
from jaxpr2triton.ir.roles import NO_ROLES, Roles
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.normalize.arrays.convolved import write_convolutions
from jaxpr2triton.normalize.arrays.grouped import write_grouped
from jaxpr2triton.normalize.foreign import call_implementations, is_foreign
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.pipeline.loop_steps import steps_worth_planning
from jaxpr2triton.pipeline.stages import build_graphs, emit_kernels, normalize_program, schedule_regions
from jaxpr2triton.pipeline.units import Units
from jaxpr2triton.pipeline.xla_time import time_of_step
from jaxpr2triton.plan.decisions import WISHES, Decisions, Leave, Reach, Refuse, Spread, Wish, granted
from jaxpr2triton.plan.partition.keeping import Copies
from jaxpr2triton.plan.partition.partition import foreseen, partition
from jaxpr2triton.plan.partition.spread import Spreads
from jaxpr2triton.plan.refusal import body_of
from jaxpr2triton.plan.search import search
from jaxpr2triton.policy import DEFAULT_POLICY, Policy
from jaxpr2triton.progress import during

STAGES = ("trace", "normalize", "partition", "schedule", "graph", "emit")
RAW_LOOPS = ("scan", "while", "cond")


def compile_jaxpr(jaxpr: Any, name: str, roles: Roles = NO_ROLES, policy: Policy = DEFAULT_POLICY) -> Compiled:
    """Run all stages, check what each of them made, and keep it.

    A program with a loop that turns out to be beyond the compiler is compiled again with that loop left to XLA, or all
    of them if it is not known which. A mistake of ours costs as little as can be: the roles that were asked for, one
    region, one loop, all loops, the whole program; it is the reason that is given for what stays with XLA.
    """
    run = _Compilation(jaxpr, name, roles, policy)
    # a primitive that no table knows may be made of loops
    has_loops = any(eqn.primitive.name in RAW_LOOPS or is_foreign(eqn) for eqn in equations(jaxpr.jaxpr))
    decisions, rounds = search(run.foresee, run.attempt, has_loops, jaxpr.jaxpr.eqns)
    if decisions.reach is not Reach.NOTHING:
        compiled = Compiled(name, run.made, decisions, rounds, run.captured, policy, run.convolved)
        return replace(compiled, steps_of=dict(_steps_in_kernels(compiled, replace(roles, function="", asked=()))))
    nothing = dict.fromkeys(("schedule", "graph"), Units(jaxpr)) | {"emit": emit_kernels(Units(jaxpr))}
    return Compiled(name, {stage: nothing.get(stage, jaxpr) for stage in STAGES}, decisions, rounds, policy=policy)


def _steps_in_kernels(compiled: Compiled, roles: Roles) -> Iterator[tuple[int, Compiled]]:
    """The steps of loops that XLA runs, where kernels take clearly less time for one than XLA's launches.

    Chunks of rows are parts of the program, made of kernels like all of it; they are not cut once more.
    """
    policy = compiled.policy
    chunks = [(place, eqn) for place, eqn in enumerate(compiled.program.jaxpr.eqns) if eqn.primitive is chunks_p]
    for number, (place, eqn) in enumerate(chunks):
        name = f"{compiled.name}_chunk{number or ''}"
        yield place, compile_jaxpr(eqn.params["jaxpr"], name, replace(roles, exact_order=True), policy)
    loops = steps_worth_planning(compiled.program.jaxpr.eqns, policy)
    for number, (place, body) in enumerate(loops):
        name = f"{compiled.name}_step{number or ''}"
        step = compile_jaxpr(body, name, roles, policy)
        both = step.taken, time_of_step(body, policy)
        kernels, launches = (each.priced(policy.loops.graph_launch_us) for each in both)
        if step.all_kernels and policy.loops.longer * kernels.microseconds < launches.microseconds:
            yield place, step


class _Compilation:
    """Runs the stages, with one set of decisions after the other; what those have no part in is made once."""

    def __init__(self, jaxpr: Any, name: str, roles: Roles, policy: Policy) -> None:
        self.name, self.roles, self.policy, self.copies = name, roles, policy, Copies()
        self.spreads = Spreads(self.copies)
        self.made: dict[str, Any] = {}
        self.convolved: tuple[str, ...] = ()
        self._jaxpr, self._lowered, self._normal = jaxpr, Lowered(jaxpr), (Reach.ALL, False)

    @property
    def captured(self) -> tuple[Any, ...]:
        return self._lowered.captured

    def foresee(self, decisions: Decisions) -> Wish | None:
        """What is known before the program is cut."""
        if decisions.reach is not Reach.ALL:
            return None
        if (wish := self._run_stages(("trace", "normalize"), decisions)) is None:
            program = self.spreads.written_out(self.made["normalize"], decisions)
            wish = foreseen(program, decisions, self.copies, self.policy)
        return None if wish is None else self._spreading(decisions, wish)

    def attempt(self, decisions: Decisions) -> Wish | None:
        """Run all stages."""
        wish = self._run_stages(STAGES, decisions)
        return None if wish is None else self._spreading(decisions, wish)

    def _spreading(self, decisions: Decisions, wish: Wish) -> Wish:
        """Instead of leaving loops to XLA, those that can be are spread over programs which run at once."""
        wish = self.spreads.of_sources(wish)
        if not isinstance(wish, Refuse | Leave) or (isinstance(wish, Refuse) and wish.mistakes):
            return wish
        if self.roles.exact_order:  # parts of sums would be added in another order than the whole
            return wish
        left = granted(decisions, wish).refused.keys() - decisions.refused.keys() - decisions.spread.keys()
        loops = [eqn for eqn in self.made["normalize"].jaxpr.eqns if eqn.primitive.name in LOOPS]
        whys = {self.copies.body(body): why for body, why in wish.loops.items() if body in left}
        splits = {body_of(eqn): self.spreads.may_be(eqn, self.policy) for eqn in loops if body_of(eqn) in whys}
        found = {body: split for body, split in splits.items() if split is not None and body not in decisions.spread}
        self.spreads.unspread |= {body: whys[body] for body in found}
        return Spread(found, wish) if found else wish

    def _run_stages(self, stages: Sequence[str], decisions: Decisions) -> Wish | None:
        """Run the stages whose results are not there yet, as far as they can do without other decisions."""
        if not self.made and decisions.reach is Reach.ALL:
            self._lowered = _plain(self._jaxpr, self.roles.contractions)
        same = ("trace", "normalize") if (decisions.reach, decisions.apart) == self._normal else ()
        self.made = {stage: self.made[stage] for stage in same if stage in self.made}
        self._normal = decisions.reach, decisions.apart
        current = traced = self._lowered.program
        for stage in stages:
            if stage not in self.made:
                with during(stage):
                    current = self._run(stage, current, decisions)
                if isinstance(current, WISHES):
                    return current
                if not isinstance(current, Units):
                    check_program(current, traced)
                self.made[stage] = current
            current = self.made[stage]
        return None

    def _run(self, stage: str, before: Any, decisions: Decisions) -> Any:
        """What a stage makes of what the one before it made; it may be a wish: then the others wait."""
        match stage:
            case "normalize":
                found, self.convolved = normalize_program(before, decisions, self.roles, self.policy)
                return found
            case "partition":
                program = self.spreads.written_out(before, decisions)
                return partition(program, self.name, decisions, self.copies, self.policy)
            case "schedule":
                return schedule_regions(before, self.name, decisions, self.roles, self.policy)
            case "graph":
                return build_graphs(before)
            case "emit":
                return emit_kernels(before)
        return before


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
