"""Runs every example, compares it with `jax.jit`, and says what became of its loops.

    python -m examples.libraries                            all of them, in Triton's interpreter
    python -m examples.libraries diffrax lineax.tridiagonal some of them
    python -m examples.libraries --backend machine          compiled, with every access checked
    python -m examples.libraries --devices 8                batches over devices that JAX makes up, too
    python -m examples.libraries --backend interpret --backend machine --devices 8 --markdown docs/libraries.md
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from examples.libraries.devices import Split, several, splits_of
from examples.libraries.example import Example
from jaxpr2triton import Program, fuse, transpile
from jaxpr2triton.report.check import Comparison, compare, gradient_names, output_names, vjp_function

FILES = {  # the library that each file is about
    "diffrax_odes": "diffrax",
    "optimistix_solves": "optimistix",
    "lineax_solves": "lineax",
    "optax_steps": "optax",
    "equinox_networks": "equinox",
    "flax_networks": "flax",
    "numpyro_models": "numpyro",
    "blackjax_samplers": "blackjax",
    "brax_physics": "brax",
    "gymnax_environments": "gymnax",
    "dynamax_models": "dynamax",
    "distrax_distributions": "distrax",
    "jax_md_simulations": "jax-md",
}
LOOPS = ("scan", "while")
WHERE = {
    "interpret": "in Triton's interpreter",
    "machine": "compiled for sm_90, in the PTX simulator",
    "xla": "without kernels",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one example, forward or as a gradient."""

    library: str
    what: str  # adaptive_ensemble, or: its gradient
    says: str
    kernels: int
    launches: int
    xla_alone: int | None  # launches; None where a loop's steps are not known
    stays: tuple[str, ...]  # loops, each with its reasons
    beside: tuple[str, ...]  # other primitives left to XLA
    planned: float  # seconds
    wrong: tuple[Comparison, ...]

    @property
    def good(self) -> bool:
        return not self.wrong and not self.stays


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    backends = asked.backend or ["interpret"]
    if asked.devices:
        several(asked.devices)
    outcomes, splits, failed = [], [], 0
    for library, example in _wanted(asked.names):
        try:
            for outcome in _outcomes(library, example, [] if asked.plan else backends):
                outcomes.append(outcome)
                print(_line(outcome), flush=True)
            for split in splits_of(library, example) if asked.devices and example.batched else ():
                splits.append(split)
                print(split, flush=True)
        except Exception:
            failed += 1
            print(f"{library}.{example.name} FAILED", flush=True)
            traceback.print_exc()
    if asked.markdown:
        asked.markdown.write_text(_page(outcomes, splits, backends, asked.devices))
    loops = sum(bool(each.stays) for each in outcomes)
    wrong = sum(bool(each.wrong) for each in outcomes)
    apart = sum(not each.good for each in splits)
    print(f"{len(outcomes)} programs: {wrong} disagree with jax.jit, {loops} have a loop with XLA, {failed} failed")
    if asked.devices:
        print(f"{len(splits)} programs over {asked.devices} devices: {apart} not as good as under jax.jit")
    return bool(wrong or loops or failed or apart)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.libraries", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="libraries, or library.function")
    parser.add_argument("--backend", action="append", choices=tuple(WHERE), help="where to run; may be said again")
    parser.add_argument("--plan", action="store_true", help="only plan; run nothing")
    parser.add_argument("--devices", type=int, default=0, help="split batches over so many, which JAX makes up")
    parser.add_argument("--markdown", type=Path, help="write the table as a page")
    return parser


def _wanted(names: Sequence[str]) -> Iterator[tuple[str, Example]]:
    for file, library in FILES.items():
        if names and not any(name.partition(".")[0] == library for name in names):
            continue
        for example in importlib.import_module(f"examples.libraries.{file}").EXAMPLES:
            if not names or library in names or f"{library}.{example.name}" in names:
                yield library, example


def _outcomes(library: str, example: Example, backends: Sequence[str]) -> Iterator[Outcome]:
    args = tuple(example.arguments(jax.random.key(0)))
    function = example.function
    fused = [fuse(function, backend=backend) for backend in backends]
    wrong: list[Comparison] = []
    for ours in fused:
        names = output_names(jax.eval_shape(function, *args))
        wrong += _wrong(compare(ours, jax.jit(function), [(0, args)], names), example)
    yield _outcome(library, example.name, example.says, function, args, wrong)
    if example.gradient:
        argnums, wrong = range(len(args)), []
        for ours in fused:
            names = gradient_names(args, _parameters(function), argnums)
            both = (_gradient(f, argnums) for f in (ours, jax.jit(function)))
            wrong += _wrong(compare(*both, [(0, args)], names), example)
        name = f"{example.name}, gradient"
        yield _outcome(library, name, "its gradient", _gradient(function, argnums), args, wrong)


def _gradient(function: Callable[..., Any], argnums: Sequence[int]) -> Callable[..., Any]:
    """Of the sum of all results."""
    pulled = vjp_function(function, argnums)

    def gradient(*args: Any) -> Any:
        shapes = jax.eval_shape(function, *args)
        ones = [jnp.ones(s.shape, s.dtype) for s in jax.tree.leaves(shapes) if jnp.issubdtype(s.dtype, jnp.inexact)]
        return pulled(args, ones)

    return gradient


def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def _wrong(comparisons: Sequence[Comparison], example: Example) -> tuple[Comparison, ...]:
    return tuple(each for each in comparisons if not each.error <= (example.allowed or each.allowed))


def _outcome(
    library: str, what: str, says: str, function: Callable[..., Any], args: Any, wrong: Sequence[Comparison]
) -> Outcome:
    start = time.perf_counter()
    program = transpile(function, *args)
    planned = time.perf_counter() - start
    facts = program.explain_json()
    return Outcome(
        library=library,
        what=what,
        says=says,
        kernels=len(facts["kernels"]),
        launches=sum(kernel["launches"] for kernel in facts["kernels"]),
        xla_alone=facts["xla_alone"]["in_all"],
        stays=_loops(program),
        beside=tuple(left.primitive for left in program.leftovers if left.primitive not in LOOPS),
        planned=planned,
        wrong=tuple(wrong),
    )


def _loops(program: Program) -> tuple[str, ...]:
    return tuple(
        f"{left.primitive} at {left.where}: "
        + "; ".join(dict.fromkeys(f"{each.primitive}: {each.why}" for each in left.obstacles) or [left.why])
        + (f"; each of its steps launches {len(left.step.kernels)} kernels" if left.step is not None else "")
        for left in program.leftovers
        if left.primitive in LOOPS
    )


def _line(outcome: Outcome) -> str:
    words = [
        f"{outcome.library}.{outcome.what}:",
        f"{outcome.launches} launches of {outcome.kernels} kernels (XLA alone {outcome.xla_alone}),",
        f"planned in {outcome.planned:.1f} s",
        *([f"; left: {', '.join(sorted(set(outcome.beside)))}"] if outcome.beside else []),
        *(f"\n    LOOP {each}" for each in outcome.stays),
        *(f"\n    WRONG {each}" for each in outcome.wrong),
    ]
    return " ".join(words)


def _page(outcomes: Sequence[Outcome], splits: Sequence[Split], backends: Sequence[str], devices: int) -> str:
    """docs/libraries.md."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "triton", *FILES.values()))
    inside = sum(not each.stays for each in outcomes)
    right = sum(not each.wrong for each in outcomes)
    asked_for = " ".join([*(f"--backend {each}" for each in backends), *([f"--devices {devices}"] if devices else [])])
    lines = [
        "# Does my program fit?",
        "",
        "Programs that call other people's libraries, with nothing changed in their code: `examples/libraries/` has",
        "them, one short file for each library. This page is made by",
        "",
        "    pip install '.[gallery]'",
        f"    python -m examples.libraries {asked_for} --markdown docs/libraries.md",
        "",
        "which also compares every value and every gradient with `jax.jit`. A gradient is that of the sum of all",
        "results for all arguments, planned as one program. *XLA alone* is about what `jax.jit` launches on a GPU,",
        "loops counted by their steps; *unknown* where the data decide how many steps there are. What is named under",
        "*beside the kernels* stays with XLA, between the kernels: `explain` says why and where.",
        "",
        f"{inside} of {len(outcomes)} programs have all their loops in kernels. {right} of {len(outcomes)} have the",
        "values of `jax.jit`, compared " + ", and ".join(WHERE[each] for each in backends) + ".",
        "",
    ]
    for library in dict.fromkeys(each.library for each in outcomes):
        lines += [f"## {library}", "", "| program | | kernels launched | XLA alone | beside the kernels |"]
        lines += ["| --- | --- | ---: | ---: | --- |"]
        lines += [_row(each) for each in outcomes if each.library == library]
        lines += ["", *(note for each in outcomes if each.library == library for note in _notes(each))]
    lines += _over_devices(splits, devices) if splits else []
    lines += ["## Versions", "", f"{date.today().isoformat()}: {versions}.", ""]
    return "\n".join(lines)


def _over_devices(splits: Sequence[Split], devices: int) -> list[str]:
    return [
        f"## Over {devices} devices",
        "",
        "What has a batch, split along it. A loop that all lanes decide on has to be whole: its operands are gathered",
        "once, before it, where `jax.jit` meets in each step. All values are those of `jax.jit`, and all results lie",
        "on the devices as they do there, but where another thing is said.",
        "",
        "| library | program | collectives | under `jax.jit` | |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {each.library} | {each.what} | {each.ours} | {each.theirs} | {', '.join(each.faults)} |"
            for each in splits
        ),
        "",
    ]


def _row(outcome: Outcome) -> str:
    alone = "unknown" if outcome.xla_alone is None else f"{outcome.xla_alone:,}"
    beside = ", ".join(
        f"`{name}`" + (f" x {many}" if many > 1 else "") for name, many in Counter(outcome.beside).most_common()
    )
    loops = f"**{len(outcome.stays)} of its loops**" if outcome.stays else ""
    left = ", ".join(filter(None, (loops, beside)))
    return f"| {outcome.what} | {outcome.says} | {outcome.launches} | {alone} | {left} |"


def _notes(outcome: Outcome) -> list[str]:
    """Why loops stay."""
    return [line for each in outcome.stays for line in (f"- {outcome.what}: {each}", "")]


if __name__ == "__main__":
    sys.exit(main())
