"""``holdfast memory export`` and ``import``: everything as one JSON document, and back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import AsJson, DatabaseUrl
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message
from holdfast.model.canonical import parse
from holdfast.model.errors import InvalidValue
from holdfast.model.limits import Limits
from holdfast.model.task import JsonValue

_AROUND_A_VALUE = 3
"""Levels of the document: itself, its facts, and each of them."""


@command
async def export(*, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Print all facts as one JSON document, superseded ones included."""
    del as_json  # the output is JSON in any case
    async with opened(database_url) as service:
        document = await service.memory.export()
    print_json(document)


@command
async def import_facts(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What export has printed; - reads stdin.", show_default=False)
    ],
    *,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Import the facts of an exported document.

    Facts that are known stay as they are, so it can be repeated.
    """
    document = _read(file)
    async with opened(database_url) as service:
        try:
            new = await service.memory.import_(document)
        except InvalidValue as error:
            raise InvalidValue(f"{file} is not what `holdfast memory export` prints: {error}") from error
    if as_json:
        print_json({"new": new})
    print_message(f"{new} {'fact is' if new == 1 else 'facts are'} new here")


def _read(file: str) -> JsonValue:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}; name a file, or - for stdin") from None
    # Of any size: the limits hold for each fact, not for the whole document.
    return parse(data, limits=Limits(max_bytes=sys.maxsize), name=file, wrapping=_AROUND_A_VALUE)
