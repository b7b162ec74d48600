"""Aligned words."""

from __future__ import annotations

from jaxpr2triton.report.table import count, table


def test_words_stand_left_and_numbers_right() -> None:
    assert table(["name", "bytes", "note"], [["a", 1234567, "x"], ["longer", 8, ""]]) == (
        "  name        bytes  note\n"
        "  a       1,234,567  x\n"
        "  longer          8"
    )  # fmt: skip


def test_a_table_without_rows_is_its_header() -> None:
    assert table(["a", "b"], [], indent="") == "a  b"


def test_counting() -> None:
    assert [count(number, "kernel") for number in (0, 1, 2, 1000)] == [
        "0 kernels",
        "1 kernel",
        "2 kernels",
        "1,000 kernels",
    ]
