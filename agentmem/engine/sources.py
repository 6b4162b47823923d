"""Where weights come from: one interface over GGUF files and safetensors folders.

Names are those of GGUF; a folder's are translated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from agentmem.engine.kernels.weights import Weight
from agentmem.engine.quant import checkpoints
from agentmem.engine.quant.formats import dequantise
from agentmem.errors import DataError
from agentmem.modelfiles.gguf import GGUF

_PIECE = 1 << 22
"""Elements decoded at once: bounds the float32 copies beside a large embedding."""


class WeightSource(Protocol):
    """Tensors by GGUF name. `paired_rotations` says how query and key rows are ordered."""

    paired_rotations: bool

    def has(self, name: str) -> bool:
        """True when the tensor exists."""

    def rows(self, name: str) -> int:
        """How many rows the tensor has; DataError when it is missing."""

    def take(self, name: str, dtype: torch.dtype) -> Tensor:
        """The tensor in a dtype; DataError when it is missing."""

    def pieces(self, name: str) -> Iterator[Tensor]:
        """The tensor in float32, a few rows at a time; DataError when it is missing."""

    def stored(self, name: str) -> Weight | None:
        """The matrix with its own fp8 codes and scales, where the file keeps it so; else None."""

    def unused(self) -> list[str]:
        """Names never taken."""


class GGUFSource:
    """Tensors of a GGUF file, dequantised."""

    def __init__(self, file: GGUF) -> None:
        self._file = file
        self._left = set(file.tensors) - {"rope_freqs.weight"}
        # llama files are written for interleaved rotations, the others for halves
        self.paired_rotations = file.arch == "llama"

    def has(self, name: str) -> bool:
        """See WeightSource."""
        return name in self._file.tensors

    def rows(self, name: str) -> int:
        """See WeightSource."""
        return self._shape(name)[0]

    def take(self, name: str, dtype: torch.dtype) -> Tensor:
        """See WeightSource."""
        out = torch.empty(self._shape(name), dtype=dtype)
        start = 0
        for piece in self.pieces(name):
            out[start : start + len(piece)] = piece
            start += len(piece)
        return out

    def pieces(self, name: str) -> Iterator[Tensor]:
        """See WeightSource."""
        self._left.discard(name)
        shape = self._shape(name)
        for rows in _rows(shape[0], math.prod(shape)):
            yield torch.from_numpy(self._file.tensor(name, rows))
            # what was read need not stay in memory beside what was made of it
            self._file.let_go()

    def stored(self, name: str) -> Weight | None:
        """See WeightSource. A GGUF file's own formats are not kept."""
        return None

    def unused(self) -> list[str]:
        """See WeightSource."""
        return sorted(self._left)

    def _shape(self, name: str) -> tuple[int, ...]:
        if not self.has(name):
            raise DataError(f"{self._file.path} holds no tensor {name!r}")
        return tuple(self._file.tensors[name].shape)


_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA_INNER = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.")


class FolderSource:
    """Tensors of a safetensors folder in hub names. Gemma's norms are stored less one."""

    paired_rotations = False

    def __init__(self, folder: Path, arch: str) -> None:
        self._folder = folder
        self._gemma = arch == "gemma3"
        self._files: dict[str, tuple[Path, str]] = {}
        for file in sorted(folder.glob("*.safetensors")):
            self._index(file)
        self._scheme = checkpoints.scheme_of(folder)
        self._left = set(self._files)

    def _index(self, file: Path) -> None:
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 (no mapping)
                    self._files[_plain(name)] = (file, name)
        except (SafetensorError, OSError) as error:
            raise DataError(f"cannot read {file}: {error}") from error

    def has(self, name: str) -> bool:
        """See WeightSource."""
        return self._translate(name) in self._files

    def rows(self, name: str) -> int:
        """See WeightSource."""
        file, stored = self._files[self._known(name)]
        with safe_open(file, framework="pt") as tensors:
            return int(tensors.get_slice(stored).get_shape()[0])

    def take(self, name: str, dtype: torch.dtype) -> Tensor:
        """See WeightSource."""
        known = self._known(name)
        self._left.discard(known)
        tensor = self._load(known)
        if checkpoints.is_coded(tensor):
            found = self._quantised(known)
            return found.to(dtype) if isinstance(found, Tensor) else dequantise(found, dtype)
        if self._gemma and name.endswith("norm.weight"):
            return (tensor.float() + 1).to(dtype)
        return tensor.to(dtype, copy=True)

    def pieces(self, name: str) -> Iterator[Tensor]:
        """See WeightSource."""
        known = self._known(name)
        file, stored = self._files[known]
        with safe_open(file, framework="pt") as tensors:
            part = tensors.get_slice(stored)
            if name.endswith("norm.weight") or part.get_dtype().startswith("F8"):
                yield self.take(name, torch.float32)
                return
            self._left.discard(known)
            shape = part.get_shape()
            for rows in _rows(shape[0], math.prod(shape)):
                yield part[rows].float()

    def stored(self, name: str) -> Weight | None:
        """See WeightSource. Tiled matrices have no row scales: they are taken as numbers."""
        known = self._translate(name)
        if self._scheme is None or known not in self._files:
            return None
        if not checkpoints.is_coded(self._load(known)):
            return None
        found = self._quantised(known)
        if isinstance(found, Tensor):
            return None
        self._left.discard(known)
        return found

    def _load(self, known: str) -> Tensor:
        file, stored = self._files[known]
        with safe_open(file, framework="pt") as tensors:
            tensor: Tensor = tensors.get_tensor(stored)
        return tensor

    def _quantised(self, known: str) -> Weight | Tensor:
        if self._scheme is None:
            raise DataError(f"{self._folder} holds fp8 matrices; its config.json says not which")
        module = known.removesuffix(".weight")
        names = [known, *(module + end for end in checkpoints.SIDE)]
        self._left.difference_update(names[1:])
        load: dict[str, Callable[[], Tensor]] = {
            name: partial(self._load, name) for name in names if name in self._files
        }
        return checkpoints.read(module, load, self._scheme)

    def unused(self) -> list[str]:
        """See WeightSource. Parts of a multimodal model beside the text decoder do not count."""
        mine = ("model.layers.", "model.embed_tokens", "model.norm", "lm_head")
        left = (n for n in self._left if n.startswith(mine) and not n.endswith(checkpoints.IGNORED))
        return sorted(n for n in left if "rotary_emb" not in n)

    def _known(self, name: str) -> str:
        known = self._translate(name)
        if known not in self._files:
            raise DataError(f"{self._folder} holds no tensor {known!r}")
        return known

    def _translate(self, name: str) -> str:
        return hub_name(name, self._gemma) or name


def hub_name(name: str, gemma: bool) -> str | None:
    """The hub's name of a GGUF tensor, or None for one that is not known."""
    if name in _TOP:
        return _TOP[name]
    inner = _INNER | (_GEMMA_INNER if gemma else {})
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in inner:
        return None
    return f"model.layers.{match[1]}.{inner[match[2]]}.{match[3]}"


def _rows(rows: int, elements: int) -> Iterator[slice]:
    """Slices of some rows each, so many that a piece stays small."""
    step = max(1, _PIECE * rows // max(1, elements))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _plain(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return "model." + name.removeprefix(prefix)
    return name
