"""Tokenizers of the fetched models against slow ones written from the definitions."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from agentmem.errors import DataError
from agentmem.modelfiles.gguf import GGUF
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer
from tests.modelfiles import naive

CHATS = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"]
TEXTS = [
    "The train to Berlin leaves at 17:45 on 2024-03-01; it's 1,234.50 EUR.",
    "def f(x):\n    return  x\t+ 1\n\n\n# done\r\n",
    "Größe naïve Ελληνικά русский 日本語 中文 한국어 हिन्दी ١٢٣ ½ 🎉🦜 👩‍👩‍👧",
    "   leading and trailing   \n \n  ",
    "I'LL we've they'd O'Neil's 'quoted' — “typographic”…",
    '{"facts": ["Rex is a dog", "born 2019"], "n": -1e-3}',
    "a",
    "",
    "e\u0301 \u00a0 \u200b \ufeff \x07",
]


@lru_cache(maxsize=3)
def _load(path: Path) -> tuple[Tokenizer, dict]:
    return load_tokenizer(path), GGUF.open(path).metadata


def _random_texts(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    alphabet = "abcdeT 's\n\t0123.,-_()" + "éß日本ик🎉" + "   "
    return ["".join(rng.choices(alphabet, k=rng.randint(1, 60))) for _ in range(count)]


@pytest.mark.parametrize("name", CHATS)
def test_ids_are_those_of_the_definition(fetched, name: str) -> None:
    tokenizer, meta = _load(fetched(name))
    define = _spm_definition(meta) if name == "gemma3-270m" else _bpe_definition(name, meta)
    for text in TEXTS + _random_texts(3, 150):
        expected = define(text)
        assert tokenizer.encode(text, special=False) == expected, repr(text)
        assert tokenizer.count(text) == len(expected)


def _spm_definition(meta: dict) -> Callable[[str], list[int]]:
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    vocab = {t: i for i, t in enumerate(tokens)}
    user = naive.user_symbols(tokens, kinds)
    return lambda text: naive.sentencepiece(text, vocab, meta["tokenizer.ggml.scores"], kinds, user)


def _bpe_definition(name: str, meta: dict) -> Callable[[str], list[int]]:
    vocab = {t: i for i, t in enumerate(meta["tokenizer.ggml.tokens"])}
    ranks = {tuple(pair.split(" ", 1)): i for i, pair in enumerate(meta["tokenizer.ggml.merges"])}

    def words(text: str) -> list[str]:
        if name == "smollm2-135m":
            return naive.smollm_words(text)
        return naive.QWEN_WORDS.findall(unicodedata.normalize("NFC", text))

    return lambda text: naive.byte_bpe(words(text), vocab, ranks)


@pytest.mark.parametrize("name", CHATS)
def test_decoding_gives_the_text_back_and_cutting_loses_nothing(fetched, name: str) -> None:
    tokenizer, _ = _load(fetched(name))
    for text in TEXTS + _random_texts(4, 100):
        ids = tokenizer.encode(text, special=False)
        stored = unicodedata.normalize("NFC", text) if name.startswith("qwen") else text
        assert tokenizer.decode(ids) == stored
        for size in (1, 3, 7):
            pieces = tokenizer.cut(text, size)
            assert "".join(pieces) == text
            assert len(pieces) <= max(1, -(-len(ids) // size))


def test_control_tokens_are_recognised_only_when_asked_for(fetched) -> None:
    tokenizer, _ = _load(fetched("smollm2-135m"))
    text = "<|im_start|>user\nhi<|im_end|>\n"
    ids = tokenizer.encode(text)
    assert ids[0] == 1 and ids[-2] == 2
    assert tokenizer.decode(ids) == "user\nhi\n"
    assert tokenizer.decode(ids, skip_control=False) == text
    plain = tokenizer.encode(text, special=False)
    assert not set(plain) & tokenizer.control_ids
    assert tokenizer.decode(plain) == text
    assert tokenizer.encode(text) == ids, "the switch does not stick"


def test_what_the_files_declare(fetched) -> None:
    smol, _ = _load(fetched("smollm2-135m"))
    assert (smol.name, smol.vocab_size, smol.eos_ids) == ("smollm2-135m", 49_152, (0, 2))
    assert "<|im_start|>" in (smol.chat_template or "")
    assert smol.token_text(1) == "<|im_start|>"
    assert smol.encode("hi")[0] != smol.bos_id, "SmolLM2 asks for no BOS"
    assert len(smol.vocabulary) == smol.vocab_size


def test_gemma_gets_one_bos(fetched) -> None:
    gemma, _ = _load(fetched("gemma3-270m"))
    assert gemma.chat_template is None
    assert gemma.encode("hi") == [2, *gemma.encode("hi", special=False)]
    assert gemma.encode("<bos>hi") == gemma.encode("hi")
    assert gemma.vocabulary[gemma.encode("日", special=False)[0]] == "日".encode()
    assert gemma.vocabulary[238 + 0xE2] == b"\xe2", "a byte token is its byte"


def test_unused_ids_are_no_text(fetched) -> None:
    qwen, _ = _load(fetched("qwen2.5-coder-0.5b"))
    assert 151_935 in qwen.control_ids
    assert qwen.token_text(151_657) == "<tool_call>"
    assert 151_657 not in qwen.control_ids


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A byte-level tokenizer without merges, in hub layout."""
    signs = naive.byte_signs()
    backend = Backend(models.BPE(vocab={s: i for i, s in enumerate(signs)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>", "<stop>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token_id": 256, "eos_token_id": [258], "vocab_size": 264}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    return tmp_path


def test_a_folder_is_read_with_what_lies_beside_it(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert tokenizer.vocab_size == 264, "the model's width, not the tokenizer's"
    assert tokenizer.eos_ids == (257, 258)
    assert tokenizer.bos_id == 256
    assert tokenizer.chat_template == "{{ x }}"
    assert tokenizer.encode("é<|im_end|>") == [0xC3, 0xA9, 257]
    assert tokenizer.decode([0xC3]) == "\ufffd"
    assert tokenizer.vocabulary[0xC3] == b"\xc3"
    (folder / "chat_template.jinja").write_text("{{ y }}")
    assert load_tokenizer(folder / "tokenizer.json").chat_template == "{{ y }}"


@pytest.mark.parametrize("content", ["no json", '{"model": {"type": "Nothing"}}', "[]"])
def test_a_broken_tokenizer_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(DataError, match=r"tokenizer\.json") as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_without_one_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no tokenizer at"):
        load_tokenizer(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHATS)
def test_ids_are_those_of_transformers(fetched, name: str) -> None:
    from transformers import AutoTokenizer

    path = fetched(name)
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer, _ = _load(path)
    same = [
        tokenizer.encode(text, special=False) == theirs.encode(text, add_special_tokens=False)
        for text in TEXTS
    ]
    # its conversion knows neither SmolLM2's split at number signs (½) nor Qwen's NFC
    expected = len(TEXTS) - {"smollm2-135m": 1, "qwen2.5-coder-0.5b": 1}.get(name, 0)
    assert sum(same) >= expected, same
