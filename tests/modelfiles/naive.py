"""Slow tokenizers written from the definitions, to compare the fast ones with."""

from __future__ import annotations

from itertools import pairwise

import regex

GPT2_WORDS = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
QWEN_WORDS = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_signs() -> list[str]:
    """GPT-2's stand-in sign of each byte."""
    signs, extra = [], 0
    for byte in range(256):
        if chr(byte).isprintable() and byte != 32 and byte != 173:
            signs.append(chr(byte))
        else:
            signs.append(chr(256 + extra))
            extra += 1
    return signs


def smollm_words(text: str) -> list[str]:
    """Single digits first, then GPT-2's words in what lies between them."""
    out: list[str] = []
    for part in regex.findall(r"\p{N}|\P{N}+", text):
        out += GPT2_WORDS.findall(part)
    return out


def byte_bpe(words: list[str], vocab: dict[str, int], ranks: dict[tuple[str, str], int]):
    """Join the best-ranked neighbours of each word until none is left."""
    signs = byte_signs()
    ids: list[int] = []
    for word in words:
        pieces = [signs[b] for b in word.encode()]
        while True:
            pairs = [(ranks.get(p, 1 << 30), i) for i, p in enumerate(pairwise(pieces))]
            if not pairs or min(pairs)[0] == 1 << 30:
                break
            _, at = min(pairs)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        ids += [vocab[p] for p in pieces]
    return ids


def user_symbols(tokens: list[str], kinds: list[int]) -> list[str]:
    """User-defined symbols, the longest first."""
    return sorted((t for t, k in zip(tokens, kinds, strict=True) if k == 4), key=len, reverse=True)


def sentencepiece(
    text: str, vocab: dict[str, int], scores: list[float], kinds: list[int], user: list[str]
) -> list[int]:
    """User-defined symbols first (the longest), then the best-scored union of neighbours."""
    ids: list[int] = []
    rest = ""

    def flush() -> None:
        nonlocal rest
        pieces = list(rest.replace(" ", "▁"))
        while True:
            best = None
            for at in range(len(pieces) - 1):
                i = vocab.get(pieces[at] + pieces[at + 1])
                if i is not None and kinds[i] == 1 and (best is None or scores[i] > best[0]):
                    best = (scores[i], at)
            if best is None:
                break
            at = best[1]
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        for piece in pieces:
            if piece in vocab:
                ids.append(vocab[piece])
            else:
                ids.extend(vocab[f"<0x{b:02X}>"] for b in piece.encode())
        rest = ""

    at = 0
    while at < len(text):
        symbol = next((u for u in user if text.startswith(u, at)), None)
        if symbol:
            flush()
            ids.append(vocab[symbol])
            at += len(symbol)
        else:
            rest += text[at]
            at += 1
    flush()
    return ids
