"""Arguments and options that several commands of the group share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, TypeAlias

import typer

from holdfast.cli.options import not_empty
from holdfast.cli.times import read_span
from holdfast.service.service import HalfLife

Entity: TypeAlias = Annotated[
    str, typer.Argument(metavar="ENTITY", help="The person or thing it is about.", show_default=False)
]
Attribute: TypeAlias = Annotated[
    str, typer.Argument(metavar="ATTRIBUTE", help="Which property of it.", show_default=False)
]
FactId: TypeAlias = Annotated[
    str, typer.Argument(metavar="FACT", help="Its id; a few characters of its beginning or end will do.")
]
Confidence: TypeAlias = Annotated[float, typer.Option(min=0.0, max=1.0, help="How sure it is, from 0 to 1.")]
Source: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The source of the fact; by default the setting `user`, then you.",
        show_default=False,
        callback=not_empty,
    ),
]
HalfLifeSpan: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--half-life",
        metavar="SPAN",
        help="In which its confidence halves, by default 30d: 12h, 7d, seconds; or never.",
        show_default=False,
    ),
]


def read_half_life(given: str | None) -> HalfLife:
    """Read a half-life; without one the memory's default is used."""
    if given is None:
        return "default"
    if given.strip().lower() == "never":
        return None
    span: timedelta = read_span(given, what="--half-life")
    return span
