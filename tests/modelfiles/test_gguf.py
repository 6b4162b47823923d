"""The GGUF reader against files written by the `gguf` package, and against broken ones."""

from __future__ import annotations

import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from agentmem.errors import DataError
from agentmem.modelfiles.fetch import is_fetched, resolve
from agentmem.modelfiles.gguf import GGUF


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Small")
    writer.add_block_count(3)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["a", "bé", "日本"])
    writer.add_token_types([1, 1, 3])
    writer.add_add_bos_token(True)
    rng = np.random.default_rng(0)
    writer.add_tensor("plain", rng.standard_normal((3, 64), dtype=np.float32))
    packed = gguf.quants.quantize(
        rng.standard_normal((5, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0
    )
    writer.add_tensor("packed", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_comes_back(small: Path) -> None:
    file = GGUF.open(small)
    assert file.arch == "llama"
    assert file.metadata["general.name"] == "Small"
    assert file.value("block_count") == 3
    assert file.value("attention.layer_norm_rms_epsilon") == pytest.approx(1e-5)
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "bé", "日本"]
    assert file.metadata["tokenizer.ggml.token_type"] == [1, 1, 3]
    assert file.metadata["tokenizer.ggml.add_bos_token"] is True
    assert file.value("no_such_key", 7) == 7


def test_tensors_come_back_whole_and_in_rows(small: Path) -> None:
    file = GGUF.open(small)
    reader = gguf.GGUFReader(small)
    for tensor in reader.tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(
            tuple(int(n) for n in reversed(tensor.shape))
        )
        ours = file.tensor(tensor.name)
        np.testing.assert_array_equal(ours, expected)
        np.testing.assert_array_equal(file.tensor(tensor.name, slice(1, 3)), expected[1:3])


def test_a_missing_tensor_is_named(small: Path) -> None:
    with pytest.raises(DataError, match="no_such"):
        GGUF.open(small).tensor("no_such")


@pytest.mark.parametrize("keep", [0, 3, 20, 150, -40])
def test_a_truncated_file_is_a_clear_error(small: Path, keep: int) -> None:
    small.write_bytes(small.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"small\.gguf") as caught:
        GGUF.open(small)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("at", "value", "what"), [(0, b"XXXX", "no GGUF"), (4, b"\x09\0\0\0", "version 9")]
)
def test_a_foreign_file_is_a_clear_error(small: Path, at: int, value: bytes, what: str) -> None:
    data = bytearray(small.read_bytes())
    data[at : at + 4] = value
    small.write_bytes(data)
    with pytest.raises(DataError, match=what):
        GGUF.open(small)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        GGUF.open(tmp_path / "none.gguf")


def test_a_large_vocabulary_opens_quickly() -> None:
    if not is_fetched("gemma3-270m"):
        pytest.skip("needs `agentmem models pull gemma3-270m`")
    began = time.process_time()
    file = GGUF.open(resolve("gemma3-270m"))
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 262_144
    assert time.process_time() - began < 2.0
