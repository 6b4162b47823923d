"""Our engine as a peer process: through `EngineCore.load` and `submit` alone.

What this version of the engine does not offer yet is an UnavailableError with the reason.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.engine_parts import prompts as texts
from benchmarks.engine_parts.wire import UnavailableError, memory, serve

DONE_S = 800.0


@dataclasses.dataclass(slots=True)
class Run:
    """One request: when it was handed in and ended, its account, its tokens."""

    began_s: float
    ended_s: float = 0.0
    record: Any = None
    tokens: list[int] = dataclasses.field(default_factory=list)
    done: threading.Event = dataclasses.field(default_factory=threading.Event)

    @property
    def first_s(self) -> float:
        """When its first token was chosen."""
        assert self.record.ttft_s is not None
        return self.began_s + float(self.record.ttft_s)


def open_engine(options: dict[str, Any]) -> Ours:
    """Load a model as the options say."""
    return Ours(options)


def load_arguments(parameters: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What `load` takes of what is wanted; a need that it lacks is an UnavailableError."""
    missing = [name for name in wanted if name not in parameters]
    needs = [name for name in missing if name not in ("backend", "kv", "drafts")]
    if needs:
        raise UnavailableError(f"EngineCore.load has no {needs[0]!r} yet")
    return {name: value for name, value in wanted.items() if name not in missing}


class Ours:
    """Jobs as in the peers: `prefill`, `decode`, `second_turn`, and some of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        from agentmem.engine.core import EngineCore
        from agentmem.engine.request import Request, Sampling

        self._request, self._sampling = Request, Sampling
        self._numbers = itertools.count()
        self._bare = _bare(options["threads"])
        mode, load = options["mode"], options.get("load", {})
        accepted = inspect.signature(EngineCore.load).parameters
        wanted = {"mode": mode, "threads": options["threads"], **load}
        try:
            self.core = EngineCore.load(options["path"], **load_arguments(accepted, wanted))
        except UnavailableError:
            raise
        except Exception as error:
            if type(error).__name__ in ("UsageError", "DataError"):
                raise UnavailableError(str(error)) from error
            raise
        self.facts = self._facts() | {"bare_mib": self._bare}

    def _facts(self) -> dict[str, Any]:
        core = self.core
        kv = getattr(core, "kv", None)
        return {
            "mode": core.mode,
            "threads": core.threads,
            "backend": str(core.backend),
            "kv": str(getattr(kv, "kind", kv)) if kv is not None else core.mode,
            "vocabulary": core.vocab_size,
            "window": core.window,
            "weights": core.weights,
            "notes": list(getattr(core, "notes", ())),
        }

    # --- jobs shared with the peers

    def prefill(self, ids: list[list[int]]) -> dict[str, Any]:
        """All prompts to their first token."""
        runs = self._run(ids, 1, reuse=False)
        return {"s": max(r.ended_s for r in runs) - min(r.began_s for r in runs)}

    def decode(self, ids: list[list[int]], steps: int) -> dict[str, Any]:
        """`steps` further tokens of each, behind prompts that are in the cache already."""
        self._run(ids, 1)
        runs = self._run(ids, steps + 1)
        wall = max(r.ended_s for r in runs) - min(r.first_s for r in runs)
        return {"s": wall, "tokens": sum(r.record.generated_tokens - 1 for r in runs)}

    def second_turn(self, shared: list[int], new: list[int], reuse: bool = True) -> dict[str, Any]:
        """Seconds to the first token of `shared` + `new`, when `shared` was there before."""
        if reuse:
            self._run([shared], 1, session="turns")
        run = self._run([shared + new], 1, reuse=reuse, session="turns")[0]
        return {"s": run.ended_s - run.began_s, "cached": run.record.cached_tokens}

    def warm_up(self) -> dict[str, Any]:
        """A little of everything."""
        self.decode(texts.prompts(2, 64, seed=-1, vocabulary=self.core.vocab_size), 4)
        return {}

    def peak(self) -> dict[str, Any]:
        """Memory now and at most, MiB."""
        return memory()

    # --- jobs of its own

    def encode(self, text: str) -> dict[str, Any]:
        """Token ids of a text."""
        return {"ids": self.core.tokenizer.encode(text)}

    def greedy(self, ids: list[int], steps: int) -> dict[str, Any]:
        """Greedy tokens, to see that all engines run the same model."""
        return {"tokens": self._run([ids], steps, reuse=False)[0].tokens}

    def drafted(self, ids: list[int], steps: int, drafts: bool) -> dict[str, Any]:
        """One request with or without drafts: seconds a token, tokens, what was accepted."""
        self._run([ids], 1)
        run = self._run([ids], steps + 1, drafts=drafts)[0]
        record = run.record
        return {
            "s": run.ended_s - run.first_s,
            "tokens": run.tokens,
            "drafted": record.drafted_tokens,
            "accepted": record.accepted_tokens,
        }

    def queue(self, count: int, tokens: int = 4000) -> dict[str, Any]:
        """So many background requests that wait, beside those that fill every place."""
        prompt = tuple(texts.prompts(1, 16, seed=1, vocabulary=self.core.vocab_size)[0])
        tokens = min(tokens, self.core.window - len(prompt))
        sampling = self._sampling(max_tokens=tokens, ignore_eos=True)
        began = time.perf_counter()
        for number in range(count):
            request = self._request(
                f"waiting-{number}", prompt, sampling, traffic_class="background"
            )
            self.core.submit(request, _ignore, _ignore)
        took_s = time.perf_counter() - began
        return {"submit_us": took_s / max(1, count) * 1e6, "waiting": self.waiting()}

    def waiting(self) -> int | None:
        """Background requests that have not begun, where the engine tells."""
        stats = getattr(self.core, "stats", None)
        return None if stats is None else stats().waiting["background"]

    def classes(
        self, ids: list[list[int]], load: list[list[int]], kind: str | None, steps: int
    ) -> dict[str, Any]:
        """Times to first token of one interactive prompt after another.

        `load` prompts run beside them as `kind` requests, each begun again when it ends; None for
        no load.
        """
        stop = threading.Event()
        beside = [
            threading.Thread(target=self._keep_going, args=(prompt, kind, stop, number))
            for number, prompt in enumerate(load if kind else [])
        ]
        for thread in beside:
            thread.start()
        if beside:
            time.sleep(0.5)
        try:
            times = []
            for prompt in ids:
                run = self._run([prompt], steps, reuse=False)[0]
                times.append(run.first_s - run.began_s)
        finally:
            stop.set()
            for thread in beside:
                thread.join()
        return {"ttft_s": times, "p50_s": statistics.median(times), "p95_s": high(times)}

    def _keep_going(self, prompt: list[int], kind: str, stop: threading.Event, number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            ids = [(token + 7 * turn) % 30_000 + 1000 for token in prompt]
            ids = [min(token, self.core.vocab_size - 1) for token in ids]
            run, name = self._submit(ids, 16, kind=kind, reuse=False)
            while not run.done.wait(0.05):
                if stop.is_set():
                    self.core.cancel(name)

    def _run(self, ids: Sequence[Sequence[int]], tokens: int, **how: Any) -> list[Run]:
        runs = [self._submit(prompt, tokens, **how)[0] for prompt in ids]
        for run in runs:
            if not run.done.wait(DONE_S):
                raise RuntimeError(f"a request has not ended after {DONE_S:.0f} s")
            if run.record.finish_reason == "abort" or run.record.ttft_s is None:
                raise RuntimeError("the engine aborted a request")
        return runs

    def _submit(
        self,
        prompt: Sequence[int],
        tokens: int,
        *,
        reuse: bool = True,
        drafts: bool = False,
        session: str | None = None,
        kind: str = "interactive",
    ) -> tuple[Run, str]:
        name = f"r{next(self._numbers)}"
        request = self._request(
            name,
            tuple(prompt),
            self._sampling(max_tokens=tokens, ignore_eos=True),
            session_id=session,
            traffic_class=kind,
            drafts=drafts,
            reuse=reuse,
        )
        run = Run(time.monotonic())

        def done(record: Any) -> None:
            run.ended_s, run.record = time.monotonic(), record
            run.done.set()

        self.core.submit(request, lambda delta: run.tokens.extend(delta.tokens), done)
        return run, name


def high(times: Sequence[float]) -> float:
    """The 95th percentile, by linear interpolation."""
    if len(times) < 2:
        return times[0]
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


def _bare(threads: int) -> float:
    """Resident MiB with the runtime awake and no model: imports, threads, a first product."""
    import torch

    torch.set_num_threads(threads)
    torch.mm(torch.ones(256, 256), torch.ones(256, 256))
    return memory()["rss_mib"]


def _ignore(_: object) -> None:
    pass


if __name__ == "__main__":
    sys.exit(serve(open_engine))
