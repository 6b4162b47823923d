"""Tokenizers of model files behind one small interface."""

from __future__ import annotations

from pathlib import Path


class Tokenizer:
    """A model's tokenizer. Thread-safe.

    `vocabulary` gives each id's bytes (llguidance wants them), `control_ids` are ids that are no text
    (BOS, `<|im_end|>`, ...). `chat_template` is jinja text, or None for a base model.
    """

    name: str
    bos_id: int | None
    eos_ids: tuple[int, ...]
    chat_template: str | None
    vocab_size: int
    control_ids: frozenset[int]

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids. With `special`, control tokens written in the text are recognised and the BOS
        is put in front where the model wants one and the text has none; without, it is plain text."""
        raise NotImplementedError

    def decode(self, ids: list[int], skip_control: bool = True) -> str:
        """Text of the ids; bytes that are no UTF-8 become U+FFFD."""
        raise NotImplementedError

    def count(self, text: str) -> int:
        """Number of tokens of plain text, without BOS."""
        raise NotImplementedError

    def cut(self, text: str, n_tokens: int) -> list[str]:
        """Pieces of `n_tokens` tokens each (the last may be shorter) that join to `text` exactly."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> list[bytes]:
        """Bytes of each id; a control token's bytes are its written name."""
        raise NotImplementedError

    def token_text(self, token: int) -> str:
        """Written form of one id, e.g. to give `bos_token` to a chat template."""
        raise NotImplementedError


def load_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer of a GGUF file, a model folder or a tokenizer.json; DataError otherwise."""
    raise NotImplementedError


def reference_tokenizer(name: str) -> Tokenizer:
    """`words-v1` (built in, needs no files) or `smollm2` (needs the fetched model)."""
    raise NotImplementedError
