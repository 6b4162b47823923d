"""Makes text that came from a model or a data set harmless in the files of a report."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Control characters and lone surrogates: no file format of a report can carry them."""


def visible(text: str) -> str:
    """The text with control characters and lone surrogates written out, as in `\\x00`."""
    return _CONTROL.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def cell(value: Any) -> Any:
    """A CSV cell; a text that a spreadsheet would run gets an apostrophe in front."""
    if isinstance(value, (list, tuple, dict)):
        value = str(value)
    if not isinstance(value, str):
        return value
    return f"'{visible(value)}" if value.lstrip(" ").startswith(_FORMULA) else visible(value)


def cells(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose texts are safe to open in a spreadsheet; numbers stay numbers."""
    texts = [name for name in frame if frame[name].dtype.kind not in "biufM"]
    return frame.assign(**{str(name): frame[name].map(cell) for name in texts})
