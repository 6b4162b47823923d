"""Who owns a session that was moved: one file decides.

An offer is the exported file F; the old owner still owns the session. A claim is the file
`F.claim`, linked into place once and never replaced, which names the next owner and epoch: from
that instant it owns the session, and the old owner refuses it. Before the link, each side
notes in its ledger which file decides, so that both find the same answer after being killed at
any step. Both must see F; a claim is kept as long as anybody has not seen it.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path

from agentmem.errors import DataError

Step = Callable[[str], None]
"""Called with the name of each step before it is taken."""


def no_step(_name: str) -> None:
    """Nothing to watch."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The content of a claim file."""

    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What a ledger notes of one session. `epoch` counts its owners, the first is 1."""

    epoch: int = 1
    offer: str | None = None
    """The file by which it was offered to others."""
    wanted: str | None = None
    """The file by which it is being claimed back; decides before `offer`."""
    moved: bool = False


def claim_path(file: Path) -> Path:
    """Where the claim of an exported file lies."""
    return file.with_name(file.name + ".claim")


def read_claim(file: Path) -> Claim | None:
    """Who claimed an exported file; None when nobody has. DataError when it cannot be read."""
    try:
        text = claim_path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(text)
        return Claim(str(fields["owner"]), int(fields["epoch"]))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{claim_path(file)}: not a claim ({error})") from error


def claim(file: Path, mine: Claim, step: Step = no_step) -> None:
    """Become the owner, or DataError when somebody else is. Claiming twice is claiming once."""
    temp = write_temp(claim_path(file), json.dumps(asdict(mine)).encode(), step)
    step("claim")
    try:
        os.link(temp, claim_path(file))
    except FileExistsError:
        found = read_claim(file)
        if found != mine:
            who = "somebody" if found is None else found.owner
            raise DataError(f"{file}: the session was claimed by {who}") from None
    finally:
        temp.unlink()
    step("claimed")
    sync_folder(file.parent)


def write_temp(path: Path, content: bytes, step: Step = no_step) -> Path:
    """A file beside `path` with the content, on the disk when this returns."""
    temp = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    step("write")
    with temp.open("xb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    return temp


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Ledger:
    """What an engine knows of sessions that came or went. Thread-safe.

    With a folder it outlives the engine, and so do its answers; without one it is forgotten with
    the engine, as are the sessions themselves.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        self.owner = uuid.uuid4().hex
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.owner = self._read_owner(folder / "owner")
            for path in folder.glob("*.json"):
                with suppress(ValueError, TypeError):
                    self._entries[path.stem] = Entry(**json.loads(path.read_text("utf-8")))

    def epoch(self, tenant: str | None, session_id: str) -> int:
        """How many owners the session has had, the present one included."""
        with self._lock:
            return self._settled(_name(tenant, session_id)).epoch

    def moved(self, tenant: str | None, session_id: str) -> bool:
        """Whether somebody else owns the session. One look-up, and a file's status if offered."""
        name = _name(tenant, session_id)
        with self._lock:
            return name in self._entries and self._settled(name).moved

    def offer(self, tenant: str | None, session_id: str, file: Path, step: Step = no_step) -> int:
        """Note that this file may decide, before it is there; gives the epoch to put into it.

        An earlier offer is withdrawn. DataError when the session has moved.
        """
        name = _name(tenant, session_id)
        with self._lock:
            entry = self._withdrawn(name)
            if entry.moved:
                raise DataError(f"session {session_id!r} has moved to another engine")
            self._put(name, replace(entry, offer=str(file.resolve())), step)
            return entry.epoch

    def want(
        self, tenant: str | None, session_id: str, file: Path, epoch: int, step: Step = no_step
    ) -> Claim:
        """Note that the claim of this file decides, before it is claimed; gives the claim.

        DataError when `epoch`, the file's, is one that this engine knows to be over.
        """
        name = _name(tenant, session_id)
        with self._lock:
            entry = self._settled(name)
            if entry.offer != str(file.resolve()):
                entry = self._withdrawn(name)
            mine = Claim(self.owner, epoch + 1)
            if entry.epoch > epoch and read_claim(file) != mine:
                raise DataError(f"{file}: owner epoch {epoch}, but {entry.epoch} was seen here")
            self._put(name, replace(entry, wanted=str(file.resolve())), step)
            return mine

    def _withdrawn(self, name: str) -> Entry:
        """The entry without a standing offer: claimed by its own owner, nobody else can."""
        entry = self._settled(name)
        if entry.offer is None or entry.moved:
            return entry
        file = Path(entry.offer)
        if file.parent.is_dir():
            with suppress(DataError):
                claim(file, Claim(self.owner, entry.epoch + 1))
            return self._settled(name)
        return replace(entry, offer=None)

    def _settled(self, name: str) -> Entry:
        """The entry, as the claims there are decide it."""
        entry = self._entries.get(name, Entry())
        settled = entry
        if entry.wanted is not None:
            found = read_claim(Path(entry.wanted))
            if found is not None and found.owner == self.owner:
                settled = Entry(found.epoch)
            elif found is not None:
                settled = replace(entry, wanted=None)
        if settled.offer is not None and not settled.moved:
            found = read_claim(Path(settled.offer))
            if found is not None and found.owner != self.owner:
                settled = replace(settled, moved=True)
            elif found is not None:
                settled = Entry(found.epoch)
        if settled != entry:
            self._put(name, settled)
        return settled

    def _put(self, name: str, entry: Entry, step: Step = no_step) -> None:
        if self._folder is not None:
            path = self._folder / f"{name}.json"
            temp = write_temp(path, json.dumps(asdict(entry)).encode(), step)
            step("note")
            temp.replace(path)
            sync_folder(self._folder)
        self._entries[name] = entry

    def _read_owner(self, path: Path) -> str:
        temp = write_temp(path, self.owner.encode())
        with suppress(FileExistsError):
            os.link(temp, path)
        temp.unlink()
        return path.read_text("utf-8")


def _name(tenant: str | None, session_id: str) -> str:
    text = json.dumps([tenant, session_id])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
