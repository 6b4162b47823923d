"""What a step costs does not depend on what is cached, nor on who shares it."""

from __future__ import annotations

import time

from agentmem.engine.kv.manager import KVManager
from tests.engine.kv.toys import manager, run

PROMPT = list(range(10_000, 10_200))


def cost(kv: KVManager) -> float:
    """Best time of a request that hits, continues, evicts, and takes ten single steps."""
    best = 1.0
    for i in range(30):
        tokens = [*PROMPT, *range(20_000 + 100 * i, 20_000 + 100 * i + 40)]
        begin = time.thread_time()
        held = run(kv, tokens, f"new{i}")
        assert held.cached >= 200 or not i
        for _ in range(10):
            tokens.append(7)
            assert kv.grow(held, len(tokens))
            kv.commit(held, tokens, len(tokens))
        kv.close(held)
        best = min(best, time.thread_time() - begin)
    return best


def filled(blocks: int) -> KVManager:
    """Every block cached, all for sessions that begin alike."""
    kv = manager(blocks=blocks, max_sessions=1_000_000)
    for i in range(blocks // 2):
        kv.close(run(kv, [1, 2, 3, 4, i, i, i, i], f"s{i}"))
        kv.close(run(kv, [i, 5, 6], f"s{i}"))
    assert kv.counts().free_blocks == 0
    return kv


def test_a_request_costs_the_same_in_a_large_cache() -> None:
    small, large = filled(600), filled(8_000)
    assert cost(large) < 3 * cost(small) + 0.0005
