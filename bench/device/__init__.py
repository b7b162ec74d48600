"""Measures on the device that is here: what is wrong, what is slow and what the models missed (`scripts/device`).

cases        what there is to measure            jobs    in which order, and which ways of each
worker       one process that does jobs          crew    many of them, of which one measures at a time
store        what was measured, in a file        ending, pages    what it says
"""

# What a worker is told in its environment.
REHEARSED = "BENCH_REHEARSED"  # there is no device: it runs on the stand-in driver
COMPUTED = "STANDIN_COMPUTES"  # … which computes kernels, on the CPU
ANSWERS = "BENCH_ANSWERS"  # the number of the file that it answers on

# Exit statuses: 0 is right, 1 wrong.
NOTHING = 2  # can be measured
GONE = 3  # is the device
