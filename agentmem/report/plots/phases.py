"""F3: construction wall time, and seconds per question to retrieve and to generate."""

from __future__ import annotations

from matplotlib.figure import Figure

from agentmem.report import format as fmt
from agentmem.report.content import Content
from agentmem.report.plots.rows import label_rows, measure, records, wants_log

PANELS = (
    ("construction_s", "Construction, whole history"),
    ("retrieval_mean_s", "Retrieval, per question"),
    ("generation_mean_s", "Generation, per question"),
)


def draw(figure: Figure, content: Content, theme: dict[str, str]) -> None:
    """Three panels with one row per system."""
    rows = records(content, "f3_phase_times")
    figure.set_size_inches(9.2, 1.15 + 0.36 * len(rows))
    panels = figure.subplots(1, len(PANELS), gridspec_kw={"wspace": 0.08})
    for i, (axes, (key, heading)) in enumerate(zip(panels, PANELS, strict=True)):
        measure(axes, rows, key, fmt.seconds)
        label_rows(axes, [str(row["label"]) for row in rows], first=i == 0)
        axes.set_title(heading)
        axes.tick_params(axis="x", labelrotation=0)
        if not wants_log([fmt.known(row[key]) for row in rows]):
            axes.locator_params(axis="x", nbins=4)


def caption(content: Content) -> str:
    rows = records(content, "f3_phase_times")
    logs = [h for key, h in PANELS if wants_log([fmt.known(r[key]) for r in rows])]
    n = max((int(str(row["questions"])) for row in rows), default=0)
    scale = (
        f" Points on a logarithmic axis: {'; '.join(logs)}." if logs else " All axes start at zero."
    )
    return (
        f"Wall seconds without quiet waits; retrieval and generation are means over {n} questions "
        "per system, failed ones left out. The references do not build or retrieve." + scale
    )
