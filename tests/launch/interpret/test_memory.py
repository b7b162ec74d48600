"""What would be a crash, a race or undefined on a GPU is an error that names the kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from tests.launch.handmade import make_kernel

X = np.arange(10, dtype=np.float32)
INPUT = [("x", (10,), "float32")]
OUTPUT = [("out", (10,), "float32")]


def failure(text: str, grid: tuple[int, int, int] = (1, 1, 1)) -> str:
    with pytest.raises(CompilerBug) as caught:
        run_interpreted(make_kernel("wild", text, INPUT, OUTPUT, grid), [X])
    return str(caught.value)


def test_a_load_outside() -> None:
    message = failure("i = tl.arange(0, 16)\ntl.store(out_ptr + i, tl.load(x_ptr + i), mask=i < 10)")
    assert message == (
        "kernel wild reads element 10 of x, which has 10\n"
        "  at   program (0, 0, 0), line 9: tl.store(out_ptr + i, tl.load(x_ptr + i), mask=i < 10)"
    )


def test_a_masked_load_outside() -> None:
    text = "i = tl.arange(0, 16)\ntl.store(out_ptr + i, tl.load(x_ptr + i - 1, mask=i < 10, other=0), mask=i < 10)"
    assert "kernel wild reads element -1 of x, which has 10" in failure(text)


def test_a_store_outside() -> None:
    text = "p = tl.program_id(0)\ni = p * 8 + tl.arange(0, 8)\ntl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < 10))"
    message = failure(text, (2, 1, 1))
    assert "kernel wild writes element 10 of out, which has 10" in message
    assert "program (1, 0, 0), line 10" in message


def test_a_pointer_to_nowhere() -> None:
    text = "far = tl.full((), 1 << 60, tl.int64)\ntl.store(out_ptr, tl.load(x_ptr + far))"
    assert "which is far from all of its buffers" in failure(text)


def test_a_store_into_an_input() -> None:
    assert "kernel wild writes into its input x" in failure("tl.store(x_ptr, 1.0)")
    assert X[0] == 0


def test_a_forgotten_element() -> None:
    message = failure("i = tl.arange(0, 8)\ntl.store(out_ptr + i, tl.load(x_ptr + i))")
    assert message == "kernel wild leaves 2 of the 10 elements of its output out unwritten, the first of them [8]"


def test_a_read_of_what_was_never_written() -> None:
    message = failure("i = tl.arange(0, 8)\ntl.store(out_ptr + i, tl.load(out_ptr + i))")
    assert "reads an element of its output out that this program has not written" in message


def test_a_race_between_programs() -> None:
    message = failure("tl.store(out_ptr, tl.program_id(0).to(tl.float32))", (2, 1, 1))
    assert "kernel wild writes an element of out that another program has written differently" in message
    assert "program (1, 0, 0)" in message


def flag(text: str) -> int:
    made = make_kernel("wild", text, INPUT, [("out", (), "int32")], (3, 1, 1))
    return int(run_interpreted(replace(made, outputs=(replace(made.outputs[0], is_flag=True),)), [X])[0])


def test_a_flag_is_zero_until_somebody_sets_it() -> None:
    assert flag("tl.store(out_ptr, 1, mask=tl.load(x_ptr + tl.program_id(0)) > 5)") == 0
    assert flag("tl.store(out_ptr, 1, mask=tl.load(x_ptr + tl.program_id(0)) > 0)") == 1


@pytest.mark.parametrize("value", ["0", "2", "tl.program_id(0)"])
def test_a_flag_is_only_set(value: str) -> None:
    with pytest.raises(CompilerBug, match="writes something else than one into its flag out"):
        flag(f"tl.store(out_ptr, {value})")


def test_a_flag_is_not_read_by_those_who_have_not_set_it() -> None:
    with pytest.raises(CompilerBug, match="that this program has not written"):
        flag("tl.store(out_ptr, 1, mask=tl.load(out_ptr) == 0)")


def test_a_race_inside_a_store() -> None:
    message = failure("i = tl.arange(0, 8)\ntl.store(out_ptr + i // 2, i.to(tl.float32))")
    assert "kernel wild writes two different values to one element of out in one store" in message


def test_nothing_is_added_to_what_is_not_there() -> None:
    message = failure("tl.atomic_add(out_ptr, 1.0)")
    assert "adds to an element of out that this program has not written" in message
    with pytest.raises(CompilerBug, match="does not know the atomic operation"):
        run_interpreted(make_kernel("wild", "tl.atomic_xchg(out_ptr, 1.0)", INPUT, OUTPUT), [X])


def test_what_meets_is_added_once_for_each_lane() -> None:
    text = """
    i = tl.arange(0, 16)
    tl.store(out_ptr + i, 0.0, mask=i < 10)
    tl.atomic_add(out_ptr + i // 4, 1.0 + tl.zeros((16,), tl.float32), mask=i < 14)
    tl.atomic_max(out_ptr + 8 + i // 8, i.to(tl.float32))
    """
    (out,) = run_interpreted(make_kernel("fine", text, INPUT, OUTPUT), [X])
    np.testing.assert_array_equal(out, [4, 4, 4, 2, 0, 0, 0, 0, 7, 15])


def test_what_is_harmless_passes() -> None:
    text = """
    i = tl.arange(0, 16)
    tl.store(out_ptr + i, 0.0, mask=i < 10)
    tl.store(out_ptr + i // 2, 1.0, mask=i < 20)
    both = tl.load(tl.where(i < 4, x_ptr, out_ptr) + tl.minimum(i, 7))
    tl.store(out_ptr + i, both, mask=i < 10)
    """
    (out,) = run_interpreted(make_kernel("fine", text, INPUT, OUTPUT), [X])
    np.testing.assert_array_equal(out, [0, 1, 2, 3, 1, 1, 1, 1, 1, 1])


def test_empty_arrays() -> None:
    text = "i = tl.arange(0, 4)\ntl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < 0, other=7.0))"
    kernel = make_kernel("empty", text, [("x", (0,), "float32")], [("out", (4,), "float32")])
    (out,) = run_interpreted(kernel, [np.zeros(0, np.float32)])
    assert out.tolist() == [7, 7, 7, 7]
