"""Live views: a screen that renews itself in a terminal; one JSON document, or one page, after the other elsewhere."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from types import FrameType
from typing import TypeVar

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from holdfast.cli.exits import SIGNALLED
from holdfast.cli.terminal import console, print_line, print_page
from holdfast.model.task import JsonValue

T = TypeVar("T")

_CLOCKS = frozenset({"at", "seen_at"})
"""What differs from one look to the next without anything having happened."""


async def show_live(
    views: AsyncGenerator[T, None],
    render: Callable[[T], RenderableType],
    form: Callable[[T], JsonValue],
    *,
    as_json: bool,
    is_last: Callable[[T], bool] = lambda view: False,  # noqa: ARG005
    whole_screen: bool = False,
) -> None:
    """Show each view until ``is_last``, or until somebody presses Ctrl-C.

    Where no person looks on, print those that tell something new: pages, or with ``as_json`` lines of JSON.
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
    """Say whether a view can renew itself there: on a terminal that knows how to move its cursor."""
    return screen.is_terminal and not screen.is_dumb_terminal


@contextmanager
def given_back_when_killed() -> Iterator[None]:
    """Leave in good order on SIGTERM and SIGHUP: whoever has the terminal next wants its cursor and its screen back."""
    numbers = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if name in signal.Signals.__members__]
    before = {number: signal.signal(number, _leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(SIGNALLED + number)


async def _draw(
    views: AsyncIterator[T],
    render: Callable[[T], RenderableType],
    is_last: Callable[[T], bool],
    *,
    whole_screen: bool,
) -> None:
    with Live(console=console(), screen=whole_screen, auto_refresh=False, vertical_overflow="crop") as live:
        async for view in views:
            live.update(render(view), refresh=True)
            if is_last(view):
                return


async def _news(
    views: AsyncIterator[T], form: Callable[[T], JsonValue], is_last: Callable[[T], bool]
) -> AsyncIterator[T]:
    """Yield the views that differ from the one before by more than the time."""
    before: JsonValue = None
    async for view in views:
        told = _without_clocks(form(view))
        if told != before:
            yield view
        if is_last(view):
            return
        before = told


def _without_clocks(form: JsonValue) -> JsonValue:
    if not isinstance(form, dict):
        return form
    return {
        name: [_without_clocks(one) for one in part] if isinstance(part, list) else _without_clocks(part)
        for name, part in form.items()
        if name not in _CLOCKS
    }
