"""The command line: dump, show, explain and check a function of a file.

Standard output carries the result and nothing else; notes and errors go to standard error. Exit codes: 0 all is well,
1 `check` found a mismatch, 2 the request cannot be carried out, 3 this compiler failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxpr2triton import api
from jaxpr2triton.errors import NotFusible, UserError
from jaxpr2triton.hardware import DEFAULT_TARGET, target_named
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.launch.compile import asm
from jaxpr2triton.options import ASSEMBLIES, parse_options
from jaxpr2triton.report import check as checking
from jaxpr2triton.report.table import count
from jaxpr2triton.request import Request, make_request, specs_of
from jaxpr2triton.specs import needs_x64, random_arguments, show_spec
from jaxpr2triton.terminal import coloured, wants_colour

THEIRS = UserError | NotFusible  # not this compiler's failures


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            setattr(warnings, "showwarning", _warn)  # noqa: B010  # one line, as for errors
            code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader went away (`| head`): keep Python from failing again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as problem:
        if "--debug" in words:
            traceback.print_exc()
        print(f"jaxpr2triton: {_one_line(problem)}", file=sys.stderr)
        return 2 if isinstance(problem, THEIRS) else 3


def _one_line(problem: Exception) -> str:
    if isinstance(problem, THEIRS):
        where = f" at {problem.where}" if problem.where else ""
        hint = f"; try {problem.hint}" if problem.hint else ""
        return f"{problem.what}{where}{hint}"
    text = f"{type(problem).__name__}: {problem}"
    # An exception from inside of a running program arrives with its whole traceback as text.
    inner = [match.start() for match in re.finditer(r"^\w+(Error|Bug|Refused): ", text, re.MULTILINE)]
    return f"internal error: {' '.join(text[inner[-1] if inner else 0 :].split())} (--debug shows the traceback)"


def _run(words: Sequence[str]) -> int:
    options = parse_options(words, api.__version__)
    commands = {"dump": _dump, "show": _show, "explain": _explain, "check": _check}
    specs = specs_of(options)
    with jax.enable_x64(True) if needs_x64(specs) else contextlib.nullcontext():
        return commands[options.command](make_request(options, specs), options)


def _transpiled(request: Request, options: argparse.Namespace) -> Any:
    return api.transpile(request.function, *request.shapes, grad=request.grad, roles=dict(options.role))


def _parts(program: Any) -> dict[str, Any]:
    """The programs in a result of `transpile`, by what to call them."""
    if isinstance(program, api.GradProgram):
        return {"forward": program.forward, "backward": program.backward}
    return {"": program}


def _dump(request: Request, options: argparse.Namespace) -> int:
    target = target_named(options.target or read_knobs().target or DEFAULT_TARGET.name)
    if options.asm and options.asm not in ASSEMBLIES[target.backend]:
        kinds = ", ".join(ASSEMBLIES[target.backend])
        raise UserError(f"there is no {options.asm} for {target.name}", hint=f"one of {kinds}")
    program = _transpiled(request, options)
    parts = _parts(program).values()
    if options.asm:
        comment = ";" if options.asm in ("llir", "amdgcn") else "//"
        kernels = [kernel for part in parts for kernel in part.kernels]
        text = "\n".join(
            f"{comment} {kernel.name} for {target.name}\n{asm(kernel, target, options.asm)}" for kernel in kernels
        )
    else:
        text = program.source
    text = text.rstrip("\n")
    if options.output:
        _write(Path(options.output), text)
    elif options.asm or not wants_colour(sys.stdout):
        print(text)
    else:
        print(coloured(text))
    left = sum(len(part.leftovers) for part in parts)
    if left:
        _note(f"left to XLA: {count(left, 'equation')}; `jaxpr2triton explain` tells which and why")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n")
    except OSError as problem:
        raise UserError(f"cannot write {path}: {problem.strerror}") from problem


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    _note(f"warning: {' '.join(str(message).split())}")


def _note(text: str) -> None:
    print(f"jaxpr2triton: {text}", file=sys.stderr)


def _show(request: Request, options: argparse.Namespace) -> int:
    for title, part in _parts(_transpiled(request, options)).items():
        if title:
            print(f"# {title}")
        print(part.stages[options.stage])
    return 0


def _explain(request: Request, options: argparse.Namespace) -> int:
    program = _transpiled(request, options)
    print(json.dumps(program.explain_json(), indent=2) if options.json else program.explain())
    return 0


def _check(request: Request, options: argparse.Namespace) -> int:
    seeds = range(min(options.seeds, request.seeds or options.seeds))
    if len(seeds) < options.seeds:
        _note(f"{options.args} takes no `seed`, so its arguments are tried once")
    draws = [(seed, request.draw(seed)) for seed in seeds]
    fused = api.fuse(request.function, backend="interpret", roles=dict(options.role))
    outputs = jax.eval_shape(request.function, *request.shapes)
    comparisons = [
        *checking.compare(fused, jax.jit(request.function), draws, checking.output_names(outputs)),
        *_check_gradients(request, fused, draws),
    ]
    title = f"{request.name}({', '.join(map(show_spec, request.shapes))})"
    print(checking.show_comparisons(f"{title} in Triton's interpreter, {count(len(seeds), 'seed')}", comparisons))
    return 0 if all(each.agrees for each in comparisons) else 1


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
    theirs = jax.jit(checking.vjp_function(request.function, argnums))
    try:
        jax.eval_shape(theirs, request.shapes, cotangents)
    except Exception as problem:  # JAX itself cannot differentiate it: whatever it is, it is not ours
        _note(f"no gradients to check: JAX says {' '.join(str(problem).split())}")
        return ()
    pairs = [(seed, (args, random_arguments(cotangents, seed + 1))) for seed, args in draws]
    return checking.compare(checking.vjp_function(fused, argnums), theirs, pairs, names)
