"""One self-contained HTML page: no script, no request to anywhere, all run data escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

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
    """The page of a report as text."""
    return render(
        "report.html.j2",
        content=content,
        figures={d.key: d for d in drawings},
        version=agentmem.__version__,
    )


def render(template: str, **values: Any) -> str:
    """A page with the report's style, everything in `values` escaped."""
    style, _, _ = _ENGINE.loader.get_source(_ENGINE, "report.css")  # type: ignore[union-attr]
    page = _ENGINE.get_template(template)
    return page.render(style=style, data_uri=data_uri, **values)


def data_uri(drawing: Drawing, theme: str) -> str:
    """A figure as an image address that needs no request."""
    coded = base64.b64encode(drawing.svg[theme]).decode("ascii")
    return f"data:image/svg+xml;base64,{coded}"
