"""The last lines of a run, as they are printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.device.ending import ending
from bench.device.side_by_side import Standing
from bench.device.store import Results, Row, Run
from tests.bench_device.made import DEVICE, results, right, standing, time

ENDING = """
NVIDIA H100, 2026-11-27, commit aa3149c: 21 rows measured
1 right, 1 wrong, 1 wrong that is not ours, 3 with an error of which nothing says how large it may be
  gru, forward, ours     loops, small  error 3.0e-02  allowed 1.0e-03  ?
  softmax, forward, jit  rest, small   error nan      allowed 1.0e-03
3 rows could not be measured
  fft, forward, ours   rest   XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory
  sort, forward, ours  rest   CompilerBug: no such axis
  gru, forward, jit    loops  TimeoutError: took more than 60 s
2 of 4 rows slower than the best of jit's variants by more than 3 %
                      family        ours µs  best µs       times  compared  the kernel that takes the time
  swiglu, forward     contractions      587      450  jit   1.30  call      dots 530 µs, 91% of what is busy
  attention, forward  contractions      221      207  jit   1.07  busy
slower than cuDNN attention in 1 of 1: attention, forward (2.07 times)
slower than torch.compile in 1 of 2: attention, forward (1.06 times)
1 of 4 rows that the model missed by more than 1.35
  bound by  rows  mean factor  missed  the worst: modelled / measured µs
  memory       1         1.06       0
  latency      2         1.45       1  gru, forward, ours 60 / 120
  tensor       1         1.04       0
  1 row left out, of which XLA computes a part
1 of 3 numbers of the models off by more than a fifth
          measured      said
  launch       2.2  µs  machines.launch = 3
geometric means
  family        programs  best / ours  jit / ours  measured    twice   best / ours     jit / ours  before
  contractions         2         0.85        0.85  2026-11-27
  loops                1        16.00       40.00  2026-11-27      1  8.00 → 16.00  25.00 → 40.00  2026-11-26
  rest                 1         1.11        1.11  2026-11-26
1 row beside published kernels
                      ours µs  published µs  times  by
  gru, forward, ours      130            40   3.25  cuDNN 9 | its page
10 rows of ours: 1 stale, as today's kernels are others; of 5 that is not known
1 row never measured: lstm, forward, ours
1 program renamed or removed, 1 row kept: removed_scan, forward
"""


def test_all_that_there_is_to_say() -> None:
    lines, status = ending(results(), DEVICE, standing())
    assert "\n".join(lines) == ENDING.strip("\n")
    assert status == 1


def test_a_rehearsal_and_a_run_of_long_ago_say_so() -> None:
    assert ending(results(), "stand-in", standing("c3"))[0][0] == (
        "stand-in, 2026-11-27: 1 row measured; rehearsed on the stand-in driver, whose times mean nothing"
    )
    assert ending(results(), DEVICE, standing(""))[0][0] == f"{DEVICE}: nothing was measured now"


def of(*rows: Row) -> Results:
    found = Results()
    found.add(Run("b2", "2026-11-27T05:00:00Z", DEVICE, "sm_90"))
    for row in rows:
        found.add(row)
    return found


TODAY = Standing({}, frozenset(), "b2")


def test_nothing_at_all() -> None:
    assert ending(Results(), DEVICE, Standing({}, frozenset())) == (
        [
            f"{DEVICE}: nothing was measured now",
            "0 right, 0 wrong",
            "0 rows of ours: 0 stale, as today's kernels are others",
        ],
        0,
    )


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (right("loops", "gru", 1e-4), 0),
        (right("loops", "gru", 0.5), 1),
        (right("loops", "gru", float("nan")), 1),
        (right("loops", "gru", 0.5, way="jit"), 0),
        (right("loops", "gru", problem="CompilerBug: no such axis"), 1),
        (right("loops", "gru", problem="CompilerBug: no such axis", way="torch"), 0),
        (right("loops", "gru", problem="XlaRuntimeError: Out of memory while allocating"), 0),
        (time("b2", "loops", "gru", "all ours", problem="took more than 60 s"), 0),
        (time("b2", "loops", "gru", "all ours", problem="the process ended: signal 11"), 1),
        (Row("b2", "figure", "device", "launch", problem="ValueError: no clock"), 0),
    ],
    ids=lambda each: f"{each.way} {each.error} {each.problem}".strip() if isinstance(each, Row) else None,
)
def test_the_status_is_1_for_mistakes_of_ours(row: Row, status: int) -> None:
    assert ending(of(row), DEVICE, TODAY)[1] == status


def test_what_was_wrong_before_is_forgotten() -> None:
    lines, status = ending(of(right("loops", "gru", 0.5), right("loops", "gru", 1e-5)), DEVICE, TODAY)
    assert (lines[1], status) == ("1 right, 0 wrong", 0)


def test_what_is_no_longer_there_is_counted_only() -> None:
    known = frozenset([right("loops", "lstm").key])
    lines, status = ending(of(right("loops", "gru", 0.5)), DEVICE, replace(TODAY, known=known))
    assert lines[1:] == [
        "0 right, 0 wrong",
        "0 rows of ours: 0 stale, as today's kernels are others",
        "1 row never measured: lstm, forward, ours",
        "1 program renamed or removed, 1 row kept: gru, forward",
    ]
    assert status == 0


def test_short_calls_are_compared_by_what_the_device_does() -> None:
    """The worst ten are named, the best of jit's variants counts, and 3 % are nothing."""
    rows = []
    for n in range(12):
        rows.append(time("b2", "rest", f"short_{n:02}", "jit", 50.0, busy=10.0))
        rows.append(time("b2", "rest", f"short_{n:02}", "ours", 40.0, busy=20.0 + n))
    rows += [
        time("b2", "rest", "long", "jit", 500.0, busy=10.0),
        time("b2", "rest", "long", "jit, unroll 8", 400.0, busy=30.0),
        time("b2", "rest", "long", "ours", 410.0, busy=1.0),
        time("b2", "rest", "unknown", "jit", 50.0),
        time("b2", "rest", "unknown", "ours", 100.0, busy=1.0),
    ]
    lines, _ = ending(of(*rows), DEVICE, TODAY)
    start = next(n for n, line in enumerate(lines) if "slower" in line)
    assert lines[start : start + 13] == SHORT.strip("\n").splitlines()


SHORT = """
13 of 14 rows slower than the best of jit's variants by more than 3 %
                     family  ours µs  best µs       times  compared  the kernel that takes the time
  short_11, forward  rest         31       10  jit   3.10  busy
  short_10, forward  rest         30       10  jit   3.00  busy
  short_09, forward  rest         29       10  jit   2.90  busy
  short_08, forward  rest         28       10  jit   2.80  busy
  short_07, forward  rest         27       10  jit   2.70  busy
  short_06, forward  rest         26       10  jit   2.60  busy
  short_05, forward  rest         25       10  jit   2.50  busy
  short_04, forward  rest         24       10  jit   2.40  busy
  short_03, forward  rest         23       10  jit   2.30  busy
  short_02, forward  rest         22       10  jit   2.20  busy
  and 3 more
"""
