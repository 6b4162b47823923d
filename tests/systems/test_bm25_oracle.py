"""Our incremental BM25 against bm25s with Lucene's scoring."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
from pathlib import Path
from types import ModuleType

import bm25s
import numpy as np
import pytest

FILE = Path(__file__).resolve().parents[2] / "memsystems" / "bm25" / "index.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bm25_index_under_test", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


INDEX = load()


def compare(docs: list[str], queries: list[str], k: int = 10) -> int:
    """Both top k agree in scores, and in documents where scores differ; returns hits compared."""
    ours = INDEX.Bm25Index()
    for doc in docs:
        ours.add(doc)
    tokens = [INDEX.tokenise(doc) for doc in docs]
    oracle = bm25s.BM25(method="lucene", k1=INDEX.K1, b=INDEX.B, dtype="float64")
    oracle.index(tokens, show_progress=False)
    known = {token for doc in tokens for token in doc}
    compared = 0
    for query in queries:
        words = [word for word in INDEX.tokenise(query) if word in known]
        found = ours.search(query, k)
        if not words:
            assert found == []
            continue
        scores = oracle.get_scores(words)
        expected = sorted((-s, i) for i, s in enumerate(scores) if s > 0)[:k]
        assert [i for i, _ in found] == near_order(found, expected), query
        np.testing.assert_allclose(
            [s for _, s in found], [-s for s, _ in expected], rtol=1e-6, atol=1e-9
        )
        compared += len(found)
    return compared


def near_order(found: list[tuple[int, float]], expected: list[tuple[float, int]]) -> list[int]:
    """The oracle's order, with documents whose scores differ by rounding alone put in ours."""
    order = [i for _, i in expected]
    ours = [i for i, _ in found]
    for place, (mine, theirs) in enumerate(zip(ours, order, strict=True)):
        if mine != theirs:
            gap = abs(found[place][1] + expected[place][0])
            assert gap < 1e-9, (place, found, expected)
            order[place] = mine
    return order


@pytest.mark.parametrize("seed", range(8))
def test_random_corpora(seed: int) -> None:
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(rng.choice([5, 40, 400]))]
    weights = [1 / (i + 1) for i in range(len(words))]
    docs = [
        " ".join(rng.choices(words, weights, k=rng.randrange(1, 30)))
        for _ in range(rng.choice([1, 2, 15, 300]))
    ]
    docs += rng.sample(docs, k=min(3, len(docs)))  # equal documents tie
    queries = [" ".join(rng.choices([*words, "unseen"], k=rng.randrange(1, 8))) for _ in range(40)]
    assert compare(docs, queries) > 0


def test_ties_go_to_the_older_document() -> None:
    index = INDEX.Bm25Index()
    for text in ["same words here", "other", "same words here", "same words here"]:
        index.add(text)
    assert [i for i, _ in index.search("words", 2)] == [0, 2]
    assert compare(["alpha beta", "beta alpha", "gamma", "alpha beta"], ["alpha", "beta gamma"], 3)


def test_repeated_words_count_repeatedly() -> None:
    docs = ["cat dog", "cat fish", "bird fish fish", "dog dog bird"]
    assert compare(docs, ["cat cat dog", "dog cat cat cat fish", "fish fish"]) > 0


def test_appending_equals_building_anew() -> None:
    rng = random.Random(5)
    colours = ["red", "green", "blue", "grey", "pink"]
    docs = [" ".join(rng.choices(colours, k=6)) for _ in range(50)]
    grown = INDEX.Bm25Index()
    for count, doc in enumerate(docs, 1):
        grown.add(doc)
        fresh = INDEX.Bm25Index()
        for other in docs[:count]:
            fresh.add(other)
        assert grown.search("red pink", 10) == fresh.search("red pink", 10)


def test_nothing_is_found_where_nothing_fits() -> None:
    index = INDEX.Bm25Index()
    assert index.search("cat", 10) == []
    index.add("the of and")
    assert index.search("the", 10) == [] and index.search("cat", 10) == []
    index.add("cat")
    assert [i for i, _ in index.search("cat", 10)] == [1]
    assert index.search("cat", 0) == []


def test_tokens_are_as_documented() -> None:
    text = "The CAT's 3 kittens, aged 12; émigré naïve_x I"
    assert INDEX.tokenise(text) == ["cat", "kittens", "aged", "12", "émigré", "naïve_x"]
    assert len(INDEX.STOPWORDS) == 33


DATA = os.environ.get("AGENTMEM_DATA")


@pytest.mark.skipif(not DATA, reason="AGENTMEM_DATA does not name the data sets")
def test_locomo_turns() -> None:
    path = Path(DATA or "") / "locomo" / "locomo10.json"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    talks = json.loads(path.read_text(encoding="utf-8"))
    talk = next(t for t in talks if t["sample_id"] == "conv-30")
    sessions = [v for key, v in talk["conversation"].items() if isinstance(v, list)]
    docs = [f"{turn['speaker']}: {turn['text']}" for session in sessions for turn in session]
    queries = [str(qa["question"]) for qa in talk["qa"]]
    assert compare(docs, queries) > 500
