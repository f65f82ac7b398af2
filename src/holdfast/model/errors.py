"""Every error Holdfast raises on purpose.

    HoldfastError
    ├── InvalidValue (ValueError)     the input was rejected; nothing changed
    │   ├── CodecError                a value that cannot be stored, with its path
    │   ├── InvalidURL                a store URL that cannot be opened
    │   └── DuplicateName             a second task, state or step under a name that is taken
    ├── NotFound (LookupError)        no such task, worker, approval, artifact ...
    ├── Conflict                      the stored state is not the one the caller assumed
    │   ├── IllegalMove               the transition table does not allow it
    │   ├── KeyConflict               same idempotency key, other input
    │   ├── TaskExists                same idempotency key, and a new task was asked for
    │   ├── LeaseHeld                 another worker is working on the task
    │   ├── LeaseLost                 the caller's lease is over; its fence is stale
    │   ├── NoPlace                   the task's queue, or one of its limits, has no place for it now
    │   ├── StateConflict             the AgentState was changed meanwhile; the error carries the new one
    │   └── WorkerDead                the worker was declared dead; dead is final
    ├── BudgetExceeded                the reservation does not fit into what is left
    ├── CursorLost                    the feed has no such place any more, or never had
    ├── QueueFull                     the queue has as many pending tasks as it may have
    ├── CheckpointExpired             the agent's knowledge is older than its policy allows
    ├── AgentStuck                    the agent repeats itself, or its model no longer makes valid calls
    ├── StepFailed                    a step gave up; raised live and on replay
    ├── NotHappened                   raised by an effect's own code: proof that nothing happened
    ├── EffectGivenUp                 a person decided that a doubtful effect is undone or abandoned
    ├── Rejected                      a person rejected it, or it expired
    ├── TaskFailed                    the awaited task gave up
    ├── TaskCancelled                 the awaited task was stopped
    ├── DeadlineExceeded (TimeoutError)   a task, a step or a wait was not over in time
    ├── JournalMismatch               the code no longer fits what the journal recorded
    ├── StoreError                    a problem of the database, not of the caller
    │   ├── StoreUnavailable          unreachable, or the connection was lost
    │   │   └── RowDamaged            some stored rows cannot be read or written; others can
    │   ├── StoreBusy                 another process holds the store
    │   ├── StoreDamaged              the data is not what was written
    │   ├── NotAStore                 the file or directory is something else
    │   ├── ReadOnlyStore             it can be read but not written
    │   ├── StoreReplaced             the path now holds another store than the one opened
    │   ├── SchemaMismatch            the schema is older or newer than this version
    │   ├── StoreClosed               used before open() or after close()
    │   └── StoreForked               opened before the process was forked, used in the child
    └── MissingExtra (ImportError)    an optional dependency is not installed

Messages instruct: they name what is wrong, what stayed unchanged, and what to do next.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.model.agent_state import AgentState
    from holdfast.model.failure import Failure


class HoldfastError(Exception):
    """The root of the tree above: catch it to catch everything Holdfast raises on purpose."""


class InvalidValue(HoldfastError, ValueError):
    """The input was rejected; nothing changed."""

    step: str | None = None
    """The key of the journal line that records the refusal, if there is one."""


class CodecError(InvalidValue):
    """A value that cannot be stored exactly, or stored bytes that cannot be read."""

    def __init__(self, message: str, *, path: str = "") -> None:
        """Name the place inside the value, for example ``result.items[3]``."""
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class InvalidURL(InvalidValue):
    """A store URL of an unknown kind of store, or without a required part."""


class DuplicateName(InvalidValue):
    """The name is taken: later it would not be clear which of the two is meant."""


class NotFound(HoldfastError, LookupError):
    """Nothing is stored under that id."""

    def __init__(
        self, what: str, identifier: str, *, where: str = "in this store; check the id and the database URL"
    ) -> None:
        """``what`` is the noun: task, worker, approval."""
        super().__init__(f"no {what} {identifier!r} {where}")
        self.what = what
        self.identifier = identifier


PRUNED = (
    "in this store any more: it had ended and was pruned meanwhile; keep ended tasks longer if they are still needed"
)
"""``where`` for a task that was just there. Only ended tasks are pruned, and nothing else deletes a task."""


class Conflict(HoldfastError):
    """The stored state is not the one the caller assumed. Nothing changed; read again, then decide."""


class IllegalMove(Conflict):
    """The transition table does not allow this move."""


class KeyConflict(Conflict):
    """The idempotency key is taken by a task with other input."""

    def __init__(self, name: str, key: str, task_id: str, *, replaces: bool = False) -> None:
        """``task_id`` is the task that holds the key; ``replaces``: the submission was to replace it."""
        why = ", and was claimed before, so that it is not replaced" if replaces else ""
        super().__init__(
            f"key {key!r} of task {name!r} is taken by {task_id}, which was submitted with other input{why}; "
            "use another key, or submit the same input to get that task"
        )
        self.name, self.key, self.task_id = name, key, task_id


class TaskExists(Conflict):
    """The idempotency key is taken, and the submission asked for a new task: ``if_exists="reject"``."""

    def __init__(self, name: str, key: str, task_id: str) -> None:
        """``task_id`` is the task that holds the key."""
        super().__init__(
            f"key {key!r} of task {name!r} is taken by {task_id}, and nothing was stored; use another key, or leave "
            'out if_exists="reject" to get that task'
        )
        self.name, self.key, self.task_id = name, key, task_id


class LeaseHeld(Conflict):
    """Another worker is working on the task."""

    def __init__(self, task_id: str, owner: str, words: str | None = None) -> None:
        """``owner`` is the incarnation that holds the lease now; ``words`` replaces the usual message."""
        usual = f"task {task_id} is leased by worker {owner}; wait until the worker releases it, or request a cancel"
        super().__init__(words or usual)
        self.task_id, self.owner = task_id, owner


class LeaseLost(Conflict):
    """The caller's lease is over: the task continued without the caller, and nothing the caller sends is written."""

    def __init__(self, task_id: str, fence: int, now_held_by: str) -> None:
        """``fence`` is the stale fence of the caller."""
        super().__init__(
            f"the lease on task {task_id} under fence {fence} is over (now: {now_held_by}); "
            "stop working on it, your result was not written"
        )
        self.task_id, self.fence, self.now_held_by = task_id, fence, now_held_by


class StateConflict(Conflict):
    """The AgentState is not at the version a patch was made for. Nothing changed: read the newer state, and merge."""

    def __init__(self, task_id: str, *, state: AgentState, version: int, expected: int) -> None:
        """``state`` is the stored state, at ``version``."""
        super().__init__(
            f"the state of task {task_id} is at version {version}, and the patch was made for {expected}; nothing was "
            "changed. Read .state, and patch again with version=.version"
        )
        self.task_id, self.state, self.version, self.expected = task_id, state, version, expected


class WorkerDead(Conflict):
    """The worker's lease ran out and it was declared dead. Dead is final: register a new incarnation."""

    def __init__(self, worker_id: str) -> None:
        """``worker_id`` is the incarnation that is over."""
        super().__init__(
            f"worker {worker_id} is not alive in this store; abandon its tasks and register a new incarnation"
        )
        self.worker_id = worker_id


class BudgetExceeded(HoldfastError):
    """The reservation does not fit into what is left of the budget."""

    def __init__(
        self, *, meter: str, limit: int, spent: int, reserved: int, asked: int, step: str | None = None
    ) -> None:
        """Name what was asked for and what is left. ``step`` is the key of the charge, if a task's code made one."""
        left = max(0, limit - spent - reserved)
        super().__init__(
            f"budget for {meter} is spent: {asked} asked, {left} left of {limit} "
            f"({spent} spent, {reserved} reserved); raise the limit or let the task ask a person"
        )
        self.meter, self.limit, self.spent, self.reserved, self.asked = meter, limit, spent, reserved, asked
        self.step = step


class CursorLost(HoldfastError):
    """The feed cannot go on behind this cursor without a gap: events are missing. Nothing was read."""

    def __init__(self, message: str, cursor: str) -> None:
        """``cursor`` is the one that was asked for."""
        super().__init__(message)
        self.cursor = cursor


class QueueFull(HoldfastError):
    """The queue has as many pending tasks as its ``max_pending`` allows. Nothing was stored."""

    def __init__(self, queue: str, limit: int) -> None:
        """Name the queue, and how many of its tasks may be pending."""
        super().__init__(
            f"queue {queue!r} is full: {limit:,} of its tasks may be pending, and nothing was stored; submit it again "
            f"later, start more workers, or raise the limit: hold.queue({queue!r}, max_pending=...)"
        )
        self.queue, self.limit = queue, limit


class NoPlace(Conflict):
    """A task has to wait: its queue, or one of its limits, has no place for it now. Nothing changed."""

    def __init__(self, task_id: str, queue: str = "", limit: int = 0, *, key: str = "") -> None:
        """Name the task, and what has no place: its queue, with how many of whose tasks may be at work, or a limit."""
        super().__init__(
            f"task {task_id} has to wait: limit {key!r} has no place free, or is paused or closed; try it again "
            f"later, or change the limit: hold.limit({key.partition(':')[0]!r}, ...)"
            if key
            else f"task {task_id} has to wait: queue {queue!r} allows {limit:,} of its tasks to be at work at the same "
            f"time, and has them; try it again when one of them has ended or waits, or raise the limit: "
            f"hold.queue({queue!r}, concurrency=...)"
        )
        self.task_id, self.queue, self.limit, self.key = task_id, queue, limit, key


class CheckpointExpired(HoldfastError):
    """The agent's knowledge is older than its policy allows. Nothing was done: accept it, or start over."""


class AgentStuck(HoldfastError):
    """The agent makes the same call again and again, or its model keeps making calls that are not valid."""


class StepFailed(HoldfastError):
    """A step gave up. Carries its last error and every try before it; the same live and on replay."""

    def __init__(self, failure: Failure, *, step: str) -> None:
        """``failure`` is what the journal keeps under the key ``step``."""
        tries = f" after {len(failure.tries)} tries" if len(failure.tries) > 1 else ""
        super().__init__(f"step {step!r} failed{tries}: {failure.type_name}: {failure.message}")
        self.step, self.failure = step, failure
        self.type_name, self.message = failure.type_name, failure.message


class NotHappened(HoldfastError):
    """Raise it, or a subclass, from the function of a ``once`` step: it is certain that nothing happened.

    After any other error it is unknown whether the effect happened. Exceptions: errors known to come before the first
    byte is sent, such as a refused connection, and errors named in ``absent_on=``.
    """


class EffectGivenUp(HoldfastError):
    """A person resolved a doubt by undoing or abandoning the effect: the step has no result, and is not tried again."""


class Rejected(HoldfastError):
    """The approval was rejected, or it expired and that counts as a rejection."""

    def __init__(self, message: str, *, approval_id: str, step: str) -> None:
        """``step`` is the key of the approval in the journal."""
        super().__init__(message)
        self.approval_id, self.step = approval_id, step


class TaskFailed(HoldfastError):
    """The task gave up, or was rejected, or its deadline passed."""

    def __init__(self, task_id: str, failure: Failure, *, step: str | None = None) -> None:
        """``failure`` is the error the task ended with; ``step`` the key under which its parent waited for it."""
        where = f" in step {failure.steps[0]!r}" if failure.steps else ""
        super().__init__(f"task {task_id} failed{where}: {failure.type_name}: {failure.message}")
        self.task_id, self.failure, self.step = task_id, failure, step
        self.type_name, self.message = failure.type_name, failure.message


class TaskCancelled(HoldfastError):
    """The task was stopped by a person or by its parent."""

    def __init__(self, task_id: str, reason: str, *, step: str | None = None) -> None:
        """``reason`` is what was given with the cancel; ``step`` the key under which its parent waited for it."""
        super().__init__(f"task {task_id} was cancelled: {reason}")
        self.task_id, self.reason, self.step = task_id, reason, step


class DeadlineExceeded(HoldfastError, TimeoutError):
    """Something was not over in time; the message names the deadline and by how much it passed."""

    def __init__(self, message: str = "", *, step: str | None = None) -> None:
        """``step`` is the key of the wait that was not over, if it was a wait."""
        super().__init__(message)
        self.step = step


class JournalMismatch(HoldfastError):
    """The code asks for something else under a key than what the journal recorded under it."""


class StoreError(HoldfastError):
    """A problem of the database, not of the caller's input."""

    refuses_statement = False
    """The database answered, and refused this very statement. A row that the statement touches may be the cause."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or the connection was lost. A write that was under way may have happened."""


class RowDamaged(StoreUnavailable):
    """The database finds that some of its rows are damaged. Others can be read and written. Nothing was written."""

    refuses_statement = True


class StoreBusy(StoreError):
    """Another process holds the store and this kind of store allows one process at a time."""


class StoreDamaged(StoreError):
    """What is stored is not what was written."""


class NotAStore(StoreError):
    """The path holds something that is not a Holdfast store."""


class ReadOnlyStore(StoreError):
    """The store can be read but not written."""


class StoreReplaced(StoreError):
    """The files of an open store were moved, deleted or replaced. This process writes and sends nothing more."""


class SchemaMismatch(StoreError):
    """The stored schema is older or newer than the schema of this version of Holdfast."""


class StoreClosed(StoreError):
    """The store is used before ``open()`` or after ``close()``."""


class StoreForked(StoreError):
    """A forked child uses what its parent opened, or a file that only the parent can use. Nothing was touched."""


class MissingExtra(HoldfastError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        """``extra`` is the name in ``holdfast[extra]``, or several with commas between them."""
        super().__init__(f"{needed_for} needs an extra that is not installed: pip install 'holdfast[{extra}]'")
        self.extra = extra


_MODULES: Final = {"mcp": ("mcp",), "web": ("starlette", "uvicorn")}
"""The modules that each extra installs."""


def need_extras(needed_for: str, *extras: str) -> None:
    """Raise MissingExtra with all missing extras at once. It imports nothing to find out."""
    missing = [extra for extra in extras if not all(map(find_spec, _MODULES[extra]))]
    if missing:
        raise MissingExtra(",".join(missing), needed_for)


# Tracebacks and recorded errors show the name that users import: the module may move, the name must not.
for _error in [value for value in globals().values() if isinstance(value, type) and issubclass(value, HoldfastError)]:
    _error.__module__ = "holdfast"
