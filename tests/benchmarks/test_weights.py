"""The same weights for all: converted folders, and the bytes that a token has to read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agentmem.engine.loader import load_decoder
from agentmem.engine.quant.modes import weights_bytes
from agentmem.errors import DataError
from benchmarks.engine_parts import convert as conversion
from benchmarks.engine_parts.convert import convert, converted, hub_name
from benchmarks.engine_parts.floor import config_of, floor_tokens_s, kv_bytes, weight_bytes
from tests.engine.core.gguf_writer import save_gguf
from tests.engine.core.toys import TOYS, save_toy

TOLERANCE = {"gemma3_usual": 4e-3}
"""Gemma's norms are stored plus one, which costs their last bits."""


def toy(name: str, tmp_path: Path) -> tuple[Path, Path]:
    """A random model as a folder and as the GGUF file that the usual converter writes."""
    folder = tmp_path / name
    save_toy(TOYS[name], folder)
    return folder, save_gguf(folder, tmp_path / f"{name}.gguf")


@pytest.mark.parametrize("name", ["llama", "llama_untied", "qwen2", "gemma3_usual"])
def test_a_converted_folder_is_the_model_again(name: str, tmp_path: Path) -> None:
    folder, path = toy(name, tmp_path)
    convert(path, tmp_path / "out")
    before = load_file(folder / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert set(after) == set(before)
    for key, tensor in before.items():
        wanted = tensor.to(torch.bfloat16).float()
        near = TOLERANCE.get(name, 0.0) * wanted.abs() if "norm" in key else 0.0
        assert bool(((after[key].float() - wanted).abs() <= near).all()), key
    ids = torch.arange(40)[None] % 250
    with torch.inference_mode():
        logits = [
            AutoModelForCausalLM.from_pretrained(at, dtype=torch.bfloat16).float()(ids).logits
            for at in (folder, tmp_path / "out")
        ]
    assert torch.allclose(logits[0], logits[1], atol=0.02 if name in TOLERANCE else 1e-4)


def test_a_folder_is_made_once_and_again_when_the_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path / "cache"))
    folder, path = toy("llama", tmp_path)
    assert converted(folder) == folder
    made = converted(path)
    assert made.parent == tmp_path / "cache" / "peers" / "models"
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "convert", None)  # not called
        assert converted(path) == made
    mark = (made / "made_from").read_text()
    (made / "made_from").write_text("0 older")
    assert converted(path) == made
    assert (made / "made_from").read_text() == mark


def test_an_unknown_tensor_is_refused() -> None:
    assert hub_name("blk.3.ffn_norm.weight", "llama").endswith("3.post_attention_layernorm.weight")
    assert hub_name("blk.3.ffn_norm.weight", "gemma3").endswith("pre_feedforward_layernorm.weight")
    with pytest.raises(DataError, match="ssm_in"):
        hub_name("blk.0.ssm_in.weight", "llama")


@pytest.mark.parametrize("name", ["llama_untied", "qwen2", "gemma3"])
@pytest.mark.parametrize("mode", ["fp32", "bf16", "int8", "fp8", "int4"])
def test_the_floor_counts_the_bytes_that_the_engine_holds(
    name: str, mode: str, tmp_path: Path
) -> None:
    folder, _ = toy(name, tmp_path)
    decoder = load_decoder(folder, mode)  # type: ignore[arg-type]
    held = weights_bytes(decoder.weights)
    if decoder.weights.head is not decoder.weights.embedding:
        held -= decoder.weights.embedding.size_bytes  # one row of it is read
    assert weight_bytes(config_of(folder), mode) == held


def test_sliding_layers_read_their_window_only(tmp_path: Path) -> None:
    config = config_of(toy("gemma3", tmp_path)[0])  # 6 layers of window 8, 1 full; 1 head of 32
    assert kv_bytes(config, "bf16", 100) == (6 * 8 + 100) * 2 * 32 * 2
    assert kv_bytes(config, "int8", 4) == 7 * 4 * 2 * (32 + 4)
    total = weight_bytes(config, "bf16") + kv_bytes(config, "bf16", 100)
    assert floor_tokens_s(config, "bf16", "bf16", 100, 2.0) == pytest.approx(2e9 / total)
