"""Mem0 under the contract of all memory systems, with a model that keeps every user line."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmem.memory import Endpoints
from agentmem.sandbox.environment import ensure
from tests.systems.contract import CHECKS, Bench, survives_a_reopen
from tests.systems.mem0_bench import READY, REASON, SPEC, act, actions, facts
from tests.systems.scripted import ScriptedModels, Seen

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.skipif(not READY, reason=REASON),
]

# Equal scores to the last bit are not Mem0's to give: test_mem0 reopens within 1e-6.
MINE = [check for check in CHECKS if check is not survives_a_reopen]


def faithful(seen: Seen) -> dict[str, Any]:
    """Every user line a fact, every fact added."""
    if len(seen.texts) == 2:
        lines = re.findall(r"^user: (.*)$", seen.texts[1], flags=re.MULTILINE)
        return facts(*lines)
    new = seen.texts[0].split("whether these facts should be")[1].split("```")[1]
    return actions(*(act("ADD", text) for text in ast.literal_eval(new.strip())))


@pytest.mark.parametrize("check", MINE, ids=lambda check: str(check.__name__))
def test_contract(check: Callable[[Bench], None], tmp_path: Path) -> None:
    with ScriptedModels(dims=64, otherwise=faithful) as models:
        reach = Endpoints(models.url, "scripted", models.url, "scripted", models.dims, 8192)
        check(Bench(SPEC, ensure(SPEC), tmp_path, reach, (models.port,)))
