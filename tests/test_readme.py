"""The README's two commands are what continuous integration and users run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agentmem.analysis.validity import RULES

ROOT = Path(__file__).resolve().parent.parent


def blocks() -> list[str]:
    """The README's `sh` blocks, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [b.strip() for b in re.findall(r"```sh\n(.*?)```", text, re.S)]


def test_the_first_two_blocks_are_one_command_line_each() -> None:
    run, test = blocks()[:2]
    assert "\n" not in run.replace("\\\n", "")
    assert "\n" not in test.replace("\\\n", "")
    assert "agentmem run quickstart" in run
    assert "pytest" in test


def test_continuous_integration_runs_the_readme_command() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "README.md" in script, "the command is read from the README, so they cannot drift apart"


def test_the_readme_names_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (ROOT / target).exists(), target


def test_every_page_of_the_documentation_can_be_reached() -> None:
    text = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"))
    )
    for page in (ROOT / "docs").glob("*.md"):
        assert f"{page.name})" in text, page.name


def test_the_rules_in_the_documentation_are_those_examined() -> None:
    page = (ROOT / "docs" / "validity.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (V\d+) ", page, re.M) == list(RULES)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_main_job_runs_from_a_clean_clone(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs the git checkout")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        ["bash", "-ec", blocks()[0]],
        cwd=clone,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"^report\s+\S+\.html$", done.stdout, re.M)
    shutil.rmtree(clone)
