"""Tokenizers of model files, and reference tokenizers, behind one small interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from agentmem.errors import DataError, nearest


class Tokenizer(ABC):
    """Text to token ids and back. Thread-safe.

    `vocabulary` gives each id's bytes, `control_ids` are the ids that are no text (BOS,
    `<|im_end|>`, ...). `chat_template` is jinja text, or None for a base model.
    """

    name: str
    vocab_size: int
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    control_ids: frozenset[int] = frozenset()

    @abstractmethod
    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids of a text.

        With `special`, control tokens written in the text are recognised and the BOS is put in
        front where the model wants one and the text has none; without, all of it is plain text.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int], skip_control: bool = True) -> str:
        """Text of the ids; bytes that are no UTF-8 become U+FFFD."""

    @property
    @abstractmethod
    def vocabulary(self) -> list[bytes]:
        """Bytes of each id; a control token's bytes are its written name."""

    @abstractmethod
    def starts(self, text: str) -> list[int]:
        """Character offset at which each token of the plain text begins, not decreasing."""

    def token_text(self, token: int) -> str:
        """Written form of one id, e.g. the `bos_token` that a chat template asks for."""
        return self.vocabulary[token].decode("utf-8", "replace")

    def count(self, text: str) -> int:
        """Number of tokens of plain text, without BOS."""
        return len(self.encode(text, special=False))

    def cut(self, text: str, n_tokens: int) -> list[str]:
        """Pieces of `n_tokens` tokens each (the last may be shorter) that join to `text` exactly.

        A character that is several tokens is never split; it falls to the later piece.
        """
        if n_tokens < 1:
            raise ValueError("a piece has at least one token")
        edges = [0, *self.starts(text)[n_tokens::n_tokens], len(text)]
        return [text[a:b] for a, b in pairwise(edges) if b > a]


def load_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer of a GGUF file, a model folder or a tokenizer.json; DataError otherwise."""
    from agentmem.modelfiles.folder_tokenizer import from_folder
    from agentmem.modelfiles.gguf import GGUF
    from agentmem.modelfiles.gguf_tokenizer import from_gguf

    path = Path(path)
    if path.is_dir():
        return from_folder(path / "tokenizer.json")
    if path.suffix == ".json":
        return from_folder(path)
    return from_gguf(GGUF.open(path))


@lru_cache(maxsize=2)
def reference_tokenizer(name: str) -> Tokenizer:
    """`words-v1` (built in, needs no files) or `smollm2` (needs the fetched model)."""
    from agentmem.modelfiles.fetch import resolve
    from agentmem.modelfiles.words import WordTokenizer

    if name == "words-v1":
        return WordTokenizer()
    if name == "smollm2":
        return load_tokenizer(resolve("smollm2-135m"))
    raise DataError(
        f"no reference tokenizer is called {name!r}; {nearest(name, ['smollm2', 'words-v1'])}"
    )
