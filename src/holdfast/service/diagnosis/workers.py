"""Whether the work gets done: there are workers for it, and no request waits too long for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.model.pause import QUEUE, pause_of
from holdfast.model.task import HANDOVER, MANUAL, Task
from holdfast.model.worker import ALONE_AFTER, Worker, WorkerState
from holdfast.service.diagnosis.evidence import A_DAY, Inside, is_agent
from holdfast.service.diagnosis.finding import APPLICATION, Finding, Level
from holdfast.service.identify import short
from holdfast.service.limits import about_use


def check_workers(seen: Inside) -> Iterator[Finding]:
    """Report who works, and who was silent for longer than its lease while no worker takes its tasks back."""
    at_work = seen.at_work
    if at_work:
        yield Finding("workers", Level.OK, f"{counted(len(at_work), 'worker')} at work: {_labels(at_work)}")
    for worker in seen.workers:
        if seen.is_silent(worker):
            yield _silent(seen, worker)


def _silent(seen: Inside, worker: Worker) -> Finding:
    held = seen.held_by_silent.get(worker.id, 0)
    silence = (seen.now - worker.seen_at).total_seconds()
    who = "agent " if is_agent(worker) else ""
    words = (
        f"{who}{worker.label} ({short(worker.id)}) was last heard of {silence:,.0f} s ago, with a lease of "
        f"{worker.lease:g} s, and holds {counted(held, 'task')}"
    )
    if is_agent(worker):  # no worker may have its task
        remedy = "the next agent that claims takes its task over; set one up: holdfast mcp --print-config"
        return Finding("leases", Level.WARNING if held else Level.NOTE, words, remedy)
    if seen.at_work or not held:
        remedy = "the next worker that looks for tasks clears it; see it go: holdfast workers"
        return Finding("leases", Level.NOTE, words, remedy)
    remedy = f"start one, which takes over: holdfast worker {APPLICATION}"
    return Finding("leases", Level.ERROR, f"{words}; no other worker is there to take over", remedy)


def check_queues(seen: Inside) -> Iterator[Finding]:
    """Find ready tasks that no live worker will take, because of their queue or their name."""
    served = {str(queue) for worker in seen.at_work for queue in worker.details.get("queues", ())}
    others = Counter(seen.outside) + Counter(seen.by_hand)
    ready = {queue.name: queue.ready - others[queue.name] for queue in seen.queues}
    paused = {pause.subject for pause in seen.pauses}
    open_queues = {name: count for name, count in ready.items() if f"{QUEUE}:{name}" not in paused}
    left = {name: count for name, count in open_queues.items() if count > 0 and name not in served}
    ours = [
        task
        for task in seen.pending
        if task.name not in {HANDOVER, MANUAL}
        and pause_of(seen.pauses, task_id=task.id, name=task.name, queue=task.queue) is None
    ]
    if left:
        yield Finding(
            "queues",
            Level.WARNING,
            f"{counted(sum(left.values()), 'task')} ready in {_listed(left)}, which no worker serves",
            f"holdfast worker {APPLICATION} --queues {','.join(left)}",
            frozenset(task.name for task in ours if task.queue in left),
        )
    in_served = [task for task in ours if task.queue in served]
    strange = Counter(task.name for task in in_served if not _is_known(task, seen.at_work))
    if strange:
        yield Finding(
            "queues",
            Level.WARNING,
            f"{counted(strange.total(), 'pending task', at_least='pending' in seen.cut)} of a name that no worker of "
            f"their queue knows: {_listed(strange)}",
            f"start a worker whose application defines them: holdfast worker {APPLICATION}",
            frozenset(strange),
        )
    if seen.outside:
        tasks = counted(sum(seen.outside.values()), "task")
        words = f"{tasks} for agents outside, which claim over MCP: {_listed(seen.outside)}"
        yield Finding("queues", Level.NOTE, words, "set an agent up to claim: holdfast mcp --print-config")
    if seen.by_hand:
        words = f"{counted(sum(seen.by_hand.values()), 'task')} saved by hand, which no worker claims"
        yield Finding("queues", Level.NOTE, words, f"see which: holdfast list --name {MANUAL}")
    if not left and not strange:
        count = sum(amount for amount in open_queues.values() if amount > 0)
        looked_at = f", as far as the {len(seen.pending):,} oldest tell" if "pending" in seen.cut else ""
        yield Finding(
            "queues",
            Level.OK,
            f"{counted(count, 'task')} ready, each with a worker to take it{looked_at}"
            if count
            else "no task waits for a worker",
        )


def check_pauses(seen: Inside) -> Iterator[Finding]:
    """Name what is paused: a pause is easily forgotten."""
    if not seen.pauses:
        return
    most = 3
    oldest_first = sorted(seen.pauses, key=lambda pause: pause.at)
    shown = [
        f"{pause.subject} (by {pause.by}, for {(seen.now - pause.at).total_seconds() / 3600:,.1f} h)"
        for pause in oldest_first[:most]
    ]
    more = f" and {len(oldest_first) - most:,} more" if len(oldest_first) > most else ""
    is_old = seen.now - oldest_first[0].at > A_DAY
    yield Finding(
        "pauses",
        Level.WARNING if is_old else Level.NOTE,
        f"paused: {', '.join(shown)}{more}; nothing new of it begins",
        f"let it go on: holdfast unpause {oldest_first[0].subject}",
    )


def check_full_queues(seen: Inside) -> Iterator[Finding]:
    """Name the queues that refuse submissions."""
    full = [settings for settings in seen.queue_settings if settings.is_full]
    if full:
        yield Finding(
            "full queues",
            Level.WARNING,
            "submissions are refused, because a queue is full: "
            + ", ".join(f"{queue.name} ({queue.pending:,} of {queue.max_pending:,})" for queue in full),
            f"start more workers, or raise the limit: holdfast queue {full[0].name} --max-pending NUMBER",
        )


def check_limits(seen: Inside) -> Iterator[Finding]:
    """Name the keys of limits that work waits for, and why each of them has no place."""
    waiting = sorted((use for use in seen.limits if use.waiting), key=lambda use: -use.waiting)
    if not waiting:
        return
    most = 3
    shown = []
    for use in waiting[:most]:
        why, _ = about_use(use.key, use, seen.pauses, seen.now)
        shown.append(f"{use.key} ({use.waiting:,} wait{f'; {why}' if why else ''})")
    more = f" and {len(waiting) - most:,} more" if len(waiting) > most else ""
    yield Finding(
        "limits",
        Level.NOTE,
        f"tasks or steps wait for limits: {', '.join(shown)}{more}",
        f"see all of them: holdfast limits; to allow more: holdfast limits set {waiting[0].limit.name} ...",
    )


def check_owners(seen: Inside) -> Iterator[Finding]:
    """Find running tasks that no living worker holds."""
    alive = {worker.id for worker in seen.workers}
    lost = [task for task in seen.running if task.owner not in alive]
    if lost:
        yield Finding(
            "owners",
            Level.NOTE if seen.at_work else Level.ERROR,
            f"{counted(len(lost), 'running task', at_least='running' in seen.cut)} without a living worker: "
            f"{_ids(lost)}",
            f"a worker takes them back when it looks for tasks: holdfast worker {APPLICATION}",
        )


def check_suspects(seen: Inside) -> Iterator[Finding]:
    """Name the tasks that keep killing their workers."""
    suspects = [task for task in (*seen.pending, *seen.running) if task.deaths >= ALONE_AFTER]
    if suspects:
        remedy = f"see what it does to its worker: holdfast show {short(suspects[0].id)}"
        count = counted(len(suspects), "task", at_least=bool({"pending", "running"} & set(seen.cut)))
        words = f"{count} whose workers died {ALONE_AFTER} times or more: {_ids(suspects)}"
        yield Finding("suspects", Level.WARNING, f"{words}; each runs alone from now on", remedy)
    if seen.poisoned:
        yield Finding(
            "poison",
            Level.WARNING,
            f"{counted(seen.poisoned, 'task', at_least='failed' in seen.cut)} set aside as poison: workers died of "
            "them, or their code does not let itself be stopped",
            "holdfast list --state failed, then `holdfast show`, and `holdfast resume` once it is fixed",
        )


def check_failed(seen: Inside) -> Iterator[Finding]:
    """Count what failed lately."""
    if seen.failed_today:
        words = f"{counted(seen.failed_today, 'task')} failed within the last day"
        yield Finding("failed", Level.NOTE, words, "see why: holdfast list --state failed, then `holdfast show`")


def check_schedules(seen: Inside) -> Iterator[Finding]:
    """Find schedules that fire nothing, and those that no worker is there to fire."""
    firing = 0
    for one in seen.schedules:
        if one.trouble is not None:
            words = f"schedule {one.name} cannot be fired from this machine: {one.trouble}"
            yield Finding("schedules", Level.ERROR, words, "see all of them: holdfast schedules")
        elif one.is_gone:
            words = f"schedule {one.name} fires nothing: it is declared in code, and no living worker declares it"
            remedy = f"start a worker that does: holdfast worker {APPLICATION}; or holdfast schedules delete {one.name}"
            yield Finding("schedules", Level.WARNING, words, remedy)
        elif one.paused_at is not None:
            words = f"schedule {one.name} is paused since {one.paused_at.isoformat(timespec='seconds')}"
            yield Finding("schedules", Level.NOTE, words, f"holdfast unpause schedule:{one.name}")
        else:
            firing += 1
    if firing and not seen.at_work:
        words = f"no worker is at work, so {counted(firing, 'schedule')} cannot fire"
        yield Finding("schedules", Level.WARNING, words, f"start one: holdfast worker {APPLICATION}")
    elif firing:
        yield Finding("schedules", Level.OK, f"{counted(firing, 'schedule')} ready to fire")


def check_approvals(seen: Inside) -> Iterator[Finding]:
    """Find requests that were open for too long."""
    ages = [seen.now - approval.created_at for approval in seen.approvals if approval.created_at is not None]
    old = [age for age in ages if age > A_DAY]
    if old:
        count = counted(len(old), "request", at_least="approvals" in seen.cut)
        words = f"{count} open for more than a day, the oldest for {max(old) / A_DAY:.1f} days"
        yield Finding("approvals", Level.WARNING, words, "holdfast approvals")
    elif seen.approvals:
        count = counted(len(seen.approvals), "request", at_least="approvals" in seen.cut)
        words = f"{count} open, none for longer than a day"
        yield Finding("approvals", Level.NOTE, words, "holdfast approvals")


def check_doubts(seen: Inside) -> Iterator[Finding]:
    """Find effects whose outcome only a person can find out."""
    undecided = [doubt for doubt in seen.doubts if doubt.decisions]
    if undecided:
        count = counted(len(undecided), "effect", at_least="doubts" in seen.cut)
        words = f"{count} in doubt: whether it happened is not known, and its task waits"
        yield Finding("doubts", Level.WARNING, words, "find out, then decide: holdfast doubts, holdfast resolve")


def counted(number: int, noun: str, *, at_least: bool = False) -> str:
    """Return a number with its noun; ``at_least`` where not all were looked at."""
    count = f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
    return f"at least {count}" if at_least else count


def _is_known(task: Task, workers: list[Worker]) -> bool:
    return any(
        task.queue in worker.details.get("queues", ()) and task.name in worker.details.get("tasks", (task.name,))
        for worker in workers
        if worker.state is WorkerState.LIVE
    )


def _labels(workers: list[Worker]) -> str:
    return ", ".join(
        f"{label} ({number})" if number > 1 else label
        for label, number in Counter(worker.label for worker in workers).items()
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items()))


def _ids(tasks: list[Task]) -> str:
    most = 3
    more = f" and {len(tasks) - most} more" if len(tasks) > most else ""
    return ", ".join(short(task.id) for task in tasks[:most]) + more
