"""`agentmem doctor` on the engine: kernels, pages, modes, and what it falls back from."""

from __future__ import annotations

from typing import Any

import pytest

from agentmem.cli.doctor import kernel_rows, mode_rows
from agentmem.engine.kernels import choose
from agentmem.engine.kernels.torch_backend import kernels_for

FOUND: dict[str, Any] = {
    "backend": "native/avx2",
    "native": ["generic", "avx2"],
    "why_not_native": None,
    "cpu_features": ["avx2"],
    "huge_pages": "madvise",
}


def test_kernels_and_processor() -> None:
    kernels, processor, pages = kernel_rows(FOUND)
    assert kernels == ("engine: kernels", True, "native/avx2; builds: generic, avx2")
    assert processor == ("engine: processor", None, "avx2")
    assert pages[1] is True and pages[2].startswith("madvise")


def test_fall_backs_say_why() -> None:
    lacking = FOUND | {"why_not_native": "no module was built", "huge_pages": "never"}
    kernels, _, pages = kernel_rows(lacking | {"backend": "torch", "native": []})
    wanted = "fall-back: plain torch, because no module was built"
    assert kernels == ("engine: kernels", False, wanted)
    assert pages[1] is False and "fall-back: weights in small pages" in pages[2]


def test_modes_are_those_that_the_kernels_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "choose", lambda: kernels_for(False))
    ready = {name.removeprefix("engine mode: "): ok for name, ok, _ in mode_rows()}
    assert ready["bf16"] and ready["int8"] and ready["fp8"] and ready["int4"]
    assert ready["int8+group64"] is False


def test_what_is_described_is_what_is_printed() -> None:
    assert len(kernel_rows(choose.describe())) == 3
