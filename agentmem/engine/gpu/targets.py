"""Compiles every kernel for a device that need not be there, and shows the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from agentmem.engine.gpu.devices import CONVERTS_FROM, no_e4m3
from agentmem.engine.gpu.kernels import attention, norms, pages, pointwise, products, state
from agentmem.errors import EngineError

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_89": GPUTarget("cuda", 89, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
_ALIGNED = ("x_row", "delta_row", "width", "ins", "outs")


@dataclass(frozen=True, slots=True)
class Build:
    """One way a kernel is launched. Arguments that are not named are int32."""

    name: str
    kernel: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    e4m3: bool = False
    """Whether it needs a device that knows e4m3."""
    options: Mapping[str, int] = field(default_factory=dict)

    def source(self, direct: bool) -> ASTSource:
        """What the compiler takes. Pointers and widths are multiples of 16, as in launches."""
        constants = dict(self.constants)
        if "DIRECT" in self.kernel.arg_names:
            constants["DIRECT"] = direct
        names = self.kernel.arg_names
        signature = {n: self.types.get(n, "i32") for n in names}
        signature |= dict.fromkeys(constants, "constexpr")
        aligned = [n for n in names if signature[n].startswith("*") or n in _ALIGNED]
        attrs = {(names.index(n),): [["tt.divisibility", 16]] for n in aligned}
        return ASTSource(self.kernel, signature, constants, attrs)


def assemble(build: Build, target: str, direct: bool | None = None) -> dict[str, Any]:
    """Stages of a compiled kernel: ptx and cubin, or amdgcn and hsaco.

    `direct` overrides who converts to e4m3, the compiler or the kernel. Raises EngineError, before
    the compiler is asked, for e4m3 on a target without it.
    """
    device = TARGETS[target]
    cuda = device.backend == "cuda"
    capability = (device.arch // 10, device.arch % 10) if cuda else (0, 0)
    reason = no_e4m3(capability) if cuda and build.e4m3 else None
    if reason is not None:
        raise EngineError(f"{build.name}: {reason}")
    source = build.source(capability >= CONVERTS_FROM if direct is None else direct)
    compiled = triton.compile(source, target=device, options=dict(build.options))
    return dict(compiled.asm)


def builds() -> Iterator[Build]:
    """Every kernel, in each of the ways that make different code."""
    yield from _norm_builds()
    yield from _product_builds()
    yield from _page_builds()
    yield from _state_builds()
    rows = {"both_ptr": "*bf16", "out_ptr": "*bf16"}
    for silu in (True, False):
        name = f"gate_rows {'silu' if silu else 'gelu_tanh'}"
        yield Build(name, pointwise.gate_rows, rows, {"SILU": silu, "BLOCK": 1024})
    found = {"logits_ptr": "*bf16", "peak_ptr": "*fp32", "place_ptr": "*i32", "out_ptr": "*i64"}
    yield Build("largest_part", pointwise.largest_part, found, {"BLOCK": 4096})
    yield Build("largest_of_parts", pointwise.largest_of_parts, found, {"BLOCK": 64})


def _norm_builds() -> Iterator[Build]:
    types = {"x_ptr": "*bf16", "delta_ptr": "*bf16", "weight_ptr": "*bf16", "out_ptr": "*bf16"}
    types |= {"codes_ptr": "*u8", "scale_ptr": "*fp32", "eps": "fp32"}
    for added in (False, True):
        none = {} if added else {"delta_ptr": None}
        what = "add + " if added else ""
        block = {"BLOCK": 4096}
        warps = {"num_warps": 8}
        yield Build(f"{what}norm", norms.norm_rows, types, block | none, options=warps)
        for order in (True, False):
            name = f"{what}norm + quant, {'round first' if order else 'no round'}"
            constants = block | none | {"ROUND": order}
            yield Build(name, norms.norm_quant_rows, types, constants, True, warps)
    yield Build("quant", norms.quant_all, types, {"BLOCK": 1024}, True)


def _product_builds() -> Iterator[Build]:
    common = {"out_ptr": "*bf16", "x_scale_ptr": "*fp32", "scale_ptr": "*fp32"}
    common |= {"bias_ptr": "*bf16"}
    ways: tuple[tuple[str, Any, str, str, dict[str, None]], ...] = (
        ("bf16", products.PLAIN, "*bf16", "*bf16", {"x_scale_ptr": None, "scale_ptr": None}),
        ("fp8", products.CODES, "*bf16", "*u8", {"x_scale_ptr": None}),
        ("int8", products.BYTES, "*bf16", "*i8", {"x_scale_ptr": None}),
        ("fp8 x fp8", products.BOTH_CODES, "*u8", "*u8", {}),
    )
    shapes = (("few rows", (16, 32, 128), 4), ("many rows", (128, 128, 64), 8))
    for name, kind, x, weight, none in ways:
        types = common | {"x_ptr": x, "weight_ptr": weight}
        for size, (bm, bn, bk), warps in shapes:
            constants = none | {"KIND": kind.value, "BM": bm, "BN": bn, "BK": bk}
            e4m3 = kind.value in (products.CODES.value, products.BOTH_CODES.value)
            title = f"product {name}, {size}"
            yield Build(title, products.product, types, constants, e4m3, {"num_warps": warps})
    types = common | {"x_ptr": "*bf16", "weight_ptr": "*u8", "offset_ptr": "*bf16"}
    constants = {"HALF": 16, "BM": 16, "BN": 32}
    yield Build("product int4", products.product_nibbles, types, constants)


def _page_builds() -> Iterator[Build]:
    common = {"q_ptr": "*bf16", "table_ptr": "*i32", "start_ptr": "*i32", "context_ptr": "*i32"}
    common |= {"qkv_ptr": "*bf16", "turn_ptr": "*fp32", "slot_ptr": "*i64", "norm_ptr": "*fp32"}
    common |= {"key_scale_ptr": "*fp32", "value_scale_ptr": "*fp32", "out_ptr": "*bf16"}
    common |= {"part_ptr": "*fp32", "peak_ptr": "*fp32", "mass_ptr": "*fp32"}
    common |= {"scale": "fp32", "eps": "fp32"}
    head = {"DIM": 128, "BD": 128}
    for kind, page in (("bf16", "*bf16"), ("int8", "*i8")):
        types = common | {"key_ptr": page, "value_ptr": page}
        none = {} if kind == "int8" else {"key_scale_ptr": None, "value_scale_ptr": None}
        turn = none | {"DIM": 128, "PAIRS": 64}
        warp = {"num_warps": 1}
        yield Build(f"rope_store {kind}", pages.rope_store, types, turn, options=warp)
        for window in (False, True):
            shape = head | none | {"GROUP": 4, "COMPUTE": tl.bfloat16, "WINDOWED": window}
            name = f"{kind} pages{', window' if window else ''}"
            tiles = shape | {"BG": 4, "BQ": 16, "BN": 64, "LEAVE_SINGLE": True}
            yield Build(f"prefill {name}", attention.prefill_tiles, types, tiles)
            parts = shape | {"BG": 16, "SPLIT": 256, "BN": 64, "EACH": False}
            yield Build(f"decode {name}", attention.decode_parts, types, parts)
    for each in (False, True):
        constants = head | {"SPLIT": 256, "BP": 16, "WINDOWED": True, "EACH": each}
        name = f"decode join{', each row' if each else ''}"
        yield Build(name, attention.decode_join, common, constants, options={"num_warps": 1})


def _state_builds() -> Iterator[Build]:
    types = {"base_ptr": "*i16", "place_ptr": "*i64"}
    ints = ("table", "seen", "accepted", "column", "computed", "mapping", "source", "offset")
    types |= {f"{name}_ptr": "*i32" for name in ints} | {"stride": "i64"}
    for what, shape in (
        ("window", {"WIDTH": 8, "DIMS": 128}),
        ("recurrent", {"WIDTH": 0, "DIMS": 1}),
    ):
        wide = {"base_ptr": "*i32"} if what == "recurrent" else {}
        constants = shape | {"BLOCK": 1024}
        for first in (True, False):
            name = f"postprocess {what}{', first' if first else ''}"
            both = constants | {"FIRST": first}
            yield Build(name, state.postprocess_state, types | wide, both)
        yield Build(f"precopy {what}", state.precopy_state, types | wide, constants)
