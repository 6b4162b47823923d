"""What a folder must hold, and what is said when it does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentmem.engine.config_hub import HYBRIDS
from agentmem.engine.config_hybrid import hybrid_from_folder
from agentmem.engine.core import EngineCore
from agentmem.engine.models.hybrid import Hybrid
from agentmem.errors import DataError
from tests.engine.hybrid.conftest import Pair

Edit = Callable[[dict[str, Any]], None]


def changed(pair: Pair, to: Path, config: Edit | None = None, tensors: Edit | None = None) -> Path:
    """A copy of a saved toy with something else in it."""
    shutil.copytree(pair.folder, to)
    if config is not None:
        raw = json.loads((to / "config.json").read_text())
        config(raw)
        (to / "config.json").write_text(json.dumps(raw))
    if tensors is not None:
        found = load_file(to / "model.safetensors")
        tensors(found)
        save_file(found, to / "model.safetensors")
    return to


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("mamba", "Mamba-1"),
        ("falcon_mamba", "Mamba-1"),
        ("jamba", "Mamba-1"),
        ("zamba2", "shared between layers"),
        ("qwen3_next", "gated delta"),
        ("llama", "llama"),
    ],
)
def test_other_families_are_refused_by_name(tmp_path: Path, kind: str, why: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(DataError, match=why) as caught:
        Hybrid.load(tmp_path)
    assert "mamba2, granitemoehybrid, bamba, falcon_h1, nemotron_h" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_sizes_are_named(pair: Callable[[str], Pair], tmp_path: Path) -> None:
    folder = changed(pair("bamba"), tmp_path / "it", lambda raw: raw.pop("mamba_d_state"))
    with pytest.raises(DataError, match="mamba_d_state"):
        Hybrid.load(folder)


def test_sizes_that_disagree_are_refused(pair: Callable[[str], Pair], tmp_path: Path) -> None:
    folder = changed(pair("bamba"), tmp_path / "it", lambda raw: raw.update(mamba_d_head=8))
    with pytest.raises(DataError, match="8 heads of 8 are not 128 channels"):
        Hybrid.load(folder)


@pytest.mark.parametrize(
    ("toy", "name"),
    [
        ("mamba2", "backbone.layers.1.mixer.conv1d.bias"),
        ("granite_dense", "model.layers.2.mamba.norm.weight"),
        ("granite_dense", "model.layers.1.self_attn.k_proj.weight"),
        ("granite_experts", "model.layers.0.block_sparse_moe.output_linear.weight"),
        ("nemotron", "backbone.layers.4.mixer.experts.3.up_proj.weight"),
        ("falcon_normed", "model.layers.0.mamba.dt_bias"),
    ],
)
def test_a_missing_tensor_is_named(
    pair: Callable[[str], Pair], tmp_path: Path, toy: str, name: str
) -> None:
    folder = changed(pair(toy), tmp_path / "it", tensors=lambda found: found.pop(name))
    with pytest.raises(DataError, match=name):
        Hybrid.load(folder)


def test_a_tensor_of_another_shape_is_named(pair: Callable[[str], Pair], tmp_path: Path) -> None:
    name = "backbone.layers.0.mixer.in_proj.weight"

    def shorten(found: dict[str, Any]) -> None:
        found[name] = found[name][:-1].clone()

    folder = changed(pair("mamba2"), tmp_path / "it", tensors=shorten)
    with pytest.raises(DataError, match=rf"{name}.*\(327, 64\), not \(328, 64\)"):
        Hybrid.load(folder)


def test_experts_must_be_as_many_as_named(pair: Callable[[str], Pair], tmp_path: Path) -> None:
    name = "model.layers.0.block_sparse_moe.input_linear.weight"

    def drop(found: dict[str, Any]) -> None:
        found[name] = found[name][:-1].clone()

    folder = changed(pair("granite_experts"), tmp_path / "it", tensors=drop)
    with pytest.raises(DataError, match=r"3 experts.* not 4"):
        Hybrid.load(folder)


def test_a_tensor_too_many_is_named(pair: Callable[[str], Pair], tmp_path: Path) -> None:
    extra = {"model.layers.0.mamba.in_proj.bias_2": torch.zeros(3)}
    folder = changed(pair("falcon"), tmp_path / "it", tensors=lambda found: found.update(extra))
    with pytest.raises(DataError, match="bias_2"):
        Hybrid.load(folder)


def test_heads_for_further_tokens_are_left_alone(
    pair: Callable[[str], Pair], tmp_path: Path
) -> None:
    extra = {"mtp.layers.0.norm.weight": torch.zeros(3)}
    Hybrid.load(changed(pair("nemotron"), tmp_path / "it", tensors=lambda f: f.update(extra)))


def test_layers_of_nemotron_by_letters(pair: Callable[[str], Pair], tmp_path: Path) -> None:
    toy = pair("nemotron")

    def old(raw: dict[str, Any]) -> None:
        del raw["layers_block_type"]
        raw["hybrid_override_pattern"] = "M-*ME"

    folder = changed(toy, tmp_path / "it", old)
    assert hybrid_from_folder(folder) == toy.ours.config


def test_old_names_of_layers_and_plain_infinity(
    pair: Callable[[str], Pair], tmp_path: Path
) -> None:
    toy = pair("granite_dense")

    def old(raw: dict[str, Any]) -> None:
        raw["layer_types"] = ["mamba", "attention", "mamba"]
        raw["time_step_limit"] = [0.0, float("inf")]

    assert hybrid_from_folder(changed(toy, tmp_path / "it", old)) == toy.ours.config


@pytest.mark.parametrize("kind", HYBRIDS)
def test_the_engine_says_that_it_does_not_serve_hybrids(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    said = f"{kind!r} hybrid: not served yet; served are llama, qwen2, gemma3_text, gemma3"
    with pytest.raises(DataError, match=said):
        EngineCore.load(tmp_path)
    with pytest.raises(DataError, match="lacks"):  # known, but for what an empty file lacks
        hybrid_from_folder(tmp_path)


def test_other_dtypes_are_refused(pair: Callable[[str], Pair]) -> None:
    with pytest.raises(DataError, match="float16"):
        Hybrid.load(pair("mamba2").folder, torch.float16)
