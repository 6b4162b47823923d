"""Runs the programs of a launch in another order than the interpreter's own.

Programs of a grid may run in any order on a device. A result that depends on it is a race, and the
interpreter, which runs them one after the other, shows it when they are shuffled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from triton.runtime.interpreter import interpreter_builder

Order = Callable[[int], list[int]]
"""Number of programs -> which one runs first, second, ..."""


def forward(count: int) -> list[int]:
    return list(range(count))


def reverse(count: int) -> list[int]:
    return list(reversed(range(count)))


def shuffled(seed: int) -> Order:
    def order(count: int) -> list[int]:
        places = list(range(count))
        random.Random(seed * 1_000_003 + count).shuffle(places)
        return places

    return order


@contextmanager
def program_order(order: Order) -> Iterator[list[int]]:
    """Every launch inside runs in this order; gives the list of programs as they ran."""
    builder, ran = interpreter_builder, []
    placed: dict[tuple[int, ...], list[int]] = {}

    def place(x: int, y: int, z: int) -> None:
        _, height, depth = shape = builder.grid_dim
        count = shape[0] * height * depth
        now = placed.setdefault(shape, order(count))[(x * height + y) * depth + z]
        ran.append(now)
        type(builder).set_grid_idx(
            builder, now // (height * depth), now // depth % height, now % depth
        )

    builder.set_grid_idx = place
    try:
        yield ran
    finally:
        del builder.set_grid_idx
