"""What cached state depends on besides the tokens: two engines that differ share nothing."""

from __future__ import annotations

import hashlib
import json

from agentmem.engine.kv.layout import BLOCK_SIZE, PAGE_FORMAT, KVKind
from agentmem.engine.models.decoder import Decoder
from agentmem.modelfiles.tokenizer import Tokenizer

PASS_VERSION = 2
"""Changes when the forward pass gives other numbers for the same weights and tokens."""


def identity_of(
    decoder: Decoder,
    tokenizer: Tokenizer,
    weights: str,
    mode: str,
    kv: KVKind,
    calibration: str = "",
) -> bytes:
    """A digest of weights, mode, calibration, rounding, page format, kernels and tokenizer."""
    known = {
        "weights": weights,
        "mode": mode,
        "calibration": calibration,
        "order": decoder.order,
        "residual": str(decoder.residual),
        "kv": kv,
        "pages": [PAGE_FORMAT, BLOCK_SIZE],
        "kernels": [decoder.kernels.name, decoder.kernels.invariant],
        "pass": PASS_VERSION,
        "tokenizer": tokenizer.name,
        "vocabulary": hashlib.sha256(b"\0".join(tokenizer.vocabulary)).hexdigest(),
        "template": tokenizer.chat_template,
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).digest()
