"""Pure decisions of the aligned state cache.

A sequence's states lie in columns: column `p` ends at token `(p + 1) * block`. The running state
stands in the column of the last token scheduled; the forward pass leaves the state after draft `j`
in the `j`-th column behind it, and the convolution window, which all drafts share, in the running
column itself, shifted. `accepted` counts the tokens kept of the last step among those it drafted,
the one it sampled included: at least 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Move:
    """State to be copied between columns, `bias` tokens on.

    A window moves from column `src`, shifted left by `bias`; a recurrent state comes from column
    `src + bias`.
    """

    src: int
    dst: int
    bias: int

    @property
    def state_src(self) -> int:
        """Where a recurrent state is taken from."""
        return self.src + self.bias


class Outcome(NamedTuple):
    """What to do once the accepted tokens of a step are known."""

    move: Move | None
    reset: bool
    """Whether the running column then holds the state itself: `accepted` becomes 1."""
    checkpoint: tuple[int, int] | None
    """Column and token offset of a state that a hash may name."""


NOTHING = Outcome(None, False, None)


def column_of(tokens: int, block: int) -> int:
    """Column of the state after so many tokens; -1 before the first."""
    return -(-tokens // block) - 1


def running_column(computed: int, scheduled: int, block: int) -> int:
    """Column in which a step leaves its state."""
    return column_of(computed + scheduled, block)


def forward_columns(tokens: int, block: int, drafts: int) -> range:
    """Columns that a pass up to `tokens` (drafts and all) may write."""
    first = max((tokens - 1) // block, 0)
    return range(first, first + 1 + drafts)


def accepted_of(sampled: int) -> int:
    """What a step's sampled tokens count as: a chunk that samples none counts as 1."""
    return max(sampled, 1)


def draft_mark(configured: bool, decoding: bool, real: bool, drafts: int) -> int:
    """Drafts of a row that keeps its accepted offset, -1 for a row that has none.

    It hangs on whether drafts are configured, never on whether this step has any: a decode row
    without drafts still begins at the offset that the last step left. Tails of prompts and padding
    begin at none.
    """
    return drafts if configured and decoding and real else -1


def precopy(old: int, column: int, accepted: int) -> Move | None:
    """What a step needs in its running column before it begins; None where it is there already."""
    if old < 0 or old == column:
        return None
    return Move(old, column, max(accepted - 1, 0))


def postprocess(computed: int, accepted: int, column: int, block: int) -> Outcome:
    """The checkpoint of a step that ended at `computed` tokens, rejected drafts left out.

    Acts only where a boundary lies among the tokens that the step kept of its drafts.
    """
    running = computed - accepted + 1
    aligned = computed // block * block
    if aligned < running or aligned <= 0:
        return NOTHING
    bias, dst = aligned - running, aligned // block - 1
    same = dst == column
    move = None if same and bias == 0 else Move(column, dst, bias)
    return Outcome(move, same, (dst, aligned))


def may_checkpoint_apart(computed: int, scheduled: int, drafts: int, block: int) -> bool:
    """Whether a step can end with a checkpoint that none of its columns holds by itself.

    One right behind the last token that is no draft lies in the running column whole.
    """
    most = computed + scheduled
    return most - drafts < (most - 1) // block * block


# --- chunks and checkpoints of prompts


def checkpoint_position(prompt: int, block: int, *, eagle: bool = False, lookahead: int = 1) -> int:
    """The last boundary of a prompt that a later request with the same prompt can start from.

    A hit leaves at least one token to compute; a drafter that reads hidden states takes one block
    more.
    """
    if eagle:
        return max(0, prompt // block * block - block)
    return max(0, (prompt - max(1, lookahead)) // block * block)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is known of a prompt when its next chunk is cut."""

    tokens: int
    block: int
    eagle: bool = False
    chunk_limit: int | None = None
    """The most that one step ever computes of it; below a block, chunks end inside blocks."""
    junction: int | None = None
    """Where its beginning is shared with others: a stop at the boundary before it pays."""

    @property
    def stops(self) -> tuple[int, ...]:
        """Boundaries that chunks do not run over."""
        last = checkpoint_position(self.tokens, self.block, eagle=self.eagle)
        shared = 0 if self.junction is None else min(self.junction, last) // self.block * self.block
        return tuple(sorted({stop for stop in (shared, last) if stop > 0}))


def clip_chunk(start: int, want: int, prompt: Prompt) -> int:
    """How many of `want` tokens to compute from `start` on; 0 defers to a step with more room."""
    block = prompt.block
    end = min(start + want, prompt.tokens)
    for stop in prompt.stops:
        if start < stop < end:
            end = stop
            break
    if start % block:
        end = min(end, (start // block + 1) * block)
    elif end < prompt.tokens and (prompt.chunk_limit is None or prompt.chunk_limit >= block):
        end = end // block * block
    return max(0, end - start)


def keeps(
    offset: int, block: int, interval: int | None, prompt: int, *, eagle: bool = False
) -> bool:
    """Whether the checkpoint at a boundary is worth a slot.

    Interval None keeps all; 0 the prompt's last reachable one and those behind the prompt; k every
    k-th, and what 0 keeps of the prompt.
    """
    if interval is None:
        return True
    if offset == checkpoint_position(prompt, block, eagle=eagle):
        return True
    if interval == 0:
        return offset >= prompt
    return offset // block % interval == 0


def hit_limit(prompt: int, attention: int, block: int, *, eagle: bool = False) -> int:
    """The deepest state a prompt may start from, when attention layers have `attention` tokens.

    One token is left to compute. A drafter that needs hidden states drops a block of the attention
    hit, and the state hit must lie before that too.
    """
    most = min(attention, prompt - 1)
    return max(0, most // block * block - block if eagle else most)
