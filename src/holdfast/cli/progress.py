"""What a person sees while a task runs: its live page, or a line for each event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from datetime import datetime
from itertools import pairwise
from typing import Any

import typer
from rich.live import Live

from holdfast.cli.live import can_redraw, with_news_of_the_store
from holdfast.cli.render.overview import command_for, page
from holdfast.cli.render.steps import mark_of, step_name, visible
from holdfast.cli.render.words import counted_down, safe
from holdfast.cli.terminal import words
from holdfast.cli.times import span
from holdfast.model.canonical import parse
from holdfast.model.errors import StoreBusy, StoreUnavailable
from holdfast.model.failure import Failure, Try
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Worker
from holdfast.service.changes import View
from holdfast.service.next_events import is_retried
from holdfast.service.overview import Overview
from holdfast.service.service import Service
from holdfast.service.situation import current_steps, name_of

_BEGUN = frozenset({TaskState.PENDING, TaskState.RUNNING})
_SHOWN_AS_ERROR = frozenset({TaskState.FAILED, TaskState.CANCELLED})
"""For these the command ends with the error; a line of progress would repeat it."""
_LONG = (10, 60, 300, 1800, 7200)
"""Seconds after which a step that is still under way gets a line: silence would look like a hang."""
_BEFORE, _STEP, _AFTER = range(3)
"""The order of events with the same time: a step and the move that it led to share a Commit."""


async def show_progress(service: Service, before: Overview, working: asyncio.Task[Any], *, quiet: bool) -> None:
    """Show, on stderr, how a task gets on from ``before``, until it has ended or ``working`` has.

    ``quiet`` prints only what the task asks of people: without that it would wait in silence.
    """
    async with aclosing(_views(service, before.task.id, working)) as views:
        if can_redraw(words()) and not quiet:
            await _show_page(views)
        else:
            with suppress(BrokenPipeError):  # the reader is gone, and the work goes on
                await _print_news(views, before, lines_of=_advice if quiet else _lines)


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
    # The view may be older than the end of the work: without another one, the end would not be shown.
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


async def _print_news(
    views: AsyncIterator[View[Overview]], before: Overview, *, lines_of: Callable[[Overview], list[tuple[str, str]]]
) -> None:
    printed: set[str] = set()
    if before.task.started_at is not None and lines_of is _lines:
        printed.update(key for key, _ in _lines(before))
        done = before.step_counts.get(StepState.COMPLETED, 0)
        steps = "1 step was" if done == 1 else f"{done} steps were"
        typer.echo(f"going on with task {before.task.id}: {steps} done before", err=True)
        if before.worker is not None:
            typer.echo(safe(_held(before.worker, before.at)), err=True)
        if before.task.state is TaskState.WAITING or any(map(is_retried, current_steps(visible(before.steps)))):
            typer.echo(safe(f"  {' '.join(before.situation.why.split())}"), err=True)
            for _, line in [*_upcoming(before), *_advice(before)]:
                typer.echo(safe(line), err=True)
    async for view in views:
        for key, line in lines_of(view.seen):
            if key not in printed:
                printed.add(key)
                typer.echo(safe(line), err=True)


def _held(worker: Worker, at: datetime) -> str:
    """Return which worker a task waits for: a killed process holds it until its lease is over."""
    left = max(0.0, worker.lease - (at - worker.seen_at).total_seconds())
    return f"held by {name_of(worker)} until its lease is over: in about {left:.0f} s, unless it is alive and renews it"


def _lines(seen: Overview) -> list[tuple[str, str]]:
    """Return every line there is to print, in the order of events, each with a key that identifies it."""
    moments = [
        (
            move.at,
            _BEFORE if move.to_state in _BEGUN else _AFTER,
            move.number,
            f"{move.to_state}: {' '.join(move.reason.split())}",
        )
        for move in seen.history
        if move.to_state not in _SHOWN_AS_ERROR
    ]
    moments += [
        (step.finished_at, _STEP, step.position, f"  {mark_of(step)} {step_name(step)}")
        for step in visible(seen.steps)
        if step.finished_at is not None
    ]
    tries = {
        (one.at, _STEP, step.position, f"try {one.number}"): _try(step, one, before)
        for step in visible(seen.steps)
        for before, one in pairwise((None, *_failed_tries(step)))
        if one is not None
    }
    lines = []
    for moment in sorted([*moments, *tries]):
        at, rank, number, line = moment
        # A try is identified by its time: its line changes, because only the last one shows when the next comes.
        key = f"{rank} {number} {line}" if moment not in tries else f"{line} {number} {at}"
        lines.append((key, tries.get(moment, line)))
    if seen.task.resting and seen.situation.why and not _only_retries(seen):  # it waits in this process, without a move
        lines.append((f"waits {seen.situation.why}", f"waiting: {' '.join(seen.situation.why.split())}"))
        lines += _upcoming(seen)
    return lines + _long_under_way(seen) + _advice(seen)


def _upcoming(seen: Overview) -> list[tuple[str, str]]:
    """Return what happens by itself, with the time that is left."""
    then = [one for one in seen.situation.then if one.at > seen.at]
    return [(f"then {one.what} {one.at}", f"  then: {counted_down(one, seen.at)}") for one in then]


def _failed_tries(step: Step) -> tuple[Try, ...]:
    """Return the tries of a step that another one follows: the last one of a failed step is the step's end."""
    if step.error is None or step.undone_at is not None:
        return ()
    tries = Failure.from_json(parse(step.error)).tries
    return tries[:-1] if step.state is StepState.FAILED else tries


def _try(step: Step, one: Try, before: Try | None) -> str:
    """Return how a try ended; for the last one, also when the next comes."""
    is_same = before is not None and before.message == one.message
    what = "the same" if is_same else " ".join(f"{one.type_name.rpartition('.')[2]}: {one.message}".split())
    is_last = step.retry_at is not None and step.retry_at > one.at
    again = f"; again in {span((step.retry_at - one.at).total_seconds())}" if is_last and step.retry_at else ""
    return f"  ✗ {step_name(step)}, try {one.number}: {what}{again}"


def _only_retries(seen: Overview) -> bool:
    """Return whether it waits only for further tries, which have lines of their own."""
    in_doubt = {doubt.effect.effect_id for doubt in seen.doubts}
    steps = current_steps(visible(seen.steps))
    return bool(steps) and all(is_retried(step) and step.effect_id not in in_doubt for step in steps)


def _long_under_way(seen: Overview) -> list[tuple[str, str]]:
    """Return a line for each step that has taken long, again and again as it takes longer."""
    lines: list[tuple[str, str]] = []
    for step in current_steps(visible(seen.steps)):
        if step.state is not StepState.RUNNING or step.started_at is None:
            continue
        taken = (seen.at - step.started_at).total_seconds()
        passed = max((limit for limit in _LONG if taken >= limit), default=None)
        if passed is not None:
            name = step_name(step)
            lines.append(
                (f"long {name} {step.started_at} {passed}", f"  ▶ {name} has been under way for {span(taken)}")
            )
    return lines


def _advice(seen: Overview) -> list[tuple[str, str]]:
    """Return what a person can do about a task that waits."""
    if seen.task.state is not TaskState.WAITING and not seen.task.resting:
        return []
    return [
        (f"{advice.verb} {advice.target}", f"  {command_for(advice)}    {advice.why}") for advice in seen.situation.next
    ]
