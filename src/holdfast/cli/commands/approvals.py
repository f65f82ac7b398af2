"""``holdfast approvals``, ``approve``, ``reject`` and ``answer``: what tasks ask people."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.text import Text

from holdfast.cli.confirmation import ask_person
from holdfast.cli.filters import complete_listed
from holdfast.cli.json_input import read_value
from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, AsText, By, DatabaseUrl, Limit, Note, OneTask, Yes
from holdfast.cli.render.decisions import APPROVAL_COLUMNS, approval_page, approval_rows, approvals_table
from holdfast.cli.render.words import safe, value
from holdfast.cli.store_session import command, opened, user
from holdfast.cli.terminal import console, print_if_cut, print_json, print_message, print_page, print_table
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.errors import InvalidValue
from holdfast.service.decisions import APPROVAL, BUDGET, DOUBT, QUESTION
from holdfast.service.forms import approval_form, listed
from holdfast.service.identify import short
from holdfast.service.service import Service

ApprovalId = Annotated[
    str,
    typer.Argument(metavar="ID", help="Of the approval; a few characters of its beginning or end will do."),
]

_NOT_FOR: Final = {
    ApprovalState.APPROVED: {QUESTION, DOUBT},
    ApprovalState.REJECTED: {DOUBT},
    ApprovalState.ANSWERED: {APPROVAL, DOUBT},
}
"""Kinds of questions that cannot be decided like this: the engine will refuse, so no confirmation is asked for."""


@command
async def approvals(
    task: OneTask = None,
    *,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help=f"{', '.join(ApprovalState)}; several by commas.",
            show_default=False,
            autocompletion=lambda incomplete: complete_listed(incomplete, list(ApprovalState)),
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that are decided.")] = False,
    limit: Limit = 100,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show what changes.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List what tasks ask people and wait for, the oldest first."""
    if everything and state is not None:
        raise InvalidValue("--all lists every state, and --state some; give one of them")
    states = tuple(ApprovalState) if everything else _read_states(state)
    async with opened(database_url) as service:

        async def look() -> tuple[list[Approval], datetime]:
            found = await service.approvals(task, states=states, limit=limit)
            now = await service.now()
            return sorted(found, key=lambda approval: approval.created_at or now), now

        if watch:
            await show_live(
                service.follow(look),
                lambda view: approvals_table(*view),
                lambda view: _form(view[0]),
                as_json=as_json,
            )
            return
        found, now = await look()
    if as_json:
        print_json(_form(found))
    elif found and console().is_terminal:
        print_page(approvals_table(found, now), Text(), Text(_hint(found), "dim"))
    else:
        print_table(APPROVAL_COLUMNS, approval_rows(found, now), empty="no open questions")
    print_if_cut(found, limit)


@command
async def approve(
    approval: ApprovalId,
    *,
    by: By = None,
    note: Note = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Agree to what a task asks for.

    In a terminal it shows the exact arguments first, and asks; in a script it does not ask.
    """
    who = user(by)
    async with opened(database_url) as service:
        await _show_first(service, approval, ApprovalState.APPROVED, "This will be approved.", yes=yes)
        _decided(await service.approve(approval, by=who, note=note), as_json=as_json)


@command
async def reject(
    approval: ApprovalId,
    *,
    by: By = None,
    note: Note = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Refuse what a task asks for, or to answer its question.

    In a terminal it shows what it is about first, and asks; in a script it does not ask.
    """
    who = user(by)
    async with opened(database_url) as service:
        await _show_first(service, approval, ApprovalState.REJECTED, "This will be rejected.", yes=yes)
        _decided(await service.reject(approval, by=who, note=note), as_json=as_json)


@command
async def answer(
    approval: ApprovalId,
    answer: Annotated[str, typer.Argument(metavar="ANSWER", help="JSON; or any text.", show_default=False)],
    *,
    as_text: AsText = False,
    by: By = None,
    note: Note = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Answer a question of a task.

    In a terminal it shows both first, and asks; in a script it does not ask. An answer that is JSON is read as JSON: 3
    is a number, '"3"' a text, '{"region": "eu"}' an object.
    """
    who, read = user(by), read_value(answer, as_text=as_text)
    async with opened(database_url) as service:
        kind = "the text " if isinstance(read, str) else ""
        question = f"This will be answered with {kind}{safe(value(read, 200))}."
        await _show_first(service, approval, ApprovalState.ANSWERED, question, yes=yes)
        _decided(await service.answer(approval, read, by=who, note=note), as_json=as_json)


async def _show_first(service: Service, part: str, decision: ApprovalState, question: str, *, yes: bool) -> None:
    asked = await service.approval(part)
    if asked.state is ApprovalState.OPEN and asked.kind not in _NOT_FOR[decision]:
        ask_person(question, approval_page(asked, await service.now()), yes=yes)


def _decided(approval: Approval, *, as_json: bool) -> None:
    if as_json:
        print_json(approval_form(approval))
    else:
        typer.echo(f"{approval.id} {approval.state}")
    print_message(
        f"{safe(value(approval.question))!r} is {approval.state} by {approval.decided_by}; "
        f"task {short(approval.task_id)} {'gets a refusal' if approval.state is ApprovalState.REJECTED else 'goes on'}"
    )


def _read_states(given: str | None) -> tuple[ApprovalState, ...]:
    if given is None:
        return (ApprovalState.OPEN,)
    wanted = []
    for word in (word.strip().lower() for word in given.split(",")):
        if word not in set(ApprovalState):
            close = difflib.get_close_matches(word, list(ApprovalState), n=1)
            remedy = f"did you mean {close[0]}?" if close else f"choose from {', '.join(ApprovalState)}"
            raise InvalidValue(f"--state {word!r} is not a state of an approval; {remedy}")
        wanted.append(ApprovalState(word))
    return tuple(wanted)


def _hint(approvals: Sequence[Approval]) -> str:
    """Return what to type next."""
    still_open = [one for one in approvals if one.state is ApprovalState.OPEN]
    if not still_open:
        return ""
    verbs = {QUESTION: "answer ID ANSWER", BUDGET: "answer ID LIMIT"}
    wanted = dict.fromkeys(verbs.get(one.kind, "approve ID") for one in still_open)
    return "Decide: " + ", ".join(f"holdfast {verb}" for verb in (*wanted, "reject ID"))


def _form(approvals: Sequence[Approval]) -> dict[str, object]:
    return dict(listed("approvals", [approval_form(approval) for approval in approvals]))
