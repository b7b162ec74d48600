"""What the functions of CUDA's libdevice compute, in NumPy and SciPy, by their names without `__nv_` and final f."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.special

Array = np.ndarray


def _unsigned(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


def _bit_length(x: Array) -> Array:
    """The position of the highest set bit, counted from 1; 0 for 0."""
    rest, length = _unsigned(x).astype(np.uint64), np.zeros(x.shape, np.int32)
    for step in (32, 16, 8, 4, 2, 1):
        higher = rest >= np.uint64(1 << step)
        length = np.where(higher, length + step, length)
        rest = np.where(higher, rest >> np.uint64(step), rest)
    return length + (rest > 0)


def _clz(x: Array) -> Array:
    return np.int32(x.dtype.itemsize * 8) - _bit_length(x)


def _ffs(x: Array) -> Array:
    lowest = _unsigned(x) & (~_unsigned(x) + np.ones((), _unsigned(x).dtype))
    return _bit_length(lowest)


def _brev(x: Array) -> Array:
    rest, reversed_ = _unsigned(x), np.zeros_like(_unsigned(x))
    one = np.ones((), rest.dtype)
    for _ in range(rest.dtype.itemsize * 8):
        reversed_ = (reversed_ << one) | (rest & one)
        rest = rest >> one
    return reversed_.view(x.dtype)


def _round_half_away(x: Array) -> Array:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), np.copysign(whole, x)).astype(x.dtype)


def _logb(x: Array) -> Array:
    exponent = (np.frexp(x)[1] - 1).astype(x.dtype)
    return np.where(x == 0, -np.inf, np.where(np.isfinite(x), exponent, np.abs(x)))


def _remainder(x: Array, y: Array) -> Array:
    """IEEE remainder: the quotient is rounded to the nearest even integer."""
    rest, size = np.fmod(np.abs(x), 2 * np.abs(y)), np.abs(y)
    rest = np.where(np.isfinite(2 * size), rest, np.abs(x))
    rest = np.where(rest > size / 2, rest - size, rest)
    rest = np.where(rest >= size / 2, rest - size, rest)
    return np.copysign(1, x) * np.where(np.isinf(y) & np.isfinite(x), np.abs(x), rest)


def _fma(x: Array, y: Array, z: Array) -> Array:
    return x.astype(np.float64) * y + z


def _pow(x: Array, y: Array) -> Array:
    """C's pow: NumPy takes a root where one exponent of 1/2 serves all of x, which differs at -0.0 and -inf."""
    beyond_the_root = (y == 0.5) & ((x == 0) | np.isinf(x))
    return np.where(beyond_the_root, np.abs(x), np.power(np.where(beyond_the_root, 1, x).astype(x.dtype), y))


def _lgamma(x: Array) -> Array:
    """SciPy says -inf for -inf."""
    return np.where(np.isinf(x), np.abs(x), scipy.special.gammaln(x))


def _erfinv(x: Array) -> Array:
    """SciPy says 0.0 for -0.0."""
    return np.copysign(scipy.special.erfinv(x), x)


def _in_turns(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """sinpi, cospi: the argument is reduced before it is multiplied by pi."""
    return lambda x: f(np.pi * np.fmod(x, 2).astype(np.float64))


_NUMPY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh fabs floor ceil trunc rint "
    "fmod hypot copysign nextafter ldexp"
)

_SCIPY = "erf erfc erfcinv erfcx j0 j1 y0 y1"

FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in _NUMPY.split()},
    **{name: getattr(scipy.special, name) for name in _SCIPY.split()},
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": _pow,
    "powi": np.power,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "sinpi": _in_turns(np.sin),
    "cospi": _in_turns(np.cos),
    "nearbyint": np.rint,
    "round": _round_half_away,
    "remainder": _remainder,
    "logb": _logb,
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "scalbn": np.ldexp,
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(x <= y, 0, np.nan)),
    "fma": _fma,
    "saturate": lambda x: np.fmin(np.fmax(x, 0), 1),
    "erfinv": _erfinv,
    "lgamma": _lgamma,
    "tgamma": scipy.special.gamma,
    "cyl_bessel_i0": scipy.special.i0,
    "cyl_bessel_i1": scipy.special.i1,
    "normcdf": scipy.special.ndtr,
    "normcdfinv": scipy.special.ndtri,
    "fast_sin": np.sin,
    "fast_cos": np.cos,
    "fast_tan": np.tan,
    "fast_exp": np.exp,
    "fast_exp10": lambda x: np.power(x.dtype.type(10), x),
    "fast_log": np.log,
    "fast_log2": np.log2,
    "fast_log10": np.log10,
    "fast_pow": _pow,
    "fast_fdivide": np.divide,
    "fadd_rn": np.add,
    "dadd_rn": np.add,
    "fmul_rn": np.multiply,
    "dmul_rn": np.multiply,
    "fdiv_rn": np.divide,
    "ddiv_rn": np.divide,
    "fsqrt_rn": np.sqrt,
    "dsqrt_rn": np.sqrt,
    "isnand": np.isnan,
    "isnan": np.isnan,
    "isinfd": np.isinf,
    "isinf": np.isinf,
    "isfinited": np.isfinite,
    "finite": np.isfinite,
    "signbitd": np.signbit,
    "signbit": np.signbit,
    "abs": np.abs,
    "llabs": np.abs,
    "popc": lambda x: np.bitwise_count(_unsigned(x)),
    "popcll": lambda x: np.bitwise_count(_unsigned(x)),
    "clz": _clz,
    "clzll": _clz,
    "ffs": _ffs,
    "ffsll": _ffs,
    "brev": _brev,
    "brevll": _brev,
}


def libdevice_function(symbol: str) -> Callable[..., Array]:
    """__nv_tanhf → np.tanh."""
    name = symbol.removeprefix("__nv_")
    function = FUNCTIONS.get(name) or FUNCTIONS.get(name.removesuffix("f"))
    if function is None:
        raise NotImplementedError(f"the interpreter does not know libdevice's {symbol}")
    return function
