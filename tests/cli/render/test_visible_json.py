"""JSON on a terminal shows every sign that the terminal would obey or hide; in a pipe it is what was stored."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from holdfast import Context, Holdfast
from holdfast.cli.terminal import json_text
from tests.cli.render.support import holdfast, in_terminal

HOSTILE = "a\x1b]0;title\x07\x9b31m\u202eevil\u2066\u200b\ufeff\u00ad\u2028\U000e0041\x7f ü 中 😀"


def test_what_a_terminal_would_obey_or_hide_is_an_escape() -> None:
    for indent in (None, 2):
        shown = json_text({HOSTILE: [HOSTILE]}, indent=indent, visible=True)
        assert json.loads(shown) == {HOSTILE: [HOSTILE]}
        assert all(sign.isprintable() or sign == "\n" for sign in shown)
        assert "ü 中 😀" in shown
        assert "\\u202e" in shown
    piped = json_text(HOSTILE)
    assert json.loads(piped) == HOSTILE
    assert "\u202e" in piped
    half = json_text(f"{HOSTILE}\ud800", visible=True)
    assert json.loads(half) == f"{HOSTILE}\ud800"
    assert half.isascii()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
async def test_a_terminal_gets_the_one_and_a_pipe_the_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    hold = Holdfast(url)

    @hold.task
    async def work(ctx: Context, text: str) -> str:  # noqa: ARG001
        return text

    async with hold:
        handle = await hold.submit(work, HOSTILE)
        await hold.run(handle)
    shown = in_terminal("show", handle.id, "--json", url=url).said
    assert [sign for sign in shown if not sign.isprintable() and sign not in "\r\n"] == []
    assert json.loads(shown)["task"]["result"] == HOSTILE
    piped = holdfast("show", handle.id, "--json", url=url).stdout
    assert json.loads(piped)["task"]["result"] == HOSTILE
    assert "\u202e" in piped
