"""For every number of the policy a program that notices when it moves."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import jax
import pytest

from jaxpr2triton import policy
from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.roles import parse_roles
from jaxpr2triton.ir.tracing import trace
from jaxpr2triton.pipeline.compile import compile_jaxpr
from jaxpr2triton.policy import COMMON, DEFAULT_POLICY, Policy
from jaxpr2triton.report.reasons import leftovers_of
from jaxpr2triton.report.slow_kernels import doubts_about
from tests.policies import moved
from tests.policy.programs import program


@dataclass(frozen=True)
class Case:
    """A program that becomes another one when a number is so many times as large, among some other numbers."""

    program: str
    factor: float
    others: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    roles: Mapping[str, str] | None = None
    contractions: bool = False  # whether kernels hold them


NO_ROOM = {"loops": {"kept_by_program": 256}}
CASES = {
    "cuts.held": Case("long rows", 1 / 2),
    "cuts.small": Case("moments", 1 / 16),
    "cuts.carried": Case("rows that meet", 1 / 100),
    "cuts.read_each_step": Case("large table", 1 / 2, {"loops": {"spread_pays": 0, "longer": 10}}),
    "cuts.small_loop": Case("rnn:g", 1 / 16),
    "cuts.steps": Case("chains", 1 / 16),
    "cuts.variables_of_loops": Case("bodies", 1 / 100, {"cuts": {"steps": 15}}),
    "cuts.instructions": Case("lorenz_rk4", 1 / 4096),
    "cuts.reads": Case("layers", 1 / 2),
    "splits.rows": Case("three rows", 1 / 16),
    "splits.elements": Case("sum_of_squares:bench", 1 / 2),
    "groups.outputs": Case("waves", 1 / 2),
    "groups.pointers": Case("three rows", 1 / 128),
    "axes.unrolled_sum": Case("gru:g", 1 / 2),
    "products.plain": Case("products of 16 bits", 1 / 2, contractions=True),
    "products.tf32": Case("products", 1 / 2, contractions=True),
    "products.exact": Case("exact products", 1 / 2, contractions=True),
    "products.outer": Case("distances", 1 / 2),
    "products.of_a_thread": Case("two products", 1 / 2, contractions=True),
    "products.terms_of_a_chunk": Case("products of many terms", 1 / 2, contractions=True),
    "products.exactly": Case("exact perceptron", 1 / 4, contractions=True),
    "products.warps_at_once": Case("gradients of attention", 1 / 2, contractions=True),
    "products.band": Case("products", 4, contractions=True),
    "products.library": Case("tanh of large products", 1 / 2),
    "products.own": Case("tanh of large products", 2),
    "products.own_windows": Case("tanh of windows", 1 / 2),
    "products.own_made": Case("products of waves", 1 / 2),
    "products.odd": Case("tanh of odd products", 1 / 4),
    "products.of_members": Case("many rows in groups", 8),
    "products.launch_after_gap_us": Case("tanh of products", 0),
    "blocks.resident": Case("full_mean:bench", 1 / 2),
    "blocks.across": Case("column sums", 1 / 4),
    "blocks.of_a_thread": Case("full_mean", 1 / 2),
    "blocks.warps": Case("full_mean:bench", 1 / 2),
    "loops.kept_by_program": Case("large elman", 1 / 4),
    "loops.cached": Case("few distances", 1 / 8),
    "loops.under_way": Case("rnn:bench", 1 / 8),
    "loops.steps_ahead": Case("long chain", 1 / 2),
    "loops.instructions_in_a_row": Case("few distances", 1 / 8),
    "loops.graph_launch_us": Case("lstm:bench", 1 / 8),
    "loops.asking": Case("until rows are small", 100),
    "loops.loop_overhead_launches": Case("wide", 0),
    "loops.meeting_us": Case("rows that meet", 100),
    "loops.spread_pays": Case("rows that meet", 0),
    "loops.spilled_where_programs_meet": Case("bodies that meet", 0),
    "loops.longer": Case("lstm:bench", 1 / 2),
    "loops.launches_of_a_graph": Case("wide", 4),
    "cost.latency": Case("kept states", 2),
    "cost.shuffle": Case("grown", 1 / 4),
    "cost.alone": Case("kept states", 2),
    "cost.barrier": Case("rnn:bench:g", 1 / 2),
    "cost.barrier_of_a_warp": Case("rnn:bench", 1 / 2),
    "cost.barriers_of_a_meeting": Case("gru:bench:g", 1 / 2),
    "cost.shared": Case("rnn:bench", 2),
    "cost.long": Case("rnn:bench", 8),
    "cost.special": Case("rnn:bench", 2),
    "cost.programs_at_once": Case("biquad:bench", 1 / 32),
    "cost.request": Case("lstm:bench:g", 8),
    "cost.address": Case("selective_scan:bench:g", 16),
    "cost.multiplied": Case("elman of 16 bits", 1 / 2),
    "cost.cached": Case("lstm:bench", 1 / 8),
    "cost.cached_for_one": Case("lstm:bench", 1 / 8),
    "cost.kept_beside": Case("many rows", 0, {"loops": {"graph_launch_us": 0.05, "longer": 0.5}}),
    "cost.room_of_a_thread": Case("gru:bench:g", 1 / 4),
    "cost.spill": Case("rnn:bench", 8, {"cost": {"room_of_a_thread": 16}}),
    "cost.waiting": Case("grown", 1 << 20),
    "cost.copies_of_state": Case("rnn:bench:g", 2),
    "cost.copies_of_sums": Case("rnn:bench:g", 4),
    "cost.far_above": Case("wide", 1 / 16, contractions=True),
    "cost.copies_of_operands": Case("rnn:bench", 1 / 4),
    "writing.branch": Case("maybe long", 1 / 2),
    "writing.written_out": Case("waves", 2),
    "writing.steps_to_spare_one": Case("almost whole rows", 2),
    "writing.asked_at_once": Case("gradients with a mask", 1 / 16, contractions=True),
    "writing.all_steps": Case("sums up to a length", 1 << 10),
}
COMMON_CASES = {
    "few": Case("sorted", 1 / 2),
    "one_by_one": Case("pooled", 1 / 32),
    "times": Case("tanhs", 1 / 16),
    "tile": Case("affine loop", 1 / 128),
    "byte_read": Case("thomas:g", 2),
    "byte_stored": Case("gae:g", 1 / 2),
    "products_of_a_byte": Case("layers of matrices", 1 / 16),
    "stored_between": Case("last layer", 4),
    "side_of_a_matrix": Case("layers of matrices", 1 / 16),
    "carried_unnoticed": Case("product", 16),
    "of_a_lane": Case("rnn:g", 2),
    "lanes_apart": Case("sums of many lanes", 2),
    "numbers_of_a_program": Case("sums of rows", 2),
    "worth_carrying": Case("kepler", 1 << 6),
    "worth_ahead": Case("noisy_chain", 1 << 10),
    "steps_worth_ahead": Case("metropolis", 1 / 8),
    "worth_a_launch": Case("little elman of 16 bits", 4, contractions=True),
    "steps_added": Case("summed states", 1 / 2),
    "shortest_swept": Case("affine loop", 32),
    "lanes_of_steps": Case("affine loop", 1 / 128),
    "steps_of_a_tile": Case("affine loop", 1 / 2),
    "steps_of_few_lanes": Case("affine loop of few", 1 / 4),
    "growth": Case("affine loop", 2),
    "long_loop": Case("long affine loop", 4),
    "shortest_in_stretches": Case("wide affine loop", 4),
    "much_to_do": Case("wide affine loop", 2),
    "steps_of_a_stretch": Case("long affine loop", 8),
    "coupled": Case("coupled loop", 1 / 2),
    "growth_of_matrices": Case("coupled loop", 2),
    "worth_parting": Case("mixed loop", 4),
    "waits_of_a_kernel": Case("mixed loop", 4),
    "bytes_of_a_wait": Case("mixed loop", 1 / 256),
    "equations_written_out": Case("few steps", 1 / 128),
    "scattered_in_a_step": Case("scattered in a loop", 16),
    "halves": Case("powers", 1 / 2),
    "known": Case("every other", 0),
    "looked_through": Case("averaged", 1 / 32),
    "rounder_stretches": Case("in stretches", 1 / 2),
    "pairs": Case("sorted", 0),
    "factor_taken_out": Case("scaled product", 1 / 8, contractions=True),
    "following_parts": Case("gradient of a scan of matrices", 1 / 2),
    "sweeps": Case("eigenvalues", 1 / 2),
    "held_anyway": Case("with its transpose", 1 / 2),
    "small_state": Case("lorenz_rk4:g", 1 / 16),
    "summed_beside": Case("a layer and its bias", 1 / (1 << 20), contractions=True),
    "worth_bringing": Case("spread sums", 4),
    "places_of_a_sum": Case("ctc_loss", 1 / 2),
    "places_computed": Case("shifts", 1 / 2),
    "places_moved": Case("rolls", 1 / 16),
    "times_in_a_step": Case("stencils", 4),
    "read_in_a_step": Case("life", 0),
    "places_in_a_step": Case("stencils", 2),
    "programs_that_meet": Case("rows that meet", 32),
    "made_again_elsewhere": Case("rows that meet", 0),
}


def subjects(of: Policy) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in dataclasses.fields(of) if each.name != "target"}


def times(number: Any, factor: float) -> Any:
    """So many times the number; of a table the part behind so much of it."""
    if isinstance(number, tuple):
        return number[int(len(number) * factor) :]
    return type(number)(number * factor)


@functools.cache
def traced(name: str) -> Any:
    fn, args = program(name)
    leaves, tree = jax.tree.flatten(args)
    shapes = [jax.typeof(leaf) for leaf in leaves]
    jaxpr, constants = trace(lambda *args: jax.tree.leaves(fn(*jax.tree.unflatten(tree, args))), *shapes)
    assert not constants
    return jaxpr


def told(name: str, chosen: Policy, roles: Mapping[str, str] | None = None, contractions: bool = False) -> Any:
    """The kernels of a program, what stays with XLA, and what the report says of both."""
    asked = parse_roles("program", roles, "triton" if contractions else "auto")
    try:
        made = compile_jaxpr(traced(name), "program", asked, chosen)
    except UserError as refusal:
        return str(refusal)
    every = made.all_kernels
    shapes = [(each.source, each.num_warps, each.num_stages, each.choice) for each in every]
    kernels = [(*shape, list(doubts_about(each, chosen))) for shape, each in zip(shapes, every)]
    return kernels, [leftover.why for leftover in leftovers_of(made)]


def test_every_number_has_a_program() -> None:
    numbers = {f"{name}.{number}" for name, each in subjects(DEFAULT_POLICY).items() for number in vars(each)}
    assert set(CASES) == numbers
    assert set(COMMON_CASES) == set(vars(COMMON))


@pytest.mark.parametrize("number", CASES)
def test_a_program_notices(number: str) -> None:
    case = CASES[number]
    subject, name = number.split(".")
    before = moved(**case.others)
    after = moved(before, **{subject: {name: times(getattr(subjects(before)[subject], name), case.factor)}})
    asked = case.roles, case.contractions
    assert told(case.program, before, *asked) != told(case.program, after, *asked)


@pytest.mark.parametrize("number", COMMON_CASES)
def test_a_program_notices_what_is_common(number: str) -> None:
    case = COMMON_CASES[number]
    another = dataclasses.replace(COMMON, **{number: times(getattr(COMMON, number), case.factor)})
    traced.cache_clear()  # what is found out about a jaxpr is found out once
    asked = case.roles, case.contractions
    before = told(case.program, DEFAULT_POLICY, *asked)
    with mock.patch.object(policy, "COMMON", another):
        traced.cache_clear()
        after = told(case.program, DEFAULT_POLICY, *asked)
    traced.cache_clear()
    assert before != after
