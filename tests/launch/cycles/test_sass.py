"""Instructions, and the schedule in them."""

from __future__ import annotations

from jaxpr2triton.launch.cycles.sass import instructions
from tests.launch.cycles.written import code_of, line

# as cuobjdump prints it
PRINTED = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;                                   /* 0x00000a00ff017b82 */
                                                                                            /* 0x000e220000000800 */
        /*00c0*/                   IMAD.WIDE R4, R2, 0x4, R4 ;                              /* 0x0000000402047825 */
                                                                                            /* 0x004fcc00078e0204 */
        /*00f0*/              @!P0 LDG.E.128 R0, desc[UR6][R4.64] ;                         /* 0x0000000604007981 */
                                                                                            /* 0x0000e2000c1e1900 */
        /*01b0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;                            /* 0x0000000000007b1d */
                                                                                            /* 0x000fec0000010000 */
        /*1c00*/                   BRA 0x1c00;                                              /* 0xfffffffc00fc7947 */
                                                                                            /* 0x000fc0000383ffff */
"""


def test_what_cuobjdump_prints() -> None:
    constant, product, load, barrier, end = instructions(PRINTED)
    assert (constant.kind, constant.stall, constant.sets, constant.reads, constant.waits) == ("LDC", 1, 0, None, ())
    assert (product.name, product.stall, product.sets, product.waits) == ("IMAD.WIDE", 6, None, (2,))
    assert (load.guard, load.kind, load.stall, load.sets, load.reads, load.width) == ("!P0", "LDG", 1, 3, 0, 16)
    assert (barrier.kind, barrier.stall, barrier.waits) == ("BAR", 6, ())
    assert (end.target, end.falls_through) == (0x1C00, False)


def test_every_field_of_the_schedule() -> None:
    (each,) = code_of(line("MUFU.EX2 R1, R2", stall=13, sets=5, reads=4, waits=(0, 3, 5)))
    assert (each.stall, each.sets, each.reads, each.waits) == (13, 5, 4, (0, 3, 5))


def test_words_without_a_schedule_wait_for_nothing() -> None:
    (each,) = instructions("  /*0000*/   FADD R2, R2, R3.reuse ;      /* 0x00 */")
    assert (each.stall, each.sets, each.reads, each.waits) == (0, None, None, ())
