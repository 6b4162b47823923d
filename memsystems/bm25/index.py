"""An inverted index that grows by appending: nothing that depends on the whole is stored.

Document frequencies, lengths and their mean are running counts; the idf and the length norm are
computed when a question comes. Scores are BM25 as Lucene computes it:
idf = ln(1 + (N - df + 0.5) / (df + 0.5)); tf / (tf + k1 (1 - b + b length / mean length)).
"""

from __future__ import annotations

import re
from array import array
from collections import Counter

import numpy as np

K1, B = 1.5, 0.75
_STOPWORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with
"""
STOPWORDS = frozenset(_STOPWORDS.split())
"""The short English list that Lucene's classic analyser uses."""
_WORD = re.compile(r"\b\w\w+\b")


def tokenise(text: str) -> list[str]:
    """Lower-case words of two characters or more, stop words left out, no stemming."""
    return [word for word in _WORD.findall(text.lower()) if word not in STOPWORDS]


class Bm25Index:
    """Documents are numbered in the order they are added."""

    def __init__(self) -> None:
        self._postings: dict[str, tuple[array[int], array[int]]] = {}
        self._lengths = array("i")
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, text: str) -> int:
        """Index one document in time linear in its length; returns its number."""
        number = len(self._lengths)
        tokens = tokenise(text)
        for token, count in Counter(tokens).items():
            posting = self._postings.get(token)
            if posting is None:
                posting = self._postings[token] = (array("i"), array("i"))
            posting[0].append(number)
            posting[1].append(count)
        self._lengths.append(len(tokens))
        self._total += len(tokens)
        return number

    def search(self, query: str, k: int) -> list[tuple[int, float]]:
        """(document, score) of the `k` best with a score above 0; ties go to the older document."""
        terms = [(t, n) for t, n in Counter(tokenise(query)).items() if t in self._postings]
        if not terms or k < 1:
            return []
        count = len(self._lengths)
        scores = np.zeros(count)
        lengths = np.frombuffer(self._lengths, np.int32)
        norms = K1 * (1 - B + B * lengths / (self._total / count))
        for term, repeats in terms:
            numbers, frequencies = (np.frombuffer(a, np.int32) for a in self._postings[term])
            idf = np.log(1 + (count - len(numbers) + 0.5) / (len(numbers) + 0.5))
            scores[numbers] += repeats * idf * frequencies / (frequencies + norms[numbers])
        return _best(scores, k)


def _best(scores: np.ndarray, k: int) -> list[tuple[int, float]]:
    found = np.flatnonzero(scores)
    if len(found) > k:
        threshold = np.partition(scores[found], -k)[-k]
        found = found[scores[found] >= threshold]
    order = np.argsort(-scores[found], kind="stable")[:k]
    return [(int(number), float(scores[number])) for number in found[order]]
