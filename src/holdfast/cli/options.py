"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Application: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:HOLDFAST",
        help="Where the application's Holdfast object is: my_module:hold, or my_module if it has only one.",
        show_default=False,
    ),
]

DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Another store than the application names.", show_default=False),
]
