"""Feed-forward blocks of hybrids: dense, and experts of which each row takes a few."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.config_hybrid import ExpertShape
from agentmem.engine.kernels.base import Kernels
from agentmem.engine.kernels.weights import Weight


@dataclass(frozen=True, slots=True)
class FeedForward:
    """`up` holds the gate's rows, then the others, where `gated`; else it is all."""

    up: Weight
    up_bias: Tensor | None
    down: Weight
    down_bias: Tensor | None
    gated: bool
    gate_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Experts:
    """`router` [count, width] and `router_bias` [count] are float32.

    `into` and `back` lead to the experts' own width, where it is another; `shared` is for all rows.
    """

    router: Tensor
    router_bias: Tensor | None
    each: tuple[FeedForward, ...]
    into: tuple[Weight, Tensor | None] | None
    back: tuple[Weight, Tensor | None] | None
    shared: FeedForward | None


def feed(x: Tensor, weights: FeedForward, kernels: Kernels) -> Tensor:
    """x [n, width] to [n, width]."""
    h = kernels.linear(x, weights.up, weights.up_bias)
    if not weights.gated:
        h = F.relu(h).square()
    elif weights.gate_scale == 1.0:
        h = kernels.gate(h, "silu")
    else:
        gate, up = h.chunk(2, dim=1)
        h = F.silu(gate * weights.gate_scale) * up
    return kernels.linear(h, weights.down, weights.down_bias)


def feed_experts(x: Tensor, experts: Experts, shape: ExpertShape, kernels: Kernels) -> Tensor:
    """x [n, width] to [n, width]: each row's chosen experts, weighed, plus the shared one."""
    share, chosen = route(x, experts, shape)
    own = x if experts.into is None else kernels.linear(x, *experts.into)
    total = torch.zeros(own.shape)
    for i, expert in enumerate(experts.each):
        rows, which = torch.where(chosen == i)
        if len(rows):
            given = feed(own[rows], expert, kernels).float() * share[rows, which, None]
            total.index_add_(0, rows, given)
    out = total.to(x.dtype)
    if experts.back is not None:
        out = kernels.linear(out, *experts.back)
    return out if experts.shared is None else out + feed(x, experts.shared, kernels)


def route(x: Tensor, experts: Experts, shape: ExpertShape) -> tuple[Tensor, Tensor]:
    """Shares (float32) and numbers of each row's experts, both [n, chosen]."""
    logits = F.linear(x.float(), experts.router)
    if shape.scoring == "softmax":
        best, chosen = logits.topk(shape.chosen, dim=1)
        return best.softmax(dim=1), chosen
    scores = logits.sigmoid()
    wanted = scores if experts.router_bias is None else scores + experts.router_bias
    chosen = _within_best_groups(wanted, shape).topk(shape.chosen, dim=1).indices
    share = scores.gather(1, chosen)
    if shape.normalised:
        share = share / (share.sum(dim=1, keepdim=True) + 1e-20)
    return share * shape.scaling, chosen


def _within_best_groups(wanted: Tensor, shape: ExpertShape) -> Tensor:
    """Minus infinity for experts outside the groups whose two best add up to most."""
    if shape.groups == shape.best_groups:
        return wanted
    groups = wanted.view(len(wanted), shape.groups, -1)
    best = groups.topk(2, dim=2).values.sum(dim=2).topk(shape.best_groups, dim=1).indices
    open_ = torch.zeros(groups.shape[:2], dtype=torch.bool).scatter_(1, best, True)
    return groups.masked_fill(~open_[..., None], -torch.inf).flatten(1)
