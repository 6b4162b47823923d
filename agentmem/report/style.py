"""Colours of systems and phases: told apart by colour-blind readers, the same in every figure."""

from __future__ import annotations

from collections.abc import Sequence

from agentmem.analysis.load import REFERENCES

SYSTEM_COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#B8A900",
    "#7A5195",
    "#8C564B",
    "#17807E",
)
"""Okabe and Ito's palette, extended; given out in the order in which systems ran."""
REFERENCE_COLOURS = ("#9AA0A6", "#6B7178")
PHASE_COLOURS = {"construction": "#D55E00", "retrieval": "#0072B2", "generation": "#009E73"}
STATE_COLOURS = {
    "client_cpu": "#E69F00",
    "queue": "#8A8F96",
    "prefill": "#0072B2",
    "decode": "#009E73",
    "embedding": "#CC79A7",
    "call_other": "#56B4E9",
    "core_wait": "#D55E00",
    "idle": "#C3C8CE",
}
"""Parts of a wall time; what no one works on is grey."""
EMBED_COLOUR = "#CC79A7"


def system_colours(systems: Sequence[str]) -> dict[str, str]:
    """Colour per system name; reference rows are grey."""
    own = [s for s in systems if s not in REFERENCES]
    colours = {s: SYSTEM_COLOURS[i % len(SYSTEM_COLOURS)] for i, s in enumerate(own)}
    return colours | dict(zip(REFERENCES, REFERENCE_COLOURS, strict=True))
