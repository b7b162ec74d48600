"""The index of the tests is as generated, and every test says on its first line what it asks."""

from __future__ import annotations

from tests.index import TESTS, first_line, page

PAGE = TESTS.parent / "docs" / "tests.md"


def test_the_page_is_as_generated() -> None:
    assert PAGE.read_text() == page(), "python -m tests.index > docs/tests.md"


def test_every_file_of_tests_says_what_it_asks() -> None:
    assert not [str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py") if not first_line(path)]
