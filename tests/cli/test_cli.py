"""The command as a user types it: help that teaches, one clear line for every mistake."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmem.cli.doctor import system_rows
from agentmem.cli.main import VERBS, main
from agentmem.modelfiles.fetch import is_fetched, model_folder
from agentmem.modelfiles.registry import MODELS
from tests.fake import FakeUpstream

ROOT = Path(__file__).resolve().parents[2]
VERB_NAMES = [module.__name__.rsplit(".", 1)[1] for module in VERBS]


def agentmem(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agentmem", *args],
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The single line of an expected failure."""
    assert done.returncode == code, done.stdout + done.stderr
    lines = [x for x in done.stderr.splitlines() if x.startswith("agentmem: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


Inside = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    """As `agentmem`, without a process of its own: a second less a call."""

    def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            try:
                code = main(args)
            except SystemExit as end:  # argparse
                code = int(end.code or 0)
        told = capsys.readouterr()
        return subprocess.CompletedProcess(args, code, told.out, told.err)

    return run


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_every_verb_teaches(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([verb, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) > 5


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(verb in text for verb in VERB_NAMES)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "quikstart"], "did you mean 'quickstart'"),
        (["run", "quickstart", "--set", "answr.k=3"], "did you mean 'answer'"),
        (["run", "quickstart", "--set", "answer.k=many"], "answer.k must be a int"),
        (["run", "quickstart", "--set", "answer.k"], "key=value"),
        (["run", "quickstart", "--systems", "bm52"], "did you mean 'bm25'"),
        (["run", "quickstart", "--workload", "locmo"], "locomo"),
        (["run", "quickstart", "--set", "workload.sesions=3"], "sessions"),
        (["run", "quickstart", "--engine", ""], "engine.url must be local or begin with"),
        (["serve", "--port", "99999", "--embedder", ""], "a port is a number from 0 to 65535"),
        (["serve", "--threads", "-3"], "--threads must be 1 to 1024"),
        (["serve", "--window", "3"], "--window must be 16 tokens at least"),
        (["serve", "--mode", "fp9"], "known: fp32, bf16"),
        (["rum", "quickstart"], "invalid choice: 'rum'"),
        (["run"], "see agentmem run --help"),
        (["run", "quickstart", "--systems", ""], "`systems` is empty"),
        (["run", "quickstart", "--set", "meters.hz=0"], "meters.hz must be"),
        (["run", "no/such.toml"], "no profile at no/such.toml"),
        (["models", "pull", "smollm"], "smollm2-135m"),
        (["systems", "install", "mem1"], "did you mean 'mem0'"),
    ],
)
def test_a_mistake_names_what_was_meant(args: list[str], says: str, inside: Inside) -> None:
    assert says in one_line(inside(*args), 2)


def test_one_broken_system_stops_nothing_else(
    fake: FakeUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mine" / "system.toml"
    file.parent.mkdir()
    file.write_text('name = "mine"\n[')
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(tmp_path))
    monkeypatch.setattr("agentmem.cli.run.show", lambda result: None)  # drawing takes seconds
    args = [arg for arg in fake_args(fake) if arg != "--quiet"]
    assert main([*args, "--out", str(tmp_path / "run")]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if str(file) in line]
    assert len(told) == 1 and "cannot be read" in told[0]
    assert main(["systems"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {"bm25", "mine"} <= {line.split()[0] for line in listed if line.strip()}
    assert ["mine", "–", "–", "–", "broken"] in [line.split() for line in listed]
    assert any(line.startswith(f"broken: {file} cannot be read") for line in listed)
    assert main(["run", "quickstart", "--systems", "bm25,mine"]) == 5
    named = capsys.readouterr().err
    assert named.startswith("agentmem: memory system 'mine' cannot be used: ")
    assert named.count("\n") == 1
    rows = {what: (ready, how) for what, ready, how in system_rows()}
    assert rows["system: mine"][0] is False and rows["system: bm25"][0] is True


def test_missing_data_says_what_to_set(tmp_path: Path, inside: Inside) -> None:
    line = one_line(inside("run", "locomo", AGENTMEM_DATA=str(tmp_path)), 3)
    assert "locomo10.json" in line


def test_a_dead_engine_url() -> None:
    args = ["--systems", "bm25", "--set", "engine.start_timeout_s=1"]
    args += ["--set", "workload.tokenizer=words-v1"]
    line = one_line(agentmem("run", "quickstart", "--engine", "http://127.0.0.1:9/v1", *args), 4)
    assert "cannot reach a model server at http://127.0.0.1:9/v1" in line


def fake_args(fake: FakeUpstream) -> list[str]:
    args = ["run", "quickstart", "--systems", "bm25", "--engine", fake.url, "--quiet"]
    for key, value in [
        ("engine.model", "fake-chat"),
        ("engine.embedder", "fake-embed"),
        ("workload.tokenizer", "words-v1"),
        ("workload.questions", "2"),
    ]:
        args += ["--set", f"{key}={value}"]
    return args


def test_a_taken_port(fake: FakeUpstream, tmp_path: Path, inside: Inside) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        done = inside(*fake_args(fake), "--port", port, "--out", str(tmp_path / "run"))
    assert f"127.0.0.1:{port}" in one_line(done, 2)


def test_a_port_that_is_none(fake: FakeUpstream, tmp_path: Path, inside: Inside) -> None:
    done = inside(*fake_args(fake), "--port", "99999", "--out", str(tmp_path / "run"))
    assert "0 to 65535" in one_line(done, 2)


@pytest.mark.parametrize("args", [["models", "pull", "minilm-l6"], ["systems", "install", "mem0"]])
def test_a_cache_that_cannot_be_written(args: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = agentmem(*args, AGENTMEM_CACHE=str(tmp_path / "file"))
    line = one_line(done, 5 if "mem0" in args else 3)
    assert str(tmp_path / "file") in line and "AGENTMEM_CACHE" in line


def test_a_locale_without_unicode(tmp_path: Path) -> None:
    """Odd text is escaped on a terminal that cannot show it; odd bytes in a path are kept."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    turn = '{"speaker": "Änn", "text": "A kayak \N{CANOE}", "history": "%s"}'
    (tmp_path / "talk.jsonl").write_text(turn % "mïn", encoding="utf-8")
    table = f'[workload]\nname = "conversation"\npath = "{tmp_path}/talk.jsonl"\n'
    (tmp_path / "odd.toml").write_text(table)
    done = agentmem("workload", "show", str(tmp_path / "odd.toml"), **plain)
    assert done.returncode == 0, done.stderr
    assert "\\U0001f6f6" in done.stdout


def test_an_empty_folder_name_is_refused(inside: Inside) -> None:
    done = inside("run", "quickstart", "--out", "")
    assert "give the name of a folder" in one_line(done, 2)


def test_a_reader_that_goes_away_is_no_failure() -> None:
    verb = "workload show quickstart --set workload.tokenizer=words-v1"
    command = f"{sys.executable} -m agentmem {verb}; echo $? >&2"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert done.stderr.strip() == "0"


def test_a_folder_that_cannot_be_written(fake: FakeUpstream, inside: Inside) -> None:
    line = one_line(inside(*fake_args(fake), "--out", "/proc/agentmem"), 2)
    assert "cannot write to /proc/agentmem" in line


def test_reports_of_what_is_no_run(tmp_path: Path, inside: Inside) -> None:
    for verb in ("report", "check"):
        assert str(tmp_path) in one_line(inside(verb, str(tmp_path)), 3)


def test_a_manifest_of_something_else(tmp_path: Path, inside: Inside) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 1}')
    (tmp_path / "journal.jsonl").touch()
    for verb in ("report", "check"):
        assert "it has no 'status'" in one_line(inside(verb, str(tmp_path)), 3)


def test_a_run_ends_with_the_table_and_the_report(
    fake: FakeUpstream, tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    done = agentmem(*fake_args(fake), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "BM25" in done.stdout
    [path] = [x.split()[1] for x in done.stdout.splitlines() if x.startswith("report ")]
    assert "<html" in Path(path).read_text()
    monkeypatch.setattr("agentmem.report.write.draw_all", lambda content: ())  # drawn once
    again = inside(*fake_args(fake), "--out", str(out))
    assert "already complete" in again.stdout
    assert inside("check", str(out)).returncode == 0


@pytest.mark.skipif(not is_fetched("smollm2-135m"), reason="agentmem models pull")
def test_a_flipped_byte_in_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "smollm2-135m"
    shutil.copytree(model_folder(MODELS["smollm2-135m"]), folder)
    [file] = folder.glob("*.gguf")
    with file.open("r+b") as handle:
        handle.seek(50_000_000)
        byte = handle.read(1)
        handle.seek(50_000_000)
        handle.write(bytes([byte[0] ^ 1]))
    done = subprocess.run(
        [sys.executable, "-m", "agentmem.engine", "--model", str(file), "--port", "0"],
        cwd=ROOT,
        env=os.environ | {"AGENTMEM_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3
    assert "sha256" in done.stderr and "agentmem models pull smollm2-135m" in done.stderr
    assert "Traceback" not in done.stderr
