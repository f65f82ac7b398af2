"""Arguments and options that several commands share, under the same names everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias, TypeVar

import typer

from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue
from holdfast.model.labels import check_labels
from holdfast.model.task import HANDOVER

T = TypeVar("T", str | None, list[str] | None)


def not_empty(option: typer.CallbackParam, given: T) -> T:
    """Refuse an empty value: it comes from a shell's variable that is not set, and would look like a missing option."""
    values: Sequence[str] = (given,) if isinstance(given, str) else given or ()
    if any(not one.strip() for one in values):
        raise InvalidValue(f"{option.opts[0]} is empty; give it a value, or leave it out")
    return given


Application: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:HOLDFAST",
        help="Where the application's Holdfast object is: my_module:hold, or my_module if it has only one. "
        "May be left out where holdfast.toml or HOLDFAST_APPLICATION names it.",
        show_default=False,
    ),
]

DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The store; by default HOLDFAST_DATABASE_URL, then holdfast.toml, then that of the application it names.",
        show_default=False,
        callback=not_empty,
    ),
]

OtherUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="Another store than the application names.",
        show_default=False,
        callback=not_empty,
    ),
]

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

AsJsonLines: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document for each change.")]

Watch: TypeAlias = Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show what changes.")]

Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

By: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Who does it; by default the setting `user`, then you.",
        show_default=False,
        callback=not_empty,
    ),
]

Note: TypeAlias = Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.", show_default=False)]

TaskId: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="TASK", help="Its id, or as many characters of its beginning or end as make it unique."),
]

OneTask: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="TASK",
        help="This task alone: its id, or a few characters of its beginning or end.",
        show_default=False,
    ),
]

NewestTask: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="TASK",
        help="Its id, or as many characters of its beginning or end as make it unique; by default the newest task.",
        show_default=False,
    ),
]

TaskIds: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="TASK", help="Ids, or a few characters of each.", show_default=False),
]

Labels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--label", "-l", metavar="NAME=VALUE", help="A label, to find it by; may be repeated.", show_default=False
    ),
]

LimitKeys: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="KEY",
        help="A key of a limit that it needs a place of, such as tenant:acme; may be repeated.",
        show_default=False,
    ),
]

Limit: TypeAlias = Annotated[int, typer.Option(min=1, max=10_000, help="How many to list at most.")]

AsText: TypeAlias = Annotated[
    bool, typer.Option("--text", help="Take it as text, also where it looks like JSON: 3 is then '3'.")
]

ReadOnly: TypeAlias = Annotated[bool, typer.Option("--read-only", help="Refuse every change.")]

Claim: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help=f"A task that agents outside may claim, beside {HANDOVER!r}; may be repeated.",
        show_default=False,
    ),
]


def read_labels(given: Sequence[str] | None) -> dict[str, str] | None:
    """Read ``--label tenant=acme --label kind=nightly``."""
    if not given:
        return None
    labels: dict[str, str] = {}
    for one in given:
        name, separator, value = one.partition("=")
        if not separator:
            raise InvalidValue(f"--label {one!r} has no value; write NAME=VALUE, as --label tenant=acme")
        if name in labels:
            raise InvalidValue(f"--label {name} is given twice; a label has one value")
        labels[name] = value
    check_labels(labels)
    return labels


def checked_claims(claim: list[str] | None) -> list[str]:
    """Return the names of the tasks that agents outside may claim."""
    return list(dict.fromkeys([HANDOVER, *(check_name("the task to claim", name) for name in claim or ())]))
