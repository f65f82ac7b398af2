"""Whether there is somebody to do the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.model.task import HANDOVER, Task
from holdfast.model.worker import ALONE_AFTER, Worker, WorkerState
from holdfast.service.diagnosis.evidence import Inside
from holdfast.service.diagnosis.finding import APPLICATION, Finding, Level
from holdfast.service.identify import short


def check_workers(seen: Inside) -> Iterator[Finding]:
    """Say who works, and who was silent beyond its lease while nobody takes its tasks back."""
    at_work = seen.at_work
    if at_work:
        yield Finding("workers", Level.OK, f"{counted(len(at_work), 'worker')} at work: {_labels(at_work)}")
    for worker in seen.workers:
        if not seen.is_silent(worker):
            continue
        held = seen.held_by_silent.get(worker.id, 0)
        silence = (seen.now - worker.seen_at).total_seconds()
        words = (
            f"{worker.label} ({short(worker.id)}) was last heard of {silence:,.0f} s ago, with a lease of "
            f"{worker.lease:g} s, and holds {counted(held, 'task')}"
        )
        if at_work or not held:
            yield Finding(
                "leases", Level.NOTE, words, "the next worker that looks for tasks clears it: holdfast workers"
            )
        else:
            remedy = f"start one, which takes over: holdfast worker {APPLICATION}"
            yield Finding("leases", Level.ERROR, f"{words}; no other worker is there to take over", remedy)


def check_queues(seen: Inside) -> Iterator[Finding]:
    """Find tasks that are ready, and that no live worker will take: of its queue, or of its name."""
    served = {str(queue) for worker in seen.at_work for queue in worker.details.get("queues", ())}
    outside = Counter(task.queue for task in seen.pending if task.name == HANDOVER)
    ready = {queue.name: queue.ready - outside[queue.name] for queue in seen.queues}
    left = {name: count for name, count in ready.items() if count > 0 and name not in served}
    if left:
        yield Finding(
            "queues",
            Level.WARNING,
            f"{counted(sum(left.values()), 'task')} ready in {_listed(left)}, which no worker serves",
            f"holdfast worker {APPLICATION} --queues {','.join(left)}",
        )
    ours = [task for task in seen.pending if task.name != HANDOVER and task.queue in served]
    strange = Counter(task.name for task in ours if not _is_known(task, seen.at_work))
    if strange:
        yield Finding(
            "queues",
            Level.WARNING,
            f"{counted(strange.total(), 'pending task')} of a name that no worker of their queue knows: "
            f"{_listed(strange)}",
            f"start a worker whose application defines them: holdfast worker {APPLICATION}",
        )
    if outside:
        words = f"{counted(outside.total(), 'task')} for agents outside, which claim over MCP: {_listed(outside)}"
        yield Finding("queues", Level.NOTE, words, "set an agent up to claim: holdfast mcp --print-config")
    if not left and not strange:
        count = sum(amount for amount in ready.values() if amount > 0)
        yield Finding(
            "queues",
            Level.OK,
            f"{counted(count, 'task')} ready, each with a worker to take it" if count else "no task waits for a worker",
        )


def check_owners(seen: Inside) -> Iterator[Finding]:
    """Find running tasks that nobody who is alive holds."""
    alive = {worker.id for worker in seen.workers}
    lost = [task for task in seen.running if task.owner not in alive]
    if lost:
        yield Finding(
            "owners",
            Level.NOTE if seen.at_work else Level.ERROR,
            f"{counted(len(lost), 'running task')} without a living worker: {_ids(lost)}",
            f"a worker takes them back when it looks for tasks: holdfast worker {APPLICATION}",
        )


def check_suspects(seen: Inside) -> Iterator[Finding]:
    """Name the tasks that keep killing their workers."""
    suspects = [task for task in (*seen.pending, *seen.running) if task.deaths >= ALONE_AFTER]
    if suspects:
        remedy = f"see what it does to its worker: holdfast show {short(suspects[0].id)}"
        words = f"{counted(len(suspects), 'task')} whose workers died {ALONE_AFTER} times or more: {_ids(suspects)}"
        yield Finding("suspects", Level.WARNING, f"{words}; each runs alone from now on", remedy)
    if seen.poisoned:
        yield Finding(
            "poison",
            Level.WARNING,
            f"{counted(seen.poisoned, 'task')} set aside as poison: workers died of them, or their code does not let "
            "itself be stopped",
            "holdfast list --state failed, then `holdfast show`, and `holdfast retry` once it is mended",
        )


def check_failed(seen: Inside) -> Iterator[Finding]:
    """Count what failed lately."""
    if seen.failed_today:
        words = f"{counted(seen.failed_today, 'task')} failed within the last day"
        yield Finding("failed", Level.NOTE, words, "holdfast list --state failed")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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
