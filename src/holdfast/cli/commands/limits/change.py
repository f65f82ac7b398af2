"""``holdfast limits set``."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from holdfast.cli.options import AsJson, DatabaseUrl
from holdfast.cli.render.limit_list import limit_words
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message
from holdfast.cli.times import read_seconds
from holdfast.model.flow_limit import Limit
from holdfast.model.glyphs import show_text
from holdfast.service.forms import limit_form


@command
async def set_limit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The limit.", show_default=False)],
    *,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="How many tasks or steps with it may be at work at once.", show_default=False),
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, help="How many may begin in any time of --per.", show_default=False)
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="How many tokens the calls that begin in such a time may use.", show_default=False),
    ] = None,
    per: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="The time of --rate and --tokens: seconds, or 1m.", show_default=False),
    ] = None,
    burst: Annotated[int, typer.Option(min=0, help="How many more than --rate may begin in one such time.")] = 0,
    each: Annotated[bool, typer.Option("--each", help="It holds for each of its keys apart: NAME:KEY.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Set a limit for every process and worker. What is not given is not limited. It ends nothing that is at work."""
    limit = Limit(
        name=name,
        concurrency=concurrency,
        rate=rate,
        tokens=tokens,
        per=None if per is None else timedelta(seconds=read_seconds(per, what="--per")),
        burst=burst,
        each=each,
    )
    async with opened(database_url) as service:
        limit = await service.set_limit(limit)
    if as_json:
        print_json(limit_form(limit))
    print_message(f"limit {show_text(limit.name)}: {limit_words(limit)}")
