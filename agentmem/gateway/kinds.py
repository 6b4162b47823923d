"""What a call was for: by the adapter's fingerprints, else by phase and endpoint."""

from __future__ import annotations

from agentmem.records import Bucket, Endpoint, Fingerprint, Phase, Stage

_DEFAULTS: dict[tuple[str, Phase | None], tuple[Stage | None, str]] = {
    ("embedding", "construction"): ("store", "embed-write"),
    ("embedding", "retrieval"): ("retrieve", "embed-query"),
    ("text", "construction"): ("construct", "unknown"),
    ("text", "retrieval"): ("retrieve", "unknown"),
    ("text", "generation"): ("generate", "answer"),
}


def classify(
    fingerprints: tuple[Fingerprint, ...],
    endpoint: Endpoint,
    phase: Phase | None,
    bucket: Bucket,
    texts: list[str],
) -> tuple[Stage | None, str]:
    """(stage, kind) of a call; ("unknown" kind when neither fingerprint nor phase tells)."""
    if (mark := recognise(fingerprints, endpoint, phase, texts)) is not None:
        return mark.stage, mark.kind
    if endpoint == "other":
        return None, "other"
    if bucket == "judge":
        return None, "judge"
    family = "embedding" if endpoint == "embedding" else "text"
    return _DEFAULTS.get((family, phase), (None, "unknown"))


def recognise(
    fingerprints: tuple[Fingerprint, ...], endpoint: Endpoint, phase: Phase | None, texts: list[str]
) -> Fingerprint | None:
    """The first fingerprint that fits a request."""
    text = "\n".join(texts) if fingerprints else ""
    return next((m for m in fingerprints if _matches(m, endpoint, phase, text)), None)


def _matches(mark: Fingerprint, endpoint: Endpoint, phase: Phase | None, text: str) -> bool:
    return (
        mark.endpoint in (None, endpoint)
        and mark.phase in (None, phase)
        and all(piece in text for piece in mark.contains)
    )
