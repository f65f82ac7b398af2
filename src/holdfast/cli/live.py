"""Live views: a screen that renews itself in a terminal; one JSON document, or one page, after the other elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

import typer
from rich.console import RenderableType
from rich.live import Live

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
        elif console().is_terminal:
            with Live(console=console(), screen=whole_screen, auto_refresh=False, vertical_overflow="crop") as live:
                async for view in views:
                    live.update(render(view), refresh=True)
                    if is_last(view):
                        return
        else:
            async for view in _news(views, form, is_last):
                print_page(render(view))
                typer.echo()


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
