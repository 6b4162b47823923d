"""Logits against transformers on the same weights, teacher-forced; tiny models, all features."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentmem.engine.loader import load_decoder
from agentmem.engine.models.alone import Alone
from agentmem.errors import DataError
from tests.engine.core.gguf_writer import save_gguf
from tests.engine.core.toys import TOYS


def _prompts(count: int, length: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, 259, (length,), generator=generator) for _ in range(count)]


@pytest.mark.parametrize("name", TOYS)
def test_ten_prompts_give_the_logits_of_transformers(toy_folder, name: str) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(toy_folder(name), dtype=torch.float32).eval()
    ours = load_decoder(toy_folder(name), "fp32")
    with torch.inference_mode():
        for prompt in _prompts(10, 64):
            expected = theirs(prompt[None]).logits[0]
            found = Alone(ours, 64).run(prompt)
            assert (found - expected).abs().max() < 1e-3
            assert (found.argmax(-1) == expected.argmax(-1)).all()


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("chunks", [[64], [1] * 64, [7, 9, 1, 47], [63, 1], [3, 61]])
def test_pieces_give_the_logits_of_the_whole(toy_folder, name: str, chunks: list[int]) -> None:
    decoder = load_decoder(toy_folder(name), "fp32")
    (prompt,) = _prompts(1, 64)
    with torch.inference_mode():
        whole = Alone(decoder, 64).run(prompt)
        pieces = Alone(decoder, 64)
        rows = [pieces.run(piece) for piece in prompt.split(chunks)]
        (last,) = Alone(decoder, 64).run(prompt, last_only=True)
    assert (torch.cat(rows) - whole).abs().max() < 2e-5
    assert (last - whole[-1]).abs().max() < 2e-5
    assert pieces.length == 64


@pytest.mark.parametrize("name", ["llama", "llama_untied", "qwen2", "gemma3_usual"])
def test_a_gguf_file_gives_what_its_folder_gives(toy_folder, tmp_path: Path, name: str) -> None:
    path = save_gguf(toy_folder(name), tmp_path / "toy.gguf")
    ours, same = (load_decoder(p, "fp32") for p in (path, toy_folder(name)))
    (prompt,) = _prompts(1, 64)
    with torch.inference_mode():
        found = Alone(ours, 64).run(prompt)
        expected = Alone(same, 64).run(prompt)
    assert (found - expected).abs().max() < 1e-4


def test_bf16_stays_near_fp32(toy_folder) -> None:
    exact, rounded = (load_decoder(toy_folder("llama"), t) for t in ("fp32", "bf16"))
    (prompt,) = _prompts(1, 64)
    with torch.inference_mode():
        a = Alone(exact, 64).run(prompt)
        b = Alone(rounded, 64).run(prompt)
    assert b.dtype == torch.bfloat16
    assert (a - b).abs().mean() < 0.02 * a.abs().mean() + 0.01


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mystery"}')
    with pytest.raises(DataError, match="'mystery' model; known are llama, qwen2"):
        load_decoder(tmp_path, "fp32")


def test_missing_and_surplus_tensors_are_named(toy_folder, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = toy_folder("llama")
    tensors = load_file(folder / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    extra = tensors | {"model.layers.0.self_attn.odd.weight": torch.zeros(2)}
    save_file(extra, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=r"does not know.*odd"):
        load_decoder(tmp_path, "fp32")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_decoder(tmp_path, "fp32")
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0garbage!")
    with pytest.raises(DataError, match="cannot read"):
        load_decoder(tmp_path, "fp32")
