"""Environment variables, typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxpr2triton.errors import UserError
from jaxpr2triton.knobs import Knobs, read_knobs

KNOWN = "J2T_BACKEND, J2T_CACHE, J2T_CACHE_DIR, J2T_CACHE_SIZE, J2T_RAISE, J2T_TARGET"


def test_nothing_set_means_the_defaults() -> None:
    assert read_knobs({"HOME": "/x", "PATH": "J2T_TARGET"}) == Knobs(
        cache_dir=Path("~/.cache/jaxpr2triton").expanduser()
    )


def test_every_knob_is_read() -> None:
    environ = {
        "J2T_CACHE_DIR": "~/kernels",
        "J2T_CACHE": "0",
        "J2T_CACHE_SIZE": "50",
        "J2T_TARGET": "sm_80",
        "J2T_BACKEND": "xla",
        "J2T_RAISE": "1",
    }
    assert read_knobs(environ) == Knobs(Path("~/kernels").expanduser(), False, 50, "sm_80", "xla", True)


def test_an_empty_folder_name_means_the_default() -> None:
    assert read_knobs({"J2T_CACHE_DIR": ""}) == read_knobs({})


@pytest.mark.parametrize(("caches", "folder"), [("/caches", "/caches/jaxpr2triton"), ("caches", None), ("", None)])
def test_the_users_folder_of_caches(caches: str, folder: str | None) -> None:
    """A relative one is ignored, as https://specifications.freedesktop.org/basedir-spec says."""
    default = Path("~/.cache/jaxpr2triton").expanduser()
    assert read_knobs({"XDG_CACHE_HOME": caches}).cache_dir == (Path(folder) if folder else default)
    assert read_knobs({"XDG_CACHE_HOME": caches, "J2T_CACHE_DIR": "/mine"}).cache_dir == Path("/mine")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True),
        ("TRUE", True),
        ("yes", True),
        (" on ", True),
        ("0", False),
        ("False", False),
        ("no", False),
        ("", False),
    ],
)
def test_flags_have_several_spellings(text: str, value: bool) -> None:
    assert read_knobs({"J2T_CACHE": text}).cache is value


def test_the_environment_is_read_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_TARGET", "gfx942")
    assert read_knobs().target == "gfx942"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"J2T_CACHE": "maybe"}, "J2T_CACHE='maybe': expected 0 or 1"),
        ({"J2T_CACHE_SIZE": "1 GB"}, "J2T_CACHE_SIZE='1 GB': expected a number of megabytes"),
        ({"J2T_TARGE": "x"}, f"unknown environment variable J2T_TARGE; known are {KNOWN}\n  try  J2T_TARGET"),
        ({"J2T_": "x"}, f"unknown environment variable J2T_; known are {KNOWN}"),
    ],
)
def test_what_is_misspelt_is_an_error(environ: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_knobs(environ)
    assert str(caught.value) == message
