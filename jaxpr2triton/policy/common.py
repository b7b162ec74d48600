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

    # normalize/loops/, autodiff/residuals.py, ir/cheapest.py
    byte_read: int = 4  # price of a byte that is in memory anyway, and is read once more
    byte_stored: int = 9  # … of one that is stored for this alone: written, read, and memory taken
    products_of_a_byte: int = 16  # that are added up in the time in which a byte is read
    side_of_a_matrix: int = 128  # numbers along each side of one that a kernel may have all of
    carried_unnoticed: int = 256  # elements of a contraction that a program carries along without noticing
    of_a_lane: int = 32  # elements of a sum that one lane of a batch may have for its own
    times_carried: int = 4  # a sum may be so many times larger than what the loop carries, reads or writes anyway
    times_stored: int = 4  # … and stacked factors so many times more bytes than that
    terms_of_a_sum: int = 64  # that a loop adds up, each of which may be summed in its own way
    times_spread: int = 8  # elements of a sum, for each number that is stored so that it is taken after its loop
    lanes_apart: int = 1 << 11  # carried numbers that few programs would have, with sums that are better taken after it
    numbers_of_a_program: int = 1 << 15  # … and that any program would have
    worth_carrying: int = 8  # operations that a step has to save for each number that it carries to do so
    worth_ahead: int = 64  # instructions that wait for each other, both of what is made a step ahead and of the rest
    steps_worth_ahead: int = 16  # of a loop that makes something ahead
    times_carried_ahead: int = 4  # … so many times as many numbers as it carries, at most
    worth_a_launch: int = 1 << 14  # factors that a program multiplies in all steps of a loop, one after the other
    steps_added: int = 4096  # floats added one after the other; of more, the sum of all would lose too many digits
    steps_written_out: int = 8  # of a loop in the step of another one, whose count says where they read and write
    equations_written_out: int = 1024  # … of all of these steps
    # autodiff/stretches.py
    rounder_stretches: int = 2  # times the steps of a stretch, or their number, where that divides all steps
    shortest_swept: int = 32  # steps of a loop whose carried values are combined in tiles of them
    lanes_of_steps: int = 1 << 13  # … and lanes at most; more keep all processors busy, each with its own steps
    lanes_of_logarithms: int = 1 << 12  # … and so many of logarithms of sums, which take long to combine
    few_lanes: int = 128  # lanes from which on …
    steps_of_a_tile: int = 128  # … a tile has so many steps at most
    steps_of_few_lanes: int = 1024  # … and of fewer lanes so many
    elements_of_a_tile: int = 4096  # … times the elements that meet in each step
    growth: int = 1 << 24  # product of the coefficients above 1 of a tile, up to which what underflows is rounding
    long_loop: int = 1 << 13  # … or that many steps are long enough for stretches side by side, in three kernels …
    shortest_in_stretches: int = 1 << 10  # … and so many, if with all lanes …
    much_to_do: int = 1 << 22  # … they are that many
    steps_of_a_stretch: int = 2  # how much longer handing over takes than a step of both passes
    programs_of_a_sweep: int = 132  # fewer, as lanes meet in what is put out or summed: that is made after the loop
    coupled: int = 4  # values that read each other, whose coefficients are a matrix
    growth_of_matrices: int = 1 << 6  # the largest element of these, up to which what cancels out is rounding
    worth_parting: int = 24  # instructions that wait for each other, in a step, which affine parts have to take along …
    waits_of_a_kernel: int = 1 << 12  # … and in all steps for each part, which may be one more kernel …
    bytes_of_a_wait: int = 1 << 11  # … and one for so many bytes that are written and read for that
    # normalize/arrays/, normalize/numbers/
    scattered: int = 1 << 26  # elements times updates: each looks through all of these, as long as XLA's launches take
    scattered_in_a_step: int = 1 << 16  # … in one batch, by one program, which else adds up in memory
    # Elements that one program adds up at computed places in a step: a cycle for each, as long as XLA's launches take.
    accumulated_in_a_step: int = 1 << 14
    scattered_once: int = 1 << 16  # the same, where no two are alike
    alike: int = 8  # indices of `x.at[i].apply(f)` that may be alike: it is done once for each
    alike_in_a_loop: int = 1 << 10  # … in a loop, as long as XLA's launches take
    factor_taken_out: int = 1 << 12  # the largest constant, and its inverse the least, that sums are made without
    shortest_scan: int = 8  # elements of an associative scan of which it is found what combines them
    scanned_parts: int = 4  # … and parts of such an element, which are tried in each order
    following_parts: int = 2  # … of one whose derivative is taken as a scan, that follow each other
    known: int = 1 << 14  # elements of an array that is computed while compiling
    runs: int = 8  # evenly spaced pieces of which an array of whole numbers, or what is read at its places, is made
    known_equations: int = 64  # equations, without operands, that are moved into a loop
    groups: int = 64  # of rows, each with a matrix: of so few each program finds by itself which its rows are in
    # rules/
    longest_swept: int = 4096  # elements of an axis that a step of a loop combines one by one
    longest_row: int = 2048  # elements of a row that one program sorts
    # rules/written/
    longest_sum: int = 8  # elements of an axis of a running sum, in which each looks at all others
    longest_sort: int = 8  # … of a sort
    rounds_of_top: int = 8  # maxima of a row that are found one after the other, rather than by a sort
    few_terms: int = 50  # of a convolution, each a product by itself
    few_results: int = 16  # … if no more are made of them
    taps: int = 64  # places of a window that are read one by one
    large_window: int = 1024  # … that a sum along an axis reads, for each window anew
    pairs: int = 1 << 26  # … of all axes: what looks at what
    matrix: int = 16  # rows of a matrix that is decomposed in a kernel
    matrix_in_numbers: int = 4  # … one number at a time
    sweeps: int = 8  # times that each coordinate of a symmetric matrix turns with each other one
    halves: int = 6  # by which a power is a few products of its base, or of the root of that
    # graph/
    short_contraction: int = 8  # terms: a contraction of so few is elementwise work
    held_anyway: int = 64  # elements of a carried dimension that one program has whole, if that saves a buffer
    small_state: int = 16  # coordinates of a state: what is made of each stays beside it
    summed_by_each: int = 1 << 12  # elements of a sum that each program does before its loop begins
    summed_beside: int = 1 << 32  # products of a contraction with sums beside it, which many programs make
    worth_bringing: int = 40  # instructions that wait for each other, of what is not computed again at other lanes
    places_of_a_sum: int = 3  # places at which a sum is done again rather than stored
    places_computed: int = 16  # … anything that is computed
    places_moved: int = 256  # … and what is only found elsewhere, which costs nothing but planning
    times_in_a_step: int = 5  # that a step computes one thing, in registers, as in a stencil of a stencil; if more …
    read_in_a_step: int = 2  # instructions of what is computed again wherever it is wanted: to read it takes as many
    places_in_a_step: int = 2  # … what it wants at more than these is written once: barriers and loads take less


COMMON = Common()
