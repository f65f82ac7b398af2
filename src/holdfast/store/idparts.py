"""Ids by a few of their characters: where each kind of id stands, and which characters none has."""

from __future__ import annotations

from typing import Final

from holdfast.model.checks import check_member, check_text
from holdfast.model.errors import InvalidValue
from holdfast.model.queries import Noun

_PLACES: Final = {
    Noun.TASK: ("tasks", "id"),
    Noun.APPROVAL: ("approvals", "id"),
    Noun.EFFECT: ("effects", "effect_id"),
    Noun.WORKER: ("workers", "id"),
    Noun.FACT: ("facts", "id"),
}
"""The table and its column; the same in every schema, and each has an index that begins with the id."""


def check_part(noun: Noun, part: str) -> None:
    """Refuse what no id could begin or end with, and nothing, which all of them do."""
    check_member("the noun", noun, Noun)
    if not isinstance(part, str) or not part:
        raise InvalidValue(f"the part of an id is {part!r}; give at least one character of it")
    check_text("the part of an id", part)


def about(noun: Noun, sql: str) -> str:
    """Name the table and the column in a query about ids."""
    table, column = _PLACES[noun]
    return sql.replace("{table}", table).replace("{id}", column)
