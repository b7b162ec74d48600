"""How often the loops of machine code run, from their counters.

UMOV UR4, 0x3e8
UIADD3 UR4, UR4, -0x5                    200 rounds
ISETP.NE.U32.AND P1, PT, RZ, UR4, PT
@P1 BRA …
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.launch.cycles.flow import Flow, Loop
from jaxpr2triton.launch.cycles.sass import Instruction

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "EQ": operator.eq,
}  # fmt: skip
_SWAPPED = {"NE": "NE", "EQ": "EQ", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
_DENIED = {"NE": "EQ", "EQ": "NE", "LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE"}
_WORD = 1 << 32
_PAIRS = (".64", ".WIDE", "CS2R", "DADD", "DMUL", "DFMA")
_REGISTER = re.compile(r"U?R\d+")


@dataclass(frozen=True)
class Sum:
    """What a register had where counting began, and a constant; without a register only that."""

    register: str
    constant: int


Known = dict[str, Sum | None]  # None: nothing is known; a register that is not in it has what it had


def rounds_of(flow: Flow, loop: Loop) -> int | None:
    """How often the head of a loop runs, where all of its ways out count."""
    blocks = {address: block for address, block in flow.blocks.items() if address in loop.addresses}
    ways_out = [
        (block.last, block.last.target in loop.addresses)
        for block in blocks.values()
        if block.last.kind == "EXIT" or any(after not in loop.addresses for after in block.after)
    ]
    always = flow.always(loop)
    if any(jump.address not in always for jump, _ in ways_out):
        return None
    before, inside = _before(flow, loop), _through(flow, loop)
    counts = [_rounds(jump, stays, loop, before, inside) for jump, stays in ways_out]
    least = min((count or 1 for count in counts), default=1)
    return least if least > 1 else None  # compilers leave no loop of one round: it is something else that is compared


def _rounds(jump: Instruction, stays: bool, loop: Loop, before: Known, inside: Mapping[int, Known]) -> int | None:
    """The round in which a jump leaves; `stays` is whether it jumps to the loop."""
    predicate = jump.guard.lstrip("!")
    if not predicate or "," in jump.operands:  # it asks two predicates
        return None
    test, high = _tests(loop.instructions, jump, predicate)
    if test is None:
        return None
    at = inside[test.address]
    left, right = _compared(test, at)
    comparison = test.name.split(".")[1]
    if left is not None and left.register and right is not None and right.register:
        return None
    if left is not None and not left.register:
        left, right, comparison = right, left, _SWAPPED.get(comparison, "")
    if left is None or right is None or comparison not in _COMPARED:
        return None
    goes_on = comparison if stays != jump.guard.startswith("!") else _DENIED[comparison]
    start, end = before.get(left.register), inside[loop.instructions[-1].address + 1].get(left.register)
    if start is None or start.register or end is None or end.register != left.register:
        return None
    first = start.constant + left.constant
    bound = right.constant % _WORD if "U32" in test.name else right.constant
    bound += 0 if high is None else _WORD * _high_word(high)
    return _first_false(_COMPARED[goes_on], first, end.constant, bound)


def _first_false(goes_on: Callable[[int, int], bool], first: int, step: int, bound: int) -> int | None:
    """range(first, bound, step) and the like: the first round, from one, after which it does not go on."""
    if not step:
        return None
    if not goes_on(first, bound):
        return 1
    if goes_on is operator.ne and (bound - first) * step < 0:
        bound += _WORD if step > 0 else -_WORD  # only their low words have been told apart
    count = -(-(bound - first) // step)
    found = next((n for n in (count, count + 1) if n > 0 and not goes_on(first + n * step, bound)), None)
    return None if found is None else found + 1


def _tests(
    code: Sequence[Instruction], jump: Instruction, predicate: str
) -> tuple[Instruction | None, Instruction | None]:
    """The comparison that makes a predicate, and of 64 bits the one of the high words.

    ISETP.NE.U32.AND P0, PT, R17, 0x80, PT; ISETP.NE.U32.AND.EX P0, PT, R15, RZ, PT, P0
    """
    earlier = [each for each in code if each.address < jump.address]
    made = next((each for each in reversed(earlier) if predicate in _words(each)[:2]), None)
    if made is None or made.guard:
        return None, None
    if made.kind == "PLOP3":
        used = [word for word in _words(made)[2:] if re.fullmatch(r"U?P\d", word)]
        return _tests(code, made, used[0]) if len(used) == 1 else (None, None)
    if made.kind not in ("ISETP", "UISETP") or ".AND" not in made.name:
        return None, None
    if ".EX" in made.name:
        test, _ = _tests(code, made, _words(made)[-1])
        return test, made
    return (made, None) if _words(made)[-1] in ("PT", "UPT") else (None, None)


def _high_word(test: Instruction) -> int:
    """Of the bound, where 64 bits are compared."""
    numbers = [_number(word) for word in _words(test)[2:4]]
    return next((number for number in numbers if number), 0)


def _compared(test: Instruction, known: Known) -> tuple[Sum | None, Sum | None]:
    words = _words(test)
    return _value(words[2], known), _value(words[3], known)


def _words(each: Instruction) -> list[str]:
    return [word.strip().removesuffix(".reuse") for word in each.operands.split(",")]


def _number(word: str) -> int | None:
    if word in ("RZ", "URZ", "SRZ"):
        return 0
    if not re.fullmatch(r"-?0x[0-9a-f]+", word):
        return None
    number = int(word, 16)
    return number if number < _WORD // 2 else number - _WORD


def _value(word: str, known: Known) -> Sum | None:
    number = _number(word)
    if number is not None:
        return Sum("", number)
    return known.get(word, Sum(word, 0)) if _REGISTER.fullmatch(word) else None


def _before(flow: Flow, loop: Loop) -> Known:
    """The constants in registers where a loop is entered, as its code stands."""
    known: Known = {}
    code = [each for block in flow.blocks.values() for each in block.code if each.address < loop.head]
    others = [other for other in flow.loops if other.head < loop.head]
    heads = {other.head: _written(other) for other in others}
    ends = {other.instructions[-1].address: _written(other) for other in others}
    for each in code:
        known.update(dict.fromkeys(heads.get(each.address, ())))
        _execute(each, known)
        known.update(dict.fromkeys(ends.get(each.address, ())))
    return known


def _through(flow: Flow, loop: Loop) -> dict[int, Known]:
    """What is known before each instruction of a round, and behind the last one, relative to the round's start."""
    known: Known = {}
    found: dict[int, Known] = {}
    always = flow.always(loop)
    inner = [other for other in flow.loops if other.head != loop.head and other.addresses <= loop.addresses]
    written = {address: _written(other) for other in inner for address in (other.head, other.instructions[-1].address)}
    for each in loop.instructions:
        found[each.address] = dict(known)
        if each.address in always:
            _execute(each, known)
        else:
            known.update(dict.fromkeys(_results(each)))
        known.update(dict.fromkeys(written.get(each.address, ())))
    found[loop.instructions[-1].address + 1] = known
    return found


def _written(loop: Loop) -> set[str]:
    return {register for each in loop.instructions for register in _results(each)}


def _results(each: Instruction) -> list[str]:
    """The registers that it writes, as far as counters are concerned: not the third and fourth of wide loads."""
    first = _words(each)[0]
    if not each.has_result or not _REGISTER.fullmatch(first):
        return []
    if any(part in each.name for part in _PAIRS) and ".32" not in each.name:
        letters = first.rstrip("0123456789")
        return [first, f"{letters}{int(first[len(letters) :]) + 1}"]
    return [first]


def _execute(each: Instruction, known: Known) -> None:
    results = _results(each)
    value = _result(each, known) if results and not each.guard else None
    for register in results:
        known[register] = value


def _result(each: Instruction, known: Known) -> Sum | None:
    words = _words(each)
    match each.kind:
        case "MOV" | "UMOV" | "CS2R":
            return _value(words[1], known)
        case "HFMA2" if words[1:3] == ["-RZ", "RZ"]:  # a constant, as two numbers of 16 bits
            return Sum("", int.from_bytes(struct.pack("<ee", float(words[4]), float(words[3])), "little", signed=True))
        case "IMAD" if each.name.startswith(("IMAD.MOV", "IMAD.IADD")):
            factor, addend = (words[1], words[3]) if words[2] == "0x1" else (words[2], words[3])
            return _sum([factor, addend] if "IADD" in each.name else [addend], known)
        case "IADD3" | "UIADD3" | "VIADD" if ".X" not in each.name:
            return _sum([word for word in words[1:] if not re.fullmatch(r"!?U?P[\dT]", word)], known)
        case _:
            return None


def _sum(words: Sequence[str], known: Known) -> Sum | None:
    values = [_value(word, known) for word in words]
    registers = [value.register for value in values if value is not None and value.register]
    if None in values or len(registers) > 1:
        return None
    return Sum("".join(registers), sum(value.constant for value in values if value is not None))
