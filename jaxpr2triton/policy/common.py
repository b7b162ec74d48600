"""The numbers that are the same for all machines; `COMMON` has them.

Read it through the package, `policy.COMMON.carried_unnoticed`, so that a test can put others in its place.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Common:
    """For what is decided before the machine is known, when programs are rewritten and differentiated, and by walks
    through a region, which all have to find the same.
    """

    few: int = 8  # steps, places, terms or pieces that are written one after the other, where more are done together
    one_by_one: int = 64  # … at most: terms, groups, places or equations, each for itself in one kernel
    times: int = 4  # as much that is stored, carried or read anew is worth what it saves, at most
    tile: int = 1 << 12  # elements that one program combines on the way, beside what it is for
    # normalize/loops/, autodiff/residuals.py, ir/cheapest.py
    byte_read: int = 4  # price of a byte that is in memory anyway, and is read once more
    byte_stored: int = 9  # … of one that is stored for this alone: written, read, and memory taken
    products_of_a_byte: int = 16  # that are added up in the time in which a byte is read
    stored_between: int = 1 << 28  # bytes of what a product makes and others read; of more, rows are made in chunks
    side_of_a_matrix: int = 128  # numbers along each side of one that a kernel may have all of
    carried_unnoticed: int = 256  # elements of a contraction that a program carries along without noticing
    of_a_lane: int = 32  # elements of a sum that one lane of a batch may have for its own
    lanes_apart: int = 1 << 11  # carried numbers that few programs would have, with sums that are better taken after it
    numbers_of_a_program: int = 1 << 15  # … and that any program would have
    worth_carrying: int = 8  # operations to be saved by each number that is carried or read to do so
    worth_ahead: int = 64  # instructions that wait for each other: so many are worth doing a step ahead
    steps_worth_ahead: int = 16  # of a loop that makes something ahead
    worth_a_launch: int = 1 << 14  # numbers that a program multiplies or adds up in a loop, one after the other
    steps_added: int = 4096  # floats added one after the other; of more, the sum of all would lose too many digits
    equations_written_out: int = 1024  # of all steps of a loop that is written out
    # autodiff/stretches.py
    rounder_stretches: int = 2  # times the steps of a stretch, or their number, where that divides all steps
    shortest_swept: int = 32  # steps of a loop whose carried values are combined in tiles of them
    lanes_of_steps: int = 1 << 13  # … and lanes at most; more keep all processors busy, each with its own steps
    steps_of_a_tile: int = 128  # … where lanes are as many as that, and of fewer …
    steps_of_few_lanes: int = 1024  # … so many at most
    growth: int = 1 << 24  # product of the coefficients above 1 of a tile, up to which what underflows is rounding
    long_loop: int = 1 << 13  # … or that many steps are long enough for stretches side by side, in three kernels …
    shortest_in_stretches: int = 1 << 10  # … and so many, if with all lanes …
    much_to_do: int = 1 << 22  # … they are that many
    steps_of_a_stretch: int = 2  # how much longer handing over takes than a step of both passes
    coupled: int = 4  # values that read each other: the rows of a matrix that is computed one number at a time
    growth_of_matrices: int = 1 << 6  # the largest element of these, up to which what cancels out is rounding
    worth_parting: int = 24  # instructions that wait for each other, in a step, which affine parts have to take along …
    waits_of_a_kernel: int = 1 << 12  # … and in all steps for each part, which may be one more kernel …
    bytes_of_a_wait: int = 1 << 11  # … and one for so many bytes that are written and read for that
    # normalize/arrays/, normalize/numbers/
    scattered_in_a_step: int = 1 << 16  # elements times updates, by one program, which else adds up in memory
    factor_taken_out: int = 1 << 12  # the largest constant, and its inverse the least, that sums are made without
    following_parts: int = 2  # of an element whose derivative is taken as a scan, that follow each other
    known: int = 1 << 14  # elements of an array that is computed while compiling
    # rules/written/
    looked_through: int = 1024  # places that are looked through one after the other, of a window or by a step of a loop
    pairs: int = 1 << 26  # elements times what looks at each of them: as long as XLA's launches take
    sweeps: int = 8  # times that each coordinate of a symmetric matrix turns with each other one
    halves: int = 6  # by which a power is a few products of its base, or of the root of that
    # graph/
    held_anyway: int = 64  # elements of a carried dimension that one program has whole, if that saves a buffer
    small_state: int = 16  # coordinates of a state, or rows of a matrix that is decomposed, of which a thread has all
    summed_beside: int = 1 << 32  # products of a contraction with sums beside it, which many programs make
    worth_bringing: int = 40  # instructions that wait for each other, of what is not computed again at other lanes
    places_of_a_sum: int = 3  # places at which a sum is done again rather than stored
    places_computed: int = 16  # … anything that is computed
    places_moved: int = 256  # … and what is only found elsewhere, which costs nothing but planning
    times_in_a_step: int = 5  # that a step computes one thing, in registers, as in a stencil of a stencil; if more …
    read_in_a_step: int = 2  # instructions of what is computed again wherever it is wanted: to read it takes as many
    programs_that_meet: int = 8  # of a loop that is spread, at least
    made_again_elsewhere: int = 32  # instructions of what programs make again rather than meet for it once more
    places_in_a_step: int = 2  # … what it wants at more than these is written once: barriers and loads take less


COMMON = Common()
