"""Each operation against an independent reference, bit for bit, over special values and random ones."""

from __future__ import annotations

import pytest

from jaxpr2triton.launch.machine.library import operation_functions
from jaxpr2triton.launch.machine.operations import operation, usual_operations
from tests.machine.lanes import differences
from tests.machine.reference import reference
from tests.machine.spellings import RARE, UNKNOWN


def test_every_usual_operation_is_known_and_has_a_reference() -> None:
    assert [each for each in usual_operations() if operation(each) is None or reference(each) is None] == []


@pytest.fixture(scope="module")
def functions() -> dict[str, int]:
    return operation_functions([*usual_operations(), *RARE])


FAMILIES = sorted({each.split(".")[0] for each in (*usual_operations(), *RARE)})


@pytest.mark.parametrize("name", FAMILIES)
def test_operations_are_right(functions: dict[str, int], name: str) -> None:
    known = [each for each in functions if each.split(".")[0] == name]
    wrong = [first for each in known for first in differences(each, functions[each])[:2]]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("opcode", UNKNOWN)
def test_what_nobody_thought_of_is_unknown(opcode: str) -> None:
    assert operation(opcode) is None
