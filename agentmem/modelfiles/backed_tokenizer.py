"""A tokenizer that runs on the `tokenizers` package."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tokenizers import Tokenizer as Backend

from agentmem.modelfiles.tokenizer import Tokenizer

Spelling = Literal["bytes", "spm", "wordpiece"]
"""How a vocabulary writes text: byte alphabet (GPT-2), sentencepiece, or BERT's word pieces."""

# control tokens that end a turn or a text, whatever the file declares as its one EOS
END_NAMES = frozenset(
    (
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<eos>",
        "</s>",
    )
)


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model file says about its tokenizer, besides the vocabulary."""

    name: str
    spelling: Spelling
    control_ids: frozenset[int]
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    space_prefix: bool = False
    """A space is put before the text when encoding, and taken off when decoding."""
    vocab_size: int | None = None
    """Width of the model's embedding where it is more than the vocabulary."""


class BackedTokenizer(Tokenizer):
    """`backend` is the configured `tokenizers.Tokenizer`."""

    def __init__(self, backend: Backend, traits: Traits) -> None:
        self.backend = backend
        self.traits = traits
        self.name = traits.name
        self.bos_id = traits.bos_id
        self.eos_ids = traits.eos_ids
        self.chat_template = traits.chat_template
        self.control_ids = traits.control_ids
        self.vocab_size = traits.vocab_size or backend.get_vocab_size(with_added_tokens=True)
        self._lock = threading.Lock()

    def encode(self, text: str, special: bool = True) -> list[int]:
        """See Tokenizer."""
        with self._lock:
            # a property of the backend, not an argument: hence the lock
            self.backend.encode_special_tokens = not special
            ids: list[int] = self.backend.encode(text, add_special_tokens=special).ids
        doubled = special and self.bos_id is not None and ids[:2] == [self.bos_id, self.bos_id]
        return ids[1:] if doubled else ids

    def starts(self, text: str) -> list[int]:
        """See Tokenizer."""
        with self._lock:
            self.backend.encode_special_tokens = True
            offsets = self.backend.encode(text, add_special_tokens=False).offsets
        return [start for start, _end in offsets]

    def decode(self, ids: Sequence[int], skip_control: bool = True) -> str:
        """See Tokenizer."""
        if self.traits.spelling == "wordpiece":
            return str(self.backend.decode(list(ids), skip_special_tokens=skip_control))
        vocabulary, control = self.vocabulary, self.control_ids if skip_control else frozenset()
        data = b"".join(vocabulary[i] for i in ids if i not in control)
        text = data.decode("utf-8", "replace")
        return text[1:] if self.traits.space_prefix and text[:1] == " " else text

    def token_text(self, token: int) -> str:
        """See Tokenizer."""
        return str(self.backend.id_to_token(token) or "")

    @cached_property
    def vocabulary(self) -> list[bytes]:
        """See Tokenizer."""
        words = [""] * self.vocab_size
        for word, token in self.backend.get_vocab(with_added_tokens=True).items():
            words[token] = word
        spell = _SPELL[self.traits.spelling]
        plain = self.control_ids | self._added_ids()
        return [
            word.encode("utf-8", "surrogateescape") if i in plain else spell(word)
            for i, word in enumerate(words)
        ]

    def _added_ids(self) -> frozenset[int]:
        return frozenset(self.backend.get_added_tokens_decoder())


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_alphabet()


def _from_alphabet(word: str) -> bytes:
    try:
        return bytes([_BYTES[sign] for sign in word])
    except KeyError:
        return word.encode("utf-8", "surrogateescape")


def _from_sentencepiece(word: str) -> bytes:
    if len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
        return bytes([int(word[3:5], 16)])
    return word.replace("\u2581", " ").encode("utf-8", "surrogateescape")


def _from_wordpiece(word: str) -> bytes:
    return word.removeprefix("##").encode("utf-8", "surrogateescape")


_SPELL = {"bytes": _from_alphabet, "spm": _from_sentencepiece, "wordpiece": _from_wordpiece}
