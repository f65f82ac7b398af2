"""What a person sees while a task runs: its page, live; or a line for each thing that happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, suppress
from typing import Any

import typer
from rich.live import Live

from holdfast.cli.live import can_redraw
from holdfast.cli.render.overview import command_for, page
from holdfast.cli.render.steps import mark_of, step_name, visible
from holdfast.cli.render.words import safe
from holdfast.cli.terminal import words
from holdfast.model.step import StepState
from holdfast.model.transitions import TaskState
from holdfast.service.overview import Overview
from holdfast.service.service import Service

_BEGUN = frozenset({TaskState.PENDING, TaskState.RUNNING})
_BEFORE, _STEP, _AFTER = range(3)
"""What comes first of several things of one moment: a step and the move that it led to share a Commit."""


async def show_progress(service: Service, before: Overview, working: asyncio.Task[Any]) -> None:
    """Show, on stderr, how a task gets on from ``before``, until it has ended or ``working`` has."""
    task_id = before.task.id

    async def look() -> Overview:
        return await service.overview(task_id)

    async with aclosing(service.follow(look, task_id=task_id)) as views:
        if can_redraw(words()):
            await _show_page(views, working)
        else:
            with suppress(BrokenPipeError):  # nobody listens any more, and the work goes on
                await _tell_news(views, before, working)


async def _show_page(views: AsyncIterator[Overview], working: asyncio.Task[Any]) -> None:
    with Live(console=words(), auto_refresh=False, vertical_overflow="crop") as live:
        async for seen in views:
            live.update(page(seen, height=words().height), refresh=True)
            if working.done() or seen.task.state.is_terminal:
                return


async def _tell_news(views: AsyncIterator[Overview], before: Overview, working: asyncio.Task[Any]) -> None:
    told: set[str] = set()
    if before.task.started_at is not None:
        told.update(key for key, _ in _lines(before))
        done = before.step_counts.get(StepState.COMPLETED, 0)
        typer.echo(f"going on with task {before.task.id}: {done} steps were done before", err=True)
    async for seen in views:
        for line in _news(seen, told):
            typer.echo(line, err=True)
        if working.done() or seen.task.state.is_terminal:
            return


def _news(seen: Overview, told: set[str]) -> Iterator[str]:
    """Return a line for everything that was not told yet."""
    for key, line in _lines(seen):
        if key not in told:
            told.add(key)
            yield safe(" ".join(line.split()) if line.strip() == line else line)


def _lines(seen: Overview) -> list[tuple[str, str]]:
    """Return everything that can be told, in the order in which it happened, and by what it is known again."""
    moments = [
        (move.at, _BEFORE if move.to_state in _BEGUN else _AFTER, move.number, f"{move.to_state}: {move.reason}")
        for move in seen.history
    ]
    moments += [
        (step.finished_at, _STEP, step.position, f"  {mark_of(step)} {step_name(step)}")
        for step in visible(seen.steps)
        if step.finished_at is not None
    ]
    lines = [(f"{rank} {number} {line}", line) for _, rank, number, line in sorted(moments)]
    if seen.task.state is TaskState.WAITING:
        lines += [
            (f"{advice.verb} {advice.target}", f"  {command_for(advice)}    {advice.why}")
            for advice in seen.situation.next
        ]
    return lines
