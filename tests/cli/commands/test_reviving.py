"""``holdfast resume`` and ``holdfast retry``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Handle, Holdfast, TaskState
from tests.cli.commands.support import INTERRUPT, at_terminal, bring, holdfast, look, states, work_off


async def failed(url: str, count: int = 1) -> list[str]:
    return [await bring(url, "fail", f"no luck {number}", to=TaskState.FAILED) for number in range(count)]


async def test_resume_puts_it_back_in_the_same_round(url: str) -> None:
    [task_id] = await failed(url)
    answer = holdfast("resume", task_id[-8:], url=url)
    assert (answer.code, answer.out, answer.said) == (0, f"{task_id} pending\n", "")
    [task] = await look(url, task_id)
    assert (task.state, task.round) == (TaskState.PENDING, 1)
    async with Holdfast(url) as hold:
        assert (await hold.store.history(task_id))[-1].reason == "resumed by tess"


async def test_retry_opens_a_round_with_feedback(url: str) -> None:
    [task_id] = await failed(url)
    answer = holdfast("retry", task_id, "--feedback", "mind the gap", "--by", "ann", "--json", url=url)
    assert (answer.code, answer.said) == (0, "")
    assert json.loads(answer.out) == {"tasks": [{"id": task_id, "state": "pending", "error": None}]}
    [task] = await look(url, task_id)
    assert (task.round, task.feedback) == (2, "mind the gap")
    async with Holdfast(url) as hold:
        assert (await hold.store.history(task_id))[-1].reason == "retried by ann"


async def test_a_task_that_has_not_failed_is_left_as_it_is(url: str) -> None:
    task_id = await bring(url, "wonder", to=TaskState.WAITING)
    answer = holdfast("resume", task_id, url=url)
    assert (answer.code, answer.out) == (0, f"{task_id} waiting\n")
    assert answer.said == f"holdfast: task {task_id} was not failed but waiting, and is left as it is\n"


async def test_one_that_refuses_does_not_stop_the_others(url: str) -> None:
    waiting = await bring(url, "wonder", to=TaskState.WAITING)
    [one] = await failed(url)
    answer = holdfast("retry", waiting, one, url=url)
    assert (answer.code, answer.out) == (4, f"{one} pending\n")
    assert answer.said.count("\n") == 1
    assert answer.said.startswith("holdfast: ")
    assert waiting in answer.said
    assert await states(url, waiting, one) == ["waiting", "pending"]
    [refused, _] = json.loads(holdfast("retry", waiting, one, "--json", url=url).out)["tasks"]
    assert (refused["id"], refused["state"]) == (waiting, None)
    assert refused["error"]


async def test_a_message_is_sent_first(url: str) -> None:
    [task_id] = await failed(url)
    assert holdfast("resume", task_id, "--message", "try harder", url=url).code == 0
    async with Holdfast(url) as hold:
        [event] = await hold.store.events(f"inbox:{task_id}")
    assert event.payload == {"text": "try harder", "by": "tess"}
    refused = holdfast("resume", task_id, "--message", "again", url=url)
    assert refused.code == 4
    assert "`holdfast send`" in refused.said


async def test_stale_knowledge_can_be_accepted(url: str) -> None:
    [task_id] = await failed(url)
    assert holdfast("resume", task_id, "--accept-stale", url=url).code == 0
    async with Holdfast(url) as hold:
        assert "accepted" in {step.kind for step in await hold.store.steps(task_id)}


async def test_a_filter_finds_failed_tasks_only(url: str) -> None:
    [one] = await failed(url)
    waiting = await bring(url, "deploy", "billing", to=TaskState.WAITING)
    answer = holdfast("resume", "--since", "1h", url=url)
    assert (answer.code, answer.out) == (0, f"{one} pending\n"), "a single one is not asked about"
    assert await states(url, one, waiting) == ["pending", "waiting"]


@pytest.mark.parametrize("verb", ["resume", "retry"])
async def test_several_that_a_filter_finds_are_asked_about(url: str, verb: str) -> None:
    ids = await failed(url, 2)
    refused = holdfast(verb, "--name", "fail", url=url)
    assert (refused.code, refused.out) == (2, "")
    assert all(word in refused.said for word in ("2 tasks will be", "add --yes", "no luck 0", ids[1][-8:]))
    assert await states(url, *ids) == ["failed", "failed"]
    agreed = holdfast(verb, "--name", "fail", "--yes", url=url)
    assert (agreed.code, agreed.out) == (0, "".join(f"{task_id} pending\n" for task_id in ids))


async def test_a_person_is_asked_and_heard(url: str) -> None:
    ids = await failed(url, 2)
    no = at_terminal("resume", "--name", "fail", url=url, types="n\n")
    assert (no.code, no.out) == (1, "")
    assert "nothing was changed" in no.said
    stopped = at_terminal("resume", "--name", "fail", url=url, types=INTERRUPT)
    assert (stopped.code, stopped.out) == (130, "")
    assert "nothing was changed" in stopped.said
    assert await states(url, *ids) == ["failed", "failed"]
    yes = at_terminal("resume", "--name", "fail", "--json", url=url, types="y\n")
    assert yes.code == 0
    assert yes.out.startswith('{"tasks"'), "the question leaves nothing on stdout"
    assert await states(url, *ids) == ["pending", "pending"]


async def test_ids_are_not_asked_about(url: str) -> None:
    ids = await failed(url, 2)
    assert holdfast("resume", *ids, ids[0][-8:], url=url).out == "".join(f"{task_id} pending\n" for task_id in ids)


@pytest.mark.parametrize("verb", ["resume", "retry", "cancel"])
async def test_tasks_or_filters(url: str, verb: str) -> None:
    [task_id] = await failed(url)
    for given, words in (
        ((), "no task is named; give ids, or filters"),
        ((task_id, "--name", "fail"), "give one or the other"),
        (("--state", "completed"), "leave it out"),
        (("--state", "fialed"), "did you mean failed?"),
    ):
        answer = holdfast(verb, *given, "--yes", url=url)
        assert (answer.code, answer.out) == (2, ""), answer
        assert words in answer.said
    assert await states(url, task_id) == ["failed"]


@pytest.mark.parametrize("verb", ["resume", "retry", "cancel"])
async def test_nothing_that_fits(url: str, verb: str) -> None:
    await failed(url)
    answer = holdfast(verb, "--name", "other", url=url)
    assert (answer.code, answer.out) == (3, "")
    assert "task fits; nothing was changed" in answer.said
    as_json = holdfast(verb, "--name", "other", "--json", url=url)
    assert (as_json.code, json.loads(as_json.out)) == (3, {"tasks": []})


@pytest.mark.parametrize("verb", ["resume", "retry", "cancel", "fork"])
async def test_ids_that_name_nothing_or_too_much(url: str, verb: str) -> None:
    ids = await failed(url, 2)
    unknown = holdfast(verb, "ffffffff-nowhere", url=url)
    assert (unknown.code, unknown.out) == (3, "")
    assert unknown.said.startswith("holdfast: no task 'ffffffff-nowhere'")
    whole = holdfast(verb, "01a1e0cb-7558-7634-9d8d-51b7d89acf7f", url=url)
    assert whole.code == 3
    several = holdfast(verb, ids[0][:2], url=url)
    assert (several.code, several.out) == (2, "")
    assert "could be any of several" in several.said
    if verb != "fork":
        assert holdfast(verb, ids[0], "ffffffff-nowhere", "--yes", url=url).code == 3
    assert await states(url, *ids) == ["failed", "failed"], "not even those that are there"


async def test_a_cancelled_task_stays_cancelled(url: str) -> None:
    task_id = await bring(url, "greet", "you", to=TaskState.PENDING)
    assert holdfast("cancel", task_id, "--yes", url=url).code == 0
    answer = holdfast("resume", task_id, url=url)
    assert (answer.code, answer.out) == (4, "")
    assert "final; submit it again" in answer.said


async def test_what_was_resumed_goes_on(url: str) -> None:
    [task_id] = await failed(url)
    assert holdfast("resume", task_id, url=url).code == 0
    assert (await work_off(url, task_id, TaskState.FAILED)).attempts == 2
    async with Holdfast(url) as hold:
        [prepare] = [step for step in await hold.store.steps(task_id) if step.key == "prepare"]
    assert prepare.attempts == 1, "it replayed"


@pytest.mark.parametrize("verb", ["resume", "retry"])
async def test_one_past_its_deadline_is_refused_alone_and_comes_back_with_a_new_one(url: str, verb: str) -> None:
    ids = await failed(url, 2)
    async with Holdfast(url) as hold:
        handle: Handle[None] = await hold.submit("fail", queue="default", deadline=datetime.now(UTC))
        assert (await hold.store.sweep()).failed == (handle.id,)
    late, [one, other] = handle.id, ids
    answer = holdfast(verb, one, late, other, url=url)
    assert (answer.code, answer.out) == (4, f"{one} pending\n{other} pending\n")
    assert answer.said.count("\n") == 1
    assert answer.said.startswith(f"holdfast: the deadline of task {late} (")
    assert answer.said.endswith(f"give it a new deadline: `holdfast {verb} {late} --deadline SPAN`\n")
    assert await states(url, one, late, other) == ["pending", "failed", "pending"]
    shown = holdfast("show", late, url=url).out
    assert shown.count("--deadline SPAN") == 2, "resume and retry"
    for wrong in ("0", "soon"):
        assert holdfast(verb, late, "--deadline", wrong, url=url).code == 2
    before = datetime.now(UTC)
    assert holdfast(verb, "--state", "failed", "--deadline", "2h", url=url).out == f"{late} pending\n"
    [task] = await look(url, late)
    assert task.deadline is not None
    assert timedelta(hours=2) <= task.deadline - before < timedelta(hours=3)
