"""A look at one version, whatever becomes of the sequence meanwhile."""

from __future__ import annotations

from types import TracebackType

from torch import Tensor

from agentmem.engine.state.store import StateStore
from agentmem.engine.state.versions import StateError, StateSlot, Version


class Reader:
    """Keeps a version's blocks until closed; also after rollbacks and the sequence's end."""

    def __init__(self, store: StateStore, slot: StateSlot, number: int | None = None) -> None:
        """Pin the current version, or a retained one. StateError for any other."""
        with store.lock:
            found = [v for v in slot.versions if number in (None, v.number)]
            if slot.closed or not found:
                raise StateError(f"version {number} of slot {slot.number} is not retained")
            self.version: Version = found[-1]
            store.pin(self.version)
        self._store = store
        self._open = True

    def layer(self, layer: int) -> tuple[Tensor, ...]:
        """A layer's states in the order of its kinds, not to be written.

        Of a window only what is valid: it gets shorter by what drafts made room for. StateError
        before the first token.
        """
        version = self.version
        window, state = version.window_block, version.state_block
        if not self._open or window is None or state is None:
            raise StateError("closed, or nothing was computed yet")
        found = []
        for view in self._store.pages.layer_views(layer):
            axis, width = view.kind.axis, view.kind.width
            if axis is None:
                found.append(view.data[state])
            else:
                kept = width - self._store.drafts
                found.append(view.data[window].narrow(axis, version.offset, kept))
        return tuple(found)

    def close(self) -> None:
        """Let the blocks go."""
        if self._open:
            self._open = False
            self._store.unpin(self.version)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
