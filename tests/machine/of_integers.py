"""What operations of integers and of bits give, by Python's integers and by bits as text."""

from __future__ import annotations

from collections.abc import Callable

from tests.machine.words import cut, length, value

Lane = Callable[[tuple[int, ...], int], tuple[tuple[int, ...], int]]


def integer_arithmetic(name: str, mods: list[str], type: str) -> Callable[..., int]:
    n = length(type)

    def one(*given: int) -> int:
        x, *rest = (value(each, type) for each in given)
        y = rest[0] if rest else 0
        match name:
            case "add" | "sub":
                total = x + y if name == "add" else x - y
                return min(max(total, -(1 << 31)), (1 << 31) - 1) if "sat" in mods else total
            case "mul" | "mad":
                product = x * y
                if "wide" in mods:
                    return product + (given[2] if name == "mad" else 0)
                return (product >> n if "hi" in mods else product) + (given[2] if name == "mad" else 0)
            case "div":
                return -1 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
            case "rem":
                return x if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)
            case "neg" | "abs":
                return -x if name == "neg" or x < 0 else x
            case "min" | "max":
                found = min(x, y) if name == "min" else max(x, y)
                return max(found, 0) if "relu" in mods else found
            case "sad":
                return rest[1] + abs(x - y)
        raise KeyError(name)

    return one


def with_carry(name: str, mods: list[str], type: str) -> Lane:
    n = length(type)
    keeps, uses = "cc" in mods, name in ("addc", "subc", "madc")

    def one(given: tuple[int, ...], carry: int) -> tuple[tuple[int, ...], int]:
        x, y = given[:2]
        before = carry if uses else 0
        if name.startswith("sub"):
            total = x - y - before
            return (total % (1 << n),), int(total < 0) if keeps else carry
        if name.startswith("mad"):
            product = value(x, type) * value(y, type)
            x, y = (product >> n if "hi" in mods else product) % (1 << n), given[2]
        total = x + y + before
        return (total % (1 << n),), total >> n if keeps else carry

    return one


def dot(name: str, mods: list[str], types: list[str]) -> Callable[..., int]:
    def one(a: int, b: int, c: int) -> int:
        size, count = (8, 4) if name == "dp4a" else (16, 2)
        b >>= 16 if "hi" in mods else 0
        left = [value(a >> size * i, types[0][0] + str(size)) for i in range(count)]
        right = [value(b >> 8 * i, types[1][0] + "8") for i in range(count)]
        return c + sum(x * y for x, y in zip(left, right))

    return one


def shift(name: str, mods: list[str], type: str) -> Callable[..., int]:
    return lambda a, b: value(a, type) << min(b, 64) if name == "shl" else value(a, type) >> min(b, 64)


def funnel(name: str, mods: list[str], type: str) -> Callable[..., int]:
    def one(a: int, b: int, c: int) -> int:
        amount = c % 32 if "wrap" in mods else min(c, 32)
        both = b << 32 | a
        return both << amount >> 32 if "l" in mods else both >> amount

    return one


def digits(n: int, count: int) -> str:
    """The bits of a number as text, the lowest one first."""
    return format(n & ((1 << count) - 1), f"0{count}b")[::-1]


def number_of(text: str) -> int:
    return int(text[::-1] or "0", 2)


def field(name: str, mods: list[str], type: str) -> Callable[..., int]:
    n = length(type)

    def extract(a: int, first: int, count: int) -> int:
        first, count = first & 255, count & 255
        text = digits(a, n)
        last = text[min(first + count - 1, n - 1)] if count and type[0] == "s" else "0"
        return number_of(text[first : first + count].ljust(n, last))

    def insert(a: int, b: int, first: int, count: int) -> int:
        first, count = first & 255, count & 255
        old, new = digits(b, n), digits(a, n).ljust(600, "0")
        return number_of((old[:first] + new[:count] + old[first + count :])[:n]) if first < n else b

    return extract if name == "bfe" else insert


def bits_of(name: str, mods: list[str], type: str) -> Callable[..., int]:
    n = length(type)

    def stop(x: int) -> int:
        return x % 32 if "wrap" in mods else min(x, 32)

    def permute(a: int, b: int, how: int) -> int:
        found = 0
        for i in range(4):
            choice = how >> 4 * i & 15
            byte = (b << 32 | a).to_bytes(8, "little")[choice & 7]
            found |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
        return found

    def find(a: int) -> int:
        text = format(cut(~a if value(a, type) < 0 else a, type.replace("s", "u")), "b")
        if text == "0":
            return 0xFFFF_FFFF
        return n - len(text) if mods else len(text) - 1

    return {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "not": lambda a: 1 - a if type == "pred" else ~a,
        "cnot": lambda a: int(a == 0),
        "lop3": lambda a, b, c, e: number_of(
            "".join(_looked_up(e, *bits) for bits in zip(*(digits(x, 32) for x in (a, b, c))))
        ),
        "prmt": permute,
        "popc": lambda a: digits(a, n).count("1"),
        "clz": lambda a: n - len(format(a, "b").lstrip("0")),
        "brev": lambda a: int(digits(a, n), 2),
        "bfind": find,
        "bmsk": lambda a, b: number_of("0" * stop(a) + "1" * stop(b)),
        "szext": lambda a, b: number_of(
            digits(a, 32)[: stop(b)].ljust(32, digits(a, 32)[stop(b) - 1] if stop(b) and type[0] == "s" else "0")
        ),
    }[name]


def _looked_up(table: int, a: str, b: str, c: str) -> str:
    return digits(table, 8)[int(a + b + c, 2)]
