"""The real engine on loopback with tiny random models: a chat model and an embedder."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, LlamaConfig

from tests.engine.core.conftest import _save_tokenizer
from tests.engine.core.toys import _SIZES, save_toy

WINDOW = 2048


def chat_model(folder: Path) -> Path:
    """A llama whose tokens are bytes, with room for a reader's prompt."""
    sizes = _SIZES | {"max_position_embeddings": WINDOW}
    save_toy(LlamaConfig(**sizes, rope_theta=10_000.0), folder)
    _save_tokenizer(folder)
    return folder


def embedder(folder: Path) -> Path:
    """A BERT over letters, 16 dimensions wide."""
    torch.manual_seed(2)
    signs = [chr(c) for c in range(32, 127)]
    vocab = {s: i for i, s in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *signs])}
    config = BertConfig(
        vocab_size=len(vocab), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=256,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.save(str(folder / "tokenizer.json"))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 250}')
    return folder
