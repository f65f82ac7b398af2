"""``holdfast watch``: everything at a glance, as it changes."""

from __future__ import annotations

from rich.console import RenderableType

from holdfast.cli.filters import Queue
from holdfast.cli.live import show_live
from holdfast.cli.options import AsJsonLines, DatabaseUrl
from holdfast.cli.render.board import page
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import console
from holdfast.service.board import Board


@command
async def watch(*, queue: Queue = None, as_json: AsJsonLines = False, database_url: DatabaseUrl = None) -> None:
    """Watch everything: queues, workers, what runs, what waits for people, what failed. Ctrl-C ends it.

    Without a terminal, or with --json, whatever has changed is printed as it changes.
    """
    async with opened(database_url) as service:
        store = service.shown_url

        async def look() -> Board:
            return await service.board(queue=queue)

        def render(board: Board) -> RenderableType:
            return page(board, store=store, height=console().height if console().is_terminal else None)

        await show_live(service.follow(look), render, Board.to_json, as_json=as_json, whole_screen=True)
