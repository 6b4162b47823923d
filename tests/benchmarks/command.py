"""The benchmark's command as a module, and a model that is loaded in no time."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

from tests.engine.core.conftest import _save_tokenizer
from tests.engine.core.toys import TOYS, save_toy

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    """A script of benchmarks/ under a name that hides no other module."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tiny_model(folder: Path) -> Path:
    """A random llama with a byte tokenizer."""
    save_toy(TOYS["llama"], folder)
    _save_tokenizer(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    return folder


engine = script("engine")
soak = script("engine_soak")
