"""Storage types against the `gguf` package, block for block."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as reference

from agentmem.errors import DataError
from agentmem.modelfiles.dequant import TYPES, dequantize

QUANTISED = [t for t in TYPES.values() if t.block > 1]


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda t: t.name)
def test_random_blocks_decode_to_the_same_floats(kind) -> None:
    rng = np.random.default_rng(7)
    blocks = rng.integers(0, 256, (97, kind.size_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        ours = dequantize(blocks, kind.name)
        theirs = reference(blocks, gguf.GGMLQuantizationType[kind.name]).reshape(-1)
    assert ours.dtype == np.float32
    assert np.isfinite(ours).mean() > 0.8
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_weights_survive_quantisation_within_a_step(name) -> None:
    weights = np.random.default_rng(1).standard_normal((8, 256), dtype=np.float32)
    raw = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[name])
    back = dequantize(raw, name).reshape(weights.shape)
    step = {"Q8_0": 1 / 127, "Q5_0": 1 / 15, "Q5_1": 1 / 15, "Q4_0": 1 / 7, "Q4_1": 1 / 7}[name]
    assert np.abs(back - weights).max() <= np.abs(weights).max() * step


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_plain_types(name) -> None:
    values = np.array([0.0, 1.0, -2.5, 65504.0, 2**-14], dtype=np.float32)
    stored = {
        "F32": values,
        "F16": values.astype(np.float16),
        "BF16": (values.view(np.uint32) >> 16).astype(np.uint16),
    }[name]
    width = next(t.size_bytes for t in TYPES.values() if t.name == name)
    ours = dequantize(stored.view(np.uint8).reshape(-1, width), name)
    expected = (values.view(np.uint32) & 0xFFFF0000).view(np.float32) if name == "BF16" else values
    np.testing.assert_array_equal(ours, expected)


def test_a_type_without_a_decoder_is_named(monkeypatch) -> None:
    monkeypatch.delitem(__import__("agentmem.modelfiles.dequant", fromlist=["x"])._DECODERS, "Q6_K")
    with pytest.raises(DataError, match="Q6_K"):
        dequantize(np.zeros((1, 210), dtype=np.uint8), "Q6_K")
