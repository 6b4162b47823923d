"""Put a report together and write its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentmem.analysis.load import distinct, load
from agentmem.errors import UsageError
from agentmem.report import ReportPaths
from agentmem.report.content import Content, gather
from agentmem.report.figures import Drawing, draw_all
from agentmem.report.html import html
from agentmem.report.inert import cells, visible
from agentmem.report.markdown import markdown


def build_report(run_dirs: Sequence[Path], out: Path) -> ReportPaths:
    """See `agentmem.report.build`."""
    distinct(run_dirs)
    runs = [load(folder) for folder in run_dirs]
    try:
        for part in ("tables", "figures"):
            (out / part).mkdir(parents=True, exist_ok=True)
        content = gather(runs)
        return _write(content, draw_all(content), out)
    except OSError as error:
        raise UsageError(f"cannot write the report to {out}: {error.strerror}") from error


def _write(content: Content, drawings: Sequence[Drawing], out: Path) -> ReportPaths:
    csvs = []
    for sheet in content.sheets:
        path = out / "tables" / f"{sheet.key}.csv"
        cells(sheet.frame).to_csv(path, index=False)
        csvs.append(path)
    pngs = []
    for drawing in drawings:
        path = out / "figures" / f"{drawing.key}.png"
        path.write_bytes(drawing.png)
        pngs.append(path)
    page, text = out / "report.html", out / "report.md"
    page.write_text(visible(html(content, drawings)), encoding="utf-8")
    text.write_text(visible(markdown(content, drawings)), encoding="utf-8")
    return ReportPaths(page, text, tuple(csvs), tuple(pngs))
