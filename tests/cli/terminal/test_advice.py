"""The advice about a task that stopped, and that following it works."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.cli.store_session import command_line
from holdfast.model.failure import Failure
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.service.situation import SituationEvidence, situation_of
from tests.cli.project.support import refusal
from tests.cli.render.support import in_terminal
from tests.cli.terminal.support import APPLICATION, bring, holdfast, read, run, submit

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("holdfast.BudgetExceeded", [("budget", "--max-... N"), ("resume", ""), ("retry", "")]),
        ("holdfast.AgentStuck", [("resume", "--message HINT"), ("retry", "")]),
        ("holdfast.CheckpointExpired", [("resume", "--accept-stale"), ("retry", "")]),
        ("Poison", [("resume", ""), ("retry", "")]),
        ("ValueError", [("resume", ""), ("retry", "")]),
    ],
)
def test_what_has_to_be_done_first_depends_on_why_it_failed(error: str, advice: list[tuple[str, str]]) -> None:
    task = Task(id="task-1", state=TaskState.FAILED, error=Failure(type_name=error, message="none").to_json())
    seen = SituationEvidence(task=task, steps=(), approvals=(), doubts=(), open_children=0, workers=(), at=NOW)
    assert [(one.verb, one.options) for one in situation_of(seen).next] == advice


def test_a_task_that_killed_its_workers_is_to_be_mended_first() -> None:
    failure = Failure(type_name="Poison", message="3 workers died while running only this task")
    task = Task(id="task-1", state=TaskState.FAILED, error=failure.to_json())
    seen = SituationEvidence(task=task, steps=(), approvals=(), doubts=(), open_children=0, workers=(), at=NOW)
    assert "once it is fixed" in situation_of(seen).next[0].why


def test_a_task_whose_budget_is_used_up_goes_on_with_a_larger_one(url: str) -> None:
    task_id = run("spender", "--input", "Look twice.", url=url, code=5)
    short = task_id[-8:]
    page = holdfast("show", url=url).stdout
    assert f"holdfast budget {short} --max-... N" in page
    assert page.index("holdfast budget") < page.index("holdfast resume")
    assert "steps  " in holdfast("budget", short, url=url).stdout
    before = read("budget", short, url=url)
    holdfast("resume", short, url=url)
    assert run("--id", short, url=url, code=5) == task_id  # without more of it, it fails again

    raised = holdfast("budget", short, "--max-steps", "10", "--note", "it was too little", url=url)
    assert raised.returncode == 0
    assert f"holdfast resume {short}" in raised.stderr
    after = read("budget", short, url=url)
    assert (before["steps"]["limit"], after["steps"]["limit"]) == (1, 10)
    assert holdfast("resume", short, url=url).returncode == 0
    answer = holdfast("run", APPLICATION, "--id", short, url=url)
    assert (answer.returncode, answer.stdout) == (0, '"done at last"\n'), answer.stderr


def test_a_task_that_has_not_failed_is_not_to_be_resumed(url: str) -> None:
    task_id = submit("asker", "--input", "Look twice.", url=url)
    raised = holdfast("budget", task_id, "--max-steps", "5", url=url)
    assert (raised.returncode, raised.stderr) == (0, f"holdfast: task {task_id[-8:]} has new limits\n")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--max-cost", "much"), "write an amount such as 2.50"),
        (("--max-cost", "NaN"), "--max-cost is 'NaN'; write an amount such as 2.50"),
        (("--max-cost", "-1"), "--max-cost is '-1'; write an amount such as 2.50"),
        (("--max-cost", "2.50"), "max_cost"),
        (("--max-wall-time", "ten"), "write seconds, or a number with a unit"),
    ],
)
def test_a_senseless_limit_is_refused(url: str, option: tuple[str, ...], words: str) -> None:
    task_id = submit("spender", "--input", "Look.", url=url)
    assert words in refusal(holdfast("budget", task_id, *option, url=url), 2)


async def test_a_doubt_that_settles_is_not_called_again_and_shows_when_it_is_checked(url: str) -> None:
    await bring(url, "pay", 5, to=TaskState.WAITING)
    seen = read("show", url=url)
    assert "whether 'pay' happened is not known: " in seen["why"]
    assert "so it is not made again before it has settled" in seen["why"]
    [then] = seen["then"]
    assert then["what"] == "reconcile is asked (a person, where the step has none)"
    assert datetime.fromisoformat(then["at"]) > datetime.fromisoformat(seen["at"])
    assert [(one["verb"], one["target"]) for one in seen["next"]] == [("resolve", seen["doubts"][0]["effect_id"])]
    assert "then     reconcile is asked (a person, where the step has none) in " in holdfast("show", url=url).stdout
    for page in (holdfast("show", url=url).stdout, holdfast("steps", seen["task"]["id"], url=url).stdout):
        assert "settles in" in page
        assert "again in" not in page
    [doubt] = read("doubts", url=url)["doubts"]
    assert doubt["decisions"] == []
    shown = in_terminal("doubts", url=url).text
    assert "the call may still arrive; reconcile is asked (a person," in " ".join(shown.split())
    assert " reconcile is asked (a person, where the step has none) in " in holdfast("doubts", url=url).stdout
    assert "decide with" not in shown
    assert doubt["early"] == ["happened", "absent", "abandon"]
    line = refusal(holdfast("resolve", doubt["effect_id"], "compensate", url=url), 4)
    assert "cannot be resolved as compensate; decide happened or absent or abandon" in line


@pytest.mark.parametrize(
    ("name", "wanted", "unwanted"),
    [("wonder", "holdfast answer ID ANSWER", "approve"), ("asker", "holdfast answer ID LIMIT", "approve")],
)
async def test_the_hint_below_approvals_names_the_verb_that_fits(
    url: str, name: str, wanted: str, unwanted: str
) -> None:
    await bring(url, name, *(["Look twice."] if name == "asker" else []), to=TaskState.WAITING)
    hint = in_terminal("approvals", url=url, columns=120).text.strip().splitlines()[-1]
    assert wanted in hint
    assert "holdfast reject ID" in hint
    assert unwanted not in hint


def test_an_agent_that_ended_goes_on_with_after(url: str) -> None:
    first = run("parrot", "--input", "hello", url=url)
    answer = holdfast("run", APPLICATION, "parrot", "--input", "and now?", "--after", first[-8:], url=url)
    heard = read("show", first, url=url)["task"]["result"]
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout.strip().strip('"').split()[1]) > int(heard.split()[1])  # the first conversation is in it
    second = submit("parrot", "--input", "later", "--after", first[-8:], url=url)
    assert read("show", second, url=url)["task"]["user_input"]["kwargs"] == {"after": first}
    refused = holdfast("submit", APPLICATION, "parrot", "--input", "x", "--after", "nothing", url=url)
    assert refused.returncode == 3


def test_the_hint_of_submit_names_the_store_if_it_is_not_the_usual_one(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    answer = holdfast("submit", APPLICATION, "echo", "--input", "x", "--database-url", other, url=url)
    short = answer.stdout.strip()[-8:]
    assert f"holdfast show {short} --database-url {other}" in answer.stderr
    usual = holdfast("submit", APPLICATION, "echo", "--input", "x", url=url)
    assert "--database-url" not in usual.stderr


def test_the_hint_of_submit_holds_no_password() -> None:
    hidden = command_line("show", "0" * 36, "postgresql://bob:S3cr3t@localhost/x")
    assert "S3cr3t" not in hidden
    assert hidden.endswith("--database-url ...")
