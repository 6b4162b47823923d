"""Static activation scales of a model: a small versioned file that names the weights it is for."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentmem.engine.quant.formats import E4M3_MAX
from agentmem.errors import DataError

FORMAT = 1
FILE = "calibration.json"
LEAST, MOST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
"""Scales that float32 holds in full."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """One scale for each linear's input, by the linear's name (`blk.0.qkv`).

    `weights` is the sha256 of the model's files, `source` says which text was run, `tokens` how
    much of it; `percentile` is the share of rows whose largest value the scale covers.
    """

    weights: str
    scales: dict[str, float]
    percentile: float
    tokens: int
    source: str

    @property
    def digest(self) -> str:
        """Of the scales alone, for the identity of what is computed with them."""
        told = json.dumps(self.scales, sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()

    def scale(self, name: str) -> Tensor:
        """float32, one element; DataError when the linear was not calibrated."""
        if name not in self.scales:
            raise DataError(f"the calibration knows no {name!r}")
        return torch.tensor([self.scales[name]], dtype=torch.float32)

    def save(self, folder: Path) -> Path:
        """Write the file into a folder, made where needed; gives its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        told = json.dumps({"format": FORMAT, **asdict(self), "digest": self.digest}, indent=1)
        whole = path.with_suffix(".part")
        whole.write_text(told + "\n", encoding="utf-8")
        whole.replace(path)
        return path


def load_calibration(folder: Path | str, weights: str) -> Calibration:
    """The calibration in a folder (or of a file); DataError with the reason when it cannot serve.

    It must be of a known format and made from the very weights whose sha256 is given.
    """
    path = Path(folder)
    path = path / FILE if path.is_dir() else path
    found, digest = _read(path)
    if found.weights != weights:
        raise DataError(
            f"{path} was made for weights {found.weights[:12]}, not these ({weights[:12]}); "
            "run agentmem engine calibrate for this model"
        )
    if not all(LEAST <= scale <= MOST for scale in found.scales.values()):
        raise DataError(f"{path} holds scales that are not positive numbers of float32")
    if digest is not None and digest != found.digest:
        raise DataError(f"{path} is damaged: its digest does not fit; calibrate again")
    return found


def _read(path: Path) -> tuple[Calibration, str | None]:
    """What the file holds, and the digest of its scales where it states one."""
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = raw.pop("format")
        if version != FORMAT:
            raise DataError(f"{path} is of format {version}, known is {FORMAT}; calibrate again")
        digest = raw.pop("digest", None)
        found = Calibration(**raw)
        plain = all(type(scale) in (int, float) for scale in found.scales.values())
    except OSError as error:
        raise DataError(f"no calibration at {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is no calibration: {error}") from error
    if not plain or not isinstance(found.weights, str):
        raise DataError(f"{path} is no calibration: scales are numbers, weights is a sha256")
    return found, digest


class Ranges:
    """Largest values of each linear's input, a row at a time."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Tensor]] = {}

    def add(self, name: str, x: Tensor) -> None:
        """See the rows of x [n, in]."""
        self._rows.setdefault(name, []).append(x.abs().amax(dim=-1).float())

    def scales(self, percentile: float = 100.0) -> dict[str, float]:
        """e4m3 scales that cover the largest value of this share of rows; 1 where all is zero."""
        if not 0 < percentile <= 100:
            raise DataError(f"a percentile lies in (0, 100], not at {percentile}")
        return {name: _scale(torch.cat(rows), percentile) for name, rows in self._rows.items()}


def _scale(largest: Tensor, percentile: float) -> float:
    ordered = largest.sort().values
    covered = float(ordered[math.ceil(percentile / 100 * len(ordered)) - 1])
    if not math.isfinite(covered):
        raise DataError("an activation is not finite; the model cannot be calibrated on this text")
    return covered / E4M3_MAX if covered > 0 else 1.0


def missing(found: Calibration, names: Iterable[str]) -> list[str]:
    """Linears that a model has and the calibration does not."""
    return sorted(set(names) - set(found.scales))
