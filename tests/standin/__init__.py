"""A CUDA driver with no device behind it, so that all of JAX's CUDA backend runs on any computer.

    python -m tests.standin                        the tests marked `standin`
    python -m tests.standin -m gpu                 the tests that need a device, on it
    python -m bench.launched --markdown PAGE       what is launched, ours beside `jax.jit`

`driver/` is the driver, in C; `build.py` compiles it, `start.py` has JAX take it, `record.py` reads what was launched,
and `checks.py` compares that with the kernels that were meant.
"""
