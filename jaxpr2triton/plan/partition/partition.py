"""Stage: core jaxpr → the same program as `region` equations, one for each kernel, and the equations that XLA keeps.

    m = reduce_max[axes=(1,)] x                    y, z = region[softmax_0] x
    e = exp (sub x (broadcast_in_dim m))     →     s = sort y
    s = sort e ...

The result is an ordinary jaxpr that JAX itself can run; it computes the same values.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxpr2triton.ir.build import excerpt
from jaxpr2triton.ir.evaluate import read, run, variables
from jaxpr2triton.ir.form import form_of
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Var
from jaxpr2triton.ir.region import IN_MEMORY, flags_of, region_p
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.ir.tracing import again, identifiers
from jaxpr2triton.ir.value_names import memory_names
from jaxpr2triton.plan.decisions import FIRM, Decisions, KeepMore, RunOnce, Wish
from jaxpr2triton.plan.partition import cut_reasons
from jaxpr2triton.plan.partition.apart import why_apart
from jaxpr2triton.plan.partition.chained import chain_results
from jaxpr2triton.plan.partition.companions import companions
from jaxpr2triton.plan.partition.compared import made_apart
from jaxpr2triton.plan.partition.cut import find_cuts
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.ends import made_of_sums
from jaxpr2triton.plan.partition.first_cuts import NOTHING, first_cuts
from jaxpr2triton.plan.partition.flags import with_flags
from jaxpr2triton.plan.partition.follow import with_what_follows
from jaxpr2triton.plan.partition.group import Group, group_roots
from jaxpr2triton.plan.partition.keeping import Copies
from jaxpr2triton.plan.partition.levels import Levels
from jaxpr2triton.plan.partition.long_sweeps import long_sweeps
from jaxpr2triton.plan.partition.loop_results import kept_from_the_start, kept_in_steps
from jaxpr2triton.plan.partition.program import Program
from jaxpr2triton.plan.partition.split import split_reductions, to_split
from jaxpr2triton.plan.partition.split_lanes import sums_in_loops
from jaxpr2triton.plan.partition.split_products import split_products
from jaxpr2triton.plan.partition.split_streams import in_chunks, streams_apart
from jaxpr2triton.plan.partition.starts import with_starts
from jaxpr2triton.plan.partition.summed_products import summed_products, with_sums
from jaxpr2triton.plan.partition.sums_of_steps import sums_of_steps
from jaxpr2triton.plan.partition.written import written_by_others
from jaxpr2triton.plan.refusal import body_of
from jaxpr2triton.policy import DEFAULT_POLICY, Policy

ROUNDS_AT_MOST = 8  # each round splits reductions; what it makes is short, so two are usual


def partition(
    jaxpr: Closed,
    name: str,
    decisions: Decisions = FIRM,
    copies: Copies | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> Closed | Wish:
    """The program in regions; `name` becomes part of the kernels' names. A wish, where it has to be decided otherwise
    what is kept of loops, or which of them stay with XLA.
    """
    copies = copies or Copies()
    program = copies.written_out(jaxpr, decisions)
    found = _grouped(program, decisions, policy)
    if not isinstance(found, Grouped):
        return copies.of_sources(found)
    if len(found.groups) > 1 and (flagged := with_flags(program, decisions)) is not None:
        other = _grouped(flagged, decisions, policy)
        if isinstance(other, Grouped) and len(other.groups) < len(found.groups):
            found = other
    found = _reading_results(found, decisions, policy)
    steps: list[tuple[int, int, Eqn | Group]] = [(level, 0, eqn) for eqn, level in found.outside.items()]
    steps += [(group.level, 1, group) for group in found.groups]
    steps.sort(key=lambda step: step[:2])
    return _assemble(found.jaxpr, found.cuts, [step for _, _, step in steps], name, found.outside)


def foreseen(jaxpr: Closed, decisions: Decisions, copies: Copies, policy: Policy) -> Wish | None:
    """What loops have to keep, as far as that is known before the program is cut; `None` if there is nothing more."""
    program = copies.written_out(jaxpr, decisions).jaxpr
    if not any(eqn.primitive.name in LOOPS for eqn in program.eqns):
        return None
    cuts = first_cuts(program, decisions, policy)
    wish = kept_in_steps(cuts) or kept_from_the_start(cuts)
    return wish and copies.of_sources(wish)


@dataclass(frozen=True)
class Grouped:
    """A program with long reductions in two, what is known of it, and what its kernels write."""

    jaxpr: Closed
    cuts: Cuts
    groups: Sequence[Group]
    outside: Mapping[Eqn, int]  # the levels of what XLA keeps


def _reading_results(found: Grouped, decisions: Decisions, policy: Policy) -> Grouped:
    """The same, with kernels that read what others write anyway, if there are no more of them for that."""
    groups = found.groups if len(found.groups) > 1 else []
    values = [value for group in groups for value in written_by_others(found.cuts, group.roots, group.space)]
    brought = dict.fromkeys(values, cut_reasons.WRITTEN) | made_of_sums(found.cuts, groups)
    if not brought:
        return found
    other = _grouped(found.jaxpr, decisions, policy, brought)
    return other if isinstance(other, Grouped) and len(other.groups) <= len(found.groups) else found


def _grouped(
    program: Closed, decisions: Decisions, policy: Policy, brought: Mapping[Var, str] = NOTHING
) -> Grouped | Wish:
    """The kernels; what would be made at several of them and is compared comes into memory, until nothing is."""
    while True:
        found = _cut_and_split(program, decisions, policy, brought)
        if not isinstance(found, tuple):
            return found
        jaxpr, cuts = found
        levels = Levels(cuts)
        chains = chain_results(cuts, levels)
        groups = with_what_follows(cuts, group_roots(cuts, levels.of, chains), levels.outside)
        if again := _run_again(cuts, groups, decisions) - decisions.ended:
            return RunOnce(again)
        values = made_apart(cuts, groups)
        if isinstance(values, KeepMore):
            return values
        if not values:
            return Grouped(jaxpr, cuts, groups, levels.outside)
        brought = {**(brought if jaxpr is program else NOTHING), **dict.fromkeys(values, cut_reasons.COMPARED)}
        program = jaxpr


def _run_again(program: Program, groups: Sequence[Group], decisions: Decisions) -> frozenset[int]:
    """The loops that several kernels would run, by their bodies: before and after something that stays with XLA, or for
    the sake of what is kept by choice. Others share out what the loop makes.
    """
    chosen = decisions.keeps_by_choice
    levels: dict[int, list[int]] = {}
    for group in groups:
        for loop in group.space.loops:
            levels.setdefault(loop, []).append(program.levels[group.roots[0]])
    times = {body_of(eqn): levels.get(id(eqn), []) for eqn in program.loops}
    return frozenset(body for body, at in times.items() if len(at if chosen else set(at)) > 1)


def _cut_and_split(
    jaxpr: Closed, decisions: Decisions, policy: Policy, brought: Mapping[Var, str]
) -> tuple[Closed, Cuts] | Wish:
    """The program with long reductions in two, and where its kernels end; what is `brought` there is in memory."""
    rounds = ROUNDS_AT_MOST
    while isinstance(cuts := find_cuts(jaxpr.jaxpr, decisions, policy, brought), Cuts):
        rounds -= 1
        split = _split(jaxpr, cuts) if rounds else None
        if split is None:
            return jaxpr, cuts
        jaxpr, decisions, brought = split, replace(decisions, chooses=False), NOTHING
    return cuts


def _split(jaxpr: Closed, cuts: Cuts) -> Closed | None:
    """The program with some long reductions in two; None where no kernel has any."""
    if steps := sums_of_steps(cuts):
        return split_reductions(cuts, jaxpr, {}, {}, steps)
    splits = to_split(cuts)
    if apart := streams_apart(cuts, splits):
        return in_chunks(cuts, jaxpr, apart)
    products = split_products(cuts)
    if summed := summed_products(cuts, splits, products):
        return with_sums(cuts, jaxpr, summed)
    in_loops = sums_in_loops(cuts, splits)
    chunked = {**companions(cuts, splits), **in_loops.chunked}
    swept = long_sweeps(cuts)
    others = {**swept.rewritten(), **products, **in_loops.rewritten}
    if all(split.chunks == 1 for split in splits.values()) and not swept.sizes and not others:
        return None
    splits = {eqn: split for eqn, split in splits.items() if eqn not in in_loops.rewritten}
    return split_reductions(cuts, jaxpr, splits, chunked | swept.seen, others)


def _assemble(jaxpr: Closed, cuts: Cuts, steps: list[Eqn | Group], name: str, levels: Mapping[Eqn, int]) -> Closed:
    inner = jaxpr.jaxpr
    boundaries = [eqn for eqn in inner.eqns if eqn.primitive in IN_MEMORY]
    aliases: dict[Atom, Var] = {eqn.invars[0]: eqn.outvars[0] for eqn in boundaries}
    groups = [step for step in steps if isinstance(step, Group)]
    labels = _labels(jaxpr, cuts, groups, boundaries)
    regions = with_starts([_region(jaxpr, cuts, group, labels) for group in groups])
    names = _names([region for region, _ in regions], name)
    views: dict[Var, list[Eqn]] = {}
    for eqn in cuts.views:
        (operand,) = variables(eqn.invars)
        views.setdefault(operand, []).append(eqn)
    by_group = {id(group): (*region, label) for group, region, label in zip(groups, regions, names, strict=True)}
    apart = why_apart(cuts, steps, levels, {number: label for number, (_, _, label) in by_group.items()})

    def program(*args: object) -> list[object]:
        env = dict(zip(inner.invars, args))
        _rename(views, env, inner.invars)
        for step in steps:
            if not isinstance(step, Group):
                run([step], env)
                _tell(step.outvars, aliases, views, env)
                continue
            region, operands, label = by_group[id(step)]
            why = {"apart": apart[id(step)]} if id(step) in apart else {}  # `show` prints what there is
            values = [each if isinstance(each, np.int32) else env[each] for each in operands]
            env.update(zip(step.roots, region_p.bind(*values, jaxpr=region, name=label, **why)))
            _tell(step.roots, aliases, views, env)
        return [read(env, atom) for atom in inner.outvars]

    return again(jaxpr, program)


def _tell(
    written: Iterable[Var], aliases: Mapping[Atom, Var], views: Mapping[Var, Sequence[Eqn]], env: dict[Var, object]
) -> None:
    """Add the names in memory of what is written, of which the last may be that of another one, and their views."""
    names = list(written)
    for var in names:
        if var in aliases:
            env[aliases[var]] = env[var]
            names.append(aliases[var])
    _rename(views, env, names)


def _names(regions: Sequence[Closed], name: str) -> list[str]:
    """What the kernels are called: f; or f_0, f_1, …. Regions of one form are one kernel, as layers of networks are."""
    numbers: dict[object, int] = {}
    found = [numbers.setdefault(form_of(region) if len(regions) > 1 else None, len(numbers)) for region in regions]
    is_name = len(numbers) == 1 and not keyword.iskeyword(name)  # `class_0` may be a function's name
    return [identifiers([name if is_name else f"{name}_{number}"])[0] for number in found]


def _rename(views: Mapping[Var, Sequence[Eqn]], env: dict[Var, object], fresh: Iterable[Var]) -> None:
    """Add the views of what has come into memory, and the views of those."""
    stack = list(fresh)
    while stack:
        found = [eqn for eqn in views.get(stack.pop(), ()) if eqn.outvars[0] not in env]
        run(found, env)
        stack += [eqn.outvars[0] for eqn in found]


def _region(jaxpr: Closed, cuts: Cuts, group: Group, labels: dict[Var, str]) -> tuple[Closed, list[Var]]:
    """The jaxpr of one kernel, and the variables that are its operands; `labels` are the names of what is in memory."""
    loaded = cuts.memory(group.roots)
    eqns = cuts.below(group.roots)
    used = dict.fromkeys(atom for eqn in eqns for atom in variables(eqn.invars) if atom in loaded)
    operands = list(used)
    flags = {root: flags_of(jaxpr.jaxpr)[root] for root in group.roots if root in flags_of(jaxpr.jaxpr)}
    results = [flags[root].outvars[0] if root in flags else root for root in group.roots]
    names = [labels[v] for v in (*operands, *group.roots)]
    return excerpt(jaxpr, [*eqns, *flags.values()], operands, results, names), operands


def _labels(jaxpr: Closed, program: Program, groups: Sequence[Group], boundaries: Sequence[Eqn]) -> dict[Var, str]:
    """What is in memory by name; a view is called as what it shows."""
    outside = [var for eqn in program.outside for var in eqn.outvars]
    flags = {operand: eqn.outvars[0] for operand, eqn in flags_of(jaxpr.jaxpr).items()}
    roots = [flags.get(root, root) for group in groups for root in group.roots]
    labels = memory_names(jaxpr, [*outside, *roots])
    labels |= {operand: labels[flag] for operand, flag in flags.items()}
    same = {*boundaries, *program.views}
    for eqn in jaxpr.jaxpr.eqns:
        if eqn in same:
            (source,) = variables(eqn.invars)
            labels[eqn.outvars[0]] = labels[source]
    return labels
