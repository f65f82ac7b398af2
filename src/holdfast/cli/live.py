"""Live views: in a terminal a screen that is redrawn; otherwise one JSON document, or one page, after the other."""

from __future__ import annotations

import asyncio
import errno
import select
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast.cli.exits import SIGNALLED
from holdfast.cli.render.words import safe
from holdfast.cli.signals import StopSignals
from holdfast.cli.terminal import console, print_line, print_message, print_page
from holdfast.model.task import JsonValue
from holdfast.service.changes import View

T = TypeVar("T")


async def show_live(
    views: AsyncGenerator[View[T], None],
    render: Callable[[T], RenderableType],
    form: Callable[[T], JsonValue],
    *,
    as_json: bool,
    is_last: Callable[[T], bool] = lambda view: False,  # noqa: ARG005
    whole_screen: bool = False,
) -> None:
    """Show each view until ``is_last``, or until the user presses Ctrl-C; report when the store does not answer.

    Without a terminal, print only views with something new: pages, or with ``as_json`` lines of JSON.
    """
    async with aclosing(views):
        if as_json:
            async for view in _news(views, form, is_last):
                print_line(form(view))
        elif can_redraw(console()):
            with given_back_when_killed():
                await _draw(views, render, is_last, whole_screen=whole_screen)
        else:
            async for view in _news(views, form, is_last):
                print_page(render(view))
                typer.echo()


def can_redraw(screen: Console) -> bool:
    """Return whether a view can be redrawn there: only on a terminal that can move its cursor."""
    return screen.is_terminal and not screen.is_dumb_terminal


@contextmanager
def given_back_when_killed() -> Iterator[None]:
    """Clean up on SIGTERM and SIGHUP, so that the terminal gets its cursor and its screen back.

    It cancels, as Ctrl-C does, at the next await: a signal may come in the middle of taking the screen.
    """
    showing = asyncio.current_task()
    assert showing is not None  # noqa: S101 - commands are coroutines
    ended_by: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        ended_by.append(number)
        showing.cancel()

    with StopSignals(stop):
        try:
            yield
        except asyncio.CancelledError:
            if not ended_by:
                raise
            raise typer.Exit(SIGNALLED + ended_by[0]) from None


async def _draw(
    views: AsyncIterator[View[T]],
    render: Callable[[T], RenderableType],
    is_last: Callable[[T], bool],
    *,
    whole_screen: bool,
) -> None:
    with Live(console=console(), screen=whole_screen, auto_refresh=False, vertical_overflow="crop") as live:
        async for view in views:
            live.update(with_news_of_the_store(render(view.seen), view.away), refresh=True)
            if is_last(view.seen):
                return


def with_news_of_the_store(page: RenderableType, away: str | None) -> RenderableType:
    """Return the page; if the store does not answer, with a line above it that it is old."""
    if away is None:
        return page
    return Group(Text(safe(f"the store does not answer, this is its last answer: {away}"), "bold red"), page)


async def _news(
    views: AsyncIterator[View[T]], form: Callable[[T], JsonValue], is_last: Callable[[T], bool]
) -> AsyncIterator[T]:
    """Yield the views that differ from the one before by more than the time."""
    before: JsonValue = None
    was_away = False
    async for view in views:
        _check_for_reader()
        if view.away is not None and not was_away:
            print_message(f"the store does not answer, and is waited for: {view.away}")
        was_away = view.away is not None
        shown = _without_clocks(form(view.seen))
        if shown != before:
            yield view.seen
        if is_last(view.seen):
            return
        before = shown


def _check_for_reader() -> None:
    """Raise BrokenPipeError if stdout has no reader any more: where nothing changes, no write would find out."""
    if not hasattr(select, "poll"):  # Windows
        return
    poll = select.poll()
    try:
        poll.register(sys.stdout, 0)  # no event but the end of the reader, which poll always reports
    except (OSError, ValueError):  # not a file: another program runs the command within its own process
        return
    if any(seen & (select.POLLERR | select.POLLHUP) for _, seen in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "stdout has no reader any more")


def _without_clocks(form: JsonValue) -> JsonValue:
    """Leave out times that change although nothing happened; values that a task stored stay."""
    if not isinstance(form, dict):
        return form
    kept = {name: part for name, part in form.items() if name != "at"}
    if isinstance(kept.get("workers"), list):
        kept["workers"] = [_without_heartbeat(worker) for worker in kept["workers"]]
    if "worker" in kept:
        kept["worker"] = _without_heartbeat(kept["worker"])
    return kept


def _without_heartbeat(worker: JsonValue) -> JsonValue:
    return {name: part for name, part in worker.items() if name != "seen_at"} if isinstance(worker, dict) else worker
