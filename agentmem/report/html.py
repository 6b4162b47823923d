"""One self-contained HTML page: no script, no request to anywhere, all run data escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import jinja2

import agentmem
from agentmem.report.content import Content
from agentmem.report.figures import Drawing

_ENGINE = jinja2.Environment(
    loader=jinja2.PackageLoader("agentmem.report", "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def html(content: Content, drawings: Sequence[Drawing]) -> str:
    """The page as text."""
    style, _, _ = _ENGINE.loader.get_source(_ENGINE, "report.css")  # type: ignore[union-attr]
    return _ENGINE.get_template("report.html.j2").render(
        content=content,
        style=style,
        figures={d.key: d for d in drawings},
        data_uri=data_uri,
        version=agentmem.__version__,
    )


def data_uri(drawing: Drawing, theme: str) -> str:
    """A figure as an image address that needs no request."""
    coded = base64.b64encode(drawing.svg[theme]).decode("ascii")
    return f"data:image/svg+xml;base64,{coded}"
