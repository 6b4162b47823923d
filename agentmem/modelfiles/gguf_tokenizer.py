"""Building a tokenizer from a GGUF file's metadata."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from agentmem.errors import DataError
from agentmem.modelfiles.backed_tokenizer import END_NAMES, BackedTokenizer, Traits
from agentmem.modelfiles.fetch import model_name
from agentmem.modelfiles.gguf import GGUF

_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED = 1, 2, 3, 4, 5
_SPACE = "\u2581"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "qwen2": rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_TAIL}",
    "llama-bpe": rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_TAIL}",
}


def from_gguf(file: GGUF) -> BackedTokenizer:
    """The tokenizer of a GGUF file; DataError when its kind is not known."""
    meta = file.metadata
    kind = meta.get("tokenizer.ggml.model")
    if kind == "gpt2":
        backend = _byte_bpe(meta)
    elif kind == "llama":
        backend = _sentencepiece(meta)
    else:
        raise DataError(f"{file.path} has a tokenizer of unknown kind {kind!r}")
    _add_marked_tokens(backend, meta)
    _add_bos(backend, meta, default=kind == "llama")
    return BackedTokenizer(backend, _traits(file, "bytes" if kind == "gpt2" else "spm"))


def _traits(file: GGUF, spelling: Any) -> Traits:
    meta = file.metadata
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    control = frozenset(_ids_of(meta, _UNKNOWN, _CONTROL, _UNUSED))
    ends = {i for i in control if tokens[i] in END_NAMES}
    if "tokenizer.ggml.eos_token_id" in meta:
        ends.add(int(meta["tokenizer.ggml.eos_token_id"]))
    return Traits(
        name=model_name(file.path),
        spelling=spelling,
        control_ids=control,
        bos_id=meta.get("tokenizer.ggml.bos_token_id"),
        eos_ids=tuple(sorted(ends)),
        chat_template=meta.get("tokenizer.chat_template"),
        space_prefix=spelling == "spm" and bool(meta.get("tokenizer.ggml.add_space_prefix", True)),
        vocab_size=len(tokens),
    )


def _ids_of(meta: dict[str, Any], *kinds: int) -> list[int]:
    return [i for i, k in enumerate(meta.get("tokenizer.ggml.token_type", ())) if k in kinds]


def _byte_bpe(meta: dict[str, Any]) -> Backend:
    vocab = {token: i for i, token in enumerate(meta["tokenizer.ggml.tokens"])}
    merges = [tuple(pair.split(" ", 1)) for pair in meta["tokenizer.ggml.merges"]]
    kind = str(meta.get("tokenizer.ggml.pre", "default"))
    backend = Backend(models.BPE(vocab=vocab, merges=merges, ignore_merges=kind == "llama-bpe"))
    backend.pre_tokenizer = _pre_tokenizer(kind)
    if kind == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind in ("default", "gpt-2"):
        return plain
    if kind == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    if kind in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[kind]), behavior="isolated")
        mapped = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([split, mapped])
    known = ", ".join(["default", "gpt-2", "smollm", *_SPLITS])
    raise DataError(f"the tokenizer's pre-tokenizer {kind!r} is not known (known: {known})")


def _sentencepiece(meta: dict[str, Any]) -> Backend:
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    unknown = tokens[int(meta.get("tokenizer.ggml.unknown_token_id", 0))]
    vocab = {token: i for i, token in enumerate(tokens)}
    model = models.BPE(
        vocab=vocab, merges=_merges(meta), byte_fallback=True, fuse_unk=True, unk_token=unknown
    )
    backend = Backend(model)
    spaces = normalizers.Replace(" ", _SPACE)
    prefix = bool(meta.get("tokenizer.ggml.add_space_prefix", True))
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return backend


def _merges(meta: dict[str, Any]) -> list[tuple[str, str]]:
    """Every way to make a piece of two pieces, the best-scored piece first.

    Sentencepiece joins the neighbours whose union has the best score: a merge list in that order
    does the same.
    """
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    scores: list[float] = meta["tokenizer.ggml.scores"]
    normal = _ids_of(meta, _NORMAL)
    pieces = {tokens[i] for i in normal}
    merges: list[tuple[str, str]] = []
    for i in sorted(normal, key=scores.__getitem__, reverse=True):
        word = tokens[i]
        for at in range(1, len(word)):
            left, right = word[:at], word[at:]
            if left in pieces and right in pieces:
                merges.append((left, right))
    return merges


def _add_marked_tokens(backend: Backend, meta: dict[str, Any]) -> None:
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    for kind, special in ((_CONTROL, True), (_USER, False)):
        marked = [
            AddedToken(tokens[i], normalized=False, special=special) for i in _ids_of(meta, kind)
        ]
        if special:
            backend.add_special_tokens(marked)
        else:
            backend.add_tokens(marked)


def _add_bos(backend: Backend, meta: dict[str, Any], default: bool) -> None:
    bos = meta.get("tokenizer.ggml.bos_token_id")
    if bos is None or not meta.get("tokenizer.ggml.add_bos_token", default):
        return
    name = str(meta["tokenizer.ggml.tokens"][bos])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{name} $A", special_tokens=[(name, int(bos))]
    )
