"""What lanes, warps and programs compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.machine.handwritten import kernel, program_of, see
from tests.machine.value_cases import VALUES, Value

TABLE = ".global .align 16 .b32 table[4] = {5, -6, 7, 8};\n"


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.name)
def test_values(value: Value) -> None:
    program = program_of(kernel(value.body, TABLE), value.launch)
    seen = see(program, value.launch)
    assert seen.says == []
    found = seen.out.view(value.expected.dtype)[: value.expected.size]
    np.testing.assert_array_equal(found, value.expected)
    lines = {each.line: place for place, each in enumerate(program.encoded.module.body) if each.opcode}
    assert {line: seen.ran.counts[lines[line], 0] for line in value.warps or {}} == (value.warps or {})
