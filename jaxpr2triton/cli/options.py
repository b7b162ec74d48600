"""The words of the command line: which commands there are, and which options each takes."""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from jaxpr2triton.errors import UserError
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.roles import CONTRACTIONS, SCHEDULES, SQRT

STAGES = ("trace", "normalize", "partition", "schedule", "graph")
ASSEMBLIES = {"cuda": ("ttir", "ttgir", "llir", "ptx", "sass"), "hip": ("ttir", "ttgir", "llir", "amdgcn")}

COMMANDS = {
    "dump": "print the Triton source, or what a target's compiler makes of it",
    "show": "print the program after one stage of the compiler",
    "explain": "print the kernels, the bytes they move, and what stays with XLA and why",
    "check": "compare the kernels with JAX, values and gradients: interpreted, or compiled with --compiled",
}
_EXAMPLES = {
    "dump": (
        "dump model.py:layer_norm 'f32[128,64]' 'f32[64]' 'f32[64]'",
        "dump model.py:layer_norm 'f32[128,64]' 'f32[64]' 'f32[64]' --grad=0,1 -o kernels.py",
        "dump model.py:softmax 'bf16[1000]' --vmap 4096 --target sm_90 --asm ptx",
    ),
    "show": (
        "show model.py:softmax 'f32[4096,1000]' --stage normalize",
        "show model.py:loss '{w: f32[3,4], b: f32[4]}' 'f32[8,3]' --grad --stage partition",
    ),
    "explain": (
        "explain model.py:softmax 'f32[4096,1000]'",
        "explain model.py:loss --args model.py:example --grad --json",
        "explain model.py:rnn 'f32[64,64]' 'f32[512,64]' --role k=unroll",
        "explain model.py:rnn 'f32[64,64]' 'f32[512,64]' --grad --why",
        "explain model.py:rnn 'f32[64,64]' 'f32[512,64]' --cycles --target sm_90",
    ),
    "check": (
        "check model.py:softmax 'f32[64,1000]'",
        "check model.py:top 'f32[64,10]' --static axis=1 --seeds 10",
        "check model.py:rnn 'f32[4,8]' 'f32[5,4,8]' --compiled --target sm_80",
    ),
}


_POSITIONS = re.compile(r"-?\d+(,-?\d+)*")


class _Parser(argparse.ArgumentParser):
    """argparse, with errors as `UserError`."""

    def error(self, message: str) -> NoReturn:
        _, unknown, words = message.partition("unrecognized arguments: ")
        options = [each for each in self._option_string_actions if each.startswith("--")]
        meant = _meant(words.split()[0].partition("=")[0], options) if unknown and words else ""
        raise UserError(f"{message}{meant}", hint=f"{self.prog} --help")


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; is it {close[0]}?" if close else ""


def parse_options(words: Sequence[str], version: str) -> argparse.Namespace:
    """The options of one command line; `--help` and `--version` print and exit."""
    command = next((word for word in words if not word.startswith("-")), None)
    if command not in COMMANDS:
        if command is not None:
            known = ", ".join(COMMANDS)
            what = f"there is no command {command}{_meant(command, COMMANDS)}"
            raise UserError(what, hint=f"one of {known}, or jaxpr2triton --help")
        _top_parser(version).parse_args(words)
        raise UserError("expected a command: " + ", ".join(COMMANDS), hint="jaxpr2triton --help")
    rest = list(words)
    rest.remove(command)
    options = _command_parser(command).parse_intermixed_args(_with_positions(rest))
    if options.function is None:
        raise UserError("expected FILE.py:FUNCTION", hint=f"jaxpr2triton {command} --help")
    options.command = command
    return options


def _with_positions(words: Sequence[str]) -> list[str]:
    """--grad, --grad 0,1 → --grad=all, --grad=0,1: no SPEC is a number."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == "--grad=all" and _POSITIONS.fullmatch(word):
            found[-1] = f"--grad={word}"
        else:
            found.append("--grad=all" if word == "--grad" else word)
    return found


def _top_parser(version: str) -> argparse.ArgumentParser:
    lines = ["commands:", *(f"  {name:9}{text}" for name, text in COMMANDS.items()), "", "examples:"]
    lines += [f"  jaxpr2triton {examples[0]}" for examples in _EXAMPLES.values()]
    parser = _Parser(
        prog="jaxpr2triton",
        usage="jaxpr2triton COMMAND FILE.py:FUNCTION [SPEC ...] [options]",
        description="Compiles JAX functions, gradients included, into single Triton kernels.",
        epilog="\n".join([*lines, "", "jaxpr2triton COMMAND --help tells more."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=tuple(COMMANDS), help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"jaxpr2triton {version}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _command_parser(command: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"jaxpr2triton {command}",
        description=f"{command}: {COMMANDS[command]}.",
        epilog="\n".join(["examples:", *(f"  jaxpr2triton {example}" for example in _EXAMPLES[command])]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("function", metavar="FILE.py:FUNCTION", nargs="?", help="the function; Class.method and instance.method too")
    add(
        "spec",
        metavar="SPEC",
        nargs="*",
        help="an argument: f32[128,64], bf16[8], i32[], key[], {w: f32[3,4], b: f32[4]}, (f32[2], f32[3])",
    )
    add(
        "--args",
        metavar="FILE.py:NAME",
        type=_name,
        help="instead of SPECs: a function that returns the arguments as a tuple, of arrays or jax.ShapeDtypeStruct; "
        "it may take a `seed`",
    )
    add("--grad", metavar="[=0,1]", type=_grad, default=False, help="the gradient too, of all or some arguments")
    add("--vmap", metavar="N", type=_positive, help="map over a new leading axis, of N, of every argument")
    add(
        "--static", metavar="K=V", action="append", default=[], type=_static, help="a keyword argument that is no array"
    )
    add(
        "--role",
        metavar="[KERNEL.]AXIS=ROLE",
        action="append",
        default=[],
        type=_role,
        help="what an axis becomes, by its name in `explain`: grid, lane, loop or unroll",
    )
    add(
        "--contractions",
        choices=CONTRACTIONS,
        default="auto",
        help="whether matrix products are kernels too (triton) or XLA's; auto is whichever is faster, by an estimate",
    )
    add(
        "--checkpoint",
        metavar="sqrt|N",
        type=_checkpoint,
        help="of how many steps of a loop a gradient keeps the state: of their square root, or of N; the others are "
        "computed again",
    )
    add("--exact-order", action="store_true", help="take the steps of every loop one after the other")
    add(
        "--schedule",
        metavar="estimate|compile|FILE",
        type=_schedule,
        default="estimate",
        help="compare the schedules of loops by an estimate, or compile the best three and read their machine code; or "
        "take those in FILE, as explain --json has printed them",
    )
    add("--debug", action="store_true", help="show the traceback of an error")
    known = ", ".join(TARGETS)
    add("--target", metavar="NAME", type=_name, help=f"the device to compile for, none is needed: {known}")
    match command:
        case "dump":
            kinds = sorted({kind for kinds in ASSEMBLIES.values() for kind in kinds})
            add("--asm", choices=kinds, help="print this instead of Triton")
            add("-o", metavar="FILE", dest="output", type=_name, help="write to FILE instead of standard output")
        case "show":
            add("--stage", choices=STAGES, required=True, help="the stage to look at")
        case "explain":
            add("--json", action="store_true", help="the same facts for programs to read")
            add("--why", action="store_true", help="add how the kernels were planned, and what devices may split")
            add(
                "--cycles",
                action="store_true",
                help="add what the kernels and the steps of their loops take, modelled from the machine code "
                "for a CUDA device; none is needed",
            )
        case "check":
            add("--seeds", metavar="N", type=_positive, default=3, help="how many random inputs to try (3)")
            add(
                "--compiled",
                action="store_true",
                help="compile the kernels, and run their PTX with every access checked",
            )
            add("--allow-none", action="store_true", help="exit with 0 even if there was nothing to check")
    return parser


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a name, found ''")
    return text


def _grad(text: str) -> bool | tuple[int, ...]:
    if text == "all":
        return True
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected positions such as 0,1, found {text!r}") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1 or len(text) > 18:
        raise argparse.ArgumentTypeError(f"expected a positive number, found {text!r}")
    return int(text)


def _checkpoint(text: str) -> str | int:
    if text == SQRT:
        return text
    try:
        return _positive(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected {SQRT} or a positive number, found {text!r}") from None


def _schedule(text: str) -> str:
    if text not in SCHEDULES and not os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither {' nor '.join(SCHEDULES)}, nor a file")
    return text


def _role(text: str) -> tuple[str, str]:
    axis, equals, role = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected AXIS=ROLE, found {text!r}")
    return axis, role


def _static(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
