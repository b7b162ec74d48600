"""Kernels that each repeat one thing that a device does, and take the time of it on the device.

A kernel waits until all warps are there, reads the clocks, repeats its steps, waits again and reads the clocks again,
for several turns: the first one also takes what is only once, as reading the kernel's code. Steps are inline assembly
where one instruction is what counts, so that no compiler puts others in its place; each needs what the one before made,
unless it is how many at once that counts. The clocks stand outside of the loop of steps, past which nothing moves; and
as no compiler knows how many programs there are along the second dimension (one), it cannot write the loop out.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.kernel import Buffer, Kernel

WARP = 32
F32: np.dtype[Any] = np.dtype(np.float32)
I32: np.dtype[Any] = np.dtype(np.int32)
TURNS = 4  # in one launch
STEPS = 256
LINKS = 64  # instructions of a chain in one step, so that the loop itself takes little
READ_AT_ONCE = 4096  # numbers of f32 in one load of a program of 32 warps: 16 bytes for each thread
LOADS_AT_ONCE = 4
PIECE = READ_AT_ONCE * LOADS_AT_ONCE  # numbers that such a program reads in a step
BLOCK = 4096  # numbers that one program of eight warps copies, or reads of device memory
PLACES_IN_MEMORY = 4096  # that a chain through device memory passes
LOADS = 8  # of a chain in one step
ROWS, COLUMNS, BYTES_OF_TERMS = 128, 256, 256  # of factors: they fit into shared memory
ROUNDS_OF_WAITING = 1 << 22  # in which programs ask for others, all in all: three seconds, and then they give up
MEETINGS = 250  # of the whole grid in one turn

_HEAD = """
import triton
import triton.language as tl


@triton.jit
def clock_now():
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def nanoseconds_now():
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)

"""


@dataclass(frozen=True)
class Repeated:
    """A kernel that says what its turns took, and how much each program does in a turn."""

    kernel: Kernel
    amount: int  # instructions, bytes, products …


def buffer(name: str, size: int, dtype: np.dtype = F32, is_flag: bool = False) -> Buffer:
    return Buffer(name, (size,), dtype, is_flag)


def kernel_of(
    name: str, body: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer], programs: int, warps: int
) -> Kernel:
    """A kernel with this body."""
    pointers = ", ".join(f"{each.name}_ptr" for each in (*inputs, *outputs))
    source = (
        f"{_HEAD}\n@triton.jit\ndef {name}({pointers}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    )
    read, written = (sum(each.nbytes for each in group) for group in (inputs, outputs))
    return Kernel(name, source, tuple(inputs), tuple(outputs), (), (programs, 1, 1), warps, 2, read, written, 0)


def timed(
    name: str,
    step: str,
    steps: int,
    amount: int,
    *,
    setup: str,
    finish: str,
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    programs: int = 1,
    warps: int = 1,
    turns: int = TURNS,
) -> Repeated:
    """Its first two outputs are cycles and nanoseconds, of each program and each of its turns.

    `amount` is what a program does in a step.
    """
    setup, step, finish = (textwrap.dedent(each).strip() for each in (setup, step, finish))
    body = f"""
program = tl.program_id(0)
lanes = tl.arange(0, {WARP * warps})
once = tl.num_programs(1)
{setup}
for turn in range({turns} * once):
    tl.debug_barrier()
    begun = nanoseconds_now()
    start = clock_now()
    for step in range({steps} * once):
{textwrap.indent(step, " " * 8)}
    tl.debug_barrier()
    end = clock_now()
    ended = nanoseconds_now()
    at = program * {turns} + turn
    tl.store(cycles_ptr + at, (end - start).to(tl.int32))
    tl.store(nanoseconds_ptr + at, (ended - begun).to(tl.int32))
{finish}
"""
    times = [buffer(each, programs * turns, I32) for each in ("cycles", "nanoseconds")]
    return Repeated(kernel_of(name, body, inputs, [*times, *outputs], programs, warps), steps * amount)


def assembly(code: str, constraints: str, arguments: str, dtype: str) -> str:
    """Inline assembly that stays where it is, as often as it is there."""
    return f'tl.inline_asm_elementwise("{code}", "{constraints}", [{arguments}], dtype={dtype}, is_pure=False, pack=1)'


# instructions one after the other


def chain(
    name: str, link: str, steps: int, links: int = LINKS, *, before: str = "", warps: int = 1, programs: int = 1
) -> Repeated:
    """`link` makes another $0 of $0, $2 and $3, of which each thread has its own."""
    code = f"{{ {before} mov.b32 $0, $1; " + " ".join([link] * links) + " }"
    return timed(
        name,
        f"x = {assembly(code, '=&f,f,f,f', 'x, factor, term', 'tl.float32')}",
        steps,
        links,
        setup="""
            x = tl.load(x_ptr + lanes)
            factor = x * 0.5
            term = x * 0.25
        """,
        finish="tl.store(result_ptr + lanes, x)",
        inputs=[buffer("x", WARP * warps)],
        outputs=[buffer("result", WARP * warps)],
        warps=warps,
        programs=programs,
    )


FUSED = "fma.rn.f32 $0, $0, $2, $3;"
EXPONENTIAL = "ex2.approx.ftz.f32 $0, $0;"
SHUFFLE = "shfl.sync.bfly.b32 $0, $0, 1, 0x1f, 0xffffffff;"


def dependent_sums(steps: int = STEPS) -> Repeated:
    return chain("dependent_sums", FUSED, steps)


def many_sums(programs: int, steps: int = 4096) -> Repeated:
    """32 warps on each processor, each thread with a chain of its own: eight warps for each scheduler.

    The factor is a constant: of three registers two would lie in one bank, which halves the rate.
    """
    warps = 32
    one = chain("many_sums", "fma.rn.f32 $0, $0, 0f3F000000, $3;", steps, warps=warps, programs=programs)
    return replace(one, amount=one.amount * WARP * warps)


def dependent_exponentials(steps: int = STEPS) -> Repeated:
    return chain("dependent_exponentials", EXPONENTIAL, steps)


def dependent_shuffles(steps: int = STEPS) -> Repeated:
    return chain("dependent_shuffles", SHUFFLE, steps)


def independent_sums(steps: int = 64, beside: int = 8, rounds: int = 32) -> Repeated:
    """One warp has `beside` chains, so that it never waits for a result."""
    names = [f"x{number}" for number in range(beside)]
    first = " ".join(f"mov.b32 ${number}, ${beside + number};" for number in range(beside))
    round_ = " ".join(f"fma.rn.f32 ${n}, ${n}, ${2 * beside}, ${2 * beside + 1};" for n in range(beside))
    code = f"{{ {first} " + " ".join([round_] * rounds) + " }"
    constraints = ",".join(["=&f"] * beside + ["f"] * (beside + 2))
    dtypes = "(" + ", ".join(["tl.float32"] * beside) + ")"
    return timed(
        "independent_sums",
        f"{', '.join(names)} = {assembly(code, constraints, ', '.join([*names, 'factor', 'term']), dtypes)}",
        steps,
        beside * rounds,
        setup="\n".join(
            ["x = tl.load(x_ptr + lanes)", "factor = x * 0.5", "term = x * 0.25"]
            + [f"{each} = x + {number}" for number, each in enumerate(names)]
        ),
        finish=f"tl.store(result_ptr + lanes, {' + '.join(names)})",
        inputs=[buffer("x", WARP)],
        outputs=[buffer("result", WARP)],
    )


# warps and lanes that wait for each other


def _box(warps: int, other: int) -> str:
    """Shared memory of a number for each thread: the places of its own and of the thread `other` threads on."""
    threads = WARP * warps
    return (
        f".shared .align 4 .b32 box[{threads}]; .reg .u32 own, other, place; mov.u32 place, box; mov.u32 own, %tid.x; "
        f"add.u32 other, own, {other}; and.b32 other, other, {threads - 1}; "
        "mad.lo.u32 own, own, 4, place; mad.lo.u32 other, other, 4, place;"
    )


def written_and_read(steps: int = 128) -> Repeated:
    """A thread reads what it has written into shared memory."""
    link = "st.volatile.shared.b32 [own], $0; ld.volatile.shared.b32 $0, [own];"
    return chain("written_and_read", link, steps, links=32, before=_box(1, 0))


def meetings(warps: int, steps: int = 128) -> Repeated:
    """Each warp reads what the one behind it has written into shared memory."""
    link = "st.volatile.shared.b32 [own], $0; bar.sync 0; ld.volatile.shared.b32 $0, [other]; bar.sync 0;"
    return chain(f"meetings_of_{warps}", link, steps, links=16, before=_box(warps, WARP), warps=warps)


def barriers(warps: int, steps: int = 128) -> Repeated:
    return chain(f"barriers_of_{warps}", "bar.sync 0;", steps, links=32, warps=warps)


def sums_of_lanes(steps: int = 2048) -> Repeated:
    """As Triton writes them: five shuffles and five additions, one after the other, and a product and sum."""
    return timed(
        "sums_of_lanes",
        "x = x * 0.03125 + tl.sum(x, 0)",
        steps,
        5,
        setup="x = tl.load(x_ptr + lanes)",
        finish="tl.store(result_ptr + lanes, x)",
        inputs=[buffer("x", WARP)],
        outputs=[buffer("result", WARP)],
    )


def sums_of_warps(warps: int, steps: int = 2048) -> Repeated:
    """As Triton writes them: each lane of a warp is added to the same lane of the others."""
    place = f"tl.arange(0, {warps})[:, None] * {WARP} + tl.arange(0, {WARP})[None, :]"
    return timed(
        f"sums_of_{warps}_warps",
        "x = x * 0.125 + tl.sum(x, 0)[None, :]",
        steps,
        1,
        setup=f"x = tl.load(x_ptr + {place})",
        finish=f"tl.store(result_ptr + {place}, x)",
        inputs=[buffer("x", WARP * warps)],
        outputs=[buffer("result", WARP * warps)],
        warps=warps,
    )


# loads


def dependent_loads(name: str, how: str, places: int, apart: int, steps: int = 256) -> Repeated:
    """Each address is what was loaded before; the kernel writes them itself, `apart` bytes from each other."""
    code = "{ mov.b64 $0, $1; " + f"ld.global{how}.u64 $0, [$0]; " * LOADS + "}"
    return timed(
        name,
        f"x = {assembly(code, '=&l,l', 'x', 'tl.int64')}",
        steps,
        LOADS,
        setup=f"""
            first = chain_ptr.to(tl.int64)
            for piece in range({places // WARP}):
                place = piece * {WARP} + lanes
                behind = first + ((place + 1) % {places}).to(tl.int64) * {apart}
                tl.store((first + place.to(tl.int64) * {apart}).to(tl.pointer_type(tl.int64)), behind)
            tl.debug_barrier()
            x = first + (lanes * 0).to(tl.int64)
        """,
        finish="tl.store(result_ptr + lanes, (x - first).to(tl.int32))",
        inputs=[],
        outputs=[buffer("result", WARP, I32), buffer("chain", places * apart // 4, I32)],
    )


def first_level() -> Repeated:
    return dependent_loads("first_level", "", 256, 16)


def second_level() -> Repeated:
    """In the lines of two megabytes, as some of them are nearer than others; past the first level."""
    return dependent_loads("second_level", ".cg", 4096, 512)


def loads_from_memory(size: int) -> Repeated:
    """What is loaded says how many bytes from the beginning the next number is; no place comes twice."""
    steps = PLACES_IN_MEMORY // LOADS // TURNS
    load = "cvt.u64.u32 at, $0; add.u64 at, at, $2; ld.global.u32 $0, [at]; "
    code = "{ .reg .u64 at; mov.b32 $0, $1; " + load * LOADS + "}"
    return timed(
        "loads_from_memory",
        f"x = {assembly(code, '=&r,r,l', 'x, first', 'tl.int32')}",
        steps,
        LOADS,
        setup="""
            x = lanes * 0
            first = x.to(tl.int64) + chain_ptr.to(tl.int64)
        """,
        finish="tl.store(result_ptr + lanes, x)",
        inputs=[buffer("chain", size, I32)],
        outputs=[buffer("result", WARP, I32)],
    )


def cache_read(size: int, programs: int, steps: int = 512) -> Repeated:
    """All programs read the same array, each from another piece on: first-level caches have nothing of it."""
    pieces = size // PIECE  # a power of two
    place = f"x_ptr + ((first + step) & {pieces - 1}) * {PIECE} + places"
    return timed(
        f"cache_read_by_{programs}",
        "\n".join(f"total += tl.load({place} + {n * READ_AT_ONCE})" for n in range(LOADS_AT_ONCE)),
        steps,
        PIECE * F32.itemsize,
        setup=f"""
            places = tl.arange(0, {READ_AT_ONCE})
            first = program * {pieces} // {programs}
            total = tl.zeros(({READ_AT_ONCE},), tl.float32)
        """,
        finish="tl.store(result_ptr + program, tl.sum(total, 0))",
        inputs=[buffer("x", size)],
        outputs=[buffer("result", programs)],
        programs=programs,
        warps=32,
    )


def copied(size: int) -> Kernel:
    """Numbers copied from one array to another."""
    body = f"""
        places = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})
        tl.store(result_ptr + places, tl.load(x_ptr + places))
    """
    return kernel_of("copied", body, [buffer("x", size)], [buffer("result", size)], size // BLOCK, 8)


def read(size: int) -> Kernel:
    """Numbers that are read; of each block no more than its sum is written."""
    body = f"""
        places = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})
        tl.store(result_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + places), 0))
    """
    return kernel_of("read", body, [buffer("x", size)], [buffer("result", size // BLOCK)], size // BLOCK, 8)


# products of matrices

# a dtype in Triton's words, that of the numbers, and what they are added up in
FACTORS: dict[str, tuple[str, np.dtype, str]] = {
    "bf16": ("tl.bfloat16", np.dtype(jnp.bfloat16), "tl.float32"),
    "f16": ("tl.float16", np.dtype(np.float16), "tl.float32"),
    "tf32": ("tl.float32", F32, "tl.float32"),
    "i8": ("tl.int8", np.dtype(np.int8), "tl.int32"),
    "f8e4nv": ("tl.float8e4nv", np.dtype(jnp.float8_e4m3fn), "tl.float32"),
}
BITS: dict[int, np.dtype] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
}  # as which factors come


def terms(dtype: str) -> int:
    """Of each result of one product."""
    return BYTES_OF_TERMS // FACTORS[dtype][1].itemsize


def products(dtype: str, programs: int, steps: int = 512) -> Repeated:
    """The same two factors are multiplied again and again, and added up."""
    name, numbers, sums = FACTORS[dtype]
    bits, long = BITS[numbers.itemsize], terms(dtype)
    along = f"tl.arange(0, {long})[None, :]"
    loaded = "tl.load({0}_ptr.to(tl.pointer_type({4}), bitcast=True) + tl.arange(0, {1})[:, None] * {2} + {3})"
    return timed(
        f"products_of_{dtype}",
        f"total = tl.dot(left, right.T, total, input_precision='tf32', out_dtype={sums})",
        steps,
        ROWS * COLUMNS * long,
        setup="\n".join(
            [
                f"left = {loaded.format('left', ROWS, long, along, name)}",
                f"right = {loaded.format('right', COLUMNS, long, along, name)}",
                f"total = tl.zeros(({ROWS}, {COLUMNS}), {sums})",
            ]
        ),
        finish=f"""
            places = tl.arange(0, {ROWS})[:, None] * {COLUMNS} + tl.arange(0, {COLUMNS})[None, :]
            tl.store(result_ptr + places, total)
        """,
        inputs=[buffer("left", ROWS * long, bits), buffer("right", COLUMNS * long, bits)],
        outputs=[buffer("result", ROWS * COLUMNS, I32 if sums == "tl.int32" else F32)],
        programs=programs,
        warps=8,
    )


# launches, and the whole grid


def counted() -> Kernel:
    """As little as a kernel can do."""
    return kernel_of(
        "counted", "tl.store(result_ptr, tl.load(x_ptr) + 1)", [buffer("x", 1)], [buffer("result", 1)], 1, 1
    )


_AWAITED = """{
.reg .pred done, other; .reg .u32 thread, seen, rounds;
mov.u32 thread, %tid.x; mov.u32 rounds, $3; setp.ne.u32 other, thread, 0;
@other bra LEAVE;
AGAIN: ld.acquire.gpu.global.u32 seen, [$1];
setp.ge.s32 done, seen, $2; @done bra LEAVE;
add.s32 rounds, rounds, -1; setp.gt.s32 done, rounds, 0; @done bra AGAIN;
mov.u32 rounds, 0;
LEAVE: mov.u32 $0, rounds;
}""".replace("\n", " ")


def grid_meetings(programs: int) -> Repeated:
    """All programs meet by a counter, which one thread of each asks for until all have arrived.

    All of them run at once if each has a processor. If they do not, who waits gives up when `ROUNDS_OF_WAITING` are
    over, and does not wait again: the third output says how many rounds each had left. Only the thread that asks may
    use what it finds; the barrier behind it is what lets the others go on.
    """
    return timed(
        "grid_meetings",
        f"""
        tl.debug_barrier()
        tl.atomic_add(counter_ptr, 1, sem="release", scope="gpu")
        goal += {programs}
        left = {assembly(_AWAITED, "=&r,l,r,r", "counter_ptr.to(tl.int64), goal, left", "tl.int32")}
        tl.debug_barrier()
        """,
        MEETINGS,
        1,
        setup=f"""
            goal = program * 0
            left = goal + {ROUNDS_OF_WAITING}
        """,
        finish="tl.store(left_ptr + program, left)",
        inputs=[],
        outputs=[buffer("left", programs, I32), buffer("counter", WARP, I32, is_flag=True)],
        programs=programs,
        warps=4,
    )


@functools.cache
def every_kernel(target: Target) -> dict[str, Kernel]:
    """The small ones, by their names: for those who look at their code."""
    programs = target.processors
    repeated = [
        dependent_sums(), many_sums(programs), independent_sums(), dependent_exponentials(), dependent_shuffles(),
        written_and_read(), *map(meetings, (4, 8)), *map(barriers, (1, 4, 8, 16)), sums_of_lanes(), sums_of_warps(4),
        first_level(), second_level(), loads_from_memory(1 << 26),
        cache_read(1 << 22, programs), cache_read(1 << 22, 1),
        *(products(each, programs) for each in FACTORS), grid_meetings(programs),
    ]  # fmt: skip
    made = [each.kernel for each in repeated] + [copied(1 << 26), read(1 << 26), counted()]
    return {kernel.name: kernel for kernel in made}
