"""The report's figures, each as a PNG file and as an SVG for light and for dark pages."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agentmem.report.content import Content
from agentmem.report.plots import energy, phases, tokens, tradeoff, walls

THEMES = {
    "light": {"ink": "#202327", "faint": "#D9DCE0", "paper": "#FFFFFF"},
    "dark": {"ink": "#E4E7EB", "faint": "#3A4048", "paper": "#191C20"},
}
DPI = 160


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawn figure with what it says in words."""

    key: str
    heading: str
    caption: str
    png: bytes
    svg: dict[str, bytes]
    """By theme: light, dark."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure to draw: fills a Figure, and tells its caption."""

    key: str
    heading: str
    draw: Callable[[Figure, Content, dict[str, str]], None]
    caption: Callable[[Content], str]


TRADEOFF = Plot("f2_tradeoff", "Accuracy against query latency", tradeoff.draw, tradeoff.caption)
PLOTS = (
    TRADEOFF,
    Plot("f3_phases", "Where the time goes", phases.draw, phases.caption),
    Plot("walls", "What the time was spent on", walls.draw, walls.caption),
    Plot("f4_energy", "Energy per correct answer", energy.draw, energy.caption),
    Plot("tokens", "Tokens per phase", tokens.draw, tokens.caption),
)


def draw_all(content: Content) -> tuple[Drawing, ...]:
    """All figures of a report; nothing is drawn for a report without any system."""
    if not any(run.run.systems for run in content.runs):
        return ()
    return tuple(drawing(plot, content) for plot in PLOTS)


def drawing(plot: Plot, content: Content) -> Drawing:
    """One figure in all its forms."""
    light = _render(plot, content, THEMES["light"], "svg")
    svg = {name: _recoloured(light, theme) for name, theme in THEMES.items()}
    png = _render(plot, content, THEMES["light"], "png")
    return Drawing(plot.key, plot.heading, plot.caption(content), png, svg)


def _render(plot: Plot, content: Content, theme: dict[str, str], kind: str) -> bytes:
    # No date and a fixed salt: the same run gives the same bytes.
    with mpl.rc_context(_settings(theme)):
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        plot.draw(figure, content, theme)
        out = io.BytesIO()
        stamp: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(out, format=kind, dpi=DPI, metadata=stamp)
    return out.getvalue()


def _recoloured(svg: bytes, theme: dict[str, str]) -> bytes:
    """The light figure in another theme's colours, without drawing it again."""
    for part, colour in theme.items():
        svg = svg.replace(THEMES["light"][part].lower().encode(), colour.lower().encode())
    return svg


def _settings(theme: dict[str, str]) -> Any:
    ink, faint = theme["ink"], theme["faint"]
    return {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.edgecolor": faint,
        "axes.labelcolor": ink,
        "axes.titlecolor": ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.facecolor": theme["paper"],
        "axes.grid": True,
        "axes.grid.axis": "x",
        "axes.axisbelow": True,
        "grid.color": faint,
        "grid.linewidth": 0.6,
        "figure.facecolor": theme["paper"],
        "savefig.facecolor": theme["paper"],
        "text.color": ink,
        "text.parse_math": False,
        "xtick.color": ink,
        "ytick.color": ink,
        "xtick.labelsize": 8,
        "ytick.left": False,
        "svg.hashsalt": "agentmem",
        "svg.fonttype": "path",
    }
