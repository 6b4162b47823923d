"""The tokenizer of a model folder in the usual hub layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from agentmem.errors import DataError
from agentmem.modelfiles.backed_tokenizer import END_NAMES, BackedTokenizer, Spelling, Traits
from agentmem.modelfiles.fetch import model_name


def from_folder(file: Path) -> BackedTokenizer:
    """Read a tokenizer.json and what lies beside it; DataError when it is missing or broken."""
    if not file.is_file():
        raise DataError(f"no tokenizer at {file}")
    layout = _json(file)
    with _Reading(file):
        backend = Backend.from_str(json.dumps(layout))
    backend.no_truncation()
    backend.no_padding()
    folder = file.parent
    config = _json(folder / "config.json") | _json(folder / "generation_config.json")
    names = _json(folder / "tokenizer_config.json")
    return BackedTokenizer(backend, _traits(backend, layout, folder, config, names))


class _Reading:
    """Turns the plain `Exception` that the tokenizers package raises into a DataError."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is Exception:
            raise DataError(f"{self._file} is no readable tokenizer: {error}")


def _traits(
    backend: Backend,
    layout: dict[str, Any],
    folder: Path,
    config: dict[str, Any],
    names: dict[str, Any],
) -> Traits:
    added = backend.get_added_tokens_decoder()
    control = frozenset(i for i, token in added.items() if token.special)
    ends = {i for i in control if added[i].content in END_NAMES}
    ends.update(_as_ids(config.get("eos_token_id")))
    spelling = _spelling(layout)
    bos = config.get("bos_token_id")
    if bos is None:
        bos = backend.token_to_id(_name(names.get("bos_token")))
    return Traits(
        name=model_name(folder),
        spelling=spelling,
        control_ids=control,
        bos_id=bos,
        eos_ids=tuple(sorted(ends)) if spelling != "wordpiece" else (),
        chat_template=_template(folder, names),
        space_prefix=spelling == "spm" and '"Prepend"' in json.dumps(layout.get("normalizer")),
        vocab_size=max(
            int(config.get("vocab_size") or 0), backend.get_vocab_size(with_added_tokens=True)
        ),
    )


def _spelling(layout: dict[str, Any]) -> Spelling:
    if layout.get("model", {}).get("type") == "WordPiece":
        return "wordpiece"
    if layout.get("model", {}).get("byte_fallback"):
        return "spm"
    return "bytes"


def _template(folder: Path, names: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = names.get("chat_template")
    if isinstance(template, list):
        template = {part["name"]: part["template"] for part in template}.get("default")
    return template if isinstance(template, str) else None


def _as_ids(declared: Any) -> list[int]:
    if declared is None:
        return []
    return [int(i) for i in declared] if isinstance(declared, list) else [int(declared)]


def _name(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is no readable JSON: {error}") from error
    return value if isinstance(value, dict) else {}
