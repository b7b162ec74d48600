"""Shapes as text, and random arrays for them."""

from __future__ import annotations

from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jaxpr2triton.cli.specs import needs_x64, parse_spec, random_arguments, show_spec
from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.dtypes import short_name

DTYPES = ["bool", "bf16", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "c64", "c128"]
KNOWN = "bool, bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, c64, c128, key"


def struct(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("f32[128,64]", struct((128, 64), jnp.float32)),
        (" bf16 [ 8 , ] ", struct((8,), jnp.bfloat16)),
        ("i32[]", struct((), jnp.int32)),
        ("u8[0,3]", struct((0, 3), jnp.uint8)),
        ("bool[3]", struct((3,), jnp.bool_)),
        ("f64[2]", struct((2,), np.float64)),
        ("(f32[2], f32[3])", (struct((2,), jnp.float32), struct((3,), jnp.float32))),
        ("(f32[2])", (struct((2,), jnp.float32),)),
        ("[i8[1], None]", [struct((1,), jnp.int8), None]),
        ("()", ()),
        ("{w: f32[3,4], b: [f16[4],],}", {"w": struct((3, 4), jnp.float32), "b": [struct((4,), jnp.float16)]}),
        ("{}", {}),
    ],
)
def test_a_spec_is_a_tree_of_shapes(text: str, tree: Any) -> None:
    assert parse_spec(text) == tree


@pytest.mark.parametrize("name", DTYPES)
def test_long_names_of_dtypes_are_understood(name: str) -> None:
    dtype = parse_spec(f"{name}[4]").dtype
    assert parse_spec(f"{dtype.name}[4]") == struct((4,), dtype)


def test_a_key_has_the_dtype_of_keys() -> None:
    assert parse_spec("key[5]") == struct((5,), jax.random.key(0).dtype)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("f32[128,x]", "expected a size, found 'x' at column 9"),
        ("f32[-1]", "expected a size, found '-' at column 5"),
        ("f32[9999999999999999999]", "expected a size, found '9999999999999999999' at column 5"),
        ("f32[2", "expected ',' or ']', found the end at column 6"),
        ("f32", "expected '[', found the end at column 4"),
        ("f32(2)", "expected '[', found '(' at column 4"),
        ("f32[2;3]", "expected ',' or ']', found ';' at column 6"),
        ("f33[2]", f"expected a dtype ({KNOWN}), found 'f33' at column 1"),
        ("(f32[2], Key[])", f"expected a dtype ({KNOWN}), found 'Key' at column 10"),
        ("(f32[2]", "expected ',' or ')', found the end at column 8"),
        ("{w f32[2]}", "expected ':', found 'f32' at column 4"),
        ("{1.5: f32[]}", "expected ':', found '.' at column 3"),
        ("{: f32[]}", "expected a key, found ':' at column 2"),
        ("{a: f32[], a: f32[]}", "expected a new key, found 'a' at column 12"),
        ("f32[2] f32[3]", "expected the end, found 'f32' at column 8"),
        ("", "expected an array such as f32[8,4], or one of ( [ {, found the end at column 1"),
        ("8,4", "expected an array such as f32[8,4], or one of ( [ {, found '8' at column 1"),
    ],
)
def test_a_bad_spec_is_pointed_at(text: str, complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_spec(text)
    assert str(caught.value) == f"bad SPEC {text!r}: {complaint}"


leaves = st.builds(
    lambda name, shape: struct(tuple(shape), parse_spec(f"{name}[]").dtype),
    st.sampled_from([*DTYPES, "key"]),
    st.lists(st.integers(0, 300), max_size=4),
)
trees = st.recursive(
    leaves | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.from_regex(r"[a-z]\w{0,4}", fullmatch=True).filter(str.isascii), inner, max_size=3)
    ),
    max_leaves=6,
)


@hypothesis.given(trees)
def test_printing_and_parsing_are_inverse(tree: Any) -> None:
    assert parse_spec(show_spec(tree)) == tree


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_has_one_name(name: str) -> None:
    assert short_name(parse_spec(f"{name}[]").dtype) == name


@pytest.mark.parametrize(
    ("text", "wide"), [("{a: f32[], b: key[]}", False), ("[i32[], i64[2]]", True), ("c128[]", True)]
)
def test_64_bits_need_x64(text: str, wide: bool) -> None:
    assert needs_x64(parse_spec(text)) is wide


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", ["", "1", "0,4", "64"])
def test_random_arrays_fit_their_spec(name: str, shape: str) -> None:
    spec = parse_spec(f"{name}[{shape}]")
    with jax.enable_x64(True):
        for seed in range(5):
            array = random_arguments(spec, seed)
            assert (array.shape, array.dtype) == (spec.shape, spec.dtype)
            assert array.size == 0 or bool(array.any()), "never zeros only"


def test_random_arrays_depend_on_the_seed_alone() -> None:
    specs = parse_spec("{x: f32[100], y: i32[100], z: bool[100], k: key[100]}")
    first, again, other = (random_arguments(specs, seed) for seed in (0, 0, 1))
    data = [jax.tree.leaves({**tree, "k": jax.random.key_data(tree["k"])}) for tree in (first, again, other)]
    assert all(np.array_equal(a, b) for a, b in zip(data[0], data[1], strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(data[0], data[2], strict=True))


def test_random_floats_are_normal() -> None:
    array = np.asarray(random_arguments(parse_spec("f32[10000]"), 3))
    assert abs(array.mean()) < 0.05
    assert abs(array.std() - 1) < 0.05
