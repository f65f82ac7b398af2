"""What a person sees while a task runs: its page, live; or a line for each thing that happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any

import typer
from rich.live import Live

from holdfast.cli.live import can_redraw, with_news_of_the_store
from holdfast.cli.render.overview import command_for, page
from holdfast.cli.render.steps import mark_of, step_name, visible
from holdfast.cli.render.words import safe
from holdfast.cli.terminal import words
from holdfast.model.errors import StoreBusy, StoreUnavailable
from holdfast.model.step import StepState
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Worker
from holdfast.service.following import View
from holdfast.service.overview import Overview
from holdfast.service.service import Service
from holdfast.service.situation import name_of

_BEGUN = frozenset({TaskState.PENDING, TaskState.RUNNING})
_TOLD_AT_THE_END = frozenset({TaskState.FAILED, TaskState.CANCELLED})
"""How a task ended that has no result is the error of the command, and would stand there twice."""
_BEFORE, _STEP, _AFTER = range(3)
"""What comes first of several things of one moment: a step and the move that it led to share a Commit."""


async def show_progress(service: Service, before: Overview, working: asyncio.Task[Any], *, quiet: bool) -> None:
    """Show, on stderr, how a task gets on from ``before``, until it has ended or ``working`` has.

    ``quiet`` leaves what it asks of people: it would wait for them without a word.
    """
    async with aclosing(_views(service, before.task.id, working)) as views:
        if can_redraw(words()) and not quiet:
            await _show_page(views)
        else:
            with suppress(BrokenPipeError):  # nobody listens any more, and the work goes on
                await _tell_news(views, before, tell=_advice if quiet else _lines)


async def _views(service: Service, task_id: str, working: asyncio.Task[Any]) -> AsyncGenerator[View[Overview], None]:
    """Follow a task until it has ended, or ``working`` has and was looked at since."""

    async def look() -> Overview:
        return await service.overview(task_id)

    async with aclosing(service.follow(look, task_id=task_id)) as views:
        async for view in views:
            yield view
            if view.seen.task.state.is_terminal:
                return
            if working.done():
                break
    # The view may be older than the end of the work: without another, how it ended would go untold.
    try:
        last = await look()
    except (StoreUnavailable, StoreBusy):
        return
    yield View(last)


async def _show_page(views: AsyncIterator[View[Overview]]) -> None:
    with Live(console=words(), auto_refresh=False, vertical_overflow="crop") as live:
        async for view in views:
            drawn = page(view.seen, height=words().height)
            live.update(with_news_of_the_store(drawn, view.away), refresh=True)


async def _tell_news(
    views: AsyncIterator[View[Overview]], before: Overview, *, tell: Callable[[Overview], list[tuple[str, str]]]
) -> None:
    told: set[str] = set()
    if before.task.started_at is not None and tell is _lines:
        told.update(key for key, _ in _lines(before))
        done = before.step_counts.get(StepState.COMPLETED, 0)
        steps = "1 step was" if done == 1 else f"{done} steps were"
        typer.echo(f"going on with task {before.task.id}: {steps} done before", err=True)
        if before.worker is not None:
            typer.echo(safe(_held(before.worker, before.at)), err=True)
    async for view in views:
        for key, line in tell(view.seen):
            if key not in told:
                told.add(key)
                typer.echo(safe(line), err=True)


def _held(worker: Worker, at: datetime) -> str:
    """Say for whom a task waits: a process that was killed holds it until its lease is over."""
    left = max(0.0, worker.lease - (at - worker.seen_at).total_seconds())
    return f"held by {name_of(worker)} until its lease is over: in about {left:.0f} s, unless it is alive and renews it"


def _lines(seen: Overview) -> list[tuple[str, str]]:
    """Return everything that can be told, in the order in which it happened, and by what it is known again."""
    moments = [
        (
            move.at,
            _BEFORE if move.to_state in _BEGUN else _AFTER,
            move.number,
            f"{move.to_state}: {' '.join(move.reason.split())}",
        )
        for move in seen.history
        if move.to_state not in _TOLD_AT_THE_END
    ]
    moments += [
        (step.finished_at, _STEP, step.position, f"  {mark_of(step)} {step_name(step)}")
        for step in visible(seen.steps)
        if step.finished_at is not None
    ]
    lines = [(f"{rank} {number} {line}", line) for _, rank, number, line in sorted(moments)]
    if seen.task.resting and seen.situation.why:  # it waits in this process, which is no move
        lines.append((f"waits {seen.situation.why}", f"waiting: {' '.join(seen.situation.why.split())}"))
    return lines + _advice(seen)


def _advice(seen: Overview) -> list[tuple[str, str]]:
    """Return what a person can do about a task that waits."""
    if seen.task.state is not TaskState.WAITING and not seen.task.resting:
        return []
    return [
        (f"{advice.verb} {advice.target}", f"  {command_for(advice)}    {advice.why}") for advice in seen.situation.next
    ]
