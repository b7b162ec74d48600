"""The command line: dump, show, explain and check a function of a file.

Standard output carries the result and nothing else: notes, errors and whatever the user's own module prints go to
standard error. Exit codes: 0 all is well, 1 `check` found a mismatch or nothing to check, 2 the request cannot be
carried out, 3 this compiler failed, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxpr2triton import api
from jaxpr2triton.cli.loading import summary
from jaxpr2triton.cli.options import ASSEMBLIES, parse_options
from jaxpr2triton.cli.request import Request, blaming, make_request, specs_of
from jaxpr2triton.cli.specs import needs_x64, random_arguments, show_spec
from jaxpr2triton.cli.terminal import any_letter, coloured, folded, wants_colour, width_of
from jaxpr2triton.errors import BackendError, NotFusible, UserError
from jaxpr2triton.front.options import Backend
from jaxpr2triton.front.planning import LOWERED
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.roles import SCHEDULES
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.launch.call.devices import planned_for
from jaxpr2triton.launch.call.primitive import RUN
from jaxpr2triton.launch.compile.compile import asm
from jaxpr2triton.launch.machine.kernels import EXAMINED, Examined
from jaxpr2triton.report import check as checking
from jaxpr2triton.report.compiled import CompiledRun, Found, show_compiled, verdict_on_compiled
from jaxpr2triton.report.reasons import leftovers_of, shares_of
from jaxpr2triton.report.table import count

THEIRS = (UserError, NotFusible, BackendError, OSError)  # not this compiler's failures


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    with any_letter(sys.stdout, sys.stderr):
        try:
            return _main(words)
        except BrokenPipeError:
            # The reader went away (`| head`): keep Python from failing again when it flushes at exit.
            for stream in filter(None, (sys.stdout, sys.stderr)):  # after `2>&-` there is none
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return 141


def _main(words: list[str]) -> int:
    try:
        options = parse_options(words, api.__version__)
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):  # a module's prints are no result
            setattr(warnings, "showwarning", _warn)  # noqa: B010  # one line, as for errors
            code, text = _run(options)
        _print(text, options)
        return code
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        print("jaxpr2triton: there is not enough memory", file=sys.stderr, flush=True)
        return 2
    except Exception as problem:
        if "--debug" in words:
            traceback.print_exc()
        print(f"jaxpr2triton: {_one_line(problem)}", file=sys.stderr, flush=True)
        return 2 if isinstance(problem, THEIRS) else 3


def _one_line(problem: Exception) -> str:
    if isinstance(problem, UserError | NotFusible | BackendError):
        where = f" at {problem.where}" if problem.where else ""
        hint = f"; try {problem.hint}" if problem.hint else ""
        return f"{problem.what}{where}{hint}"
    if isinstance(problem, OSError):
        return f"this computer refuses: {summary(problem)}"
    return f"internal error: {summary(problem)} (--debug shows the traceback)"


def _print(text: str, options: argparse.Namespace) -> None:
    if not text or sys.stdout is None:  # as after `>&-`
        return
    if options.command == "dump" and not options.asm and wants_colour(sys.stdout):
        text = coloured(text)
    if options.command in ("explain", "check") and not getattr(options, "json", False):
        text = folded(text, width_of(sys.stdout))
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise UserError(f"cannot write standard output: {problem.strerror}") from problem


def _run(options: argparse.Namespace) -> tuple[int, str]:
    """The exit code, and what is to be printed."""
    read_knobs()  # a misspelt one is an error, whether or not this command would look at it
    commands = {"dump": _dump, "show": _show, "explain": _explain, "check": _check}
    specs = specs_of(options)
    with jax.enable_x64(True) if needs_x64(specs) else contextlib.nullcontext():
        return commands[options.command](make_request(options, specs), options)


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    words = ("contractions", "checkpoint", "exact_order")
    schedule = "schedule" if options.schedule in SCHEDULES else "schedules"
    return {
        "roles": dict(options.role),
        schedule: options.schedule,
        **{word: getattr(options, word) for word in words},
    }


def _transpiled(request: Request, options: argparse.Namespace) -> Any:
    planned = {"grad": request.grad, "for_target": options.target, **_asked(options)}
    try:
        return api.transpile(request.function, *request.shapes, **planned)
    except THEIRS:
        raise
    except Exception as problem:
        if request.grad is not None:
            _blame_for_gradients(request, request.grad, problem)
        raise


def _blame_for_gradients(request: Request, argnums: Sequence[int], problem: Exception) -> None:
    """What JAX alone cannot differentiate is not ours; what we noted about it is told."""
    try:
        _shapes_of_gradients(request, argnums)
    except Exception as theirs:
        notes = [note.split(maxsplit=1) for note in getattr(problem, "__notes__", ())]
        at, hint = (next((note[1] for note in notes if note[0] == word), None) for word in ("at", "try"))
        raise UserError(f"{request.name} cannot be differentiated: {summary(theirs)}", where=at, hint=hint) from theirs


def _shapes_of_gradients(request: Request, argnums: Sequence[int]) -> Any:
    """By JAX alone, which fails where a function has no gradient."""
    cotangents = checking.inexact_outputs(jax.eval_shape(request.function, *request.shapes))
    return jax.eval_shape(checking.vjp_function(request.function, argnums), request.shapes, cotangents)


def _parts(program: Any) -> dict[str, Any]:
    """The programs in a result of `transpile`, by what to call them."""
    if isinstance(program, api.GradProgram):
        return {"forward": program.forward, "backward": program.backward}
    return {"": program}


def _dump(request: Request, options: argparse.Namespace) -> tuple[int, str]:
    target = planned_for() if options.target is None else target_named(options.target)
    if options.asm and options.asm not in ASSEMBLIES[target.backend]:
        kinds = ", ".join(ASSEMBLIES[target.backend])
        raise UserError(f"there is no {options.asm} for {target.name}", hint=f"one of {kinds}")
    program = _transpiled(request, options)
    parts = _parts(program).values()
    if options.asm:
        comment = ";" if options.asm in ("llir", "amdgcn") else "//"
        kernels = dict.fromkeys(kernel for part in parts for kernel in part.kernels)
        text = "\n".join(
            f"{comment} {kernel.name} for {target.name}\n{asm(kernel, target, options.asm)}" for kernel in kernels
        )
    else:
        text = program.source
    left = sum(len(part.leftovers) for part in parts)
    if left:
        _note(f"left to XLA: {count(left, 'equation')}; `jaxpr2triton explain` tells which and why")
    text = text.rstrip("\n")
    if options.output is None:
        return 0, text
    _write(Path(options.output), text)
    return 0, ""


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise UserError(f"cannot write {path}: {problem.strerror}") from problem


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    _note(f"warning: {' '.join(str(message).split())}")


def _note(text: str) -> None:
    print(f"jaxpr2triton: {text}", file=sys.stderr)


def _show(request: Request, options: argparse.Namespace) -> tuple[int, str]:
    parts = _parts(_transpiled(request, options))
    titles = {title: f"# {title}\n" if title else "" for title in parts}
    return 0, "\n".join(f"{titles[title]}{part.stages[options.stage]}" for title, part in parts.items())


def _explain(request: Request, options: argparse.Namespace) -> tuple[int, str]:
    program = _transpiled(request, options)
    if options.json:
        return 0, json.dumps(program.explain_json(cycles=options.cycles), indent=2)
    return 0, program.explain(why=options.why, cycles=options.cycles)


def _check(request: Request, options: argparse.Namespace) -> tuple[int, str]:
    seeds = range(min(options.seeds, request.seeds or options.seeds))
    if len(seeds) < options.seeds:
        _note(f"{options.args} takes no `seed`, so its arguments are tried once")
    draws = [(seed, request.draw(seed)) for seed in seeds]
    if options.target is not None:  # for the kernels of programs that are lowered, as for everybody
        os.environ["J2T_TARGET"] = target_named(options.target).name
    backend: Backend = "machine" if options.compiled else "interpret"
    fused = api.fuse(request.function, backend=backend, **_asked(options))
    outputs = jax.eval_shape(request.function, *request.shapes)
    reference = _reference(request, jax.jit(request.function))
    with EXAMINED.watched() as examined:
        with _watched() as values:
            comparisons = checking.compare(fused, reference, draws, checking.output_names(outputs))
        with _watched() as gradients:
            comparisons += _check_gradients(request, fused, draws)
    parts = {"values": values[0], "gradients": gradients[0]}
    nothing = checking.why_nothing(comparisons, parts["values"])
    if nothing and not options.allow_none:
        _note("there was nothing to check; --allow-none takes that for success")
    where = "in the PTX simulator" if options.compiled else "in Triton's interpreter"
    title = f"{request.name}({', '.join(map(show_spec, request.shapes))}) {where}, {count(len(seeds), 'seed')}"
    runs = _compiled_runs(examined)
    compiled = show_compiled(planned_for().name, runs) if options.compiled else ""
    text = checking.show_check(title, comparisons, parts, compiled, verdict_on_compiled(runs))
    found = any(run.found for run in runs)
    good = all(each.agrees for each in comparisons) and not found and (options.allow_none or not nothing)
    return 0 if good else 1, text


def _compiled_runs(examined: Sequence[Examined]) -> list[CompiledRun]:
    """One for each kernel."""
    runs: dict[str, list[Examined]] = {}
    for each in examined:
        runs.setdefault(each.kernel.name, []).append(each)
    return [_compiled_run(name, each) for name, each in runs.items()]


def _compiled_run(name: str, runs: Sequence[Examined]) -> CompiledRun:
    found: Counter[tuple[int, str, str]] = Counter()
    kinds: Counter[str] = Counter()
    for run in runs:
        kinds.update(run.statistics.instructions)
        found.update({(each.line, each.user, each.what): each.times for each in run.findings})
        found.update((0, "", f"elements of {output} are never written") for output in run.forgotten)
    every = [run.statistics for run in runs]
    return CompiledRun(
        kernel=name,
        runs=len(runs),
        instructions=dict(kinds.most_common()),
        sectors=sum(each.sectors for each in every),
        least_sectors=sum(each.least_sectors for each in every),
        bank_conflicts=sum(each.bank_conflicts for each in every),
        found=tuple(Found(*key, times) for key, times in found.items()),
    )


@contextlib.contextmanager
def _watched() -> Iterator[list[checking.Checked]]:
    """What ran inside of the `with`, as the only element when it is over."""
    found: list[checking.Checked] = []
    with LOWERED.watched() as programs, RUN.watched() as ran:
        yield found
    shares = [shares_of(program) for program in programs]
    left_to_xla = tuple(leftover.primitive for program in programs for leftover in leftovers_of(program))
    inside, outside = sum(inside for inside, _ in shares), sum(outside for _, outside in shares)
    found.append(checking.Checked(len(set(ran)), inside, outside, left_to_xla))


def _reference(request: Request, function: Callable[..., Any]) -> Callable[..., Any]:
    """What fails here is JAX, or the user's own code in a callback."""

    def run(*args: Any) -> Any:
        with blaming(f"{request.name} fails with plain JAX", request.file):
            return jax.block_until_ready(function(*args))

    return run


def _check_gradients(
    request: Request, fused: Callable[..., Any], draws: Sequence[tuple[int, tuple[Any, ...]]]
) -> tuple[checking.Comparison, ...]:
    """Cotangents of every float output pulled back to every float argument, by both."""
    argnums = request.grad or tuple(range(len(request.shapes)))
    names = checking.gradient_names(request.shapes, request.parameters, argnums)
    cotangents = checking.inexact_outputs(jax.eval_shape(request.function, *request.shapes))
    if not names or not cotangents:
        _note("no gradients to check: " + ("no output is a float" if names else "no argument is a float"))
        return ()
    try:
        _shapes_of_gradients(request, argnums)
    except Exception as problem:  # JAX itself cannot differentiate it: whatever it is, it is not ours
        _note(f"no gradients to check: JAX says {' '.join(str(problem).split())}")
        return ()
    pairs = [(seed, (args, random_arguments(cotangents, seed + 1))) for seed, args in draws]
    theirs = _reference(request, jax.jit(checking.vjp_function(request.function, argnums)))
    return checking.compare(checking.vjp_function(fused, argnums), theirs, pairs, names)


if __name__ == "__main__":
    sys.exit(main())
