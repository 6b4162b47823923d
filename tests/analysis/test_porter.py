"""Stems against those that NLTK's documentation and users know, and NLTK itself where it is."""

from __future__ import annotations

import importlib.resources
import re

import pytest

from agentmem.analysis.porter import stem

KNOWN = {
    # The examples of NLTK's own guide to stemmers.
    "caresses": "caress", "flies": "fli", "dies": "die", "mules": "mule", "denied": "deni",
    "died": "die", "agreed": "agre", "owned": "own", "humbled": "humbl", "sized": "size",
    "meeting": "meet", "stating": "state", "siezing": "siez", "itemization": "item",
    "sensational": "sensat", "traditional": "tradit", "reference": "refer",
    "colonizer": "colon", "plotted": "plot",
    # Porter's own examples, in which the two agree.
    "ponies": "poni", "feed": "feed", "plastered": "plaster", "motoring": "motor", "sing": "sing",
    "conflated": "conflat", "troubling": "troubl", "hopping": "hop", "falling": "fall",
    "hissing": "hiss", "fizzed": "fizz", "failing": "fail", "filing": "file", "happy": "happi",
    "relational": "relat", "conditional": "condit", "digitizer": "digit", "vietnamization":
    "vietnam", "triplicate": "triplic", "hopefulness": "hope", "goodness": "good",
    "adjustment": "adjust", "adoption": "adopt", "probate": "probat", "rate": "rate",
    "controlling": "control", "rolling": "roll",
    # Where plain Porter says otherwise: ski, dy, new, enjoi, sai, flatli, geologi, ti, i.
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "news": "news",
    "enjoy": "enjoy", "say": "say", "generally": "gener", "rationally": "ration",
    "possibly": "possibl", "geology": "geolog", "theology": "theolog", "ties": "tie",
    "tied": "tie", "is": "is", "as": "as", "innings": "inning", "proceed": "proceed",
    "exceed": "exceed", "joyfully": "joy", "aging": "age", "used": "use",
}  # fmt: skip


@pytest.mark.parametrize(("word", "expected"), KNOWN.items())
def test_stem(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    "odd", ["", "s", "1990s", "naïve", "日本語", "y", "yy", "eed", "ing", "\0"]
)
def test_what_is_no_word_passes(odd: str) -> None:
    assert isinstance(stem(odd), str)


def test_every_word_of_the_generator_as_nltk_has_it() -> None:
    porter = pytest.importorskip("nltk.stem.porter").PorterStemmer()
    texts = importlib.resources.files("agentmem.workloads.generator") / "texts"
    everything = " ".join(t.read_text(encoding="utf-8").lower() for t in texts.iterdir())
    words = sorted(set(re.findall(r"[^\W_]+", everything)))
    assert len(words) > 1000
    assert [w for w in words if stem(w) != porter.stem(w)] == []
