"""What a worker is fenced in with: a uid, folders, an environment, limits."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentmem.sandbox.specmodel import SystemSpec

_FIRST_UID, _LAST_UID = 61184, 65519
"""Range kept by convention for users that exist only while a service runs."""
_PROBE = """
import os, sys
for path in sys.argv[1].split(os.pathsep):
    with open(path, "rb") as file:
        file.read(1)
for folder in sys.argv[2].split(os.pathsep):
    name = os.path.join(folder, ".probe")
    with open(name, "wb"):
        pass
    os.remove(name)
"""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What could be had on this machine; goes into the manifest."""

    uid: int | None
    """The worker's own user id; None when it shares the harness's."""
    uid_reason: str
    """Why it is shared, or "own"."""
    network: str = "audit hook: declared loopback ports only"

    @property
    def label(self) -> str:
        return "shared" if self.uid is None else str(self.uid)


def choose_uid(
    spec: SystemSpec, python: Path, files: Sequence[Path], folders: Sequence[Path], wanted: bool
) -> Isolation:
    """A uid of the system's own, if the harness is root and that uid reaches all it needs."""
    if not wanted:
        return Isolation(None, "switched off")
    if os.geteuid() != 0:
        return Isolation(None, "the harness does not run as root")
    uid = _FIRST_UID + zlib.crc32(spec.name.encode()) % (_LAST_UID - _FIRST_UID + 1)
    for folder in folders:
        give(folder, uid)
    reason = _probe(uid, python, files, folders)
    if reason is None:
        return Isolation(uid, "own")
    for folder in folders:
        give(folder, os.geteuid())
    return Isolation(None, reason)


def _probe(uid: int, python: Path, files: Sequence[Path], folders: Sequence[Path]) -> str | None:
    """None when `uid` can start `python`, read the files and write the folders; else why not."""
    reads, writes = (os.pathsep.join(map(str, paths)) for paths in (files, folders))
    command = [str(python), "-I", "-S", "-c", _PROBE, reads, writes]
    try:
        done = subprocess.run(
            command,
            user=uid,
            group=uid,
            extra_groups=[],
            cwd="/",
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            text=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"uid {uid} cannot start {python}: {error}"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return f"uid {uid}: {lines[-1] if lines else f'exit code {done.returncode}'}"


def give(folder: Path, uid: int) -> None:
    """Make `uid` the owner of a folder and all below it, links not followed."""
    if folder.lstat().st_uid != uid:
        os.chown(folder, uid, uid, follow_symlinks=False)
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(root, name)
            if path.lstat().st_uid != uid:
                os.chown(path, uid, uid, follow_symlinks=False)


def worker_env(
    spec: SystemSpec, python: Path, places: Mapping[str, Path], frozen: bool
) -> dict[str, str]:
    """All variables the worker sees. `places` holds store, home and tmp."""
    env = {
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(places["home"]),
        "TMPDIR": str(places["tmp"]),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONSAFEPATH": "1",
    }
    if frozen:
        env["PYTHONHASHSEED"] = "0"
    for key, value in spec.env.items():
        for name, path in places.items():
            value = value.replace("{" + name + "}", str(path))
        env[key] = value
    return env
