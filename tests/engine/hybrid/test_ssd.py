"""The scan and the step against the recurrence itself, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agentmem.engine.models import ssd
from tests.engine.hybrid.toys import worst

HEADS, DIM, GROUPS, STATE = 6, 8, 2, 16
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def inputs(length: int, fastest: float = 16.0) -> Inputs:
    """x, dt, a, b, c and a state that is not zero."""
    source = torch.Generator().manual_seed(length)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source)

    dt = torch.nn.functional.softplus(random(length, HEADS) - 1)
    a = -torch.linspace(0.05, fastest, HEADS)
    b, c = random(length, GROUPS, STATE), random(length, GROUPS, STATE)
    return random(length, HEADS, DIM), dt, a, b, c, random(HEADS, DIM, STATE)


def recurrence(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, h: Tensor) -> Tensor:
    """y and, at its end, the state, one row after the other."""
    x, dt, a, b, c, h = (t.double() for t in (x, dt, a, b, c, h))
    b, c = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (b, c))
    found = []
    for t in range(len(x)):
        fed = dt[t, :, None, None] * x[t][..., None] * b[t][:, None]
        h = torch.exp(dt[t] * a)[:, None, None] * h + fed
        found.append((h * c[t][:, None]).sum(-1))
    return torch.cat([torch.stack(found).flatten(), h.flatten()])


def flat(y: Tensor, state: Tensor) -> Tensor:
    return torch.cat([y.flatten(), state.flatten()])


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 200])
def test_scan_is_the_recurrence(length: int) -> None:
    given = inputs(length)
    assert worst(flat(*ssd.scan(*given)), recurrence(*given)) < 3e-6


@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_length_of_chunks_changes_only_rounding(chunk: int) -> None:
    given = inputs(300)
    assert worst(flat(*ssd.scan(*given, chunk=chunk)), recurrence(*given)) < 3e-6


def test_scan_keeps_digits_where_sums_of_decays_are_large() -> None:
    given = inputs(256, fastest=400.0)
    y, state = ssd.scan(*given, chunk=256)
    wanted = recurrence(*given)
    # the fast heads forget at once: their last rows must not carry the rounding of the whole sum
    assert worst(y.flatten(), wanted[: y.numel()]) < 3e-6
    assert worst(state.flatten(), wanted[y.numel() :]) < 3e-6
    assert bool(y.isfinite().all())


def test_scan_goes_on_where_another_stopped() -> None:
    *rows, a, b, c, state = inputs(150)
    wanted = flat(*ssd.scan(*rows, a, b, c, state))
    found, start = [], 0
    for stop in (1, 2, 70, 71, 150):
        part = slice(start, stop)
        x, dt = (t[part] for t in rows)
        y, state = ssd.scan(x, dt, a, b[part], c[part], state)
        found.append(y)
        start = stop
    assert worst(flat(torch.cat(found), state), wanted) < 3e-6


def test_steps_are_the_scan() -> None:
    x, dt, a, b, c, first = inputs(40)
    wanted = flat(*ssd.scan(x, dt, a, b, c, first))
    state, found = first[None], []
    for t in range(40):
        one = slice(t, t + 1)
        y, state = ssd.step(x[one], dt[one], a, b[one], c[one], state)
        found.append(y)
    assert worst(flat(torch.cat(found), state[0]), wanted) < 3e-6


def test_nothing_given_is_written_to() -> None:
    given = inputs(70)
    before = [t.clone() for t in given]
    ssd.scan(*given)
    x, dt, a, b, c, state = given
    ssd.step(x[:1], dt[:1], a, b[:1], c[:1], state[None])
    assert all(torch.equal(was, now) for was, now in zip(before, given, strict=True))
