"""The pieces of work that all engines do, what they are compared with, and the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.engine_parts.prompts import prompts

Rivals = Literal["peers", "bf16 peers", "own", "floor"]
GEMMA, SMOLLM2, QWEN = "gemma3-270m", "smollm2-135m", "qwen2.5-coder-0.5b"
MODELS = (GEMMA, SMOLLM2, QWEN)
GROUPS = (
    "prefill", "decode", "batch", "second-turn", "drafts", "memory", "queue", "classes",
)  # fmt: skip
OWN_MODES = ("int8", "bf16", "fp8")
FLOOR_TARGET = 0.75
OTHERWISE = 1.0
"""Of every row against peers that has no target of its own."""
TARGETS: dict[tuple[str, str, str], float] = {
    ("prefill 512", GEMMA, "bf16"): 1.5,
    ("prefill 512", SMOLLM2, "bf16"): 1.25,
    ("prefill 2048", GEMMA, "bf16"): 1.3,
    ("prefill 2048", GEMMA, "int8"): 1.8,
    ("decode 128", GEMMA, "int8"): 1.7,
    ("decode 128", GEMMA, "bf16"): 3.0,
    ("decode x 8", GEMMA, "int8"): 3.0,
    ("decode x 8", GEMMA, "fp8"): 2.5,
}


@dataclass(frozen=True, slots=True)
class Against:
    """One row of a case: what it is compared with. `target` None is of no figure to be held to."""

    rivals: Rivals
    target: float | None
    title: str = ""
    """Added to the work's name."""


@dataclass(frozen=True, slots=True)
class Case:
    """One job that all engines do each round. `rate`: higher is better, else time."""

    group: str
    work: str
    unit: str
    rate: bool
    job: str
    given: Callable[[int, int], dict[str, Any]]
    """Arguments by round and vocabulary."""
    value: Callable[[dict[str, Any]], float]
    modes: tuple[str, ...]
    context: float
    """Positions in the cache on average, for the floor."""
    against: Callable[[str, str], tuple[Against, ...]]
    """By model and mode."""
    own: dict[str, Any] | None = None
    """Arguments of our engine's second variant, which `own` rivals are."""
    own_title: str = ""


def target(work: str, model: str, mode: str) -> float:
    """The figure that a row against peers is held to."""
    return TARGETS.get((work, model, mode), OTHERWISE)


def cases(groups: tuple[str, ...], quick: bool) -> list[Case]:
    """The cases of some groups; small ones, held to nothing, when it has to be quick."""
    short, long, steps, batch_steps = (64, 128, 16, 8) if quick else (512, 2048, 128, 64)
    shared, new = (128, 16) if quick else (2000, 32)
    wanted = [
        prefill(short, 1, ("bf16", "int8", "fp8"), quick),
        prefill(long, 1, ("bf16", "int8"), quick),
        prefill(short, 8, ("bf16", "int8"), quick),
        decode(short, steps, 1, quick),
        decode(short, batch_steps, 8, quick),
        second_turn(shared, new, quick),
    ]
    return [case for case in wanted if case.group in groups]


def prefill(length: int, batch: int, modes: tuple[str, ...], quick: bool) -> Case:
    """`batch` prompts of `length` tokens to their first tokens, tokens a second."""
    work = f"prefill {length}" + (f" x {batch}" if batch > 1 else "")

    def against(model: str, mode: str) -> tuple[Against, ...]:
        return (Against("peers", None if quick else target(work, model, mode)),)

    return Case(
        "prefill",
        work,
        "tok/s",
        True,
        "prefill",
        lambda seed, vocabulary: {"ids": prompts(batch, length, seed=seed, vocabulary=vocabulary)},
        lambda told: batch * length / told["s"],
        modes,
        length / 2,
        against,
    )


def decode(length: int, steps: int, batch: int, quick: bool) -> Case:
    """`steps` tokens behind each of `batch` prompts of `length`, tokens a second of all."""
    work = f"decode x {batch}" if batch > 1 else f"decode {steps}"

    def against(model: str, mode: str) -> tuple[Against, ...]:
        alike: Rivals = "bf16 peers" if mode == "bf16" and batch == 1 else "peers"
        rows = [Against(alike, None if quick else target(work, model, mode))]
        if batch == 1:
            held = mode == "int8" and model == GEMMA and not quick
            rows.append(Against("floor", FLOOR_TARGET if held else None, " of the read floor"))
        return tuple(rows)

    def given(seed: int, vocabulary: int) -> dict[str, Any]:
        return {"ids": prompts(batch, length, seed=seed, vocabulary=vocabulary), "steps": steps}

    return Case(
        "decode" if batch == 1 else "batch",
        work,
        "tok/s",
        True,
        "decode",
        given,
        lambda told: float(told["tokens"] / told["s"]),
        OWN_MODES,
        length + steps / 2,
        against,
    )


def second_turn(shared: int, new: int, quick: bool) -> Case:
    """Time to the first token of a prompt whose first `shared` tokens were there before."""

    def given(seed: int, vocabulary: int) -> dict[str, Any]:
        (ids,) = prompts(1, shared + new, seed=seed, vocabulary=vocabulary)
        return {"shared": ids[:shared], "new": ids[shared:]}

    def against(_model: str, _mode: str) -> tuple[Against, ...]:
        return (
            Against("own", None if quick else 20.0, ", against no reuse"),
            Against("peers", None if quick else 1.0, ", against peers' caches"),
        )

    return Case(
        "second-turn",
        f"second turn {shared} + {new}",
        "ms",
        False,
        "second_turn",
        given,
        lambda told: 1e3 * float(told["s"]),
        ("int8", "bf16"),
        shared,
        against,
        {"reuse": False},
        "ours without reuse",
    )
