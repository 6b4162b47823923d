"""FP8 checkpoints in both layouts against the numbers that they were built from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agentmem.engine.quant.checkpoints import scheme_of
from agentmem.engine.quant.formats import dequantise, join
from agentmem.engine.sources import FolderSource
from agentmem.errors import DataError
from tests.engine.quant import folders
from tests.engine.quant.folders import compressed, native, save

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYOUTS = {
    "native static": (native(), "tensor", True),
    "native dynamic": (native(static=False), "tensor", False),
    "compressed tensor": (compressed("tensor", True), "tensor", True),
    "compressed channel": (compressed("channel", True), "channel", True),
    "compressed dynamic": (compressed("channel", False), "channel", False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_codes_and_scales_are_kept_as_stored(layout: str, tmp_path: Path) -> None:
    config, scales, static = LAYOUTS[layout]
    stored = save(tmp_path, config, scales, static)
    source = FolderSource(tmp_path, "llama")
    for layer in range(folders.LAYERS):
        for ours, theirs in NAMES.items():
            module = f"model.layers.{layer}.{theirs}"
            weight = source.stored(f"blk.{layer}.{ours}.weight")
            assert weight is not None and weight.format == "fp8"
            assert torch.equal(dequantise(weight), stored.values[module])
            given = None if weight.input_scale is None else weight.input_scale.tolist()
            kept = stored.input_scales.get(module)
            assert given == (None if kept is None else pytest.approx([kept]))
    assert source.stored("token_embd.weight") is None
    for name in ("token_embd", "output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        source.take(name + ".weight", torch.float32)
    for name in ("blk.1.attn_norm", "blk.1.ffn_norm"):
        source.take(name + ".weight", torch.float32)
    assert source.unused() == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_other_mode_takes_the_numbers(layout: str, tmp_path: Path) -> None:
    config, scales, static = LAYOUTS[layout]
    stored = save(tmp_path, config, scales, static)
    source = FolderSource(tmp_path, "llama")
    got = source.take("blk.1.ffn_up.weight", torch.float32)
    assert torch.equal(got, stored.values["model.layers.1.mlp.up_proj"])
    assert "model.layers.1.mlp.up_proj.weight_scale" not in source.unused()
    rounded = source.take("blk.1.ffn_up.weight", torch.bfloat16)
    assert torch.equal(rounded, got.bfloat16())


def test_a_fused_projection_uses_the_largest_input_scale(tmp_path: Path) -> None:
    stored = save(tmp_path, native(), "tensor", True)
    source = FolderSource(tmp_path, "llama")
    for layer, fused in ((0, ("attn_q", "attn_k", "attn_v")), (1, ("ffn_gate", "ffn_up"))):
        parts = [source.stored(f"blk.{layer}.{name}.weight") for name in fused]
        whole = join([part for part in parts if part is not None])
        modules = [f"model.layers.{layer}.{NAMES[name]}" for name in fused]
        assert whole.input_scale is not None
        expected = max(stored.input_scales[module] for module in modules)
        assert whole.input_scale.tolist() == pytest.approx([expected])
        assert torch.equal(dequantise(whole), torch.cat([stored.values[m] for m in modules]))


@pytest.mark.parametrize(
    ("config", "side"), [(native(tile=(32, 32)), "32"), (native(tile=(40, 40)), "40")], ids=str
)
def test_tiles_are_taken_as_numbers(config: dict[str, Any], side: str, tmp_path: Path) -> None:
    stored = save(tmp_path, config, side, False)
    source = FolderSource(tmp_path, "llama")
    for ours, theirs in NAMES.items():
        assert source.stored(f"blk.0.{ours}.weight") is None
        got = source.take(f"blk.0.{ours}.weight", torch.float32)
        assert torch.equal(got, stored.values[f"model.layers.0.{theirs}"])


def test_scales_of_foreign_caches_do_not_count_as_unknown(tmp_path: Path) -> None:
    extra = {f"model.layers.0.self_attn.{n}_scale": torch.tensor(0.1) for n in ("k", "v")}
    save(tmp_path, native(), "tensor", True, extra)
    assert not [n for n in FolderSource(tmp_path, "llama").unused() if "k_scale" in n]


def wrong(**changes: Any) -> dict[str, Any]:
    config = compressed("channel", True)
    config["config_groups"]["group_0"]["weights"] |= changes
    return config


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "fp8", "activation_scheme": "odd"}, "odd"),
        (wrong(num_bits=4, type="int"), "4-bit int"),
        (wrong(strategy="group"), "group"),
        ({"quant_method": "compressed-tensors"}, "badly"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}},
            "2 groups",
        ),
    ],
    ids=str,
)
def test_a_scheme_that_is_not_known_is_refused(
    config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    with pytest.raises(DataError, match=reason):
        scheme_of(tmp_path)


def test_a_plain_folder_has_no_scheme(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert scheme_of(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({".weight_scale": None}, "no scale"),
        ({".weight_scale": torch.ones(3)}, "3 scales for 96 rows"),
        ({".weight_scale": torch.tensor(float("nan"))}, "no scales"),
        ({".weight_scale": torch.tensor(torch.finfo(torch.float32).min)}, "no scales"),
        ({".input_scale": None}, "no input_scale"),
        ({".input_scale": torch.ones(2)}, "2 elements"),
        ({".weight": torch.zeros(96, 64).to(torch.float8_e5m2)}, "e4m3fn"),
    ],
    ids=["none", "three", "nan", "unset", "no input", "two inputs", "e5m2"],
)
def test_a_broken_matrix_is_refused(
    change: dict[str, torch.Tensor | None], reason: str, tmp_path: Path
) -> None:
    save(tmp_path, native(), "tensor", True)
    from safetensors.torch import load_file, save_file

    tensors = load_file(tmp_path / "model.safetensors")
    for end, value in change.items():
        tensors.pop("model.layers.0.mlp.up_proj" + end)
        if value is not None:
            tensors["model.layers.0.mlp.up_proj" + end] = value
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=reason):
        FolderSource(tmp_path, "llama").stored("blk.0.ffn_up.weight")


def test_fp8_matrices_of_an_unsaid_scheme_are_refused(tmp_path: Path) -> None:
    save(tmp_path, native(), "tensor", True)
    (tmp_path / "config.json").write_text(json.dumps(folders.CONFIG))
    with pytest.raises(DataError, match="says not which"):
        FolderSource(tmp_path, "llama").take("blk.0.ffn_up.weight", torch.float32)
