"""Instructions as text → instructions as the machine wants them: every operand a place in the file of registers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from jaxpr2triton.launch.machine import layout
from jaxpr2triton.launch.machine.layout import (
    LANES,
    LOCAL_WINDOW,
    RESULTS,
    SHARED_WINDOW,
    SLOTS,
    SPECIAL,
    Action,
    Changes,
    Mixes,
    Number,
    Order,
    Reduces,
    Space,
)
from jaxpr2triton.launch.machine.modifiers import (
    BITS,
    ELEMENTS,
    FACTORS,
    FLOATS,
    NUMBERS,
    REDUCTIONS,
    fragments,
    order_of,
    space_of,
)
from jaxpr2triton.launch.machine.operations import operation
from jaxpr2triton.launch.machine.order import flow_of
from jaxpr2triton.launch.machine.ptx import (
    ASSERTION,
    STRUCTURE,
    WIDTHS,
    Address,
    Instruction,
    Module,
    NotUnderstood,
    Operand,
    laid_out,
    literal,
)


@dataclass(frozen=True)
class Pointer:
    """A constant that is known when the kernel starts: where an argument, or a table, lies."""

    what: str  # parameter, table
    number: int
    offset: int = 0


Value = int | Pointer


@dataclass
class Encoded:
    """A kernel that is ready to run on any arrays."""

    module: Module
    code: list[layout.Instruction] = field(default_factory=list)
    opcodes: dict[int, str] = field(default_factory=dict)  # of the arithmetic, by its place
    constants: dict[tuple[Value, int], int] = field(default_factory=dict)  # value and width → slot
    special: list[int] = field(default_factory=lambda: [-1] * len(SPECIAL))
    file: int = 0  # bytes of registers so far
    shared_granule: int = 16
    global_granule: int = 8
    static_shared: int = 0  # bytes; what the launch gives comes after them
    local: int = 0
    controls: int = 0
    lists: list[int] = field(default_factory=list)  # of registers, where an instruction names many


def encode(module: Module, control_lines: frozenset[int] = frozenset()) -> Encoded:
    """`control_lines` are the lines of the source that begin a loop."""
    flow = flow_of(module.body)
    encoder = _Encoder(module, Encoded(module), flow.ways_out(control_lines))
    for instruction, rank in zip(module.body, flow.ranks):
        try:
            encoder.encoded.code.append(encoder.encode(instruction, rank))
        except (NotUnderstood, KeyError, ValueError, IndexError, StopIteration) as problem:
            raise NotUnderstood(f"{instruction.text}: {problem!r}") from problem
    return encoder.encoded


class _Encoder:
    def __init__(self, module: Module, encoded: Encoded, ways_out: Set[int]) -> None:
        self.module = module
        self.encoded = encoded
        self.ways_out = ways_out
        self.labels = {each.target: place for place, each in enumerate(module.body) if not each.opcode}
        self.registers: dict[str, int] = {}
        self.parts: dict[str, dict[tuple[int, int], int]] = {}  # of structures: where each begins, and its bytes
        self.shared, encoded.static_shared = laid_out(module.shared)
        self.local, encoded.local = laid_out(module.local)
        self.tables = {name: number for number, name in enumerate(module.tables)}
        self.never_written = set(module.registers) - {name for each in module.body for name in _written(each)}

    # places

    def _allocated(self, width: int) -> int:
        slot = self.encoded.file
        self.encoded.file += LANES * max(width, 4)
        return slot

    def slot(self, name: str, kind: str) -> int:
        """The place of a register, a literal, an array, or a special register, as an operand of that type."""
        module = self.module
        if name in module.registers:
            if kind and WIDTHS[module.registers[name]] != WIDTHS[kind]:
                raise NotUnderstood(f"{name} of type {module.registers[name]} as {kind}")
            if name not in self.registers:
                self.registers[name] = self._allocated(self.width(name))
            return self.registers[name]
        if name.removeprefix("%") in SPECIAL:
            number = SPECIAL.index(name.removeprefix("%"))
            if self.encoded.special[number] < 0:
                self.encoded.special[number] = self._allocated(4)
            return self.encoded.special[number]
        return self.constant(self._value(name, kind), WIDTHS[kind])

    def part(self, place: Address, kind: str) -> int:
        """A parameter of a function that was written out; of a structure each part is a register of its own."""
        if self.module.registers[place.base] != STRUCTURE:
            return self.slot(place.base, kind)
        parts, start, width = self.parts.setdefault(place.base, {}), place.offset, WIDTHS[kind]
        if (start, width) not in parts:
            if any(start < there + size and there < start + width for there, size in parts):
                raise NotUnderstood(f"parts of {place.base} that overlap")
            parts[start, width] = self._allocated(width)
        return parts[start, width]

    def _value(self, name: str, kind: str) -> Value:
        for places in (self.shared, self.local):
            if name in places:
                return places[name]
        if name in self.tables:
            return Pointer("table", self.tables[name])
        if name in self.module.parameters:
            return Pointer("parameter", self.module.parameters.index(name))
        value = literal(name)
        if value is None:
            raise NotUnderstood(f"operand {name}")
        return int(value != 0) if kind == "pred" else value

    def constant(self, value: Value, width: int) -> int:
        places = self.encoded.constants
        if (value, width) not in places:
            places[value, width] = self._allocated(width)
        return places[value, width]

    def width(self, register: str) -> int:
        """Bytes; a byte lives in a register of 16 bits."""
        return max(2, WIDTHS[self.module.registers[register]])

    # instructions

    def encode(self, of: Instruction, rank: int) -> layout.Instruction:
        made = layout.Instruction(guard=-1, rank=rank, negated=int(of.negated), parts=1)
        if of.guard:
            made.guard = self.slot(of.guard, "pred")
        if not of.opcode:
            made.action = Action.LABEL
        elif of.name in _ENCODE:
            _ENCODE[of.name](self, of, made)
        else:
            self.arithmetic(of, made)
        return made

    def put(self, made: layout.Instruction, results: Iterable[int], operands: Iterable[int]) -> None:
        results, operands = list(results), list(operands)
        if len(results) > RESULTS or len(results) + len(operands) > SLOTS:
            raise NotUnderstood("too many registers")
        made.results, made.operands = len(results), len(operands)
        made.slots[: len(results) + len(operands)] = [*results, *operands]

    def address(self, operand: Operand, made: layout.Instruction) -> int:
        assert isinstance(operand, Address)
        made.offset = operand.offset
        register = operand.base in self.module.registers
        made.wide = int(not register or self.width(operand.base) == 8)
        return self.slot(operand.base, "" if register else "b64")

    def arithmetic(self, of: Instruction, made: layout.Instruction) -> None:
        opcode, operands = _plain(of, self.module)
        found = operation(opcode)
        if found is None:
            raise NotUnderstood("no such arithmetic")
        if of.name in (
            "mov",
            "prmt",
            "bfi",
        ):  # bits that LLVM leaves undefined, and that nobody reads: any value will do
            operands = [operands[0], *("0xa5a5" if each in self.never_written else each for each in operands[1:])]
        if len(operands) != len(found.results) + len(found.operands):
            raise NotUnderstood(f"{len(operands)} operands instead of {len(found.results) + len(found.operands)}")
        to, sources = operands[: len(found.results)], operands[len(found.results) :]
        self.put(
            made,
            [
                self._allocated(WIDTHS[kind]) if name == "_" else self.slot(name, kind)
                for name, kind in zip(to, found.results)
            ],
            [self.slot(name, kind) for name, kind in zip(sources, found.operands)],
        )
        self.computes(made, opcode, found.results[0], found.operands[0])

    def computes(self, made: layout.Instruction, opcode: str, result: str, operand: str) -> None:
        name, *modifiers = opcode.split(".")
        made.action, made.row = Action.ARITHMETIC, max(2, WIDTHS[result])
        made.number = FLOATS.get(result, Number.BITS) if name in _ADDS_UP else Number.BITS
        if name == "selp":
            made.mixes = Mixes.CHOICE
        elif operand in _WHOLE_REGISTERS:
            made.mixes = {"and": Mixes.AND, "or": Mixes.OR}.get(name, Mixes.ALL)
        made.flags = int(operand == "pred")
        made.moves = int(name in ("mov", "pack", "unpack"))
        made.equality = int(name in ("setp", "set") and modifiers[0] in ("eq", "ne", "equ", "neu"))
        self.encoded.opcodes[len(self.encoded.code)] = opcode

    # the other kinds

    def memory(self, of: Instruction, made: layout.Instruction) -> None:
        if "param" in (word.partition("::")[0] for word in of.opcode.split(".")):
            return self.parameter(of, made)
        loads, kind = of.name != "st", of.modifiers[-1]
        made.action = Action.LOAD if loads else Action.STORE
        made.space, made.width = space_of(of), WIDTHS[kind]
        made.parts = next((int(word[1:]) for word in of.modifiers if word in ("v2", "v4", "v8")), 1)
        made.flags, made.order = int("nc" in of.modifiers), order_of(of)
        made.number = Number.SIGNED if kind.startswith("s") and loads else Number.BITS
        value, place = of.operands if loads else reversed(of.operands)
        values = _names(value)
        made.row = next((self.width(each) for each in values if each in self.module.registers), max(2, made.width))
        slots = [self.slot(each, _OF_WIDTH[made.row]) for each in values]
        at = self.address(place, made)
        self.put(made, slots if loads else [], [at] if loads else [at, *slots])
        self._seen(made)

    def _seen(self, made: layout.Instruction) -> None:
        if made.space in (Space.SHARED, Space.GENERIC):
            self.encoded.shared_granule = min(self.encoded.shared_granule, made.width)
        if made.space in (Space.GLOBAL, Space.GENERIC):
            self.encoded.global_granule = min(self.encoded.global_granule, made.width)

    def parameter(self, of: Instruction, made: layout.Instruction) -> None:
        """Arguments of kernels are constants, those of functions that were written out are registers."""
        place, value = of.operands if of.name == "st" else reversed(of.operands)
        assert isinstance(place, Address)
        kind = of.modifiers[-1]
        (value,) = _names(value)
        if place.base in self.module.parameters:
            number = self.module.parameters.index(place.base)
            where = self.constant(Pointer("parameter", number, place.offset), WIDTHS[kind])
        else:
            where = self.part(place, kind)
        register = self.slot(value, kind)
        to, source = (where, register) if of.name == "st" else (register, where)
        self.put(made, [to], [source])
        self.computes(made, f"mov.b{8 * WIDTHS[kind]}", kind, kind)

    def atomic(self, of: Instruction, made: layout.Instruction) -> None:
        words = [word for word in of.modifiers if word in REDUCTIONS]
        if len(words) != 1 or "noftz" in of.modifiers:
            raise NotUnderstood("this atomic")
        kind = of.modifiers[-1]
        made.action, made.space, made.width, made.row = Action.ATOMIC, space_of(of), WIDTHS[kind], WIDTHS[kind]
        made.order = Order.STRONG | order_of(of)
        made.reduces, made.number = REDUCTIONS[words[0]], NUMBERS.get(kind, Number.BITS)
        returned, place, *values = of.operands if of.name == "atom" else ("", *of.operands)
        at = self.address(place, made)
        results = [self.slot(str(returned), kind)] if returned and returned != "_" else []
        self.put(made, results, [at, *(self.slot(str(each), kind) for each in values)])
        self._seen(made)

    def matrices(self, of: Instruction, made: layout.Instruction) -> None:
        if "m8n8" not in of.modifiers or of.modifiers[-1] != "b16":
            raise NotUnderstood("matrices of this shape")
        loads = of.name == "ldmatrix"
        made.action = Action.LOAD_MATRIX if loads else Action.STORE_MATRIX
        made.space, made.width, made.row, made.flags = Space.SHARED, 2, 4, int("trans" in of.modifiers)
        made.parts = next(int(word[1:]) for word in of.modifiers if word in ("x1", "x2", "x4"))
        values, place = of.operands if loads else reversed(of.operands)
        slots = [self.slot(each, "b32") for each in _names(values)]
        at = self.address(place, made)
        self.put(made, slots if loads else [], [at] if loads else [at, *slots])
        self._seen(made)

    def copy(self, of: Instruction, made: layout.Instruction) -> None:
        if "commit_group" in of.modifiers:
            made.action = Action.COMMIT
        elif "wait_group" in of.modifiers or "wait_all" in of.modifiers:
            made.action = Action.WAIT
            made.offset = int(str(of.operands[0]), 0) if of.operands else 0
            made.flags = int("wait_all" in of.modifiers)
        elif "shared" in (word.partition("::")[0] for word in of.modifiers) and "bulk" not in of.modifiers:
            to, source, size, *rest = of.operands
            assert isinstance(source, Address)
            made.action, made.space, made.width = Action.COPY, Space.SHARED, int(str(size), 0)
            at = self.address(to, made)
            made.target = source.offset
            self.put(made, [], [at, self.slot(source.base, "b64"), *(self.slot(str(each), "b32") for each in rest)])
            self._seen(made)
            self.encoded.global_granule = min(self.encoded.global_granule, made.width)
        else:
            raise NotUnderstood("this copy")

    def generic(self, of: Instruction, made: layout.Instruction) -> None:
        """cvta: an address of one space as one of any, or (`to`) the other way round."""
        window = {Space.SHARED: SHARED_WINDOW, Space.LOCAL: LOCAL_WINDOW}.get(space_of(of), 0)
        kind = of.modifiers[-1]
        to, source = map(str, of.operands)
        by = self.constant((-window if "to" in of.modifiers else window) % 256 ** WIDTHS[kind], WIDTHS[kind])
        self.put(made, [self.slot(to, kind)], [self.slot(source, kind), by])
        self.computes(made, f"add.{kind}", kind, kind)

    def branch(self, of: Instruction, made: layout.Instruction) -> None:
        made.action, made.target = Action.BRANCH, self.labels[of.target]
        if len(self.encoded.code) in self.ways_out:
            made.control = 1
            made.slots[0] = self.encoded.controls
            self.encoded.controls += 1

    def barrier(self, of: Instruction, made: layout.Instruction) -> None:
        if of.opcode == "bar.warp.sync":
            made.action = Action.WARP_BARRIER
        elif of.operands == ("0",) and not {"red", "arrive"} & set(of.modifiers):
            made.action = Action.BARRIER
        else:
            raise NotUnderstood("a barrier but that of all threads")

    def assertion(self, of: Instruction, made: layout.Instruction) -> None:
        made.action = Action.ASSERTION
        self.put(made, [], [self.slot(str(of.operands[0]), "b64")])

    def shuffle(self, of: Instruction, made: layout.Instruction) -> None:
        made.action, made.row, made.flags = Action.SHUFFLE, 4, ("up", "down", "bfly", "idx").index(of.modifiers[1])
        results, *operands = of.operands
        names = _names(results)
        kinds = ("b32", "pred")
        self.put(
            made,
            [self.slot(name, kind) for name, kind in zip(names, kinds)],
            [self.slot(str(each), "b32") for each in operands[:3]],
        )

    def redux(self, of: Instruction, made: layout.Instruction) -> None:
        word, kind = of.modifiers[1:]
        if kind in FLOATS:
            raise NotUnderstood("a reduction of floats")
        made.action, made.row, made.reduces = Action.REDUX, 4, Reduces[word.upper()]
        made.number = NUMBERS.get(kind, Number.BITS)
        self.put(made, [self.slot(str(of.operands[0]), "b32")], [self.slot(str(of.operands[1]), "b32")])

    def vote(self, of: Instruction, made: layout.Instruction) -> None:
        made.action, made.row, made.flags = Action.VOTE, 4, ("ballot", "all", "any", "uni").index(of.modifiers[1])
        voter = str(of.operands[1])
        made.negated |= 2 * voter.startswith("!")
        kind = "b32" if of.modifiers[1] == "ballot" else "pred"
        self.put(made, [self.slot(str(of.operands[0]), kind)], [self.slot(voter.lstrip("!"), "pred")])

    def product(self, of: Instruction, made: layout.Instruction) -> None:
        shape = next(word for word in of.modifiers if word.startswith("m") and "n" in word)
        m, rest = shape[1:].split("n")
        n, k = rest.split("k")
        total, left, right, _ = (word for word in of.modifiers if word in ELEMENTS)
        lists = [_names(each) for each in of.operands]
        if left != right or n != "8" or list(map(len, lists)) != fragments(int(m), int(k), total, left):
            raise NotUnderstood("a product of these matrices")
        made.action, made.row = Action.MMA, 8 if total == "f64" else 4
        made.number, made.flags = ELEMENTS[left], ELEMENTS[total]
        made.wide = int("satfinite" in of.modifiers)
        made.shape[:] = [int(m), int(n), int(k)]
        kinds = ["f64" if each == "f64" else "b32" for each in (total, left, right, total)]
        results, *operands = [[self.slot(name, kind) for name in names] for names, kind in zip(lists, kinds)]
        self.put(made, results, [slot for slots in operands for slot in slots])

    def fence(self, of: Instruction, made: layout.Instruction) -> None:
        is_proxy = of.modifiers[:2] == ("proxy", "async") and of.modifiers[2:3] != ("global",)
        made.action = Action.PROXY_FENCE if is_proxy else Action.NOTHING

    def warpgroup(self, of: Instruction, made: layout.Instruction) -> None:
        if of.guard:
            raise NotUnderstood("a choice whether warps multiply")
        match of.modifiers[0]:
            case "mma_async":
                self.warpgroup_product(of, made)
            case "fence":
                made.action = Action.PRODUCT_FENCE
            case "commit_group":
                made.action = Action.PRODUCT_COMMIT
            case "wait_group":
                made.action, made.offset = Action.PRODUCT_WAIT, int(str(of.operands[0]), 0)
            case _:
                raise NotUnderstood("no wgmma that is known")

    def warpgroup_product(self, of: Instruction, made: layout.Instruction) -> None:
        """wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {sums}, left, right, keeps, 1, -1, 0, 1;"""
        words = of.modifiers
        n, k = map(int, words[3].removeprefix("m64n").split("k"))
        total, left, right = (word for word in words if word in FACTORS)
        sums, factor, descriptor, keeps, *rest = of.operands
        bits, in_memory = BITS[left], isinstance(factor, str)
        names = [*_names(sums), *([] if in_memory else _names(factor))]
        expected = n // 2 * BITS[total] // 32 + 4 * (not in_memory)
        if words[1:3] != ("sync", "aligned") or n % 8 or k * bits != 256 or len(names) != expected:
            raise NotUnderstood("a product of these matrices")
        signs, transposed = rest[:2], ([] if in_memory else ["0"]) + list(rest[2:])
        made.flags = sum(bit for bit, sign in zip((Changes.NEGATED_LEFT, Changes.NEGATED_RIGHT), signs) if sign == "-1")
        turned = zip((Changes.TRANSPOSED_LEFT, Changes.TRANSPOSED_RIGHT), transposed)
        made.flags |= sum(bit for bit, turn in turned if turn == "1")
        made.action, made.row, made.shape[:] = Action.PRODUCT, 4, [64, n // 8, k]
        made.number, made.right, made.total = FACTORS[left], FACTORS[right], FACTORS[total]
        made.wide = int("satfinite" in words)
        made.target = len(self.encoded.lists)
        self.encoded.lists += [self.slot(name, "b32") for name in names]
        operands = [self.slot(str(descriptor), "b64"), self.slot(str(keeps), "pred")]
        self.put(made, [], [*operands, *([self.slot(factor, "b64")] if isinstance(factor, str) else [])])


def _written(of: Instruction) -> tuple[str, ...]:
    if not of.operands or of.name in ("st", "stmatrix", "bar", "red", "cp"):
        return ()
    first = of.operands[0]
    return first if isinstance(first, tuple) else (first,) if isinstance(first, str) else ()


def _names(operand: Operand) -> list[str]:
    """Of registers, one or several."""
    if isinstance(operand, Address):
        raise NotUnderstood("an address here")
    return [operand] if isinstance(operand, str) else list(operand)


def _plain(of: Instruction, module: Module) -> tuple[str, list[str]]:
    """The name of the operation and its operands, one after the other."""
    opcode, operands = of.opcode, list(of.operands)
    if of.name == "mov" and any(isinstance(each, tuple) for each in operands):
        word, parts = (
            ("pack", _names(operands[1])) if isinstance(operands[1], tuple) else ("unpack", _names(operands[0]))
        )
        opcode = f"{word}.b{8 * WIDTHS[of.modifiers[-1]]}.{len(parts)}"
    if of.name == "cvt" and of.modifiers[-1] in WIDTHS and isinstance(operands[-1], str):
        register = WIDTHS[module.registers.get(operands[-1], of.modifiers[-1])]
        if register > max(2, WIDTHS[of.modifiers[-1]]):
            opcode += f".w{8 * register}"  # a part of a longer register
    return opcode, [name for each in operands for name in _names(each)]


def _nothing(encoder: _Encoder, of: Instruction, made: layout.Instruction) -> None:
    made.action = Action.NOTHING


def _ends(action: Action) -> Callable[[_Encoder, Instruction, layout.Instruction], None]:
    def encode(encoder: _Encoder, of: Instruction, made: layout.Instruction) -> None:
        made.action = action

    return encode


_OF_WIDTH = {2: "b16", 4: "b32", 8: "b64"}
_WHOLE_REGISTERS = ("b32", "u32", "s32", "f32", "pred")
_ADDS_UP = ("add", "mul", "fma", "min", "max")  # after a butterfly: two lanes' values become one total
_ENCODE: dict[str, Callable[[_Encoder, Instruction, layout.Instruction], None]] = {
    **dict.fromkeys(("ld", "st", "ldu"), _Encoder.memory),
    **dict.fromkeys(("atom", "red"), _Encoder.atomic),
    **dict.fromkeys(("ldmatrix", "stmatrix"), _Encoder.matrices),
    **dict.fromkeys(("bar", "barrier"), _Encoder.barrier),
    **dict.fromkeys(("ret", "exit"), _ends(Action.RETURN)),
    **dict.fromkeys(("membar", "griddepcontrol", "prefetch", "nanosleep", "discard", "applypriority"), _nothing),
    "cvta": _Encoder.generic,
    "trap": _ends(Action.TRAP),
    ASSERTION: _Encoder.assertion,
    "bra": _Encoder.branch,
    "cp": _Encoder.copy,
    "shfl": _Encoder.shuffle,
    "redux": _Encoder.redux,
    "vote": _Encoder.vote,
    "mma": _Encoder.product,
    "fence": _Encoder.fence,
    "wgmma": _Encoder.warpgroup,
}


def as_array(instructions: list[layout.Instruction]) -> ctypes.Array[layout.Instruction]:
    return (layout.Instruction * max(1, len(instructions)))(*instructions)
