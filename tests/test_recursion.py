"""No function calls itself along the equations of a program: programs are long, and what is used twice is used often.

What a function calls is found by its name: functions of its file, and methods of `self`. Those that may call themselves
are named here, with what bounds the depth; everything else goes through values with `ir/dataflow.py`.
`test_long_programs.py` tries it out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.package_files import Trees, assert_none, show

pytestmark = pytest.mark.files

ROOMS = ("autodiff", "emit", "graph", "ir", "normalize", "plan", "rules", "shards", "trace")
BODIES = "as deep as a body lies within a body"
LOOPS = "as deep as a loop lies within a loop of one kernel"
STATEMENTS = "as deep as a statement lies within another one"
TEXT = "as deep as an expression of the text is"
PLACES = "as deep as a quotient lies within a quotient of a place"
LANES = "as deep as a choice of lanes lies within another one: each piece of an array that is put together is one"
TABLES = "through a table of ours, or the parameters of an equation"
SIZES = "through the factors of a number, or the few dimensions of an array"
ONCE = "one step deep"
STEPS = "no more steps than are counted"
LINES = "as often as lines are left out"


@dataclass(frozen=True)
class Function:
    name: str
    owner: str  # the class, or nothing
    node: ast.FunctionDef


def functions_in(node: ast.AST, prefix: str = "", owner: str = "") -> Iterator[Function]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef):
            yield Function(prefix + each.name, owner, each)
            yield from functions_in(each, f"{prefix}{each.name}.", owner)
        elif isinstance(each, ast.ClassDef):
            yield from functions_in(each, f"{each.name}.", each.name)
        else:
            yield from functions_in(each, prefix, owner)


def called_in(function: Function, found: dict[str, Function]) -> set[str]:
    """The functions of a file that one names, but for those within it."""
    inner = {id(node) for each in functions_in(function.node) for node in ast.walk(each.node)}
    nodes = [node for node in ast.walk(function.node) if id(node) not in inner]
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    called: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name) if name not in own:
                parts = function.name.split(".")
                scopes = (".".join([*parts[:depth], name]) for depth in range(len(parts), -1, -1))
                visible = [each for each in scopes if each in found and not is_method(found[each])]
                called.update(visible[:1])
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                called.update({f"{function.owner}.{name}"} & found.keys())
    return called


def is_method(function: Function) -> bool:
    return function.owner != "" and function.name.count(".") == 1


def recursive_in(tree: ast.AST) -> set[str]:
    found = {each.name: each for each in functions_in(tree)}
    called = {name: called_in(each, found) for name, each in found.items()}

    def after(name: str) -> set[str]:
        seen: set[str] = set()
        stack = [*called[name]]
        while stack:
            each = stack.pop()
            if each not in seen:
                seen.add(each)
                stack.extend(called[each])
        return seen

    return {name for name in found if name in after(name)}


ALLOWED: dict[str, dict[str, str]] = {  # of each file, the functions for each reason
    "autodiff/stretches.py": {BODIES: "_as_function _has_loops _rule _rule.rewrite _stretched"},
    "autodiff/tracing.py": {BODIES: "flatten.inline"},
    "emit/ahead.py": {LINES: "_without"},
    "emit/distinct.py": {STATEMENTS: "_First._branch _First._loop _First.alike _assigned"},
    "emit/emitter.py": {
        LOOPS: "Emitter._accumulate Emitter._begin Emitter._begin_keeping Emitter._branch Emitter._combine"
        " Emitter._do Emitter._is_made_with_others Emitter._loop Emitter._meet"
        " Emitter._one_by_one Emitter._place Emitter._reduce Emitter._require"
        " Emitter._require_all Emitter._start Emitter._step Emitter._write_spans"
    },
    "emit/equal.py": {STATEMENTS: "Equal.block"},
    "emit/intervals.py": {TEXT: "Reader._called Reader.value"},
    "emit/layout.py": {
        STATEMENTS: "_lines text_of",
        TEXT: "_as_operand _broken _each _in_parentheses _in_place _operands",
    },
    "emit/moves.py": {LANES: "Moves._flat_of Moves._lane", SIZES: "Moves._part"},
    "emit/names.py": {BODIES: "wishes"},
    "emit/round_parts.py": {STATEMENTS: "_assignments _with_comments _without"},
    "emit/sound.py": {STATEMENTS: "_Checking._loop _Checking.block", TEXT: "_Checking._address _Checking._wrong_in"},
    "emit/statements.py": {PLACES: "Statements._spread_along"},
    "emit/walks.py": {STATEMENTS: "beside_loops copied has_values_after"},
    "emit/text.py": {PLACES: "Spelling._atom Spelling._sum Spelling.reach"},
    "emit/tidy.py": {
        STATEMENTS: "_Renaming.block _Renaming.statement _find_clashes.before _find_clashes.before_all _moves"
        " without_idle_comments"
    },
    "emit/variables.py": {STATEMENTS: "Resolved.block Resolved.enter"},
    "emit/widths.py": {PLACES: "Widths._ends Widths._found Widths._of_sum Widths.of Widths.own Widths.sum"},
    "graph/build_nodes.py": {LOOPS: "_build_wanted _end_loop"},
    "graph/classes.py": {LOOPS: "counted_in"},
    "graph/covered.py": {BODIES: "_why_not_loop all_in_the_way why_not with_effects"},
    "graph/loops.py": {LOOPS: "_whole_inside"},
    "graph/moved.py": {LANES: "_axes along of_piece pieces_of shifts"},
    "graph/needless.py": {BODIES: "only_if_taken"},
    "graph/order.py": {ONCE: "Order.keys"},  # to what another sum goes along with
    "graph/propagate_demands.py": {LOOPS: "_propagate_through _trial facts_of propagate"},
    "graph/recurrences.py": {LOOPS: "begin_loops"},
    "graph/simplify.py": {
        ONCE: "_Simplifying._chosen _Simplifying._computed _Simplifying._selected",  # to the elements of one tile
        PLACES: "_Simplifying._index",
    },
    "ir/build.py": {BODIES: "_changed"},
    "ir/foreign.py": {BODIES: "_comes_back", TABLES: "_without_lines"},
    "ir/form.py": {BODIES: "_value form_of form_of.read"},
    "ir/hoisting.py": {BODIES: "_Opening._body_of _Opening._opened _Opening.evaluate _captured _nested"},
    "ir/index.py": {
        PLACES: "_quotient _together add computed_in divide index_text index_text.text modulo substitute values_at"
    },
    "ir/jaxprs.py": {TABLES: "frozen"},
    "ir/launches.py": {BODIES: "_Count._results _Count.through _apart"},
    "ir/numbers.py": {SIZES: "spelled"},
    "ir/value_names.py": {BODIES: "_deed"},
    "ir/tree.py": {TEXT: "_builder is_atom sum_of", ONCE: "as_expr"},
    "normalize/arrays/convolved.py": {BODIES: "_holds"},
    "normalize/arrays/grouped.py": {BODIES: "_holds_groups"},
    "normalize/calls/inline.py": {BODIES: "_holds_arrays"},
    "normalize/foreign.py": {BODIES: "_inside _written"},
    "normalize/loops/bodies.py": {BODIES: "_may_not_end"},
    "normalize/loops/handed.py": {BODIES: "_operations _work"},
    # to operands whose terms are there, and what leads to these
    "normalize/loops/terms.py": {ONCE: "Reading._component Reading._given_out Reading._made Reading.of"},
    "normalize/numbers/algebra.py": {STEPS: "_negated _negated_by"},
    "normalize/numbers/measured.py": {BODIES: "_Following._equation _Following._loop _Following.results"},
    "normalize/numbers/round_measured.py": {BODIES: "_rounded _with_bodies"},
    "normalize/numbers/round_compared.py": {BODIES: "_chooses_inside _inside _rounded _with_bodies_rounded"},
    "normalize/passes.py": {BODIES: "_body _plain normalize"},
    "normalize/random/generators.py": {ONCE: "_threefry"},  # of one number, to an array of one
    "normalize/random/key_loops.py": {BODIES: "_raw"},
    "normalize/random/unkey.py": {BODIES: "_is_random unkey_equation"},
    "plan/partition/keeping.py": {BODIES: "Copies._rewritten Copies.written_out _defined_in"},
    "plan/schedule/tiled_products.py": {BODIES: "large_products"},
    "rules/helpers.py": {TABLES: "with_callees"},
    "rules/written/convolutions.py": {ONCE: "_in_classes convolution"},  # to convolutions of one class
    "rules/written/jacobi.py": {ONCE: "svd"},  # to that of the transpose
    "shards/constraints.py": {BODIES: "_calls_python"},
    "shards/flow.py": {BODIES: "Classes._enter Flow._around Flow._loop Flow.after Flow.within"},
    "shards/local.py": {
        BODIES: "Part._around Part._body Part._results Part._scan Part._scan.step Part._while Part.run Part.within"
        " opened.inline"
    },
    "shards/meshes.py": {SIZES: "_layouts _primes"},
}


def test_what_calls_itself_has_a_reason(trees: Trees) -> None:
    """And what has a reason calls itself."""
    allowed = {file: {name for names in of.values() for name in names.split()} for file, of in ALLOWED.items()}
    found = {show(path): recursive_in(tree) for path, tree in trees.items() if show(path).split("/")[0] in ROOMS}
    assert_none(
        f"{file}: {name}, see ir/dataflow.py"
        for file in sorted(allowed | found)
        for name in sorted(allowed.get(file, set()) ^ found.get(file, set()))
    )


TWO = "def f(x):\n    return g(x)\ndef g(x):\n    return all(map(f, x.parts))\ndef h(x):\n    return f(x)"
METHODS = "class C:\n    def m(self, x):\n        return self.n(x)\n    def n(self, x):\n        return self.m(x)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x):\n    return f(x.source)", {"f"}),
        (TWO, {"f", "g"}),
        (METHODS, {"C.m", "C.n"}),
        ("class C:\n    def m(self, x):\n        return m(x)\ndef m(x):\n    return x", set()),
        ("def f(x):\n    def g(y):\n        return g(y)\n    return g(x)", {"f.g"}),
        ("def f(x):\n    f = x\n    return f", set()),
    ],
)
def test_how_they_are_found(text: str, found: set[str]) -> None:
    assert recursive_in(ast.parse(text)) == found
