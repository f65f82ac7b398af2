"""What the stores share about facts: what is refused at the door, and in which words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

from holdfast.model.errors import Conflict, InvalidValue
from holdfast.model.memory import Subject
from holdfast.model.records import MemoryFact
from holdfast.store.checks import check_payload

SubjectKey: TypeAlias = tuple[str, str, str]
"""Entity, attribute, and the other entity of a relation; empty for any other fact."""

_MICROSECOND = timedelta(microseconds=1)


def subject_of(fact: MemoryFact | Subject) -> SubjectKey:
    """Return what a fact is about, in its stored form."""
    return fact.entity, fact.attribute, fact.other or ""


def check_facts(facts: Sequence[MemoryFact], seen: Subject | None) -> None:
    """Refuse what ``remember`` could not store as one change of one subject."""
    subjects = {subject_of(fact) for fact in facts}
    if seen is not None:
        subjects.add(subject_of(seen))
    if not facts or len(subjects) > 1:
        raise InvalidValue(f"remember takes facts of one subject, not of {len(subjects)}; make one call for each")
    if len({fact.id for fact in facts}) < len(facts):
        raise InvalidValue("two facts of one call have the same id; give each its own")
    for fact in facts:
        check_payload("value", fact.value)


def check_last_seen(fact: MemoryFact | None) -> None:
    """Refuse to go on behind a fact that no listing has shown: the store gives each one its date."""
    if fact is not None and fact.created_at is None:
        raise InvalidValue(f"fact {fact.id} has no created_at; pass the last fact of the page before")


def subject_changed(fact: MemoryFact) -> Conflict:
    """Return the error for a caller that was too late."""
    return Conflict(
        f"{fact.attribute} of {fact.entity} has changed since it was read; nothing was stored, read it again and decide"
    )


def foreign_fact(fact_id: str) -> InvalidValue:
    """Say that the id is taken by a fact about something else."""
    return InvalidValue(
        f"fact {fact_id} is about something else; nothing was stored, give the new fact an id of its own"
    )


def half_life_micros(fact: MemoryFact) -> int | None:
    """Return the stored form of a half-life."""
    return None if fact.half_life is None else fact.half_life // _MICROSECOND
