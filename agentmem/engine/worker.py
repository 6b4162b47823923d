"""The engine's thread: schedule -> run -> commit, one step at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import NamedTuple

import torch
from torch import Tensor

from agentmem.engine.assemble import assemble, copy_shared
from agentmem.engine.cputime import TeamClock
from agentmem.engine.drafts import Drafter
from agentmem.engine.kv.layout import KVPages
from agentmem.engine.kv.manager import KVManager
from agentmem.engine.models.decoder import Decoder, PassInterruptedError
from agentmem.engine.request import FinishReason, TrafficClass
from agentmem.engine.sampler import ConstraintDeadEndError, Sampler
from agentmem.engine.scheduler import Limits, Part, Scheduler, Step
from agentmem.engine.sequence import Sequence, Voice
from agentmem.engine.stats import Backlog, Counters
from agentmem.engine.text import TextStream
from agentmem.engine.truth import CostModel, StepRow, Work, shares
from agentmem.engine.turns import Turns

log = logging.getLogger(__name__)


class Result(NamedTuple):
    """What a pass gave for one part: logits [outputs, vocab] and the best token of each row.

    Without logits, the part could not be run.
    """

    part: Part
    logits: Tensor | None
    best: list[int]


class EngineWorker(threading.Thread):
    """Owns the sequences. Other threads only hand them in, mark them cancelled, or stop it all.

    Sequences, blocks and counts change in `_commit` and `_finish` alone.
    """

    def __init__(
        self,
        decoder: Decoder,
        kv: KVManager,
        pages: Many[KVPages],
        open_text: Callable[[Sequence], TextStream],
        eos_ids: tuple[int, ...],
        *,
        limits: Limits,
        turns: Turns,
        drafts: bool,
        on_step: Callable[[StepRow], None] | None = None,
    ) -> None:
        super().__init__(name="engine", daemon=True)
        self._decoder, self._kv, self._pages = decoder, kv, pages
        self._open_text = open_text
        self._eos = frozenset(eos_ids)
        self._turns, self._drafts, self._on_step = turns, drafts, on_step
        self.scheduler = Scheduler(kv, limits, _propose)
        self.counters, self.backlog = Counters(), Backlog()
        self._costs = CostModel(decoder, pages)
        self._inbox: deque[Sequence] = deque()
        self._cancelled: deque[Sequence] = deque()
        self._errands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = self._urgent = False
        self._number = 0
        self._threads = torch.get_num_threads()
        self.ready = threading.Event()

    # --- from other threads

    def hand_in(self, sequence: Sequence) -> bool:
        """Queue a sequence; False when the engine is closed."""
        with self._wake:
            if self._stopping:
                return False
            self._inbox.append(sequence)
            self._urgent |= sequence.traffic_class == "interactive"
            self._wake.notify()
        return True

    def cancel(self, sequence: Sequence) -> None:
        """Have a sequence ended soon, wherever it is."""
        sequence.cancelled = True
        with self._wake:
            self._cancelled.append(sequence)
            self._wake.notify()

    def do(self, errand: Callable[[], None]) -> bool:
        """Have something done between two steps; False when the engine is closed."""
        with self._wake:
            if self._stopping:
                return False
            self._errands.append(errand)
            self._wake.notify()
        return True

    def stop(self) -> None:
        """Abort everything and wait for the thread's end."""
        with self._wake:
            self._stopping = self._urgent = True
            self._wake.notify()
        if threading.current_thread() is not self:
            self.join()

    # --- the thread

    def run(self) -> None:
        """Thread body."""
        torch.set_num_threads(self._threads)
        self._clock = TeamClock()
        self.ready.set()
        with torch.inference_mode():
            while self._collect():
                try:
                    self._one_turn()
                except Exception:
                    # whatever was wrong, it was among these: the engine goes on without them
                    log.exception("a step failed")
                    self._abort_all()
            self._abort_all()

    def _one_turn(self) -> None:
        if not len(self.scheduler):
            return
        with self._turns.turn(self.scheduler.leading):
            # more may have come in while the turn was waited for
            going = self._collect()
            ended = self._step() if going and len(self.scheduler) else []
        self._deliver(ended)

    def _abort_all(self) -> None:
        for sequence in self.scheduler.everything():
            self._finish(sequence, "abort")

    def _collect(self) -> bool:
        """Take in what others left, sleeping while there is nothing to do; False at the end."""
        with self._wake:
            while not (self._stopping or len(self.scheduler) or self._left_by_others()):
                self._wake.wait()
            self._urgent = self._stopping
            inbox, self._inbox = self._inbox, deque()
            cancelled, self._cancelled = self._cancelled, deque()
            errands, self._errands = self._errands, deque()
        for sequence in inbox:
            self._number += 1
            sequence.number = self._number
            self.scheduler.add(sequence)
        for sequence in cancelled:
            if not sequence.done:
                self._finish(sequence, "abort")
        for errand in errands:
            errand()
        return not self._stopping

    def _left_by_others(self) -> bool:
        return bool(self._inbox or self._cancelled or self._errands)

    def _step(self) -> list[tuple[Sequence, FinishReason | None]]:
        """Schedule, run and commit; gives the sequences, and why they ended if they did."""
        began_s, began_ns, cpu_s = time.monotonic(), time.monotonic_ns(), self._clock.seconds()
        step = self.scheduler.schedule()
        parts = list(step.parts.values())
        if not parts:
            return self._stuck()
        for part in parts:
            self._prepare(part.sequence)
        prefills = {p.sequence.number for p in parts if p.sequence.costs.first_token_s is None}
        try:
            results = self._run(parts, self._stop_of(step))
        except PassInterruptedError:
            results = []
        ended = [(r.part.sequence, self._commit(r)) for r in results]
        wall_ns = time.monotonic_ns() - began_ns
        cpu_ns = max(0, round((self._clock.seconds() - cpu_s) * 1e9))
        self._account(parts, prefills, began_s, wall_ns, cpu_ns, completed=bool(results))
        return ended

    def _stuck(self) -> list[tuple[Sequence, FinishReason | None]]:
        """Nothing can run: only a sequence that all blocks are too few for does that."""
        if self.scheduler.running("interactive") or self.scheduler.running("background"):
            return []
        first = self.scheduler.everything()[0]
        log.error("request %s does not fit the cache", first.request.request_id)
        return [(first, "abort")]

    def _stop_of(self, step: Step) -> Callable[[], bool] | None:
        """Asked between layers: whether the pass should make way."""
        return (lambda: self._urgent) if step.interruptible else None

    def _prepare(self, sequence: Sequence) -> None:
        """What a sequence needs when it first runs."""
        if sequence.voice is not None:
            return
        request = sequence.request
        self.backlog.remove(request.traffic_class, len(request.prompt))
        free = request.forced is None
        sampler = Sampler(request.sampling, request.constraint if free else None)
        drafts = self._drafts and free and request.drafts
        drafter = Drafter(sequence.tokens) if drafts else None
        sequence.voice = Voice(sampler, self._open_text(sequence), drafter)

    def _run(self, parts: list[Part], stop: Callable[[], bool] | None) -> list[Result]:
        """The pass. One that fails is tried again by parts, so that only the faulty one ends."""
        try:
            copy_shared(parts, self._pages)
            logits = self._decoder.forward(assemble(parts, self._kv), self._pages, stop)
            best = logits.argmax(-1).tolist() if len(logits) else []
        except PassInterruptedError:
            raise
        except Exception:
            if len(parts) > 1:
                return [result for part in parts for result in self._run([part], None)]
            log.exception("request %s failed", parts[0].sequence.request.request_id)
            return [Result(parts[0], None, [])]
        results, at = [], 0
        for part in parts:
            rows = slice(at, at + part.outputs)
            results.append(Result(part, logits[rows], best[rows]))
            at = rows.stop
        return results

    def _commit(self, result: Result) -> FinishReason | None:
        """Take over what a pass computed for one sequence; says why it ended, if it did."""
        part, sequence = result.part, result.part.sequence
        if result.logits is None:
            return "abort"
        reason: FinishReason | None = None
        known = len(sequence.tokens)
        try:
            if part.samples:
                reason = self._choose(part, result.logits, result.best)
        except ConstraintDeadEndError:
            reason = "stop"
        except Exception:
            # a constraint is foreign code: its fault must not end the engine
            log.exception("request %s failed in a step", sequence.request.request_id)
            reason = "abort"
        chosen = len(sequence.tokens) - known
        if chosen and sequence.costs.first_token_s is None:
            sequence.costs.first_token_s = time.monotonic()
        self._advance(part, part.start + part.known + max(0, chosen - 1))
        return reason

    def _choose(self, part: Part, logits: Tensor, best: list[int]) -> FinishReason | None:
        """Choose tokens row by row for as long as the drafts are what is chosen."""
        sequence = part.sequence
        assert sequence.voice is not None
        sampler, forced = sequence.voice.sampler, sequence.request.forced
        if forced is not None and not forced:
            return "stop"
        accepted = 0
        reason: FinishReason | None = None
        for row in range(len(logits)):
            token = sampler.choose(logits[row], sequence.generated, best[row])
            if forced is not None:
                token = forced[sequence.generated]
            scores = sampler.scores(logits[row], token)
            if scores is not None:
                sequence.scores.append(scores)
            reason = sequence.take(token, self._eos)
            kept = row < len(part.drafts) and token == part.drafts[row]
            accepted += kept
            if reason is not None or not kept:
                break
        sequence.costs.drafted += len(part.drafts)
        sequence.costs.accepted += accepted
        if part.drafts and part.found and sequence.voice.drafter is not None:
            sequence.voice.drafter.learn(len(part.drafts), accepted)
        return reason

    def _advance(self, part: Part, length: int) -> None:
        """Publish the state of the positions that are right, give back the others."""
        sequence = part.sequence
        assert sequence.holding is not None
        self._kv.commit(sequence.holding, sequence.tokens, length)
        if length < part.start + part.rows:
            self._kv.rewind(sequence.holding, length)
        again = min(length, sequence.reached) - part.start
        sequence.costs.recomputed += max(0, again)
        sequence.reached = max(sequence.reached, length)
        sequence.computed = length

    def _account(
        self,
        parts: list[Part],
        prefills: set[int],
        began_s: float,
        wall_ns: int,
        cpu_ns: int,
        completed: bool,
    ) -> None:
        """Split what the step took over its sequences."""
        mine = shares(self._costs, [_work(part) for part in parts], wall_ns, cpu_ns)
        for part, share in zip(parts, mine, strict=True):
            part.sequence.costs.add(share, wall_ns, part.sequence.number in prefills)
        prompts = sum(part.rows for part in parts if part.known > 1)
        self.counters.add_step(wall_ns, prompts if completed else 0)
        self.counters.interrupted_steps += not completed
        if self._on_step is not None:
            number = self.counters.steps
            self._on_step(StepRow.of(number, began_s, wall_ns, cpu_ns, completed, mine))

    def _deliver(self, ended: list[tuple[Sequence, FinishReason | None]]) -> None:
        """Tell the listeners; what they do is their own affair."""
        for sequence, reason in ended:
            if reason is None:
                try:
                    sequence.send()
                except Exception:
                    log.exception("the listener of %s failed", sequence.request.request_id)
                    reason = "abort"
            if reason is not None:
                self._finish(sequence, reason)

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """Give the blocks back, then tell the caller; nothing it does can hurt others."""
        request = sequence.request
        sequence.done = True
        if sequence.holding is not None:
            sequence.state_bytes = self._held(sequence)
        elif sequence.voice is None:
            self.backlog.remove(request.traffic_class, len(request.prompt))
        self.scheduler.remove(sequence)
        record = sequence.record(reason, time.monotonic())
        self.counters.add_request(record)
        self._kv.record(
            request.tenant,
            request.session_id,
            cached=record.cached_tokens,
            computed=record.uncached_tokens,
            generated=record.generated_tokens,
        )
        try:
            sequence.send(reason)
        except Exception:
            log.exception("the listener of request %s failed", request.request_id)
        try:
            sequence.on_done(record)
        except Exception:
            log.exception("the end of request %s was not taken", request.request_id)

    def _held(self, sequence: Sequence) -> int:
        """Bytes of the blocks that it uses, shared ones included."""
        assert sequence.holding is not None
        return sum(
            sum(block != 0 for block in table) * pages.block_bytes
            for table, pages in zip(sequence.holding.tables, self._pages, strict=True)
        )


def _propose(sequence: Sequence, most: int) -> tuple[tuple[int, ...], bool]:
    """Drafts of a sequence; a fault of its grammar shows when the token is chosen."""
    try:
        return sequence.propose(most)
    except Exception:
        return (), False


def _work(part: Part) -> tuple[str, TrafficClass, Work]:
    request = part.sequence.request
    work = Work(part.rows, part.start + part.rows, part.outputs)
    return request.request_id, request.traffic_class, work
