"""``holdfast doubts`` and ``holdfast resolve``: effects in doubt, whose outcome is unknown."""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.confirmation import ask_person
from holdfast.cli.json_input import read_json
from holdfast.cli.options import AsJson, By, DatabaseUrl, Limit, Note, OneTask, Yes
from holdfast.cli.render.decisions import DOUBT_COLUMNS, doubt_page, doubt_rows, doubt_waits_for
from holdfast.cli.render.words import safe
from holdfast.cli.store_session import command, opened, user
from holdfast.cli.terminal import console, print_if_cut, print_json, print_message, print_page, print_table
from holdfast.cli.times import local
from holdfast.model.doubt import Decision, Doubt
from holdfast.model.errors import Conflict, InvalidValue
from holdfast.service.decisions import MEANING
from holdfast.service.forms import doubt_form, effect_form, listed
from holdfast.service.identify import short


@command
async def doubts(
    task: OneTask = None, *, limit: Limit = 100, as_json: AsJson = False, database_url: DatabaseUrl = None
) -> None:
    """List the effects in doubt (their outcome is unknown), and what can be decided about each."""
    async with opened(database_url) as service:
        found, now = await service.doubts(task, limit=limit), await service.now()
    if as_json:
        print_json(dict(listed("doubts", [doubt_form(doubt) for doubt in found])))
    elif found and console().is_terminal:
        print_page(*(doubt_page(doubt, now) for doubt in found))
        if any(doubt.decisions for doubt in found):
            print_message("decide with: holdfast resolve ID DECISION")
    else:
        print_table(DOUBT_COLUMNS, doubt_rows(found, now), empty="nothing is in doubt")
    print_if_cut(found, limit)


@command
async def resolve(
    effect: Annotated[
        str, typer.Argument(metavar="EFFECT", help="Its id; a few characters of its beginning or end will do.")
    ],
    decision: Annotated[str, typer.Argument(metavar="DECISION", help=f"{', '.join(Decision)}: see `holdfast doubts`.")],
    *,
    result: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="With happened: what the call returned.", show_default=False),
    ] = None,
    by: By = None,
    note: Note = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Decide about an effect in doubt: whether it happened, or what to do about it.

    In a terminal it shows the effect and what the decision means first, and asks; in a script it does not ask.
    """
    chosen, who = _read_decision(decision), user(by)
    if result is not None and chosen is not Decision.HAPPENED:
        raise InvalidValue(f"--result goes with happened only; {chosen} has none")
    returned = None if result is None else read_json(result, what="--result")
    async with opened(database_url) as service:
        doubt, now = await service.doubt(effect), await service.now()
        _check_possible(doubt, chosen, now)
        with_what = (
            "" if chosen is not Decision.HAPPENED else f" with {'no result' if result is None else safe(result)}"
        )
        ask_person(f"This will be resolved as {chosen}{with_what}.", doubt_page(doubt, now, chosen), yes=yes)
        settled = await service.resolve(doubt.effect.effect_id, chosen, result=returned, by=who, note=note)
    if as_json:
        print_json(effect_form(settled))
    else:
        typer.echo(f"{settled.effect_id} {settled.state}")
    print_message(
        f"{safe(settled.step_key)!r} of task {short(settled.task_id)} is resolved as {chosen}: {MEANING[chosen]}"
    )
    settles = settled.settle_at
    if settles is not None and settles > now and chosen in {Decision.ABSENT, Decision.COMPENSATE}:
        print_message(f"not before {local(settles, now)}: until then the call may still arrive")


def _read_decision(given: str) -> Decision:
    word = given.strip().lower()
    if word in set(Decision):
        return Decision(word)
    close = difflib.get_close_matches(word, list(Decision), n=1)
    remedy = f"did you mean {close[0]}?" if close else f"choose from {', '.join(Decision)}"
    raise InvalidValue(f"{given!r} is not a decision; {remedy}")


def _check_possible(doubt: Doubt, decision: Decision, now: datetime) -> None:
    """Refuse, before the user is asked, what the engine would refuse afterwards."""
    possible = doubt.decisions or doubt.early
    if not possible:
        raise Conflict(f"effect {doubt.effect.effect_id} cannot be decided yet: {doubt_waits_for(doubt, now)}")
    if decision not in possible:
        allowed = " or ".join(possible)
        raise Conflict(f"effect {doubt.effect.effect_id} cannot be resolved as {decision}; decide {allowed}")
