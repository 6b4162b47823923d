"""LoCoMo's own score of an answer, as its authors define it, beside the scores that all runs have.

Words are compared by their stems (Porter's, as NLTK has them, for the authors use NLTK), after
commas, punctuation, articles and "and" are left out.
"""

from __future__ import annotations

import re
import string
from collections import Counter

import pandas as pd

from agentmem.analysis.load import Run
from agentmem.analysis.porter import stem

NAME = "locomo"
_FILLERS = {"a", "an", "the", "and"}
_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
_ABSTAINS = re.compile("no information available|not mentioned", re.IGNORECASE)
"""What the authors take for the right answer to an adversarial question."""


def stems(text: str) -> list[str]:
    """The text's words as stems, in order."""
    plain = text.lower().translate(_PUNCTUATION)
    return [stem(word) for word in plain.split() if word not in _FILLERS]


def stem_f1(answer: str, gold: str) -> float:
    """Harmonic mean of precision and recall over stems; 0 to 1."""
    got, wanted = Counter(stems(answer)), Counter(stems(gold))
    shared = (got & wanted).total()
    return 2 * shared / (got.total() + wanted.total()) if shared else 0.0


def locomo_score(category: str, answer: str, gold: str) -> float:
    """0 to 1. Multi-hop: mean over the gold's parts between commas, each against the answer's best
    part. Open-domain: the gold up to a semicolon. Adversarial: 1 for saying that it is not known.
    """
    if category == "adversarial":
        return float(bool(_ABSTAINS.search(answer)))
    if category == "open-domain":
        gold = gold.split(";")[0]
    if category != "multi-hop":
        return stem_f1(answer, gold)
    parts, wanted = answer.split(","), gold.split(",")
    return sum(max(stem_f1(part, one) for part in parts) for one in wanted) / len(wanted)


def locomo_means(run: Run) -> dict[str, float] | None:
    """Mean per system over all questions asked, unanswered ones as 0; None for other workloads."""
    if (run.manifest.get("workload") or {}).get("name") != NAME:
        return None
    queries = run.queries
    rows = zip(queries["category"], queries["answer"], queries["golds"], strict=True)
    points = [locomo_score(c, a or "", golds[0] if golds else "") for c, a, golds in rows]
    means = pd.Series(points, dtype="float64").groupby(queries["system"].to_numpy()).mean()
    return {str(system): float(value) for system, value in means.items()}
