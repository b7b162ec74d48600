"""What drawing has found, made small; each was wrong once."""

from __future__ import annotations

import dataclasses

import pytest

from tests.drawn.check import check
from tests.drawn.loops import Carry, Loop
from tests.drawn.program import Input, Line, Program

FOUND = {
    # 16-bit values were compared without the rounding that the stored ones had, so the largest was found nowhere.
    "gradient_of_a_maximum_in_float16": Program(
        inputs=(Input("x", (64, 5), "float16", "normal"),),
        lines=(
            Line("y", "jnp.sin(x)", ("x",)),
            Line("z", "y - jnp.max(y, 0)", ("y",)),
        ),
        outputs=("z",),
        transform="grad",
    ),
    "gradient_of_a_maximum_in_bfloat16": Program(
        inputs=(Input("x", (64, 5), "bfloat16", "normal"),),
        lines=(
            Line("y", "jnp.sin(x)", ("x",)),
            Line("z", "y - jnp.max(y, 0)", ("y",)),
        ),
        outputs=("z",),
        transform="grad",
    ),
    # Dimensions of size 1 broadcast, also in primitives that are rewritten.
    "nextafter_of_one_and_many": Program(
        inputs=(Input("x", (11,), "float32", "normal"), Input("y", (11,), "float32", "normal")),
        lines=(Line("z", "helpers.nextafter(x, y)", ("x", "y")),),
        outputs=("z",),
        transform="vmap",
        batched=(None, 0),
    ),
    "reshaped_literal": Program(
        inputs=(Input("x", (1, 1), "float32", "normal"), Input("y", (12, 0), "float32", "normal")),
        lines=(Line("z", "jnp.clip(x, -0.5, y)", ("x", "y")),),
        outputs=("z",),
        transform="grad",
    ),
    # A dividend became negative, and Triton's division rounds towards zero.
    "reversed_after_merging": Program(
        inputs=(Input("x", (11, 9, 11), "float32", "normal"),),
        lines=(Line("y", "lax.rev(x.reshape((99, 1, 11)), (0, 1))", ("x",)),),
        outputs=("y",),
    ),
    # What was cut out of a kernel was cut out again, for ever.
    "variance_of_padded_products": Program(
        inputs=(Input("x", (17, 9), "float32", "normal"),),
        lines=(
            Line("y", "helpers.product(jnp.tanh(x), (0,), keepdims=True)", ("x",)),
            Line("z", "lax.pad(y, jnp.float32(1), ((3, -1, 2), (1, 2, 1)))", ("y",)),
            Line("v", "jnp.var(z, (0,), keepdims=False)", ("z",)),
        ),
        outputs=("v",),
        small=True,
    ),
    # Along an axis of size 1 an iota is a bare number, which cannot be rounded as a tile is.
    "iota_of_one_element_in_float16": Program(
        inputs=(Input("x", (9, 33, 1), "float16", "normal"),),
        lines=(Line("y", "jnp.where(lax.broadcasted_iota(jnp.float16, (9, 33, 1), 2) < 3, x, -x)", ("x",)),),
        outputs=("y",),
    ),
    # A sum over rows within a sum over rows and columns ran along the rows twice.
    "gradient_of_a_clip_to_sums": Program(
        inputs=(Input("x", (11, 17, 11), "float16", "normal"), Input("y", (1, 11), "float16", "normal")),
        lines=(
            Line("u", "x / (jnp.abs(y) + 0.5)", ("x", "y")),
            Line("v", "helpers.total(x, (0, 2), keepdims=True)", ("x",)),
            Line("z", "jnp.clip(u, -0.5, v)", ("u", "v")),
        ),
        outputs=("z",),
        transform="vmap_grad",
        batched=(3, None),
        outside=True,
        small=True,
    ),
    # A sum over rows for each column, within a sum over columns for each row: no loops can be within each other.
    "gradient_of_maxima_of_columns": Program(
        inputs=(Input("x", (32, 7, 1), "float16", "normal"),),
        lines=(
            Line("y", "lax.broadcast_in_dim(x, (32, 7, 7, 1), (0, 1, 3))", ("x",)),
            Line("m", "jnp.max(y, (0, 1), keepdims=True)", ("y",)),
            Line("v", "helpers.total(y, (0, 3), keepdims=False)", ("y",)),
            Line("w", "jnp.arccosh(jnp.abs(m) + 1.5)", ("m",)),
        ),
        outputs=("v", "w"),
        transform="vmap_grad",
        batched=(0,),
        outside=True,
        small=True,
    ),
    # One program stored the maximum, rounded; another one computed again what it was the maximum of, and did not round.
    "gradient_of_logsumexp_of_large_numbers_in_float16": Program(
        inputs=(Input("x", (15, 15), "float16", "special"),),
        lines=(
            Line("y", "x / 3", ("x",)),
            Line("z", "helpers.logsumexp(y, 1)", ("y",)),
        ),
        outputs=("z",),
        transform="grad",
        seed=462,
    ),
    # XLA's CPU adds up the places of the two slices, and reads beyond the first one: the checker has to know better.
    "slice_of_the_last_slice": Program(
        inputs=(
            Input("x", (8,), "float64", "whole"),
            Input("p", (), "int32", "normal"),
            Input("q", (), "int32", "normal"),
        ),
        lines=(
            Line("y", "lax.dynamic_slice_in_dim(x, p, 2, 0)", ("x", "p")),
            Line("z", "y[q % 2]", ("y", "q")),
        ),
        outputs=("z",),
        seed=850,
    ),
    "batched_slice_of_the_last_slice": Program(
        inputs=(
            Input("x", (6,), "int32", "normal"),
            Input("p", (), "int32", "positive"),
            Input("q", (), "int32", "positive"),
        ),
        lines=(
            Line("y", "lax.dynamic_slice_in_dim(x, jnp.minimum(p, 2), 3, 0)", ("x", "p")),
            Line("z", "y[q + 4]", ("y", "q")),
        ),
        outputs=("z",),
        transform="vmap",
        batched=(1, None, None),
        seed=553,
    ),
    # XLA's CPU is wrong in the last six bits of atanh.
    "atanh_in_float64": Program(
        inputs=(Input("x", (1023, 1, 1, 1), "float64", "normal"),),
        lines=(Line("y", "jnp.arctanh(jnp.sin(x) * 0.75)", ("x",)),),
        outputs=("y",),
        transform="grad",
        x64=True,
        seed=244,
    ),
    # XLA leaves out that zero is added to -0.0, which makes 0.0 of it.
    "inverse_of_zeros": Program(
        inputs=(Input("x", (33, 17, 1), "float32", "special"),),
        lines=(Line("y", "1 / (x + lax.broadcasted_iota(jnp.float32, (33, 17, 1), 2))", ("x",)),),
        outputs=("y",),
        seed=230,
    ),
    # The smaller one of 0.0 and -0.0 is -0.0, on GPUs and to XLA, but not to NumPy.
    "inverse_of_the_smaller_zero": Program(
        inputs=(Input("x", (32, 32), "float32", "whole"), Input("y", (32,), "float32", "special")),
        lines=(Line("z", "1 / jnp.minimum(y, x)", ("x", "y")),),
        outputs=("z",),
        seed=217,
    ),
    # The second kernel asks which element is the minimum of the first one, and computes them from what that has stored.
    "derivative_of_a_minimum": Program(
        inputs=(Input("x", (8,), "float16", "normal"),),
        lines=(
            Line("y", "helpers.layer_norm(x, 0)", ("x",)),
            Line("z", "jnp.min(y, (0,), keepdims=False)", ("y",)),
        ),
        outputs=("z",),
        transform="jvp",
        seed=612,
    ),
    # … and so do three kernels, of which only the first one has stored what another one computes from.
    "derivative_of_a_minimum_in_parts": Program(
        inputs=(Input("x", (8,), "float16", "normal"), Input("y", (8, 8), "float16", "normal")),
        lines=(
            Line("u", "helpers.layer_norm(x, 0)", ("x",)),
            Line("v", "jnp.min(u, (0,), keepdims=False)", ("u",)),
            Line("z", "jnp.minimum(y, v)", ("y", "v")),
        ),
        outputs=("z",),
        transform="jvp",
        small=True,
        seed=612,
    ),
    # Choices on one predicate needed one on another, and that one, in the same branch, needed one of those.
    "branches_that_need_each_other": Program(
        inputs=(Input("x", (2,), "float32", "normal"), Input("y", (2,), "float16", "normal")),
        lines=(
            Line(
                "z",
                "lax.conv_general_dilated(helpers.tame(y).reshape((1, 1, 2)), "
                "jnp.resize(helpers.tame(x), (1, 1, 2)).astype(y.dtype), (3,), ((0, 1),), (1,), (1,), "
                "lax.ConvDimensionNumbers((0, 1, 2), (2, 0, 1), (2, 1, 0)), 1, 1)",
                ("y", "x"),
            ),
        ),
        outputs=("z",),
        transform="grad",
        small=True,
        seed=381,
    ),
    # A sweep over all steps at once ran along the axis that a loop beside it took its steps along.
    "a_sweep_beside_the_steps_of_a_loop": Program(
        inputs=(
            Input("x", (8,), "float32", "normal"),
            Input("y", (8,), "float32", "normal"),
            Input("z", (2, 8), "float32", "normal"),
        ),
        lines=(
            Loop(
                kind="scan",
                label="1",
                steps="2",
                carries=(Carry(name="b", start="x", after="v", result="w"), Carry("c", "y", "e", "u")),
                lines=(Line("v", "e + jnp.where(e > 0, b, 0) * 0.3 + jnp.where(e > 0, c, 0) * 0.3", ("e", "b", "c")),),
                xs=(("e", "z"),),
            ),
        ),
        outputs=("w",),
        transform="grad",
        outside=True,
        small=True,
        seed=600,
    ),
    # JAX adds up these cotangents without rounding, and in another order they are rounded.
    "exact_in_one_order": Program(
        inputs=(Input("x", (1000,), "float32", "normal"), Input("y", (1000,), "int32", "normal")),
        lines=(
            Line("v", "lax.associative_scan(lambda a, b: jnp.where(b > 0.5, b, a), x, axis=0)", ("x",)),
            Line("z", "lax.select_n(lax.clamp(jnp.int32(0), y, jnp.int32(2)), v, x, v)", ("y", "v", "x")),
        ),
        outputs=("z",),
        transform="grad",
        seed=428,
    ),
    # What was around an array was combined with what is no number, and chosen.
    "windows_around_what_is_no_number": Program(
        inputs=(Input("x", (13, 13), "float16", "special"),),
        lines=(
            Line("v", "jnp.max(jnp.abs(x[:, None] * x[None]), -1)", ("x",)),
            Line(
                "z",
                "lax.reduce_window(lax.stop_gradient(v), np.asarray(0.5, v.dtype)[()], helpers.nearer, "
                "(1, 2), (1, 1), ((-1, 0), (1, 0)), base_dilation=(2, 2), window_dilation=(1, 1))",
                ("v",),
            ),
        ),
        outputs=("z",),
        seed=458,
    ),
    # XLA's CPU multiplies what is no number by the zeros between groups, in float64 and not in float32.
    "strange_numbers_beside_groups": Program(
        inputs=(Input("x", (31, 5), "float32", "normal"), Input("y", (1, 31, 2), "float32", "normal")),
        lines=(
            Line(
                "v",
                "lax.conv_general_dilated(helpers.tame(x).reshape((1, 31, 5)), helpers.tame(y), (3,), ((0, 1),), (1,), "
                "(1,), lax.ConvDimensionNumbers((2, 1, 0), (0, 1, 2), (0, 1, 2)), 1, 1)",
                ("x", "y"),
            ),
            Line("z", "lax.pow(v, v)", ("v",)),
        ),
        outputs=("z",),
        transform="vmap_grad",
        batched=(0, 3),
        seed=815,
    ),
    # One kernel added the terms of both products before its lanes, another one each product by itself.
    "sums_of_few_terms_and_their_maximum": Program(
        inputs=(Input("x", (7, 7), "float32", "normal"),),
        lines=(
            Line("v", "jnp.einsum('ab,ac->bc', x, x)", ("x",)),
            Line("z", "jnp.max(jnp.abs(v[:, None] + v[None]), -1)", ("v",)),
        ),
        outputs=("z",),
        transform="grad",
        seed=703,
    ),
    # XLA begins a sum with 0.0, and a kernel that adds up two terms does not.
    "a_sum_of_negative_zeros": Program(
        inputs=(Input("x", (32, 2, 2, 2), "float32", "whole"),),
        lines=(
            Line("u", "x * (lax.broadcasted_iota(jnp.int32, x.shape, 0) % 2)", ("x",)),
            Line("v", "helpers.total(u, (1,), keepdims=False)", ("u",)),
            Line("z", "helpers.bits(v, jnp.int32)", ("v",)),
        ),
        outputs=("z",),
        seed=612,
    ),
    # What was stored for the gradient had been rounded, and what the maximum was made of had not, once compiled.
    "a_product_is_found_where_it_is_stored": Program(
        inputs=(
            Input("x", (3,), "float32", "normal"),
            Input("y", (3, 3, 3), "float32", "normal"),
            Input("z", (11,), "float32", "normal"),
        ),
        lines=(
            Line("u", "jnp.einsum('bac,a->a', y, x * 0.37)", ("x", "y")),
            Line("v", "jnp.max(jnp.maximum(u[:, None] - z[None], 0), 1)", ("u", "z")),
        ),
        outputs=("v",),
        transform="jvp",
        seed=711,
    ),
    # What two kernels of other axes made was compared in the backward program: one of them had added it up otherwise.
    "a_sum_is_put_out_and_its_products_are_compared": Program(
        inputs=(Input("x", (33, 5), "float32", "normal"), Input("y", (17, 5), "float32", "normal")),
        lines=(
            Line("u", "x[:, None] - y[None]", ("x", "y")),
            Line("z", "jnp.max(u * jnp.exp(-jnp.sum(jnp.square(u), -1, keepdims=True)), 0)", ("u",)),
        ),
        outputs=("z",),
        transform="grad",
        small=True,
        seed=531,
    ),
    # A kernel added up the terms of two sums at once, and compared that with the sum of both.
    "terms_of_two_sums_and_their_maximum": Program(
        inputs=(Input("x", (2, 2, 15), "float32", "normal"), Input("y", (2, 2), "float32", "normal")),
        lines=(
            Line("v", "jnp.einsum('cbd,ab->da', x, y)", ("y", "x")),
            Line("z", "jnp.max(jnp.abs(v[:, None] + v[None]), -1)", ("v",)),
        ),
        outputs=("z",),
        transform="grad",
        seed=470,
    ),
    # One cotangent is no number: what is not chosen has the slope 0, and that times it is none either.
    "nothing_goes_on_of_what_is_not_chosen": Program(
        inputs=(Input("x", (65, 1), "float32", "special"),),
        lines=(
            Line("u", "helpers.total(x, (1,), keepdims=False)", ("x",)),
            Line("v", "lax.associative_scan(lambda a, b: jnp.where(b > 0.5, b, a), u, axis=0)", ("u",)),
            Line("z", "helpers.logsumexp(v, 0)", ("v",)),
        ),
        outputs=("z",),
        transform="grad",
        seed=895,
    ),
    # Of three loops in place of one, the second one did not read what it puts out for the third one alone.
    "three_loops_read_of_each_other": Program(
        inputs=(
            Input("x", (3, 2, 2), "float32", "normal"),
            *(Input(name, (2, 2), "float32", "normal") for name in ("y", "z")),
        ),
        lines=(
            Loop(
                "scan",
                label="9",
                steps="2",
                carries=(Carry("c", "y", "e", "u"), Carry("d", "z", "w", "v")),
                lines=(
                    Line("e", "x[0]", ("x",)),
                    Line("w", "e + jnp.sin(e) * c / 2 + jnp.sin(e) * d / 2", ("e", "c", "d")),
                ),
            ),
        ),
        outputs=("v",),
        transform="grad",
        small=True,
        seed=167,
    ),
    # What one loop in place of another one puts out was to be in memory for two reasons.
    "a_value_is_wanted_in_memory_twice": Program(
        inputs=(
            Input("x", (), "float32", "normal"),
            Input("y", (1,), "float32", "normal"),
            Input("z", (2, 2), "float32", "normal"),
        ),
        lines=(
            Loop(
                "scan",
                label="17",
                steps="2",
                carries=(Carry("c", "y", "g", "u"), Carry("d", "z", "w", "v")),
                lines=(
                    Line("b", "jnp.argmax(c).astype(jnp.int32)", ("c",)),
                    Line("e", "d / (jnp.abs(b) % 8 + 1)", ("d", "b")),
                    Line("g", "(c + jnp.tanh(helpers.total(d, None))) * 0.5", ("c", "d")),
                    Line("w", "lax.logistic(x) * d", ("d", "x")),
                ),
                ys=(("r", "e"),),
            ),
        ),
        outputs=("r",),
        transform="jvp",
        outside=True,
        small=True,
        seed=764,
    ),
    # A scan from behind turns its lanes around by one shuffle after another: the machine took them for a sum.
    "lanes_are_turned_around": Program(
        inputs=tuple(Input(name, (1,), "float32", "normal") for name in "xyze"),
        lines=(
            Loop(
                "scan",
                label="9",
                steps="2",
                carries=(Carry("a", "x", "b", "u"), Carry("b", "y", "c", "v"), Carry("c", "z", "w", "r")),
                lines=(
                    Line("f", "jnp.logaddexp(e, jnp.where(e > 0, b, -1.0))", ("e", "b")),
                    Line("w", "jnp.logaddexp(f, jnp.where(e > 0, c, -1.0))", ("f", "e", "c")),
                ),
                reverse=True,
            ),
        ),
        outputs=("u",),
        small=True,
        seed=433,
    ),
    # What a step reads of others was taken for a place in it: it hands on what it does not read.
    "a_step_hands_on_what_is_the_same_in_all": Program(
        inputs=(
            *(Input(name, (), "bool", "normal") for name in ("x", "y")),
            *(Input(name, (2, 2), "float32", "normal") for name in ("z", "r")),
        ),
        lines=(
            Loop(
                "scan",
                label="15",
                steps="2",
                carries=(Carry("c", "y", "x", "u"),),
                lines=(Line("b", "e @ e", ("e",)), Line("d", "0.25 * z - 0.5 * jnp.sin(b)", ("z", "b"))),
                xs=(("e", "r"),),
                ys=(("v", "d"),),
            ),
        ),
        outputs=("u", "v"),
        transform="vmap",
        batched=(0, 0, 0, 0),
        seed=998,
    ),
    # A product that is stored and goes on as well was one of floats of 32 bits, where one factor is a number.
    "a_number_is_a_factor_of_what_is_stored": Program(
        inputs=(Input("x", (3,), "float64", "normal"), Input("y", (0,), "float64", "normal")),
        lines=(
            Loop(
                "scan",
                label="8",
                steps="1",
                carries=(Carry("c", "x", "e", "u"),),
                lines=(
                    Line("a", "helpers.mean(y)", ("y",)),
                    Line("b", "jnp.where(a > 0.1, x * 0.5, jnp.tanh(a))", ("a", "x")),
                    Line("d", "0.25 * x - 0.5 * jnp.sin(b)", ("x", "b")),
                    Line("e", "jnp.tanh(c - d)", ("c", "d")),
                ),
                ys=(("v", "d"),),
            ),
            Line("w", "helpers.called(u)", ("u",)),
        ),
        outputs=("v", "w"),
        x64=True,
        seed=902,
    ),
    # What was looked for in two steps was a place, of which the second one took the largest.
    "places_of_what_is_made_once": Program(
        inputs=(Input("x", (33,), "bfloat16", "whole"),),
        lines=(
            Line("a", "jnp.clip(x, -0.5, x * 0.5)", ("x",)),
            Line("b", "lax.transpose(helpers.orthogonal(a), (0, 1))", ("a",)),
            Line("c", "lax.concatenate([b, b], 1)", ("b",)),
            Line("d", "lax.argmax(b, 0, jnp.int32)", ("b",)),
        ),
        outputs=("c", "d"),
        transform="vmap",
        batched=(1,),
        x64=True,
        small=True,
        seed=176,
    ),
    # A tile that is turned was written without an axis along which it is the same everywhere.
    "what_is_turned_varies_along_one_axis": Program(
        inputs=(Input("x", (5, 5), "float32", "normal"),),
        lines=(
            Line("a", "lax.dot_general(jnp.float32(0.5), x, (((), ()), ((), ())))", ("x",)),
            Line("b", "lax.broadcasted_iota(jnp.int32, (5, 5), 1)", ()),
            Loop(
                "while",
                label="34",
                steps="0",
                carries=(
                    Carry("i", "jnp.int32(0)", "i + 1", "t"),
                    Carry("c", "a", "a", "u"),
                    Carry("d", "b", "w", "v"),
                ),
                lines=(
                    Line("e", "lax.expand_dims(c, (2,))", ("c",)),
                    Line("g", "helpers.total(e, None)", ("e",)),
                    Line("w", "(d + ((g > 0.25) * 3).astype(jnp.int32)) & 7", ("d", "g")),
                ),
                counter="i",
            ),
        ),
        outputs=("a", "v"),
        seed=538,
    ),
    # Where a window meets nothing but what is padded, the conditions were dropped of what is read nowhere.
    "a_window_of_nothing": Program(
        inputs=(Input("x", (2, 2), "float32", "normal"), Input("y", (1, 2, 2), "float32", "normal")),
        lines=(
            Line(
                "u",
                "lax.conv_general_dilated(jnp.sin(x).reshape((1, 2, 2)), y, (3,), ((2, 0),), (2,), (1,), "
                "lax.ConvDimensionNumbers((2, 0, 1), (2, 0, 1), (0, 2, 1)))",
                ("x", "y"),
            ),
        ),
        outputs=("u",),
        seed=621,
    ),
    # A callback puts out nothing.
    "somebody_is_told_of_a_product": Program(
        inputs=(Input("x", (3, 5, 15), "bfloat16", "normal"), Input("y", (3,), "bfloat16", "normal")),
        lines=(
            Line("u", "jnp.einsum('a,abc->bc', y, x * 0.37)", ("y", "x")),
            Line("v", "helpers.told(u)", ("u",)),
            Line("w", "jnp.min(v, (0, 1))", ("v",)),
        ),
        outputs=("w",),
        transform="grad",
        small=True,
        seed=54,
    ),
    # What a loop that is left to XLA puts out had another name in memory, which nobody gave it.
    "what_is_left_puts_out_for_a_kernel": Program(
        inputs=(
            Input("x", (1,), "float32", "normal"),
            *(Input(name, (), "int32", "normal") for name in "ijkl"),
        ),
        lines=(
            Loop(
                "scan",
                label="8",
                steps="2",
                carries=(Carry("a", "i", "d", "u"), Carry("b", "j", "e", "v"), Carry("c", "k", "g", "w")),
                lines=(Line("d", "a + 1", ("a",)), Line("e", "b + 1", ("b",)), Line("g", "c + 1", ("c",))),
            ),
            Loop(
                "scan",
                label="21",
                steps="2",
                carries=(Carry("n", "l", "m", "r"), Carry("p", "x", "q", "s"), Carry("y", "x", "z", "t")),
                lines=(
                    Line("h", "helpers.called(p)", ("p",)),
                    Line("m", "n + 1", ("n",)),
                    Line("o", "n.astype(jnp.float32)", ("n",)),
                    Line("q", "0.5 * p + jnp.tanh(o)", ("p", "o")),
                    Line("z", "0.5 * y + jnp.tanh(h)", ("y", "h")),
                ),
            ),
        ),
        outputs=("u", "v", "w", "r", "s", "t"),
        small=True,
    ),
    # A product of matrices that sums nothing counted as a number that is another one each time it is made.
    "what_is_put_out_is_made_of_a_product_without_a_sum": Program(
        inputs=(
            Input("x", (2,), "float32", "normal"),
            Input("p", (2,), "bool", "normal"),
            Input("y", (2,), "float32", "normal"),
        ),
        lines=(
            Line("z", "jnp.einsum('a,a->a', y, x * jnp.cos(jnp.sum(x, 0, keepdims=True)))", ("y", "x")),
            Line("q", "lax.expand_dims(p, (0,))", ("p",)),
            Line("n", "helpers.layer_norm(z, 0)", ("z",)),
            Line("m", "jnp.min(jnp.abs(n), 0)", ("n",)),
        ),
        outputs=("q", "m"),
        transform="jvp",
        seed=950,
    ),
    # Lanes were taken for the steps of a loop in a body, of which there are as many.
    "as_many_lanes_as_steps_of_a_loop_in_a_step": Program(
        inputs=(Input("x", (6, 8), "float32", "normal"), Input("y", (), "float32", "normal")),
        lines=(
            Loop(
                "scan",
                label="21",
                steps="6",
                carries=(Carry("c", "y", "d", "r"),),
                lines=(Line("m", "helpers.mean(e)", ("e",)), Line("d", "jnp.tanh(m) + c * 0", ("m", "c"))),
                xs=(("e", "x"),),
                ys=(("s", "y"),),
            ),
            Line("z", "lax.index_in_dim(x, 2, 0, keepdims=True)", ("x",)),
        ),
        outputs=("r", "s", "z"),
        transform="vmap_grad",
        batched=(2, None),
        seed=193,
    ),
    # What the steps of several loops want at too many places was found for one loop after the other.
    "values_that_several_loops_keep": Program(
        inputs=(Input("x", (2, 5), "float32", "normal"), Input("y", (5, 5, 2), "float32", "normal")),
        lines=(
            Loop(
                "scan",
                label="13",
                steps="5",
                carries=(Carry("c", "x", "d", "r"),),
                lines=(
                    Line(
                        "u",
                        "lax.scan(lambda u, _: (helpers.swept(u)[jnp.arange(u.shape[0]) * 3 % u.shape[0]], None), e,"
                        " None, length=2)[0]",
                        ("e",),
                    ),
                    Line("m", "helpers.mean(u)", ("u",)),
                    Line("d", "0.25 * c - 0.5 * jnp.sin(m)", ("c", "m")),
                ),
                xs=(("e", "y"),),
            ),
        ),
        outputs=("r",),
        transform="grad",
        seed=605,
    ),
    # what is told has no results, and reads what a loop stores in tiles of steps
    "what_loops_store_in_tiles_is_told": Program(
        inputs=(
            Input("x2", (6, 1), "float32", "normal"),
            Input("x4", (1,), "float32", "normal"),
        ),
        lines=(
            Loop(
                kind="scan",
                label="8",
                steps="6",
                carries=(Carry(name="c3", start="x4", after="v6", result="v10"),),
                lines=(Line("v6", "e1 + 0.4 * c3", ("e1", "c3")), Line("v7", "jnp.max(c3 - e1, -1)", ("e1", "c3"))),
                xs=(("e1", "x2"),),
                ys=(("v12", "v7"),),
                counter="",
                test=(),
                reverse=False,
                unroll=1,
            ),
            Line("v22", "helpers.told(v12)", ("v12",)),
        ),
        outputs=("v22",),
        small=True,
        seed=474,
    ),
    # A condition on a number that might have varied from lane to lane, and does not.
    "a_choice_of_two_numbers_by_a_place": Program(
        inputs=(Input("x2", (6, 6, 1), "float32", "normal"),),
        lines=(
            Loop(
                "fori",
                label="7",
                steps="2",
                carries=(Carry("c2", "x2", "v5", "v6"),),
                lines=(
                    Line(
                        "v4",
                        "lax.cond(c2.sum() > 0, lambda: c2.at[i3].min(c2.min()), lambda: jnp.roll(c2, 1, 0))",
                        ("c2", "i3"),
                    ),
                    Line("v5", "v4 * 0.5 + c2", ("v4", "c2")),
                ),
                counter="i3",
            ),
        ),
        outputs=("v6",),
        transform="vmap_grad",
        batched=(3,),
        seed=126,
    ),
    # A step that was taken out of its loop kept its names, which the next loop has for something else.
    "names_of_a_step_that_is_held": Program(
        inputs=(Input("x2", (6, 4, 2), "float32", "normal"), Input("x3", (6, 4, 2), "int32", "normal")),
        lines=(
            Loop(
                "fori",
                label="9",
                steps="5",
                carries=(Carry("c2", "x2", "v7", "v8"),),
                lines=(
                    Line("v4", "(jnp.abs(c2) * 3).astype(jnp.int32)", ("c2",)),
                    Line("v5", "(x3 + i3).astype(jnp.int32)", ("x3", "i3")),
                    Line(
                        "v6",
                        "c2.at[x3 % 6, v4 % 4, v5 % 2].set(jnp.tanh(c2))",
                        ("c2", "x3", "v4", "v5"),
                    ),
                    Line("v7", "v6 * 0.5 + c2", ("v6", "c2")),
                ),
                counter="i3",
            ),
        ),
        outputs=("v8",),
        transform="vmap_grad",
        batched=(3, None),
        small=True,
        seed=998,
    ),
    # A dot was written before its factors: what it needs was taken to be the products of their elements.
    "two_products_of_one_sum_in_a_stream": Program(
        inputs=(
            Input("x", (17, 1), "float32", "normal"),
            Input("y", (150, 17), "float32", "normal"),
            Input("z", (150, 3), "float32", "normal"),
        ),
        lines=(
            Line("v", "jnp.sum(jnp.square(x[:, None] - x[None]), -1)", ("x",)),
            Line("m", "(y[:, 0] > 0) | (jnp.arange(150) == 0)", ("y",)),
            Line("s", "jnp.where(m, jnp.stack([v, v / 2, -v]) @ y.T / 3, -jnp.inf)", ("v", "m", "y")),
            Line("w", "(jnp.exp(s - jnp.max(s, -1, keepdims=True)) @ z) / 7", ("s", "z")),
        ),
        outputs=("w",),
        transform="jvp",
        outside=True,
        seed=437,
    ),
}
COMPILED = (
    "a_product_is_found_where_it_is_stored",
    "lanes_are_turned_around",
    "a_number_is_a_factor_of_what_is_stored",
    "names_of_a_step_that_is_held",
    "a_choice_of_two_numbers_by_a_place",
)


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    assert check(FOUND[name]).compared > 0


def test_sums_are_compared_in_large_kernels_too() -> None:
    found = FOUND["a_sum_is_put_out_and_its_products_are_compared"]
    assert check(dataclasses.replace(found, small=False)).compared > 0


@pytest.mark.parametrize("name", COMPILED)
def test_found_in_compiled_kernels(name: str) -> None:
    assert check(FOUND[name], backend="machine").compared > 0
