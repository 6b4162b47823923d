"""The state-space recurrence of Mamba-2 in plain torch: a chunked scan, and one step.

For each head, with a decay a < 0 and a state h [head_dim, state]:
h[t] = exp(dt[t] a) h[t - 1] + dt[t] x[t] B[t]^T and y[t] = h[t] C[t]. All of it in float32; heads
share B and C in groups of neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64
"""Rows scanned at once: work inside a chunk grows with its length, work between chunks with their
number. What a checkpoint names as its chunk changes nothing but rounding."""


def scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """One sequence's rows behind a state: y [n, heads, head_dim] and the state behind them.

    x [n, heads, head_dim], dt [n, heads] (positive), a [heads], b and c [n, groups, state], state
    [heads, head_dim, state]; nothing is written to.
    """
    xs = (x * dt[..., None]).transpose(0, 1)
    # differences of sums of many steps: float64, or neighbours lose the digits of the whole
    steps = (dt * a).double().T
    b, c = b.transpose(0, 1), c.transpose(0, 1)
    found = []
    for start in range(0, len(x), chunk):
        rows = slice(start, start + chunk)
        y, state = _chunk(xs[:, rows], steps[:, rows], b[:, rows], c[:, rows], state)
        found.append(y)
    return torch.cat(found, dim=1).transpose(0, 1), state


def step(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One row of each of m sequences: y [m, heads, head_dim] and the states behind them.

    Shapes as in `scan`, with the sequence in place of the row; state [m, heads, head_dim, state].
    """
    per_group = x.shape[1] // b.shape[1]
    b, c = (t.repeat_interleave(per_group, dim=1) for t in (b, c))
    fed = (x * dt[..., None])[..., None] * b[:, :, None]
    state = torch.addcmul(fed, state, torch.exp(dt * a)[..., None, None])
    return (state @ c[..., None])[..., 0], state


def each(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """As `scan`, with the state behind every row: [n, heads, head_dim, state]."""
    found, states = [], []
    for t in range(len(x)):
        row = slice(t, t + 1)
        y, after = step(x[row], dt[row], a, b[row], c[row], state[None])
        found.append(y)
        states.append(after)
        state = after[0]
    return torch.cat(found), torch.cat(states)


def _chunk(xs: Tensor, steps: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """l rows: xs [heads, l, head_dim] is x dt, steps [heads, l] a dt; b, c [groups, l, state]."""
    heads, length, dim = xs.shape
    groups = len(b)
    shared = (groups, heads // groups, length, -1)
    sums = steps.cumsum(1)
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    between = (sums[:, :, None] - sums[:, None, :]).float().masked_fill(later, -torch.inf)
    mixing = (c @ b.transpose(1, 2))[:, None] * between.exp().reshape(shared)
    # from rows of this chunk, and from what the state brought in
    y = mixing.flatten(0, 1) @ xs
    carried = c[:, None] @ state.reshape(*shared[:2], dim, -1).transpose(2, 3)
    y += carried.reshape(heads, length, dim) * sums.exp().float()[..., None]
    left = (sums[:, -1:] - sums).exp().float()
    fed = (xs * left[..., None]).reshape(shared).transpose(2, 3) @ b[:, None]
    kept = state * sums[:, -1].exp().float()[:, None, None]
    return y, kept + fed.flatten(0, 1)
