"""Names of variables: each once in the scopes that are open, and free again for the loops that come after."""

from __future__ import annotations

import random
import time

from jaxpr2triton.emit.names import RESERVED, Names


class Plain:
    """What `Names` promises, by looking at everything each time."""

    def __init__(self) -> None:
        self.taken = [{"i"} | RESERVED]
        self.below: list[set[str]] = [set()]

    def new(self, wish: str, depth: int) -> str:
        unfree = set().union(*self.taken, *self.below[depth:])
        name, copy = wish, 1
        while name in unfree:
            copy += 1
            name = f"{wish}_{copy}"
        self.taken[depth].add(name)
        return name

    def enter(self) -> None:
        self.taken.append(set())
        self.below.append(set())

    def leave(self) -> None:
        ended = self.taken.pop() | self.below.pop()
        self.below[-1] |= ended


def test_names_are_the_first_that_are_free() -> None:
    draws = random.Random()
    for _ in range(50):
        names, plain = Names(["i"]), Plain()
        for _ in range(100):
            depth = len(plain.taken) - 1
            match draws.choice("nnnnnel" if depth else "nnnne"):
                case "n":
                    wish, where = draws.choice(["i", "x", "x_2", "range", "y"]), draws.randint(0, depth)
                    assert names.new(wish, where) == plain.new(wish, where)
                case "e":
                    names.enter()
                    plain.enter()
                case "l":
                    names.leave()
                    plain.leave()


def test_thousands_of_names_take_no_longer_each_than_a_few() -> None:
    names = Names([])
    start = time.process_time()
    assert [names.new("scaled", 0) for _ in range(20_000)][-1] == "scaled_20000"
    assert time.process_time() - start < 1
