"""Embeddings against transformers on the same weights."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from agentmem.engine.embed import Embedder, _batches
from agentmem.errors import DataError

WORDS = [f"w{i}" for i in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BERT whose window is 20 tokens."""
    path = tmp_path_factory.mktemp("bert")
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=40,
    )  # fmt: skip
    model = BertModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(path)
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    backend = Backend(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # files in the wild carry these; neither may apply
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    backend.save(str(path / "tokenizer.json"))
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    return path


def _texts(lengths: list[int]) -> list[str]:
    rng = random.Random(3)
    return [" ".join(rng.choices(WORDS, k=n)) for n in lengths]


def _reference(model: BertModel, ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        hidden = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
    return (hidden / hidden.norm()).numpy()


def test_vectors_are_those_of_transformers(folder: Path) -> None:
    embedder = Embedder.load(folder, threads=1)
    theirs = BertModel.from_pretrained(folder).eval()
    texts = _texts([5, 1, 18, 19, 60, 0, 7, 5])
    vectors = embedder.embed(texts)
    assert vectors.dtype == np.float32
    assert (embedder.dims, embedder.window, vectors.shape) == (32, 20, (8, 32))
    for text, vector in zip(texts, vectors, strict=True):
        ids = [2, *(4 + WORDS.index(w) for w in text.split()[:18]), 3]
        assert embedder.count([text]) == [len(ids)]
        assert np.abs(_reference(theirs, ids) - vector).max() < 1e-5
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_text_has_one_vector_whatever_stands_beside_it(folder: Path) -> None:
    embedder = Embedder.load(folder, threads=1)
    texts = _texts([3, 17, 9, 1])
    together = embedder.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        assert np.abs(embedder.embed([text])[0] - vector).max() < 1e-6


def test_nothing_gives_nothing(folder: Path) -> None:
    assert Embedder.load(folder, threads=1).embed([]).shape == (0, 32)


def test_batches_hold_every_text_once_and_no_more_than_they_should() -> None:
    rng = random.Random(1)
    lengths = [rng.randint(2, 256) for _ in range(300)]
    batches = list(_batches(lengths))
    assert sorted(i for batch in batches for i in batch) == list(range(300))
    assert all(len(b) * max(lengths[i] for i in b) <= 4096 for b in batches)
    assert len(batches) < 15


def test_first_token_pooling_is_read_from_the_folder(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    pooling = tmp_path / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True}))
    (text,) = _texts([6])
    first = Embedder.load(tmp_path, threads=1).embed([text])
    assert np.abs(first - Embedder.load(folder, threads=1).embed([text])).max() > 0.01
    pooling.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(DataError, match="pooling_mode_max_tokens"):
        Embedder.load(tmp_path)


def test_what_is_no_encoder_is_refused(toy_folder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no BERT encoder"):
        Embedder.load(toy_folder("llama"))
    with pytest.raises(DataError, match="cannot read the encoder"):
        Embedder.load(tmp_path)


def test_minilm_is_that_of_transformers(fetched) -> None:
    path = fetched("minilm-l6")
    embedder = Embedder.load(path)
    theirs = BertModel.from_pretrained(path).eval()
    rng = random.Random(0)
    words = ["The", "user's", "dog", "is", "Rex", "and", "Berlin", "naïve", "日本", "12:30"]
    texts = [" ".join(rng.choices(words, k=n)) for n in (1, 8, 30, 120, 400)]
    for text, vector in zip(texts, embedder.embed(texts), strict=True):
        ids = embedder.tokenizer.encode(text)
        ids = ids if len(ids) <= 256 else [*ids[:255], ids[-1]]
        assert np.abs(_reference(theirs, ids) - vector).max() < 1e-4
