"""Which backend there is, its memory, other processes; in slow tests, the wheels."""

import subprocess
import sys

import pytest
import torch

from agentmem.engine.kernels import arena, choose, native
from agentmem.engine.kernels.native import NativeKernels
from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kernels.weights import Weight
from agentmem.engine.quant.formats import quantise
from agentmem.errors import UsageError


def test_torch_is_always_there() -> None:
    assert type(choose.choose("torch")) is TorchKernels
    assert choose.choose("torch", invariant=True).invariant


def test_without_the_module_auto_is_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "WHY_NOT", "no native module: built without a compiler")
    monkeypatch.setattr(native, "_native", None)
    assert choose.choose("auto").name == "torch"
    with pytest.raises(UsageError, match="built without a compiler"):
        choose.choose("native")
    told = choose.describe()
    assert told["backend"] == "torch"
    assert told["native"] == []
    assert told["why_not_native"] == "no native module: built without a compiler"


def test_auto_is_the_fastest_there_is(kernels: NativeKernels) -> None:
    assert choose.choose().name.startswith("native/")
    assert choose.choose(invariant=True).invariant
    told = choose.describe()
    assert told["why_not_native"] is None
    assert told["native"][0] == "generic"
    assert kernels.name == f"native/{native._native.current()}"


def test_an_unknown_processor_is_refused(kernels: NativeKernels) -> None:
    with pytest.raises(ValueError, match="does not have it"):
        native._native.use("pentium")


def test_the_arena_holds_what_it_was_given() -> None:
    tensors = [torch.randn(1000, 700), torch.randint(0, 9, (77,)), torch.randn(3).bfloat16()]
    made = arena.Arena(sum(t.nbytes + 64 for t in tensors))
    copies = [made.take(t) for t in tensors]
    assert all(torch.equal(a, b) for a, b in zip(tensors, copies, strict=True))
    assert all(c.data_ptr() % 64 == 0 for c in copies)
    assert made.take(torch.zeros(10, dtype=torch.float8_e4m3fn)).dtype == torch.float8_e4m3fn
    with pytest.raises(ValueError, match="do not fit"):
        made.take(torch.zeros(10 << 20))
    del made
    assert torch.equal(copies[0], tensors[0])  # tensors keep their memory


def test_a_weight_settles_and_stays_the_same(kernels: NativeKernels) -> None:
    for size in (200, 1024, 2500):
        weight = Weight("fp32", torch.randn(size, 2048))
        before = weight.data.clone()
        assert torch.equal(kernels.pack(weight).data, before)
    small = quantise(torch.randn(8, 64), "int8")
    assert kernels.pack(small) is small
    if arena.policy() in ("madvise", "always"):
        huge = arena.huge_bytes()
        assert huge is None or huge > 0


CHILD = """
import torch
from agentmem.engine.kernels.native import NativeKernels
from agentmem.engine.quant.formats import quantise
torch.manual_seed(1)
torch.set_num_threads({threads})
w, x = quantise(torch.randn(512, 256), "int8"), torch.randn(3, 256)
print(NativeKernels().linear(x, w).sum().item())
"""


def test_another_process_gives_the_same(kernels: NativeKernels) -> None:
    """A child that is started, not forked: after a parallel region a fork may hang in OpenMP."""
    found = [
        subprocess.run(
            [sys.executable, "-c", CHILD.format(threads=n)],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for n in (1, 2)
    ]
    assert found[0] == found[1]
    torch.manual_seed(1)
    w, x = quantise(torch.randn(512, 256), "int8"), torch.randn(3, 256)
    assert float(found[0]) == kernels.linear(x, w).sum().item()


FORKED = """
import os, signal, torch
from agentmem.engine.kernels.native import NativeKernels
from agentmem.engine.quant.formats import quantise
torch.set_num_threads(1)
k, w, x = NativeKernels(), quantise(torch.randn(512, 256), "int8"), torch.randn(3, 256)
want = k.linear(x, w)
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    os._exit(0 if torch.equal(k.linear(x, w), want) else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_fork_works_on_one_thread() -> None:
    if native.WHY_NOT:
        pytest.skip(native.WHY_NOT)
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=120)
