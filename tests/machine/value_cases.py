"""Texts of PTX with what they leave in memory, worked out here lane by lane; none of them has a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.launch.machine.run import Settings
from tests.machine.handwritten import WORDS, Launch, results

LANES = np.arange(32, dtype=np.uint32)
_ONE_WARP = Launch()


@dataclass(frozen=True)
class Value:
    name: str
    body: str
    expected: np.ndarray  # the first elements of the output
    launch: Launch = Launch()
    warps: dict[int, int] | None = None  # how often warps execute the instruction of a line


def _stored(name: str, statements: str, *expected: object, launch: Launch = _ONE_WARP, **more: object) -> Value:
    """Each %rN, from 40 on, is one of the expected rows."""
    rows = [np.broadcast_to(np.asarray(row, np.uint32), 32) for row in expected]
    body = results(statements, [f"%r{40 + k}" for k in range(len(rows))])
    return Value(name, body, np.concatenate(rows), launch, **more)  # type: ignore[arg-type]


# shuffles, as the manual has them


def _source(way: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    clamp, segment = c & 31, c >> 8 & 31
    last, first = (lane & segment) | (clamp & ~segment & 31), lane & segment
    j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": first | (b & ~segment & 31)}[way]
    inside = j >= last if way == "up" else j <= last
    return (j if inside else lane), inside


def shuffles() -> Iterator[Value]:
    settings = {
        "up": [(1, 0), (3, 0x1800), (17, 0), (5, 0x1008)],
        "down": [(1, 31), (3, 0x181F), (17, 31), (2, 0x100B)],
        "bfly": [(1, 31), (16, 31), (9, 31), (8, 0x181F), (4, 0x1C03)],
        "idx": [(0, 31), (7, 31), (37, 31), (5, 0x181F), (30, 0x0B)],
    }
    for way, pairs in settings.items():
        for b, c in pairs:
            at = [_source(way, lane, b, c) for lane in range(32)]
            yield _stored(
                f"shfl.{way} {b} {c:#x}",
                f"""ld.global.b32 %r1, [%its];
                mov.b32 %r40, 99;
                shfl.sync.{way}.b32 %r40|%p1, %r1, {b}, {c}, -1;
                selp.b32 %r41, 1, 0, %p1;""",
                [WORDS[j] for j, _ in at],
                [inside for _, inside in at],
            )
    yield _stored(
        "shfl by each lane's own number",
        """ld.global.b32 %r1, [%its];
        xor.b32 %r2, %tid, 5;
        shfl.sync.idx.b32 %r40, %r1, %r2, 31, -1;
        shfl.sync.down.b32 %r1, %r1, 2, 31, -1;
        mov.b32 %r41, %r1;""",
        WORDS[LANES ^ 5],
        WORDS[np.where(LANES < 30, LANES + 2, LANES)],
    )
    yield _stored(
        "shfl of half of the lanes",
        """setp.lt.u32 %p1, %tid, 16;
        mov.b32 %r40, 7;
        setp.eq.b32 %p2, %r40, 7;
        @%p1 shfl.sync.bfly.b32 %r40|%p2, %tid, 1, 7, -1;
        selp.b32 %r41, 1, 0, %p2;""",
        np.where(LANES < 8, LANES ^ 1, np.where(LANES < 16, LANES, 7)),
        (LANES < 8) | (LANES >= 16),
    )


# redux, vote


def reductions() -> Iterator[Value]:
    words = WORDS[:32] * 4294967 ^ (LANES << 27)
    signed = words.view(np.int32)
    load = "ld.global.b32 %r1, [%its];\nredux.sync.{} %r40, %r1, -1;"
    launch = Launch(x=words)
    expected: dict[str, object] = {
        "add.s32": words.sum(dtype=np.uint32),
        "add.u32": words.sum(dtype=np.uint32),
        "min.s32": signed.min().view(np.uint32),
        "max.s32": signed.max().view(np.uint32),
        "min.u32": words.min(),
        "max.u32": words.max(),
        "and.b32": np.bitwise_and.reduce(words | 1),
        "or.b32": np.bitwise_or.reduce(words >> 20),
        "xor.b32": np.bitwise_xor.reduce(words),
    }
    before = {"and.b32": "or.b32 %r1, %r1, 1;\n", "or.b32": "shr.u32 %r1, %r1, 20;\n"}
    for word, one in expected.items():
        text = load.format(word).replace("redux", before.get(word, "") + "redux")
        yield _stored(f"redux {word}", text, one, launch=launch)
    yield _stored(
        "redux of some lanes",
        "setp.gt.u32 %p1, %tid, 19;\nmov.b32 %r40, 5;\n@%p1 redux.sync.add.s32 %r40, %tid, -1;",
        np.where(LANES > 19, LANES[20:].sum(), 5),
    )
    votes = """setp.{} %p1, %tid, {};
    setp.eq.u32 %p6, %tid, 99;
    vote.sync.ballot.b32 %r40, %p1, -1;
    vote.sync.all.pred %p2, %p1, -1;
    vote.sync.any.pred %p3, %p1, -1;
    vote.sync.uni.pred %p4, %p1, -1;
    vote.sync.ballot.b32 %r44, !%p1, -1;
    vote.sync.any.pred %p5, !%p1, -1;
    selp.b32 %r41, 1, 0, %p2;
    selp.b32 %r42, 1, 0, %p3;
    selp.b32 %r43, 1, 0, %p4;
    selp.b32 %r45, 1, 0, %p5;"""
    for word, bound, ballot in (("lt.u32", 5, 31), ("lt.u32", 32, 2**32 - 1), ("gt.u32", 40, 0), ("eq.u32", 31, 2**31)):
        every, some = ballot == 2**32 - 1, ballot != 0
        rows = (ballot, every, some, every or not some, 2**32 - 1 - ballot, not every)
        yield _stored(f"votes {word} {bound}", votes.format(word, bound), *rows)


# matrices: element (r, 2 c) and (r, 2 c + 1) of each are in lane 4 r + c


def matrices() -> Iterator[Value]:
    words = np.arange(128, dtype=np.uint32) * 2654435761
    halves = words.view(np.uint16).reshape(4, 8, 8)
    launch = Launch(x=words)
    # lane l names row 31 - l of all rows, so that the matrices come in another order
    fill = """ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%q1];
    shl.b32 %r10, %tid, 4;
    add.s32 %r10, %r10, %base;
    st.shared.v4.b32 [%r10], {%r1, %r2, %r3, %r4};
    bar.sync 0;
    xor.b32 %r11, %tid, 9;
    shl.b32 %r11, %r11, 4;
    add.s32 %r11, %r11, %base;
    """
    place = "mul.wide.u32 %q1, %tid, 16;\nadd.s64 %q1, %q1, %in;\n"
    rows = halves.reshape(32, 8)[np.arange(32) ^ 9].reshape(4, 8, 8)
    for count in (1, 2, 4):
        names = ", ".join(f"%r{40 + k}" for k in range(count))
        for trans in ("", ".trans"):
            seen = [(matrix.T if trans else matrix).copy().view(np.uint32).reshape(32) for matrix in rows[:count]]
            text = f"{place}{fill}ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%r11];"
            yield _stored(f"ldmatrix x{count}{trans}", text, *seen, launch=launch)
            values = ", ".join(f"%r{20 + k}" for k in range(count))
            text = "\n".join(
                [
                    *(f"ld.global.b32 %r{20 + k}, [%its+{128 * k}];\nmov.b32 %r{40 + k}, 0;" for k in range(count)),
                    "xor.b32 %r11, %tid, 9;\nshl.b32 %r11, %r11, 4;\nadd.s32 %r11, %r11, %base;",
                    *(f"st.shared.b32 [%sh+{128 * k}], 0;" for k in range(4)),
                    "bar.sync 0;",
                    f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r11], {{{values}}};",
                    "bar.sync 0;",
                    *(f"ld.shared.b32 %r{40 + k}, [%sh+{128 * k}];" for k in range(4)),
                ]
            )
            memory = np.zeros((32, 8), np.uint16)
            for k in range(count):
                matrix = halves[k].reshape(8, 8)
                for r in range(8):
                    memory[(8 * k + r) ^ 9] = matrix.T[r] if trans else matrix[r]
            yield _stored(f"stmatrix x{count}{trans}", text, *memory.view(np.uint32).reshape(4, 32), launch=launch)


# atomics: lanes one after the other


def atomics() -> Iterator[Value]:
    steps: dict[str, Callable[[int, int], int]] = {
        "add.u32": lambda old, x: old + x,
        "min.u32": min,
        "max.u32": max,
        "min.s32": lambda old, x: min((old, x), key=lambda v: (v + 2**31) % 2**32),
        "max.s32": lambda old, x: max((old, x), key=lambda v: (v + 2**31) % 2**32),
        "and.b32": lambda old, x: old & x,
        "or.b32": lambda old, x: old | x,
        "xor.b32": lambda old, x: old ^ x,
        "exch.b32": lambda old, x: x,
        "inc.u32": lambda old, x: 0 if old >= x else old + 1,
        "dec.u32": lambda old, x: x if old == 0 or old > x else old - 1,
    }
    words = (WORDS[:32] * 7654321 + (LANES % 3 << 30)).astype(np.uint32)
    for word, step in steps.items():
        counts = word in ("inc.u32", "dec.u32")
        given = words % 7 + 2 if counts else words
        old, seen = (3 if counts else 1 << 29), []
        for x in given.tolist():
            seen.append(old)
            old = step(old, x) % 2**32
        for space, place in (("shared", "%base"), ("global", "%q5")):
            text = f"""add.s64 %q5, %out, 512;
            ld.global.b32 %r1, [%its];
            st.{space}.b32 [{place}], {3 if counts else 1 << 29};
            bar.sync 0;
            atom.{space}.{word} %r40, [{place}], %r1;
            bar.sync 0;
            ld.{space}.b32 %r41, [{place}];"""
            yield _stored(f"atom.{space}.{word}", text, seen, old, launch=Launch(x=given))
    yield _stored(
        "atom.cas",
        """st.shared.b32 [%base], 5;
        bar.sync 0;
        add.s32 %r1, %tid, 100;
        shr.u32 %r2, %tid, 1;
        add.s32 %r2, %r2, 1;
        atom.shared.cas.b32 %r40, [%base], %r2, %r1;
        red.shared.add.u32 [%base+4], 0;
        bar.sync 0;
        ld.shared.b32 %r41, [%base];""".replace("red.shared.add.u32 [%base+4], 0;", "st.shared.b32 [%base+8], 5;"),
        np.where(LANES < 9, 5, 108),
        108,
    )
    yield _stored(
        "red.add of numbers with 64 bits, and guarded",
        """mov.b64 %q1, 4294967295;
        st.shared.b64 [%base+8], %q1;
        bar.sync 0;
        cvt.u64.u32 %q2, %tid;
        setp.lt.u32 %p1, %tid, 9;
        @%p1 red.shared.add.u64 [%base+8], %q2;
        @!%p1 red.shared.max.u64 [%base+8], %q2;
        bar.sync 0;
        ld.shared.v2.b32 {%r40, %r41}, [%base+8];""",
        35,
        1,
    )
    reals = (LANES / 7).astype(np.float32)
    total = np.float32(0.5)
    for x in reals:
        total = np.float32(total + x)
    yield _stored(
        "atom.add.f32",
        """ld.global.b32 %r1, [%its];
        st.shared.b32 [%base], 0f3F000000;
        bar.sync 0;
        red.shared.add.f32 [%base], %r1;
        bar.sync 0;
        ld.shared.b32 %r40, [%base];""",
        np.float32(total).view(np.uint32),
        launch=Launch(x=reals),
    )
    yield Value(
        "atom.add.f64",
        """cvt.rn.f64.u32 %q1, %tid;
        mov.b64 %q2, 0d3FB999999999999A;
        mul.rn.f64 %q1, %q1, %q2;
        st.global.b64 [%out], %q2;
        bar.sync 0;
        red.global.add.f64 [%out], %q1;""",
        np.add.accumulate(np.concatenate([[0.1], LANES * 0.1]))[-1:],
        Launch(granule=8),
    )


# loads, stores, parameters


def moves() -> Iterator[Value]:
    x = (np.arange(256) * 89 + 3).astype(np.uint8)
    launch = Launch(x=x)
    for kind in ("s8", "u8", "s16", "u16", "b8", "b16"):
        dtype = np.dtype(kind.replace("b", "u").replace("s", "int").replace("u", "uint"))
        narrow = f"add.s64 %q1, %in, %q2;\nld.global.{kind} %h1, [%q1];\n"
        widened = x.view(dtype)[:32].astype(np.int16 if dtype.itemsize == 1 and kind[0] == "s" else np.uint16)
        scale = f"mul.wide.u32 %q2, %tid, {dtype.itemsize};\n"
        if kind[0] == "s":
            expected = x.view(dtype)[:32].astype(np.int32)
            text = f"{scale}{narrow}cvt.s32.s16 %r40, %h1;\nld.global.{kind} %r41, [%q1];"
            yield _stored(f"ld.{kind}", text, expected.view(np.uint32), expected.view(np.uint32), launch=launch)
        else:
            text = f"{scale}{narrow}cvt.u32.u16 %r40, %h1;\nld.global.{kind} %r41, [%q1];"
            yield _stored(f"ld.{kind}", text, widened, x.view(dtype)[:32], launch=launch)
    yield Value(
        "stores of bytes and halves",
        """cvt.u64.u32 %q1, %tid;
        add.s64 %q2, %out, %q1;
        add.s64 %q3, %q2, %q1;
        cvt.u16.u32 %h1, %tid;
        add.s16 %h2, %h1, 300;
        st.global.b8 [%q2], %h2;
        st.global.b16 [%q3+32], %h2;""",
        np.concatenate([(LANES + 300).astype(np.uint8), (LANES + 300).astype(np.uint16).view(np.uint8)]),
        Launch(granule=1),
    )
    words = np.arange(256, dtype=np.uint32) + 7
    yield _stored(
        "vectors",
        """mul.wide.u32 %q1, %tid, 16;
        add.s64 %q1, %q1, %in;
        ld.global.v4.b32 {%r1, %r40, %r3, %r4}, [%q1];
        ld.global.v2.b64 {%q3, %q4}, [%q1];
        mov.b64 {%r6, %r41}, %q4;
        shl.b32 %r5, %tid, 4;
        add.s32 %r5, %r5, %base;
        st.shared.v4.b32 [%r5], {%r4, %r3, %r40, %r1};
        ld.shared.v2.b32 {%r42, %r43}, [%r5+8];
        ld.shared.v4.b16 {%h1, %h2, %h3, %h4}, [%r5];
        cvt.u32.u16 %r44, %h3;
        cvt.u32.u16 %r45, %h4;""",
        words[1::4][:32],
        words[3::4][:32],
        words[1::4][:32],
        words[0::4][:32],
        words[2::4][:32],
        0,
        launch=Launch(x=words, out=2048),
    )
    yield _stored(
        "each lane's own local memory",
        """.local .align 8 .b8 depot[16];
        mov.b64 %q1, depot;
        cvta.local.u64 %q2, %q1;
        st.b32 [%q2+4], %tid;
        st.local.b32 [%q1+12], 7;
        ld.local.b32 %r40, [%q1+4];
        ld.local.b32 %r41, [%q1+12];""",
        LANES,
        7,
    )
    yield _stored(
        "any memory through one kind of address",
        """.local .align 4 .b8 depot[8];
        mov.b64 %q1, depot;
        cvta.local.u64 %q1, %q1;
        cvt.u64.u32 %q2, %sh;
        cvta.shared.u64 %q2, %q2;
        cvta.global.u64 %q3, %mine;
        add.s32 %r1, %tid, 100;
        add.s32 %r2, %tid, 200;
        st.b32 [%q1], %r1;
        st.b32 [%q2], %r2;
        st.b32 [%q3+256], %tid;
        ld.b32 %r40, [%q1];
        ld.b32 %r41, [%q2];
        ld.b32 %r42, [%q3+256];
        ld.shared.b32 %r43, [%sh];""",
        LANES + 100,
        LANES + 200,
        LANES,
        LANES + 200,
    )
    copies = """shl.b32 %r1, %tid, 4;
    add.s32 %r1, %r1, %base;
    mul.wide.u32 %q1, %tid, 16;
    add.s64 %q1, %q1, %in;
    setp.lt.u32 %p1, %tid, 20;
    mov.b32 %r2, SIZE;
    cp.async.cg.shared.global [%r1], [%q1], 16;
    cp.async.wait_all;
    cp.async.ca.shared.global [%r1+8], [%q1], 8, %r2;
    cp.async.commit_group;
    @%p1 cp.async.ca.shared.global [%r1], [%q1+12], 4;
    cp.async.commit_group;
    cp.async.wait_group 0;
    ld.shared.v4.b32 {%r40, %r41, %r42, %r43}, [%r1];"""
    table = words[:128].reshape(32, 4)
    for size in (0, 4, 8):
        rows = [np.where(LANES < 20, table[:, 3], table[:, 0]), table[:, 1]]
        rows += [table[:, 0] if size >= 4 else 0 * LANES, table[:, 1] if size >= 8 else 0 * LANES]
        yield _stored(f"cp.async of {size} bytes", copies.replace("SIZE", str(size)), *rows, launch=Launch(x=words))
    yield _stored(
        "a table, and negative offsets",
        """and.b32 %r1, %tid, 3;
        mul.wide.u32 %q1, %r1, 4;
        mov.b64 %q2, table;
        add.s64 %q1, %q1, %q2;
        ld.global.nc.b32 %r40, [%q1];
        ld.global.b32 %r41, [%its+-0];
        add.s64 %q3, %its, 8;
        ld.global.b32 %r42, [%q3+-4];""",
        np.array([5, 2**32 - 6, 7, 8], np.uint32)[LANES % 4],
        WORDS[:32],
        WORDS[1:33],
    )


# lanes that go apart


def divergence() -> Iterator[Value]:
    yield _stored(
        "nested branches",
        """mov.b32 %r40, 0;
        mov.b32 %r41, 0;
        setp.lt.u32 %p1, %tid, 20;
        @!%p1 bra ELSE;
        and.b32 %r1, %tid, 1;
        setp.eq.b32 %p2, %r1, 0;
        @%p2 bra EVEN;
        add.s32 %r40, %r40, 1;
        bra INNER;
        EVEN:
        add.s32 %r40, %r40, 2;
        INNER:
        add.s32 %r40, %r40, 10;
        bra END;
        ELSE:
        add.s32 %r40, %r40, 100;
        END:
        redux.sync.add.s32 %r41, %r40, -1;""",
        np.where(LANES < 20, 12 - LANES % 2, 100),
        sum(12 - lane % 2 if lane < 20 else 100 for lane in range(32)),
        warps={8: 1, 11: 1, 13: 1, 16: 1, 18: 1},
    )
    yield _stored(
        "loops that lanes leave apart",
        """mov.b32 %r40, 0;
        mov.b32 %r41, 0;
        and.b32 %r1, %tid, 7;
        OUTER:
        mov.b32 %r2, 0;
        INNER:
        add.s32 %r41, %r41, %r2;
        add.s32 %r2, %r2, 1;
        setp.le.u32 %p1, %r2, %r40;
        @%p1 bra INNER;
        add.s32 %r40, %r40, 1;
        setp.le.u32 %p2, %r40, %r1;
        @%p2 bra OUTER;
        shfl.sync.bfly.b32 %r42, %r41, 1, 31, -1;""",
        LANES % 8 + 1,
        [sum(sum(range(k + 1)) for k in range(lane % 8 + 1)) for lane in range(32)],
        [sum(sum(range(k + 1)) for k in range((lane ^ 1) % 8 + 1)) for lane in range(32)],
        warps={5: 8, 7: 36, 11: 8, 14: 1},
    )
    yield _stored(
        "guards",
        """setp.lt.u32 %p1, %tid, 10;
        setp.gt.u32 %p2, %tid, 50;
        mov.b32 %r40, 1;
        mov.b32 %r41, 1;
        mov.b64 %q5, 4;
        @%p1 mov.b32 %r40, 2;
        @!%p1 add.s32 %r41, %r41, %tid;
        @%p2 mov.b32 %r41, 0;
        @%p1 ld.global.b32 %r40, [%its];
        @%p1 mov.b64 %q5, 9;
        cvt.u32.u64 %r42, %q5;
        mov.b16 %h1, 3;
        @!%p1 mov.b16 %h1, 8;
        cvt.u32.u16 %r43, %h1;""",
        np.where(LANES < 10, WORDS[:32], 1),
        np.where(LANES < 10, 1, LANES + 1),
        np.where(LANES < 10, 9, 4),
        np.where(LANES < 10, 3, 8),
    )
    yield Value(
        "lanes that end",
        """st.global.b32 [%mine], 1;
        setp.lt.u32 %p1, %tid, 10;
        mov.b32 %r2, 0;
        add.s32 %r2, %r2, 1;
        @%p1 ret;
        vote.sync.ballot.b32 %r1, %p1, -1;
        add.s32 %r1, %r1, %r2;
        add.s32 %r1, %r1, %tid;
        bar.sync 0;
        st.global.b32 [%mine], %r1;""",
        np.where(LANES < 10, 1, LANES + 1),
        warps={10: 1},
    )
    yield Value(
        "some of the lanes of a branch end",
        """st.global.b32 [%mine], 1;
        mov.b32 %r1, 5;
        setp.lt.u32 %p1, %tid, 20;
        @!%p1 bra MEET;
        setp.lt.u32 %p2, %tid, 10;
        add.s32 %r1, %r1, %tid;
        @%p2 ret;
        add.s32 %r1, %r1, 1;
        MEET:
        add.s32 %r1, %r1, 1;
        bar.sync 0;
        st.global.b32 [%mine], %r1;""",
        np.where(LANES < 10, 1, np.where(LANES < 20, LANES + 7, 6)),
        warps={8: 1, 10: 1, 12: 1},
    )
    yield _stored(
        "lanes of a branch go one way at a line of the source",
        """mov.b32 %r40, 0;
        setp.lt.u32 %p1, %tid, 20;
        setp.lt.u32 %p2, %tid, 25;
        @!%p1 bra MEET;
        @%p2 bra INNER;
        add.s32 %r40, %r40, 1;
        INNER:
        add.s32 %r40, %r40, 2;
        MEET:""",
        np.where(LANES < 20, 2, 0),
        launch=Launch(control=(5,)),
    )
    yield _stored(
        "a way through a branch that is written behind the end",
        """mov.b32 %r40, 0;
        setp.lt.u32 %p1, %tid, 20;
        @%p1 bra FAR;
        add.s32 %r40, %r40, 1;
        MEET:
        add.s32 %r40, %r40, 10;
        bra END;
        FAR:
        add.s32 %r40, %r40, 2;
        bra MEET;
        END:""",
        np.where(LANES < 20, 12, 11),
        warps={4: 1, 6: 1, 9: 1},
    )
    yield Value(
        "lanes that end behind others",
        """st.global.b32 [%mine], 1;
        setp.lt.u32 %p1, %tid, 10;
        @%p1 bra FAR;
        st.global.b32 [%mine], 2;
        bra END;
        FAR:
        ret;
        END:
        st.global.b32 [%mine+128], 3;""",
        np.concatenate([np.where(LANES < 10, 1, 2), np.where(LANES < 10, 0xEEEEEEEE, 3)]).astype(np.uint32),
        warps={7: 1, 9: 1},
    )
    yield _stored(
        "carries of lanes that went apart",
        """mov.b32 %r1, -1;
        setp.lt.u32 %p1, %tid, 10;
        add.cc.u32 %r2, %r1, %tid;
        @%p1 add.cc.u32 %r2, %r1, 0;
        addc.u32 %r40, 0, 0;""",
        np.where(LANES < 10, 0, 1),
    )


# programs and threads


def places() -> Iterator[Value]:
    threads, grid = (5, 4, 3), (2, 4, 2)  # so that two wrong ways to count a row are no way to count all of them
    body = """mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ctaid.y;
    mov.u32 %r3, %ctaid.z;
    mov.u32 %r4, %nctaid.x;
    mov.u32 %r5, %nctaid.y;
    mov.u32 %r6, %tid.y;
    mov.u32 %r7, %tid.z;
    mov.u32 %r8, %ntid.x;
    mov.u32 %r9, %ntid.y;
    mad.lo.s32 %r10, %r3, %r5, %r2;
    mad.lo.s32 %r10, %r10, %r4, %r1;
    mad.lo.s32 %r11, %r7, %r9, %r6;
    mad.lo.s32 %r11, %r11, %r8, %tid;
    mov.u32 %r12, %ntid.z;
    mul.lo.s32 %r12, %r12, %r9;
    mul.lo.s32 %r12, %r12, %r8;
    mad.lo.s32 %r13, %r10, %r12, %r11;
    mul.wide.u32 %q1, %r13, 4;
    add.s64 %q1, %q1, %out;
    mov.u32 %r14, %laneid;
    mov.u32 %r15, %warpid;
    mad.lo.s32 %r16, %r15, 32, %r14;
    mov.u32 %r17, %nctaid.z;
    mad.lo.s32 %r16, %r17, 1000, %r16;
    st.global.b32 [%q1], %r16;"""
    threads_of = np.arange(60) + 2000
    launch = Launch(threads=threads, grid=grid, out=60 * 16 * 4)
    yield Value("places of threads and programs", body, np.tile(threads_of, 16).astype(np.uint32), launch)
    some = np.full(60 * 16, 0xEEEEEEEE, np.uint32).reshape(16, 60)
    some[2:20:4] = threads_of
    launch = Launch(threads=threads, grid=grid, out=60 * 16 * 4, settings=Settings(programs=range(2, 20, 4)))
    yield Value("some programs", body, some.reshape(-1), launch)
    yield Value(
        "warps that write for each other",
        """st.shared.b32 [%sh], %tid;
        bar.sync 0;
        xor.b32 %r1, %tid, 97;
        shl.b32 %r1, %r1, 2;
        add.s32 %r1, %r1, %base;
        ld.shared.b32 %r2, [%r1];
        bar.sync 0;
        st.shared.b32 [%r1], %tid;
        bar.sync 0;
        ld.shared.b32 %r3, [%sh];
        add.s32 %r2, %r2, %r3;
        st.global.b32 [%mine], %r2;""",
        ((np.arange(128) ^ 97) * 2).astype(np.uint32),
        Launch(threads=(128, 1, 1)),
    )
    yield Value(
        "warps that wait for each other without a barrier, in turns",
        """st.shared.b32 [%base], 0;
        bar.sync 0;
        shr.u32 %r1, %tid, 5;
        mov.b32 %r2, 0;
        WAIT:
        atom.shared.or.b32 %r3, [%base], 0;
        shfl.sync.idx.b32 %r3, %r3, 0, 31, -1;
        and.b32 %r4, %r3, 1;
        setp.ne.b32 %p1, %r4, %r1;
        @%p1 bra WAIT;
        and.b32 %r5, %tid, 31;
        setp.eq.b32 %p2, %r5, 0;
        add.s32 %r2, %r2, 1;
        @%p2 red.shared.add.u32 [%base], 1;
        setp.lt.u32 %p3, %r2, 4;
        @%p3 bra WAIT;
        st.global.b32 [%mine], %r3;""",
        np.where(np.arange(64) < 32, 6, 7).astype(np.uint32),
        Launch(threads=(64, 1, 1), settings=Settings(quantum=20, budget=5000)),
    )
    yield Value(
        "a warp goes on until a barrier",
        """st.shared.b32 [%base], 0;
        bar.sync 0;
        atom.shared.add.u32 %r1, [%base], 1;
        mov.b32 %r2, 0;
        ROUND:
        atom.shared.add.u32 %r3, [%base], 1;
        add.s32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, 9;
        @%p1 bra ROUND;
        sub.s32 %r3, %r3, %r1;
        st.global.b32 [%mine], %r3;""",
        np.full(64, 9 * 32, np.uint32),
        Launch(threads=(64, 1, 1)),
    )
    yield Value(
        "some of the last warp's lanes",
        """setp.ge.u32 %p1, %tid, 0;
        vote.sync.ballot.b32 %r1, %p1, -1;
        vote.sync.all.pred %p2, %p1, -1;
        vote.sync.uni.pred %p3, %p1, -1;
        @%p2 sub.s32 %r1, %r1, 1;
        @%p3 sub.s32 %r1, %r1, 1;
        st.global.b32 [%mine], %r1;""",
        np.where(np.arange(45) < 32, 2**32 - 3, 2**13 - 3).astype(np.uint32),
        Launch(threads=(45, 1, 1)),
    )
    yield _stored(
        "the same value from many lanes and warps",
        """st.shared.b32 [%base], 5;
        bar.sync 0;
        ld.shared.b32 %r40, [%base];
        bar.sync 0;
        st.shared.b32 [%base], 5;""",
        5,
        launch=Launch(threads=(32, 1, 1)),
    )
    yield Value(
        "warps that store what is there already",
        """st.shared.b32 [%base], 5;
        bar.sync 0;
        ld.shared.b32 %r1, [%base];
        bar.sync 0;
        st.shared.b32 [%base], 5;
        st.global.b32 [%mine], %r1;""",
        np.full(64, 5, np.uint32),
        Launch(threads=(64, 1, 1)),
    )


VALUES = [
    value for family in (shuffles, reductions, matrices, atomics, moves, divergence, places) for value in family()
]
