"""What `--help` prints, word for word; whoever changes it reads it first."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxpr2triton.cli import main
from jaxpr2triton.cli.options import COMMANDS

PAGE = Path(__file__).with_name("help.txt")  # what a new option or target prints is put in here
TITLE = "==== jaxpr2triton"


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main.main([*words, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_help_is_what_the_page_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    texts = {(): helped(capsys), **{(command,): helped(capsys, command) for command in COMMANDS}}
    found = "\n".join(f"{' '.join([TITLE, *words])}\n{text}" for words, text in texts.items())
    assert found == PAGE.read_text()
