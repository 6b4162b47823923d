"""Compiles kernels for devices that are not there, in a process without the interpreter.

`python -m tests.engine.gpu.assemble TARGETS [NAMES] [direct]`, lists with commas: one JSON line a
kernel and target, with the e4m3 conversions found in its code, or the reason why there is none.
"""

from __future__ import annotations

import json
import re
import sys

from triton.compiler.errors import CompilationError

from agentmem.engine.gpu.targets import assemble, builds
from agentmem.errors import EngineError

NARROWING = re.compile(r"cvt\S*\.e4m3x2\.f\S+")
PRODUCT = re.compile(r"\b(?:mma|wgmma|tcgen05)\.\S*")


def row(build, target: str, direct: bool | None) -> dict[str, object]:  # type: ignore[no-untyped-def]
    found: dict[str, object] = {"kernel": build.name, "target": target, "e4m3": build.e4m3}
    try:
        stages = assemble(build, target, direct)
    except (EngineError, CompilationError) as error:
        return found | {"error": type(error).__name__, "reason": str(error)}
    text = stages.get("ptx") or stages["amdgcn"]
    found["converts"] = sorted(set(NARROWING.findall(text)))
    found["products"] = sorted(set(PRODUCT.findall(text)))
    return found | {"bytes": len(stages.get("cubin") or stages["hsaco"])}


if __name__ == "__main__":
    targets, names = (argument.split(",") for argument in (*sys.argv[1:3], "")[:2])
    for build in builds():
        if names == [""] or build.name.replace(", ", " ") in names:
            for target in targets:
                print(json.dumps(row(build, target, True if "direct" in sys.argv else None)))
