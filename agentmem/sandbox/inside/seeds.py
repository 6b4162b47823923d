"""Seeded uuids and random numbers inside the worker; `os.urandom` stays real.

The stream is set anew for each verb from the verb and its arguments, so that a store resumed in a
new process continues with the ids it would have had, and two verbs never share ids. A question
that runs beside another verb draws its uuids from a stream of its own; `random` and numpy have one
state for the whole process, which only the other verbs seed.
"""

from __future__ import annotations

import collections
import hashlib
import random
import sys
import threading
import uuid


class Seeds:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._main = threading.get_ident()
        self._streams = {self._main: random.Random(seed)}
        self._seen: collections.Counter[str] = collections.Counter()

    def install(self) -> None:
        """Replace the generators of the `uuid` module in this process."""
        uuid.uuid1 = lambda node=None, clock_seq=None: self._uuid(1)
        uuid.uuid4 = lambda: self._uuid(4)

    def begin(self, request: str) -> None:
        """Start the stream of one verb; `request` is its name and arguments as text."""
        occurrence = self._seen[request]
        self._seen[request] += 1
        key = f"{self._seed}\0{occurrence}\0{request}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.sha256(key).digest()[:8], "big")
        thread = threading.get_ident()
        self._streams[thread] = random.Random(number)
        if thread != self._main:
            return
        random.seed(number)
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            numpy_random.seed(number % 2**32)

    def _uuid(self, version: int) -> uuid.UUID:
        stream = self._streams.get(threading.get_ident()) or self._streams[self._main]
        return uuid.UUID(int=stream.getrandbits(128), version=version)
