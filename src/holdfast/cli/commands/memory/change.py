"""``holdfast memory store``, ``relate``, ``verify`` and ``forget``."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.commands.memory.options import (
    Attribute,
    Confidence,
    Entity,
    FactId,
    HalfLifeSpan,
    Source,
    read_half_life,
)
from holdfast.cli.commands.memory.view import COLUMNS, FLEXIBLE, print_fact, row, sentence
from holdfast.cli.confirmation import ask
from holdfast.cli.json_input import read_value
from holdfast.cli.options import AsJson, AsText, By, DatabaseUrl, Yes
from holdfast.cli.store_session import command, opened, user
from holdfast.cli.terminal import print_json, print_message, table
from holdfast.service.forms import fact_form


@command
async def store(
    entity: Entity,
    attribute: Attribute,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON; or any text.", show_default=False)],
    *,
    as_text: AsText = False,
    confidence: Confidence = 1.0,
    source: Source = None,
    half_life: HalfLifeSpan = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Store a fact from a source, and print its id.

    Another value supersedes an earlier one of the same source, and is in conflict with values of other sources.
    """
    read, who, span = read_value(value, as_text=as_text), user(source), read_half_life(half_life)
    async with opened(database_url) as service:
        memory = service.memory
        fact = await memory.store(entity, attribute, read, confidence=confidence, source=who, half_life=span)
        contested = any(one.attribute == attribute for one in await memory.conflicts(entity))
    print_fact(fact, as_json=as_json)
    print_message(f"stored {sentence(fact)}")
    if contested:
        print_message("other sources say something else: see `holdfast memory conflicts`")


@command
async def relate(
    entity: Entity,
    relation: Annotated[str, typer.Argument(metavar="RELATION", help="Such as knows, depends on.", show_default=False)],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other entity.", show_default=False)],
    *,
    confidence: Confidence = 1.0,
    source: Source = None,
    half_life: HalfLifeSpan = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Store that an entity is related to another, and print the id of the fact."""
    who, span = user(source), read_half_life(half_life)
    async with opened(database_url) as service:
        fact = await service.memory.relate(entity, relation, other, confidence=confidence, source=who, half_life=span)
    print_fact(fact, as_json=as_json)
    print_message(f"stored {sentence(fact)}")


@command
async def verify(fact: FactId, *, by: By = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Vouch for a fact, and settle a conflict.

    Its age is reset, and all other facts about the same attribute are superseded.
    """
    who = user(by)
    async with opened(database_url) as service:
        verified = await service.memory.verify(await service.fact_id(fact), by=who)
    print_fact(verified, as_json=as_json)
    print_message(f"{who} vouches for {sentence(verified)}")


@command
async def forget(fact: FactId, *, yes: Yes = False, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Delete a fact for good. What it superseded stays superseded."""
    async with opened(database_url) as service:
        found, now = await service.fact(fact), await service.now()
        ask("This fact will be deleted for good.", table(COLUMNS, [row(found, now)], flexible=FLEXIBLE), yes=yes)
        await service.memory.forget(found.id)
    if as_json:
        print_json(fact_form(found))
    print_message(f"forgot {sentence(found)}")
