"""`agentmem engine` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentmem.cli.main import main

TEXT = "Anna moved to Tokyo in 2021. She is allergic to peanuts, and she likes long walks. " * 2


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def test_calibrate_then_measure(
    model: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "scales", tmp_path / "losses.json"
    once = ["--threads", "1", "--text", text]
    assert main(["engine", "calibrate", str(model), "--out", str(out), *once]) == 0
    assert "8 scales from" in capsys.readouterr().out
    assert json.loads((out / "calibration.json").read_text())["format"] == 1
    measured = ["--mode", "int8,fp8+static", "--tokens", "60", "--calibration", str(out)]
    given = ["engine", "perplexity", str(model), *measured, "--json", str(figures), *once]
    assert main([*given, "--backend", "torch"]) == 0
    shown = capsys.readouterr().out
    told = json.loads(figures.read_text())
    assert [row["mode"] for row in told["rows"]] == ["bf16", "int8", "fp8+static"]
    assert told["rows"][0]["loss"] == 0 and told["rows"][1]["loss"] != 0
    assert (told["backend"], told["threads"], told["text"]["source"]) == ("torch", 1, "text.txt")
    for row in told["rows"]:
        assert f"{row['perplexity']:.3f}" in shown and row["mode"] in shown


def test_modes_are_listed_and_measured(
    model: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine", "modes"]) == 0
    listed = capsys.readouterr().out
    assert all(mode in listed for mode in ("bf16", "int8", "int4", "fp8+static", "kv-int8"))
    given = ["engine", "modes", str(model), "--text", text, "--tokens", "40", "--threads", "1"]
    assert main(given) == 0
    assert "4 of 4 norms are fused" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["perplexity", "MODEL", "--mode", "int9"], 2, "int8"),
        (["perplexity", "MODEL"], 2, "--text FILE"),
        (["perplexity", "MODEL", "--text", "TEXT", "--tokens", "1"], 2, "at least two"),
        (["perplexity", "MODEL", "--text", "TEXT", "--threads", "0"], 2, "--threads"),
        (["perplexity", "MODEL", "--text", "/nowhere.txt"], 3, "cannot read"),
        (["perplexity", "MODEL", "--text", "TEXT", "--threads", "9999999"], 2, "1 to 1024"),
        (["perplexity", "MODEL", "--text", "LONG", "--window", "600"], 2, "window is 512"),
        (["perplexity", "MODEL", "--text", "TEXT", "--json", "/nowhere/x"], 2, "/nowhere"),
        (["perplexity", "MODEL", "--text", "TEXT", "--json", "/tmp"], 2, "a folder"),
        (
            ["perplexity", "MODEL", "--text", "TEXT", "--mode", "int8", "--calibration", "x"],
            2,
            "fp8+static",
        ),
        (["calibrate", "MODEL", "--out", "TEXT", "--text", "TEXT"], 2, "--out"),
        (["perplexity", "minilm-l6", "--text", "TEXT"], 2, "embedder"),
        (["calibrate", "MODEL", "--out", "OUT", "--text", "TEXT", "--percentile", "0"], 2, "0"),
        (["calibrate", "/nowhere", "--out", "OUT"], 3, "nowhere"),
        (["calibrate", "MODEL", "--out", "OUT", "--tokens", "1"], 2, "at least 2"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(
    args: list[str],
    code: int,
    says: str,
    model: Path,
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AGENTMEM_DATA", raising=False)
    (tmp_path / "long.txt").write_text(TEXT * 5)
    places = {"MODEL": str(model), "TEXT": text, "OUT": str(tmp_path / "out")}
    places["LONG"] = str(tmp_path / "long.txt")
    assert main(["engine", *(places.get(arg, arg) for arg in args)]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("agentmem: ") and says in lines[0]


def test_a_calibration_of_another_model_is_refused(
    model: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"format": 1, "weights": "other", "scales": {"a": 1.0}, "percentile": 100.0}
    told = json.dumps(given | {"tokens": 2, "source": "a test"})
    (tmp_path / "calibration.json").write_text(told)
    args = ["engine", "perplexity", str(model), "--mode", "fp8+static", "--text", text]
    assert main([*args, "--calibration", str(tmp_path), "--threads", "1"]) == 3
    assert "was made for weights other" in capsys.readouterr().err
