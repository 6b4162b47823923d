"""From a model file to a decoder: sizes, then weights fused, ordered and put into a format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from agentmem.engine.config import DecoderConfig
from agentmem.engine.config_gguf import config_from_gguf
from agentmem.engine.config_hub import config_from_folder
from agentmem.engine.kernels.base import Kernels, RoundingOrder
from agentmem.engine.kernels.torch_backend import kernels_for
from agentmem.engine.kernels.weights import Weight, WeightFormat
from agentmem.engine.models.decoder import Decoder, DecoderWeights, LayerWeights
from agentmem.engine.quant.activations import activate
from agentmem.engine.quant.calibration import Calibration
from agentmem.engine.quant.eligible import Runtime
from agentmem.engine.quant.formats import join, quantise, reorder
from agentmem.engine.sources import FolderSource, GGUFSource, WeightSource
from agentmem.errors import DataError
from agentmem.modelfiles.gguf import GGUF

Mode = Literal["fp32", "bf16", "int8", "fp8", "int4"]
MODES: tuple[Mode, ...] = ("fp32", "bf16", "int8", "fp8", "int4")


def load_decoder(
    path: Path,
    mode: Mode = "bf16",
    *,
    kernels: Kernels | None = None,
    order: RoundingOrder = "round-first",
    calibration: Calibration | None = None,
) -> Decoder:
    """A decoder from a GGUF file or a safetensors folder; DataError otherwise.

    The mode is the format of the matrices. Activations are bf16, float32 in the mode fp32, e4m3 in
    front of fp8 matrices that have a static scale, by a calibration or the checkpoint's own. The
    residual stream is float32, but where norms can be fused, which want one dtype throughout.
    """
    source: WeightSource
    if path.is_dir():
        config = config_from_folder(path)
        source = FolderSource(path, config.arch)
    else:
        file = GGUF.open(path)
        config = config_from_gguf(file)
        source = GGUFSource(file)
    dtype = torch.float32 if mode == "fp32" else torch.bfloat16
    kernels = kernels or kernels_for(False)
    weights = _Builder(config, source, mode, dtype, kernels.pack).weights()
    if source.unused():
        raise DataError(f"{path} holds tensors this engine does not know: {source.unused()[:3]}")
    active = activate(config, weights, dtype, calibration, Runtime(invariant=kernels.invariant))
    return Decoder(
        replace(config, vocab_size=weights.head.rows),
        active.weights,
        kernels,
        dtype=dtype,
        residual=active.residual,
        order=order,
        notes=active.notes,
    )


class _Builder:
    def __init__(
        self,
        config: DecoderConfig,
        source: WeightSource,
        mode: Mode,
        dtype: torch.dtype,
        pack: Callable[[Weight], Weight],
    ) -> None:
        self._c = config
        self._pack = pack
        self._source = source
        self._mode = mode
        self._dtype = dtype

    def weights(self) -> DecoderWeights:
        # four bits cost too much where every token's choice is made
        ends: WeightFormat = "int8" if self._mode == "int4" else self._mode
        embedding = self._pack(self._matrix("token_embd.weight", None, self._c.width, ends))
        tied = not self._source.has("output.weight")
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(self._layer(f"blk.{i}.") for i in range(self._c.layers)),
            norm=self._norm("output_norm"),
            head=embedding if tied else self._head(ends),
        )

    def _head(self, format: WeightFormat) -> Weight:
        return self._pack(self._matrix("output.weight", None, self._c.width, format))

    def _layer(self, at: str) -> LayerWeights:
        c = self._c
        inner = c.heads * c.head_dim
        post = c.post_norms
        gate_up = [self._matrix(at + f"ffn_{n}.weight", c.ffn_width, c.width) for n in _GATE_UP]
        return LayerWeights(
            attn_norm=self._norm(at + "attn_norm"),
            qkv=self._pack(self._qkv(at)),
            qkv_bias=self._qkv_bias(at),
            out=self._pack(self._matrix(at + "attn_output.weight", c.width, inner)),
            out_bias=self._bias(at + "attn_output.bias"),
            ffn_norm=self._norm(at + "ffn_norm"),
            gate_up=self._pack(join(gate_up)),
            down=self._pack(self._matrix(at + "ffn_down.weight", c.width, c.ffn_width)),
            qk_norm=self._qk_norm(at) if c.qk_norm else None,
            post_attn_norm=self._norm(at + "post_attention_norm") if post else None,
            post_ffn_norm=self._norm(at + "post_ffw_norm") if post else None,
        )

    def _qkv(self, at: str) -> Weight:
        c = self._c
        parts = []
        for name, heads in (("q", c.heads), ("k", c.kv_heads), ("v", c.kv_heads)):
            part = self._matrix(f"{at}attn_{name}.weight", heads * c.head_dim, c.width)
            if name != "v" and not self._source.paired_rotations:
                part = reorder(part, self._pair(torch.arange(part.rows), heads))
            parts.append(part)
        return join(parts)

    def _qkv_bias(self, at: str) -> Tensor | None:
        c = self._c
        if not self._source.has(at + "attn_q.bias"):
            return None
        q, k, v = (self._source.take(f"{at}attn_{n}.bias", self._dtype) for n in "qkv")
        return torch.cat([self._pair(q, c.heads), self._pair(k, c.kv_heads), v])

    def _qk_norm(self, at: str) -> Tensor:
        q, k = (self._pair(self._norm(f"{at}attn_{n}_norm"), 1) for n in "qk")
        return torch.cat([q.expand(self._c.heads, -1), k.expand(self._c.kv_heads, -1)])

    def _pair(self, rows: Tensor, heads: int) -> Tensor:
        """Reorder each head's rows from two halves to neighbouring pairs, unless they are so."""
        if self._source.paired_rotations:
            return rows
        halves = rows.view(heads, 2, self._c.head_dim // 2, *rows.shape[1:])
        return halves.transpose(1, 2).reshape(rows.shape)

    def _matrix(
        self, name: str, rows: int | None, columns: int, format: WeightFormat | None = None
    ) -> Weight:
        if self._mode == "fp8" and (kept := self._source.stored(name)) is not None:
            return self._checked(name, kept, rows, columns)
        if self._mode in ("fp32", "bf16"):
            tensor = self._source.take(name, self._dtype)
            _check_matrix(name, tensor)
            return self._checked(name, quantise(tensor, self._mode), rows, columns)
        # what is stored goes into a coarse format without a stop at bf16, piece by piece
        pieces = self._source.pieces(name)
        weight = _gathered(name, pieces, self._source.rows(name), format or self._mode)
        return self._checked(name, weight, rows, columns)

    def _checked(self, name: str, weight: Weight, rows: int | None, columns: int) -> Weight:
        if (weight.rows, weight.columns) != (rows or weight.rows, columns):
            shape = (weight.rows, weight.columns)
            raise DataError(f"tensor {name!r} is {shape}, not {(rows or 'any', columns)}")
        return weight

    def _bias(self, name: str) -> Tensor | None:
        return self._source.take(name, self._dtype) if self._source.has(name) else None

    def _norm(self, name: str) -> Tensor:
        return self._source.take(name + ".weight", torch.float32)


_GATE_UP = ("gate", "up")


def _gathered(name: str, pieces: Iterator[Tensor], rows: int, format: WeightFormat) -> Weight:
    """A matrix quantised as its rows come; nothing is ever there twice."""
    whole: Weight | None = None
    at = 0
    for piece in pieces:
        _check_matrix(name, piece)
        part = quantise(piece, format)
        if len(piece) == rows:
            return part
        if whole is None:
            whole = _room(part, rows)
        assert whole.scale is not None
        assert part.scale is not None
        # bytes: not every type can be assigned
        place = slice(at, at + len(piece))
        whole.data.view(torch.uint8)[place] = part.data.view(torch.uint8)
        whole.scale[place] = part.scale
        if whole.offset is not None:
            assert part.offset is not None
            whole.offset[place] = part.offset
        at += len(piece)
    if whole is None:
        raise DataError(f"tensor {name!r} has no rows")
    return whole


def _room(part: Weight, rows: int) -> Weight:
    """A matrix like a part, of so many rows, to be filled."""

    def room(like: Tensor) -> Tensor:
        return torch.empty((rows, *like.shape[1:]), dtype=like.dtype)

    assert part.scale is not None
    offset = None if part.offset is None else room(part.offset)
    return replace(part, data=room(part.data), scale=room(part.scale), offset=offset)


def _check_matrix(name: str, tensor: Tensor) -> None:
    if tensor.dim() != 2:
        raise DataError(f"tensor {name!r} is {tuple(tensor.shape)}, no matrix")
