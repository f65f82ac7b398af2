"""``holdfast memory recall``, ``search``, ``conflicts`` and ``history``."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.commands.memory.options import Attribute, Entity
from holdfast.cli.commands.memory.view import COLUMNS, FLEXIBLE, print_facts, row
from holdfast.cli.options import AsJson, DatabaseUrl, Limit
from holdfast.cli.render.words import safe
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message, print_table
from holdfast.service.forms import fact_form, listed
from holdfast.service.identify import short


@command
async def recall(
    entity: Entity,
    attribute: Annotated[
        str | None, typer.Argument(metavar="ATTRIBUTE", help="Only this about it.", show_default=False)
    ] = None,
    *,
    limit: Limit = 100,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the current facts about an entity, those with the highest confidence first."""
    async with opened(database_url) as service:
        found, now = await service.memory.recall(entity, attribute, limit=limit), await service.now()
    about = entity if attribute is None else f"{entity}, {attribute}"
    print_facts(found, now, empty=f"nothing is known about {safe(about)}", as_json=as_json)


@command
async def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words, or beginnings of words.", show_default=False)],
    *,
    limit: Limit = 20,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the facts that contain words of a text, those with the most of them first."""
    async with opened(database_url) as service:
        found, now = await service.memory.search(text, limit=limit), await service.now()
    print_facts(found, now, empty="no fact has any of these words", as_json=as_json)


@command
async def history(
    entity: Entity, attribute: Attribute, *, as_json: AsJson = False, database_url: DatabaseUrl = None
) -> None:
    """List all facts that were ever stored about an attribute, oldest first."""
    async with opened(database_url) as service:
        found, now = await service.memory.history(entity, attribute), await service.now()
    if as_json:
        print_json(dict(listed("facts", [fact_form(fact) for fact in found])))
        return
    rows = [[*row(fact, now), short(fact.superseded_by) if fact.superseded_by else ""] for fact in found]
    empty = f"no fact was ever stored about {safe(entity)}, {safe(attribute)}"
    print_table((*COLUMNS, "superseded by"), rows, empty=empty, flexible=FLEXIBLE)


@command
async def conflicts(
    entity: Annotated[
        str | None, typer.Argument(metavar="ENTITY", help="Only about this one.", show_default=False)
    ] = None,
    *,
    limit: Limit = 100,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List facts on which sources do not agree. `holdfast memory verify` settles a conflict."""
    async with opened(database_url) as service:
        found, now = await service.memory.conflicts(entity, limit=limit), await service.now()
    if as_json:
        forms = [
            {"entity": one.entity, "attribute": one.attribute, "facts": [fact_form(fact) for fact in one.facts]}
            for one in found
        ]
        print_json(dict(listed("conflicts", forms)))
        return
    print_table(
        COLUMNS, [row(fact, now) for one in found for fact in one.facts], empty="all sources agree", flexible=FLEXIBLE
    )
    if found:
        print_message("settle one with: holdfast memory verify ID")
