"""How facts look."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import typer

from holdfast.cli.render.words import safe, value
from holdfast.cli.terminal import print_json, print_table
from holdfast.cli.times import age
from holdfast.model.memory import effective_confidence, freshness
from holdfast.model.records import MemoryFact
from holdfast.service.forms import fact_form, listed
from holdfast.service.identify import short

COLUMNS = ("id", "entity", "attribute", "value", "sure", "source", "said")
FLEXIBLE = ("value", "entity", "attribute", "source")


def print_facts(facts: Sequence[MemoryFact], now: datetime, *, empty: str, as_json: bool) -> None:
    """Print facts in the order given, with the confidence that is left of each now."""
    if as_json:
        print_json(dict(listed("facts", [fact_form(fact) for fact in facts])))
    else:
        print_table(COLUMNS, [row(fact, now) for fact in facts], empty=empty, flexible=FLEXIBLE)


def print_fact(fact: MemoryFact, *, as_json: bool) -> None:
    """Print a fact that was just changed: only its id, unless as JSON."""
    if as_json:
        print_json(fact_form(fact))
    else:
        typer.echo(fact.id)


def row(fact: MemoryFact, now: datetime) -> list[str]:
    """Return the line of a fact."""
    return [
        short(fact.id),
        safe(fact.entity),
        safe(fact.attribute),
        safe(value(fact.value)),
        f"{effective_confidence(fact, now):.0%}",
        safe(fact.source),
        age(freshness(fact), now),
    ]


def sentence(fact: MemoryFact) -> str:
    """Return a fact in words."""
    return f"{safe(fact.entity)}: {safe(fact.attribute)}: {safe(value(fact.value))} (says {safe(fact.source)})"
