"""Pages that are made of results, and the picture among them."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

from bench.device.pages import pages
from bench.device.plot import Point, scatter
from bench.device.store import Results, Row, Run
from tests.bench_device.made import MODELS, ROWS, results, standing

SVG = "{http://www.w3.org/2000/svg}"


def test_a_page_for_each_family_that_has_rows() -> None:
    assert list(pages(results(), standing())) == [
        "measured-contractions.md",
        "measured-loops.md",
        "measured-rest.md",
        "measured-figures.md",
        "measured-right.md",
        "model-error.md",
        "model-error.svg",
    ]
    assert pages(Results(), standing()) == {}


LOOPS = """
# Measured: loops

NVIDIA H100: of 1 program ours is quicker than the best of jit's variants in 1, slower in 0, and within 3 % in 0; the geometric mean of best / ours is 16.00. 2 have nothing to be compared with.

One call among many, in microseconds. `best` is the quickest of jit's variants. `best / ours` compares how
long the device was busy, where both calls are shorter than 300 µs and that is known, and the calls otherwise.
`all ours` is `contractions="triton"`. Errors are relative, against `jax.jit` at the highest precision. `left` counts
equations that stay with XLA. Of a row that is `stale` today's kernels are others; `?`: that is not known.

To make this page again: `scripts/device --pages`, which needs no device; `scripts/device` measures.

## NVIDIA H100

- 2026-11-26; commit 5c543a2; jax 0.11.2, triton 3.6.0; 1 row; from measured-loops.md
- 2026-11-27; commit aa3149c; jax 0.11.2, triton 3.6.0; 5 rows

| program | pass | best µs | which | jit µs | ours µs | best / ours | by | busy µs: best, ours, all | launches: best, ours, all | errors: jit, ours, all | left | published µs | measured | stale |
| --- | --- | ---: | --- | ---: | ---: | ---: | --- | --- | --- | --- | ---: | --- | --- | --- |
| gru | forward | - | - | - | 130 | - | - | -, 120, - | -, -, - | -, -, - | - | 40, cuDNN 9 / its page | 2026-11-27 aa3149c |  |
| removed_scan | forward | - | - | - | 20 | - | - | -, -, - | -, -, - | -, -, - | - | - | 2026-11-26 5c543a2 | removed |
| rnn | forward | 1,600 | jit, graphs | 4,000 | 100 | 16.00 | call | -, 94, - | 512, 2, - | -, 2e-07, - | 0 | - | 2026-11-27 aa3149c | stale |

Not measured:

- gru, forward, jit: TimeoutError: took more than 60 s
"""  # noqa: E501  # a row of a table is one line


def test_a_whole_page() -> None:
    assert pages(results(), standing())["measured-loops.md"] == LOOPS.lstrip("\n")


CONTRACTIONS = """
## NVIDIA H100

- 2026-11-27; commit aa3149c; jax 0.11.2, triton 3.6.0; 8 rows

| program | pass | best µs | which | jit µs | ours µs | best / ours | by | all ours µs | cuDNN attention µs | torch.compile µs | busy µs: best, ours, all | launches: best, ours, all | left | measured | stale |
| --- | --- | ---: | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | --- | --- | ---: | --- | --- |
| attention | forward | 212 | jit | 212 | 228 | 0.94 | busy | - | 110 | 215 | 207, 221, - | -, -, - | - | 2026-11-27 aa3149c | ? |
| swiglu | forward | 450 | jit | 450 | 587 | 0.77 | call | 1,354 | - | 1,230 | 446, 580, 1,350 | 9, -, - | 6 | 2026-11-27 aa3149c |  |
"""  # noqa: E501  # a row of a table is one line


def test_ways_that_are_not_of_jit_have_a_column() -> None:
    assert of_the_device("measured-contractions.md") == CONTRACTIONS.lstrip("\n")


FIGURES = """
## NVIDIA H100

- 2026-11-27; commit aa3149c; jax 0.11.2, triton 3.6.0; 3 rows

| figure | measured | unit | least to largest | said | measured / said | off | when |
| --- | ---: | --- | --- | --- | --- | --- | --- |
| bytes | 2,950 | GB/s | 2,900 to 3,000 | target.memory_rate = 3,000 | 0.98 |  | 2026-11-27 aa3149c |
| launch | 2.2 | µs | 2 to 2.6 | machines.launch = 3, cycles.launch = 2.3 | 0.73, 0.96 | off | 2026-11-27 aa3149c |
| shuffle | 23 | cycles | 23 to 23 | - | - |  | 2026-11-27 aa3149c |
"""


def test_figures() -> None:
    assert of_the_device("measured-figures.md") == FIGURES.lstrip("\n")


RIGHT = """
## NVIDIA H100

- 2026-11-27; commit aa3149c; jax 0.11.2, triton 3.6.0; 5 rows

| family | right | wrong | not measured | the worst | error | allowed |
| --- | ---: | ---: | ---: | --- | --- | --- |
| loops | 1 | 1 | 0 | gru, forward, ours | 3.0e-02 | 1.0e-03 |
| rest | 0 | 1 | 2 | softmax, forward, jit | nan | 1.0e-03 |

Wrong:

| program | error | allowed | measured | stale |
| --- | --- | --- | --- | --- |
| gru, forward, ours | 3.0e-02 | 1.0e-03 | 2026-11-27 aa3149c | ? |
| softmax, forward, jit | nan | 1.0e-03 | 2026-11-27 aa3149c |  |

Not measured:

- fft, forward, ours: XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory
- sort, forward, ours: CompilerBug: no such axis
"""


def test_what_is_right() -> None:
    assert of_the_device("measured-right.md") == RIGHT.lstrip("\n")


ERRORS = """
## NVIDIA H100

- 2026-11-26; commit 5c543a2; jax 0.11.2, triton 3.6.0; 1 row; from measured-loops.md
- 2026-11-27; commit aa3149c; jax 0.11.2, triton 3.6.0; 3 rows

| bound by | programs | mean factor | beyond 1.35 | modelled too long | the worst |
| --- | ---: | ---: | ---: | ---: | --- |
| memory | 1 | 1.06 | 0 | 0 | softmax, forward, ours: 1.06 |
| latency | 2 | 1.45 | 1 | 0 | gru, forward, ours: 0.50 |
| tensor | 1 | 1.04 | 0 | 0 | swiglu, forward, all ours: 1.04 |

By more than 1.35:

| program | bound by | modelled µs | measured µs | modelled / measured | which | measured |
| --- | --- | ---: | ---: | ---: | --- | --- |
| gru, forward, ours | latency | 60 | 120 | 0.50 | busy | 2026-11-27 aa3149c |
"""


def test_what_the_model_missed() -> None:
    assert of_the_device("model-error.md") == ERRORS.lstrip("\n")


def of_the_device(name: str) -> str:
    page = pages(results(), standing())[name]
    return page[page.index("## ") :]


def test_pages_begin_with_what_they_say() -> None:
    first = {name: page.splitlines()[2] for name, page in pages(results(), standing()).items() if name.endswith("md")}
    assert first == FIRST


FIRST = {
    "measured-contractions.md": "NVIDIA H100: of 2 programs ours is quicker than the best of jit's variants in 0, "
    "slower in 2, and within 3 % in 0; the geometric mean of best / ours is 0.85.",
    "measured-loops.md": "NVIDIA H100: of 1 program ours is quicker than the best of jit's variants in 1, slower in "
    "0, and within 3 % in 0; the geometric mean of best / ours is 16.00. 2 have nothing to be compared with.",
    "measured-rest.md": "NVIDIA H100: of 1 program ours is quicker than the best of jit's variants in 1, slower in "
    "0, and within 3 % in 0; the geometric mean of best / ours is 1.11.",
    "measured-figures.md": "NVIDIA H100: 3 figures; 1 of 3 numbers of the models off by more than a fifth.",
    "measured-right.md": "NVIDIA H100: 1 right, 1 wrong, 1 wrong of others, 2 not measured.",
    "model-error.md": "NVIDIA H100: of 4 programs the model missed 1 by more than 1.35; 1 left out.",
}


def test_a_second_device_has_a_section_and_the_same_file_the_same_pages() -> None:
    found = results()
    found.add(Run("d4", "2026-11-28T05:00:00Z", "NVIDIA H200", "sm_90"))
    for row in ROWS[-10:]:
        found.add(replace(row, run="d4"))
    found.add(Row("d4", "time", "loops", "rnn", "forward", "full", "ours", us=(120.0,), hash="r2"))
    page = pages(found, standing())["measured-loops.md"]
    assert [line for line in page.splitlines() if line.startswith("##")] == ["## NVIDIA H100", "## NVIDIA H200"]
    assert "NVIDIA H200: nothing to compare in 1 program." in page.splitlines()
    assert "rnn, forward, ours (NVIDIA H200)" in pages(found, standing())["model-error.svg"]
    assert pages(found, standing()) == pages(found, standing())


def test_the_picture_is_well_formed_and_says_what_is_in_it() -> None:
    picture = ElementTree.fromstring(pages(results(), standing())["model-error.svg"])
    assert picture.findtext(f"{SVG}title") == "Modelled against measured microseconds"
    assert picture.findtext(f"{SVG}desc") == (
        "4 programs; the model is within a factor of 1.35 for 3 of them. "
        "A mark for each program, by what bounds it; on the diagonal the model is right."
    )
    marks = [mark for mark in picture.iter(f"{SVG}use") if mark.findtext(f"{SVG}title")]
    assert [(mark.get("href"), mark.findtext(f"{SVG}title")) for mark in marks] == [
        ("#memory", "softmax, forward, ours"),
        ("#latency", "gru, forward, ours"),
        ("#latency", "rnn, forward, ours"),
        ("#tensor", "swiglu, forward, all ours"),
    ]
    assert len(MODELS) == len(marks) + 1  # XLA computes a part of the other one
    assert "prefers-color-scheme:dark" in "".join(picture.itertext())


def test_pictures_of_much_and_of_nothing() -> None:
    drawn = random.Random(0)
    points = []
    for n in range(400):
        modelled = 10 ** drawn.uniform(0, 4)
        name = f"lorenz_rk4_few_states_{n} <&>, with gradients, all ours"
        points.append(
            Point(name, drawn.choice(["issue", "memory", "other"]), modelled, modelled * 2 ** drawn.gauss(0, 0.4))
        )
    picture = scatter(points)
    assert len(picture.encode()) < 60_000
    assert len(list(ElementTree.fromstring(picture).iter(f"{SVG}use"))) == 400 + 3  # and those of the legend
    assert ElementTree.fromstring(scatter([])).tag == f"{SVG}svg"
