"""The kernels of recurrent state compile for devices that are not there.

That they are free of races is tested in device/test_state.py.
"""

from __future__ import annotations

from pathlib import Path

from tests.engine.gpu.test_kernels import check_code, compiled, needs_triton

NAMES = [
    f"{step} {kind}{first}"
    for kind in ("window", "recurrent")
    for step, first in (("postprocess", " first"), ("postprocess", ""), ("precopy", ""))
]


@needs_triton
def test_kernels_of_state_compile(tmp_path: Path) -> None:
    rows = compiled(tmp_path, "sm_89,sm_90,sm_100", ",".join(NAMES))
    assert len(rows) == 18
    for row in rows:
        check_code(row)
