"""Aligned words."""

from __future__ import annotations

from jaxpr2triton.report.table import count, paragraph, table


def test_words_stand_left_and_numbers_right() -> None:
    assert table(["name", "bytes", "note"], [["a", 1234567, "x"], ["longer", 8, ""]]) == (
        "  name        bytes  note\n"
        "  a       1,234,567  x\n"
        "  longer          8"
    )  # fmt: skip


def test_a_table_without_rows_is_its_header() -> None:
    assert table(["a", "b"], [], indent="") == "a  b"


def test_the_widest_words_are_folded_within_their_column() -> None:
    rows = [["a", "row: grid 8 by 4 | col: lane 100 of 128 | k: lane 4", 12], ["b", "words without any bars", 1234]]
    assert table(["name", "axes", "bytes"], rows, width=36) == (
        "  name  axes                   bytes\n"
        "  a     row: grid 8 by 4 |        12\n"
        "        col: lane 100 of\n"
        "        128 | k: lane 4\n"
        "  b     words without any      1,234\n"
        "        bars"
    )


def test_numbers_are_not_folded() -> None:
    assert table(["name", "bytes"], [["a", 10**12]], width=10) == "  name              bytes\n  a     1,000,000,000,000"


def test_paragraphs() -> None:
    assert paragraph("one two three", 11, indent="  ") == "  one two\n      three"
    assert paragraph("", 10) == ""


def test_counting() -> None:
    assert [count(number, "kernel") for number in (0, 1, 2, 1000)] == [
        "0 kernels",
        "1 kernel",
        "2 kernels",
        "1,000 kernels",
    ]
