"""``holdfast feed``: a line for each event, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, HoldfastError
from holdfast.cli.exits import ExitCode, exit_code
from tests.commands import invoke


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in which a task waits for an approval."""
    url = f"sqlite:///{tmp_path}/hold.db"
    hold = Holdfast(url)

    @hold.task
    async def deploy(ctx: Context) -> None:
        await ctx.progress(1, 2, "half way")
        await ctx.approval("Deploy?", risk="external_action")

    with hold.sync as h, h.worker():
        handle = h.submit("deploy", labels={"tenant": "acme"})
        feed = h.feed(after="oldest", task=handle)
        while next(feed).kind != "task.waiting":
            pass
        feed.close()
    return url


def test_lines_for_people_and_for_programs(url: str) -> None:
    env = {"HOLDFAST_DATABASE_URL": url}

    def feed(*options: str) -> str:
        return invoke(["feed", *options], env=env, catch_exceptions=False).stdout

    lines = feed("--after", "oldest", "--no-follow").splitlines()
    assert "deploy  submitted" in next(line for line in lines if "task.pending" in line)
    assert "half way  step 1  total 2" in next(line for line in lines if "  progress   " in line)
    assert "risk external_action" in next(line for line in lines if "approval.opened" in line)
    events = [json.loads(line) for line in feed("--after", "oldest", "--no-follow", "--json").splitlines()]
    assert len(events) == len(lines)
    [asked] = [event for event in events if event["kind"] == "approval.opened"]
    only = ("--kind", "approval.*", "--label", "tenant=acme", "--name", "deploy", "--task", asked["task_id"][-8:])
    assert json.loads(feed("--after", "oldest", "--no-follow", "--json", *only)) == asked
    behind = feed("--after", asked["cursor"], "--no-follow", "--json").splitlines()
    assert [json.loads(line) for line in behind] == events[events.index(asked) + 1 :]
    assert feed("--no-follow") == ""
    for option, value, code, words in (
        ("--after", "77.0.0.abc", ExitCode.CONFLICT, "restored from a backup"),
        ("--after", "yesterday", ExitCode.USAGE, "not a cursor"),
        ("--kind", "nonsense", ExitCode.USAGE, "means no kind"),
    ):
        with pytest.raises(HoldfastError, match=words) as raised:
            feed(option, value)
        assert exit_code(raised.value) is code
