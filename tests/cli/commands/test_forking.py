"""``holdfast fork``."""

from __future__ import annotations

import json

import pytest

from holdfast import Holdfast, TaskState
from tests.cli.commands.support import bring, holdfast, look, work_off


async def test_it_prints_the_new_id_and_says_from_where(url: str) -> None:
    origin = await bring(url, "greet", "you", to=TaskState.COMPLETED)
    answer = holdfast("fork", origin[-8:], "--at", "first", url=url)
    assert answer.code == 0
    forked = answer.out.strip()
    assert answer.said == (
        f"holdfast: it shares the past of task {origin}, up to and including 'first', and is pending in queue "
        "'default'\n"
    )
    async with Holdfast(url) as hold:
        where = await hold.forked_from(forked)
    assert where is not None
    assert (where.task_id, where.step) == (origin, "first")
    assert (await work_off(url, forked)).result == "hello you"


async def test_digits_are_a_position(url: str) -> None:
    origin = await bring(url, "greet", "you", to=TaskState.COMPLETED)
    async with Holdfast(url) as hold:
        [first, second] = await hold.store.steps(origin)
    parsed = json.loads(holdfast("fork", origin, "--at", str(first.position), "--json", url=url).out)
    assert parsed["forked_from"] == {"task_id": origin, "step": "first", "position": first.position}
    assert (parsed["name"], parsed["state"]) == ("greet", "pending")
    everything = json.loads(holdfast("fork", origin, "--json", url=url).out)
    assert everything["forked_from"]["step"] == second.key
    assert holdfast("fork", origin, "--at", "nowhere", url=url).code != 0


async def test_other_arguments_without_the_application(url: str) -> None:
    origin = await bring(url, "greet", "you", to=TaskState.COMPLETED)
    forked = holdfast("fork", origin, "--at", "first", "--args", '["me", 2]', url=url).out.strip()
    [task] = await look(url, forked)
    assert task.user_input == ["me", 2]
    assert (await work_off(url, forked)).result == "hello you" * 2, "the shared step keeps its result"


async def test_other_arguments_with_the_application(url: str) -> None:
    origin = await bring(url, "order", {"item": "bolt", "count": 1}, to=TaskState.PENDING)
    args = '{"what": {"item": "nut", "count": 7}}'
    answer = holdfast("fork", origin, "--args", args, "--app", "workshop:hold", url=url)
    assert answer.code == 0, answer.said
    assert (await work_off(url, answer.out.strip())).result == 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--args", "nonsense"), "write JSON"),
        (("--args", '{"name": "me"}'), "add --app"),
        (("--args", "[1, 2, 3]", "--app", "workshop:hold"), "cannot be called like this"),
        (("--app", "workshop:hold"), "--app says how to read --args"),
        (("--args", "[]", "--app", "nothing:here"), "no module 'nothing'"),
    ],
)
async def test_arguments_that_fit_no_function(url: str, options: tuple[str, ...], words: str) -> None:
    origin = await bring(url, "greet", "you", to=TaskState.PENDING)
    answer = holdfast("fork", origin, *options, url=url)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.said
    async with Holdfast(url) as hold:
        assert sum((await hold.store.count()).values()) == 1


async def test_the_same_key_is_the_same_fork(url: str) -> None:
    origin = await bring(url, "greet", "you", to=TaskState.PENDING)
    one = holdfast("fork", origin, "--key", "k", url=url)
    assert holdfast("fork", origin, "--key", "k", url=url).out == one.out
    other = holdfast("fork", origin, "--key", "k", "--args", '["me"]', url=url)
    assert (other.code, other.out) == (4, "")
