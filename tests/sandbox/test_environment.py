"""Building, sharing and mending environments, with local wheels only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentmem.errors import MemorySystemError
from agentmem.sandbox import environment
from agentmem.sandbox.environment import Environment, ensure, status
from agentmem.sandbox.requirements import read_lock
from agentmem.sandbox.specs import SystemSpec, load_spec
from tests.sandbox.systems import ENDPOINTS, LIMITS, QUIET, unit, worker_of, write_system
from tests.sandbox.wheels import write_wheel

ROOT = Path(__file__).resolve().parents[2]
ADAPTER = "import tinyfacts\n" + QUIET.replace("added=1", "note=tinyfacts.WORD")
BUILDER = """
import sys
from agentmem.sandbox.environment import ensure
from agentmem.sandbox.specs import load_spec
print(ensure(load_spec(sys.argv[1]), lambda word: print("told", word)).python)
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SystemSpec:
    monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    pin = write_wheel(tmp_path / "wheels", "tinyfacts", "1.5", "WORD = 'from the wheel'\n")
    folder = write_system(tmp_path / "own", ADAPTER, "own", "own", requirements="# pins\n" + pin)
    return load_spec(folder)


def works(spec: SystemSpec, env: Environment, folder: Path) -> bool:
    worker = worker_of(spec, folder)
    worker.env = env
    with worker:
        worker.open(ENDPOINTS, LIMITS)
        return worker.construct(unit()).note == "from the wheel"


def test_an_environment_is_built_once_and_used(
    spec: SystemSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status(spec).state == "missing"
    assert "agentmem systems install own" in status(spec).detail
    told: list[str] = []
    env = ensure(spec, told.append)
    assert env.path == tmp_path / "cache" / "envs" / f"own-{env.lock_hash[:12]}"
    assert told[0] == "creating the environment" and "installing packages" in told
    assert status(spec).state == "ready"
    assert works(spec, env, tmp_path)
    stamp = (env.path / "complete.json").stat().st_mtime_ns
    assert ensure(spec, told.append) == env
    with monkeypatch.context() as others:  # a cache that is somebody else's to write
        others.setattr(environment.os, "access", lambda *_: False)
        others.setattr(environment, "_locked", None)
        assert ensure(spec) == env
    assert (env.path / "complete.json").stat().st_mtime_ns == stamp
    assert environment.remove(spec) and status(spec).state == "missing"


def damage_stamp(path: Path) -> None:
    (path / "complete.json").unlink()


def damage_python(path: Path) -> None:
    (path / "bin" / "python").unlink()


def damage_package(path: Path) -> None:
    [info] = path.rglob("tinyfacts-1.5.dist-info")
    shutil.rmtree(info)


DAMAGES = {
    damage_stamp: "not built to the end",
    damage_python: "its Python does not start",
    damage_package: "package tinyfacts 1.5 is missing",
}


def test_a_broken_environment_is_seen_and_rebuilt(spec: SystemSpec, tmp_path: Path) -> None:
    env = ensure(spec)
    assert env.path is not None
    shutil.copytree(env.path, tmp_path / "whole", symlinks=True)
    for damage, reason in DAMAGES.items():
        shutil.rmtree(env.path)
        shutil.copytree(tmp_path / "whole", env.path, symlinks=True)
        assert status(spec).state == "ready"
        damage(env.path)
        assert status(spec).state == "broken" and reason in status(spec).detail
    assert ensure(spec) == env
    assert status(spec).state == "ready"
    assert works(spec, env, tmp_path)


def test_two_builders_at_once_build_once(spec: SystemSpec) -> None:
    command = [sys.executable, "-c", BUILDER, str(spec.folder)]
    builders = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [builder.communicate(timeout=200)[0].splitlines() for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0]
    assert outputs[0][-1] == outputs[1][-1]
    created = [output for output in outputs if "told creating the environment" in output]
    assert len(created) == 1
    assert status(spec).state == "ready"


def test_a_failed_install_shows_the_end_of_its_log(
    spec: SystemSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here with the environment's own pip, as where ours cannot serve it."""
    monkeypatch.setattr(environment, "_host_pip", lambda: False)
    wrong = "tinyfacts==1.5 --hash=sha256:" + "0" * 64 + "\n"
    (spec.folder / "requirements.txt").write_text(wrong)
    with pytest.raises(MemorySystemError, match="environment of own could not be built") as caught:
        ensure(spec)
    assert "DO NOT MATCH THE HASHES" in str(caught.value)
    [log] = (tmp_path / "cache" / "envs").glob("own-*.log")
    assert str(log) in str(caught.value)
    assert status(spec).state == "broken"


def test_a_host_system_runs_on_our_python(tmp_path: Path) -> None:
    spec = load_spec(write_system(tmp_path, tables="[upstream]\npackage='x'\nimports=['numpy']"))
    env = ensure(spec)
    assert (env.python, env.path) == (Path(sys.executable), None)
    assert status(spec).state == "host"
    bare = load_spec(write_system(tmp_path / "bare"))
    assert ensure(bare).lock_hash != env.lock_hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("numpy>=1\n", "line 1: 'numpy>=1' must be a package pinned with =="),
        ("\n# note\nnumpy==2.0\n", "line 3: numpy has no --hash"),
        ("numpy==2.*  --hash=sha256:00\n", "numpy must be pinned to one version"),
        ("--index-url https://example.com\n", "'--index-url' must be a package"),
        ("-e .\n", "'-e' must be a package"),
    ],
)
def test_requirements_must_be_pinned(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    with pytest.raises(MemorySystemError) as caught:
        read_lock(path)
    assert message in str(caught.value)


def test_torch_stands_apart(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        "torch==2.13.0\n"
        "Typing_Extensions==4.0 ; python_version >= '3.8' \\\n  --hash=sha256:aa \\\n"
        "  --hash=sha256:bb  # two\n"
    )
    lock = read_lock(path)
    assert lock.torch == "torch==2.13.0"
    assert lock.hashed == (
        "Typing_Extensions==4.0 ; python_version >= '3.8' --hash=sha256:aa --hash=sha256:bb",
    )
    assert lock.versions == {"torch": "2.13.0", "typing-extensions": "4.0"}
    before = lock.hash
    path.write_text("# only a remark\n" + path.read_text())
    assert read_lock(path).hash == before
    path.write_text(path.read_text().replace("4.0", "4.1"))
    assert read_lock(path).hash != before
