"""Finding a model's static activation scales: run a text, keep the largest values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from agentmem.engine.loader import load_decoder
from agentmem.engine.models.decoder import Decoder
from agentmem.engine.quant.calibration import Calibration
from agentmem.engine.quant.losses import WINDOW, contexts
from agentmem.engine.quant.measure import ranges
from agentmem.engine.quant.own_text import STARTS, own_text
from agentmem.errors import DataError
from agentmem.modelfiles.fetch import verify
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer

LENGTH = 128
"""Tokens of each text that the model writes itself."""
Progress = Callable[[str, float], None]
"""Called with what is being done and the share done, 0 to 1."""


def calibrate(
    path: Path,
    tokens: int,
    text: str | None = None,
    percentile: float = 100.0,
    on_progress: Progress | None = None,
) -> Calibration:
    """Scales of every linear's input, from the bf16 model on a text, or on its own where None.

    At most `tokens` tokens are run. Raises DataError when the text is too short, or a value that
    the model computes on it is not finite.
    """
    report = on_progress or (lambda _what, _share: None)
    weights = verify(path)
    decoder = load_decoder(path, "bf16")
    windows, source = texts(path, decoder, tokens, text, report)
    told = _share("running it", sum(map(len, windows)), report)
    scales = ranges(decoder, windows, told).scales(percentile)
    return Calibration(weights, scales, percentile, sum(map(len, windows)), source)


def texts(
    path: Path, decoder: Decoder, tokens: int, text: str | None, report: Progress
) -> tuple[list[list[int]], str]:
    """Contexts of at most `tokens` tokens in all, of a text or the model's own; and the source."""
    if tokens < 2:
        raise DataError("calibration needs at least two tokens")
    tokenizer = load_tokenizer(path)
    if text is not None:
        ids = tokenizer.encode(text, special=False)[:tokens]
        told = f"a text of sha256 {hashlib.sha256(text.encode()).hexdigest()}"
        return contexts(ids, min(WINDOW, decoder.config.window), tokenizer.bos_id), told
    written = own_text(
        decoder,
        _starts(tokenizer, tokens),
        min(LENGTH, tokens, decoder.config.window),
        tokenizer.eos_ids,
        _share("the model writes its own text", tokens, report),
    )
    return written, "the model's own text, sampled at temperature 1"


def _starts(tokenizer: Tokenizer, tokens: int) -> list[list[int]]:
    """As many beginnings as the wanted tokens fill, each behind the model's first token."""
    head = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    count = max(1, tokens // LENGTH)
    plain = [head + tokenizer.encode(text, special=False) for text in STARTS]
    return [plain[i % len(plain)] for i in range(count)]


def _share(what: str, whole: int, report: Progress) -> Callable[[int], None]:
    done = [0]

    def add(tokens: int) -> None:
        done[0] += tokens
        report(what, min(1.0, done[0] / whole))

    return add


def text_windows(path: Path, text: str, tokens: int, window: int) -> Sequence[Sequence[int]]:
    """A text in the model's own tokens, cut into contexts."""
    tokenizer = load_tokenizer(path)
    return contexts(tokenizer.encode(text, special=False)[:tokens], window, tokenizer.bos_id)
