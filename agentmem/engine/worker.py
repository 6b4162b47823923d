"""The engine's thread: schedule -> run -> commit, one step at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

import torch

from agentmem.engine.cache import KVCache, PrefixPool
from agentmem.engine.cputime import TeamClock
from agentmem.engine.models.decoder import Decoder
from agentmem.engine.request import FinishReason
from agentmem.engine.sampler import ConstraintDeadEndError
from agentmem.engine.scheduler import Scheduler
from agentmem.engine.sequence import Sequence

log = logging.getLogger(__name__)
_FIRST_ROOM = 256
"""Positions reserved behind the prompt at first; more come as they are needed."""


class EngineWorker(threading.Thread):
    """Owns the sequences. Other threads only hand them in, mark them cancelled, or stop it all."""

    def __init__(self, decoder: Decoder, pool: PrefixPool, eos_ids: tuple[int, ...]) -> None:
        super().__init__(name="engine", daemon=True)
        self._decoder = decoder
        self._pool = pool
        self._eos = frozenset(eos_ids)
        self._scheduler = Scheduler()
        self._inbox: deque[Sequence] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._threads = torch.get_num_threads()
        self.ready = threading.Event()

    def hand_in(self, sequence: Sequence) -> bool:
        """Queue a sequence; False when the engine is closed."""
        with self._wake:
            if self._stopping:
                return False
            self._inbox.append(sequence)
            self._wake.notify()
        return True

    def poke(self) -> None:
        """Have a cancellation noticed although nothing else happens."""
        with self._wake:
            self._wake.notify()

    def stop(self) -> None:
        """Abort everything and wait for the thread's end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if threading.current_thread() is not self:
            self.join()

    def run(self) -> None:
        """Thread body."""
        torch.set_num_threads(self._threads)
        self._clock = TeamClock()
        self.ready.set()
        with torch.inference_mode():
            while self._collect():
                self._drop_cancelled()
                head = self._scheduler.head()
                if head is not None:
                    self._perform(head)
            for sequence in self._scheduler.waiting():
                self._finish(sequence, "abort")

    def _collect(self) -> bool:
        """Take in new sequences, sleeping while there is nothing to do; False at the end."""
        with self._wake:
            while not (self._inbox or self._stopping or len(self._scheduler)):
                self._wake.wait()
            while self._inbox:
                self._scheduler.add(self._inbox.popleft())
            return not self._stopping

    def _drop_cancelled(self) -> None:
        for sequence in self._scheduler.waiting():
            if sequence.cancelled:
                self._finish(sequence, "abort")

    def _perform(self, sequence: Sequence) -> None:
        costs, prefill = sequence.costs, sequence.generated == 0
        began_s, cpu_s = time.monotonic(), self._clock.seconds()
        reason: FinishReason | None
        try:
            reason = self._step(sequence)
        except ConstraintDeadEndError:
            reason = "stop"
        except Exception:
            # one request's fault (a constraint, a callback, no memory) must not end the engine
            log.exception("request %s failed in a step", sequence.request.request_id)
            reason = "abort"
        took_s = time.monotonic() - began_s
        costs.cpu_s += self._clock.seconds() - cpu_s
        if prefill:
            costs.prefill_s += took_s
        else:
            costs.decode_s += took_s
        if reason is not None:
            self._finish(sequence, reason)

    def _step(self, sequence: Sequence) -> FinishReason | None:
        """Schedule, run and commit one step; gives the reason when it was the last one."""
        cache = sequence.cache or self._admit(sequence)
        step = self._scheduler.schedule(sequence)
        samples = step.samples
        chunk = sequence.tokens[cache.length : cache.length + step.tokens]
        logits = self._decoder.forward(torch.tensor(chunk), cache)
        return self._commit(sequence, sequence.sampler.choose(logits)) if samples else None

    def _admit(self, sequence: Sequence) -> KVCache:
        """Give a sequence its state: a copy of a known prefix of its session, or an empty cache."""
        room = len(sequence.tokens) + min(sequence.max_tokens, _FIRST_ROOM)
        prompt, key = torch.tensor(sequence.tokens), sequence.pool_key
        found = self._pool.match(key, prompt) if key is not None else None
        if found is None:
            cache = self._decoder.new_cache(room)
        else:
            # the last prompt token is always run: its logits choose the first new one
            sequence.cached_tokens = min(found.shared, len(prompt) - 1)
            cache = found.cache.prefix(sequence.cached_tokens, room)
        sequence.cache = cache
        return cache

    def _commit(self, sequence: Sequence, token: int) -> FinishReason | None:
        if sequence.costs.first_token_s is None:
            sequence.costs.first_token_s = time.monotonic()
        sequence.tokens.append(token)
        sequence.unsent.append(token)
        if token in self._eos and not sequence.request.sampling.ignore_eos:
            return "stop"
        text = sequence.text.push(token)
        complete = sequence.sampler.advance(token)
        if text:
            sequence.send(text)
        if complete or sequence.text.stopped:
            return "stop"
        return "length" if sequence.generated >= sequence.max_tokens else None

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """Keep the state for the session, then tell the caller; nothing it does can hurt others."""
        self._scheduler.remove(sequence)
        key, cache = sequence.pool_key, sequence.cache
        if key is not None and cache is not None and reason != "abort":
            self._pool.put(key, torch.tensor(sequence.tokens[: cache.length]), cache)
        try:
            sequence.send(sequence.text.finish(), reason)
        except Exception:
            log.exception("the listener of request %s failed", sequence.request.request_id)
        try:
            sequence.on_done(sequence.record(reason, time.monotonic()))
        except Exception:
            log.exception("the end of request %s was not taken", sequence.request.request_id)
