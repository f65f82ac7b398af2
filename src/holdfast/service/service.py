"""Service: what every front end asks and does, on one open Holdfast."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.engine.api.definition import Bound, Definitions
from holdfast.engine.api.feed import Feed
from holdfast.engine.api.handle import Handle
from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.manage.artifacts import Artifacts
from holdfast.engine.manage.decide import as_they_stand
from holdfast.engine.manage.fork.ancestry import Origin
from holdfast.engine.manage.limits import set_limit
from holdfast.engine.manage.memory import HalfLife, Memory
from holdfast.engine.manage.state import AppliedPatch
from holdfast.engine.schedules.manage import read_schedule
from holdfast.engine.worker.worker import Worker
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.budget import Budget, Ledger
from holdfast.model.doubt import Doubt
from holdfast.model.effect import Effect
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.feed import FeedFilter
from holdfast.model.flow_limit import Limit, LimitUse
from holdfast.model.pause import Pause, kind_of, nothing_to_pause
from holdfast.model.queries import Noun, Page, Pruned, QueueCounts, TaskFilter
from holdfast.model.queue_settings import QueueChange, QueueSettings
from holdfast.model.records import ArtifactLink, Checkpoint, Event, MemoryFact
from holdfast.model.schedule import Schedule
from holdfast.model.state_diff import Change
from holdfast.model.step import Step
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TERMINAL, TaskState, Transition
from holdfast.model.worker import Lease
from holdfast.model.worker import Worker as WorkerRecord
from holdfast.redaction import without_password
from holdfast.service import board, overview, selection
from holdfast.service.board import Board
from holdfast.service.changes import View, follow
from holdfast.service.identify import identify
from holdfast.service.local_run import is_over, run_family
from holdfast.service.outside import OutsideAgent, held_outside, sweep, tidy
from holdfast.service.overview import Overview
from holdfast.service.reach import ModelReach, read_reach
from holdfast.service.readiness import check_ready
from holdfast.service.selection import Done
from holdfast.service.step_names import find_step
from holdfast.service.worker_list import WorkerList, read_workers
from holdfast.settings import is_postgres
from holdfast.store.base import Listener
from holdfast.store.outage import Outage

__all__ = ["Bound", "Definitions", "HalfLife", "Service"]

_ALL = 10_000
"""More doubts than a task can have."""

M = TypeVar("M", bound=int | str | None)
T = TypeVar("T")


class Service:
    """Reads and verbs. Wherever a task, approval or effect is named, a few characters of its id will do."""

    def __init__(self, hold: Holdfast) -> None:
        """``hold`` is open while this is used: its owner opened it, or ``async with service:`` does."""
        self._hold = hold

    async def __aenter__(self) -> Self:
        """Open the store; blocks may be nested."""
        await self._hold.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what the outermost block opened."""
        await self._hold.__aexit__(kind, error, trace)

    # The store and the application

    @property
    def url(self) -> str:
        """The URL of the store, with its password if it has one."""
        return self._hold.url

    @property
    def shown_url(self) -> str:
        """The URL of the store, as it may be shown."""
        return without_password(self._hold.url)

    @property
    def store_options(self) -> Mapping[str, Any]:
        """What the application's code says about how to open its store."""
        return self._hold.options

    def keep_schema(self) -> None:
        """Have the store opened as it is: PostgreSQL is not migrated, and not set up."""
        if is_postgres(self._hold.url):
            self._hold.options["migrate"] = False  # the application's other options, its schema, stay

    @property
    def is_durable(self) -> bool:
        """Whether what is stored outlives this process. The store is open."""
        return self._hold.store.capabilities.durable

    async def check_ready(self) -> None:
        """Raise an error if the store would not serve a request now."""
        await check_ready(self._hold)

    @property
    def definitions(self) -> Definitions:
        """The tasks that the application defines."""
        return self._hold.definitions

    @property
    def memory(self) -> Memory:
        """What is remembered beyond any task."""
        return self._hold.memory

    @property
    def artifacts(self) -> Artifacts:
        """Large outputs, each stored once."""
        return self._hold.artifacts

    def outside(self, by: str) -> OutsideAgent:
        """Return what an agent outside may do to tasks; ``by`` is its name in histories."""
        return OutsideAgent(self._hold, by)

    # Ids

    async def task_id(self, part: str) -> str:
        """Return the id of the one task that ``part`` means."""
        return await identify(self._hold.store, Noun.TASK, part)

    async def worker_id(self, part: str) -> str:
        """Return the id of the one worker that ``part`` means."""
        return await identify(self._hold.store, Noun.WORKER, part)

    async def approval_id(self, part: str) -> str:
        """Return the id of the one approval that ``part`` means."""
        return await identify(self._hold.store, Noun.APPROVAL, part)

    async def effect_id(self, part: str) -> str:
        """Return the id of the one effect that ``part`` means."""
        return await identify(self._hold.store, Noun.EFFECT, part)

    async def fact_id(self, part: str) -> str:
        """Return the id of the one remembered fact that ``part`` means."""
        return await identify(self._hold.store, Noun.FACT, part)

    async def ids(self, noun: Noun, part: str, *, limit: int) -> Sequence[str]:
        """Return the ids that begin or end with ``part``."""
        return await self._hold.store.ids(noun, part, limit=limit)

    # Looking

    def listen(self) -> AbstractAsyncContextManager[Listener]:
        """Listen for changes for as long as the block lasts."""
        return self._hold.store.listen()

    @property
    def outage(self) -> Outage | None:
        """The outage of the store, if it is away: a background loop waits until it is back."""
        return self._hold.store.outage

    def follow(self, look: Callable[[], Awaitable[T]], *, task_id: str | None = None) -> AsyncGenerator[View[T], None]:
        """Yield what ``look`` returns, again whenever something changed: anything, or this task."""
        return follow(self._hold.store, look, topic=None if task_id is None else f"task:{task_id}")

    def feed(self, wanted: FeedFilter, *, after: str | None, follow: bool) -> Feed:
        """Return what happens to all tasks, in order; see Holdfast. ``wanted`` has the whole id of its task."""
        return self._hold.feed(
            after=after,
            kinds=wanted.kinds,
            task=wanted.task_id,
            name=wanted.name,
            queue=wanted.queue,
            labels=wanted.labels,
            follow=follow,
        )

    async def now(self) -> datetime:
        """Return the time of the store's clock: ages are counted from it."""
        return await self._hold.store.now()

    async def tasks(
        self, where: TaskFilter, *, limit: int = 50, after: str | None = None, newest_first: bool = True
    ) -> Page[Task]:
        """Return one page of tasks."""
        return await self._hold.store.find(where, limit=limit, after=after, newest_first=newest_first)

    async def task_or_newest(self, part: str | None) -> str:
        """Return the id of the one task that ``part`` means; without one, of the newest."""
        return await self.newest_id() if part is None else await self.task_id(part)

    async def newest_id(self) -> str:
        """Return the id of the task that was submitted last. Raises NotFound."""
        page = await self.tasks(TaskFilter(), limit=1)
        if not page.items:
            raise NotFound("task", "of any kind")
        return page.items[0].id

    async def task(self, part: str) -> Task:
        """Return one task. Raises NotFound."""
        found = await self._hold.store.get(await self.task_id(part))
        if found is None:
            raise NotFound("task", part)
        return found

    async def whole_task(self, task_id: str) -> Task | None:
        """Return the task with exactly this id; None if there is none."""
        return await self._hold.store.get(task_id)

    async def count(self, where: TaskFilter) -> Mapping[TaskState, int]:
        """Count tasks by their state."""
        return await self._hold.store.count(where)

    async def revisions(self, task_ids: Collection[str]) -> Mapping[str, int]:
        """Return the revision of each of these tasks that exists; every change of a task raises it."""
        return await self._hold.store.revisions(task_ids)

    async def last_reports(self, task_id: str, most: int) -> list[Event]:
        """Return the last events that a task reported, oldest first; without the pieces of streamed text."""
        reports, _ = await overview.last_reports(self._hold, task_id, most)
        return reports

    async def has_key(self, name: str, key: str | None) -> bool:
        """Return whether there is a task of this name under this key."""
        return key is not None and bool((await self.tasks(TaskFilter(name=name, key=key), limit=1)).items)

    async def overview(self, part: str) -> Overview:
        """Return everything about one task."""
        return await overview.read_overview(self._hold, await self.task_id(part))

    async def board(self, *, queue: str | None = None) -> Board:
        """Return everything at a glance."""
        return await board.read_board(self._hold, queue=queue)

    async def steps(self, part: str) -> list[Step]:
        """Return the journal of a task."""
        return await self._hold.store.steps((await self.task(part)).id)

    async def step(self, part: str, key: str) -> Step:
        """Return a step of a task: by its key, its number, or what it is shown as. Raises NotFound."""
        task = await self.task(part)
        found = find_step(await self._hold.store.steps(task.id), key)
        if found is None:
            where = f"in the journal of task {task.id}; `holdfast steps {task.id}` lists them"
            raise NotFound("step", key, where=where)
        return found

    async def history(self, part: str) -> list[Transition]:
        """Return every move of a task."""
        return await self._hold.store.history((await self.task(part)).id)

    async def state(self, part: str, *, at: int | str | None = None) -> AgentState:
        """Return an agent's state: now, at a version, or right after a step."""
        return await self._hold.state(await self.task_id(part), at=await self._moment(part, at))

    async def _moment(self, part: str, at: M) -> M | str:
        """Return the key of the step that ``at`` names; a version, or None, is returned as it is."""
        if not isinstance(at, str):
            return at
        found = await self.step(part, at)
        newest = await self.step(part, found.key)
        if newest.round != found.round:
            raise InvalidValue(f"{at!r} is a step of round {found.round}, and its key means that of {newest.round}")
        return found.key

    async def state_history(self, part: str) -> list[AppliedPatch]:
        """Return every change of an agent's state."""
        return await self._hold.state_history(await self.task_id(part))

    async def state_diff(self, part: str, old: int | str, new: int | str | None = None) -> tuple[Change, ...]:
        """Return what changed in an agent's state between two moments."""
        begin, end = await self._moment(part, old), await self._moment(part, new)
        return await self._hold.state_diff(await self.task_id(part), begin, end)

    async def approvals(
        self, part: str | None = None, *, states: Sequence[ApprovalState] = (ApprovalState.OPEN,), limit: int = 100
    ) -> list[Approval]:
        """Return approvals and questions, of one task or of all."""
        task_id = None if part is None else (await self.task(part)).id
        return await self._hold.approvals(task_id, states=states, limit=limit)

    async def doubts(self, part: str | None = None, *, limit: int = 100) -> list[Doubt]:
        """Return the effects in doubt (their outcome is unknown), of one task or of all."""
        task_id = None if part is None else (await self.task(part)).id
        return await self._hold.doubts(task_id, limit=limit)

    async def approval(self, part: str) -> Approval:
        """Return one approval or question, in whatever state. Raises NotFound."""
        found = await self._hold.store.approval(await self.approval_id(part))
        if found is None:
            raise NotFound("approval", part)
        [standing] = await as_they_stand(self._hold.store, [found])
        return standing

    async def doubt(self, part: str) -> Doubt:
        """Return one effect that is in doubt. Raises NotFound; Conflict if its outcome is known."""
        effect_id = await self.effect_id(part)
        found = await self._hold.store.effects(effect_id=effect_id)
        if not found:
            raise NotFound("effect", part)
        [effect] = found
        doubts = await self._hold.doubts(effect.task_id, limit=_ALL)
        doubt = next((one for one in doubts if one.effect.effect_id == effect_id), None)
        if doubt is None:
            note = f" ({effect.note})" if effect.note else ""
            raise Conflict(f"effect {effect_id} is not in doubt: it is {effect.state}{note}; nothing was changed")
        return doubt

    async def fact(self, part: str) -> MemoryFact:
        """Return one remembered fact, superseded or not. Raises NotFound."""
        found = await self._hold.store.fact(await self.fact_id(part))
        if found is None:
            raise NotFound("fact", part)
        return found

    async def facts(
        self, entity: str | None = None, attribute: str | None = None, *, live: bool = True, limit: int = 100
    ) -> list[MemoryFact]:
        """Return what is remembered, about an entity or at all; ``live``: what nothing has superseded."""
        return await self._hold.store.recall(entity, attribute, live=live, limit=limit)

    async def search_facts(self, words: str, *, limit: int) -> list[MemoryFact]:
        """Return what is remembered that has these words in it."""
        return await self._hold.store.search(words, limit=limit)

    async def checkpoints(self, task_id: str) -> list[Checkpoint]:
        """Return the saved states of a task, oldest first."""
        return await self._hold.store.checkpoints(task_id)

    async def has_artifact(self, artifact_id: str) -> bool:
        """Return whether there is such an artifact."""
        return await self._hold.store.artifact(artifact_id) is not None

    async def artifact_links(self, task_id: str) -> list[ArtifactLink]:
        """Return the artifacts of a task."""
        return await self._hold.store.artifact_links(task_id)

    async def held_outside(self, by: str | None = None) -> list[Lease]:
        """Return the leases of agents outside: of one of them, or of all."""
        return await held_outside(self._hold.store, by)

    async def reach(self, task_id: str, *, since: datetime) -> ModelReach:
        """Return whether the model of a task was reached; only tries made ``since`` then count."""
        return await read_reach(self._hold, task_id, since=since)

    async def workers(self, *, dead: bool = False) -> WorkerList:
        """Return the workers and what they hold, with ``dead`` also those that are gone and still kept."""
        return await read_workers(self._hold.store, dead=dead, with_limits=True)

    async def queues(self) -> list[QueueCounts]:
        """Return what every queue holds."""
        return await self._hold.store.queues()

    async def queue_settings(self) -> list[QueueSettings]:
        """Return the settings of the queues that have any."""
        return await self._hold.queues()

    async def set_queue(self, name: str, change: QueueChange) -> QueueSettings:
        """Change settings of a queue."""
        return await self._hold.queue(name, **change.asked())

    async def pauses(self) -> list[Pause]:
        """Return what is paused."""
        return await self._hold.pauses()

    async def limits(self, name: str | None = None) -> list[LimitUse]:
        """Return how the keys of one limit, or of all, stand."""
        return await self._hold.limits(name)

    async def set_limit(self, limit: Limit) -> Limit:
        """Set a limit, as a whole."""
        return await set_limit(self._hold.store, limit)

    async def schedules(self) -> list[Schedule]:
        """Return all schedules, by name."""
        return await self._hold.schedules()

    async def schedule(self, name: str) -> Schedule:
        """Return one schedule. Raises NotFound."""
        return await read_schedule(self._hold.services, name)

    async def queued(self, *, queue: str | None = None, limit: int = 50, after: str | None = None) -> Page[Task]:
        """Return one page of what waits to be claimed, in the order in which it comes up."""
        return await self._hold.store.queued(queue=queue, limit=limit, after=after)

    # Working

    def handle(self, task_id: str) -> Handle[Any]:
        """Return the handle of a task, to wait for its result."""
        return self._hold.handle(task_id)

    def worker(self, **options: Any) -> AbstractAsyncContextManager[Worker]:  # noqa: ANN401
        """Work on the application's tasks for as long as the block lasts; ``options`` are those of ``hold.worker``."""
        return self._hold.worker(**options)

    async def run(self, task_id: str, *, lease: float, at_once: bool) -> Any:  # noqa: ANN401
        """Work on a task and its children here until it has ended; return its result, or raise its failure."""
        return await run_family(self._hold, self._hold.handle(task_id), lease=lease, at_once=at_once)

    def is_over(self, worker: WorkerRecord) -> bool:
        """Return whether a worker does nothing any more: it is of this process, or its process is gone."""
        return is_over(self._hold, worker)

    async def submit(self, task: Bound[Any], *, after: str | None = None, **options: Any) -> Handle[Any]:  # noqa: ANN401
        """Store a task; ``after`` is part of the id of one it goes on from, ``options`` as ``hold.submit`` has them."""
        return await self._hold.submit(task, after=None if after is None else await self.task_id(after), **options)

    # Looking after

    async def sweep(self) -> None:
        """Take tasks back from agents and workers that are gone."""
        await sweep(self._hold.store)

    async def tidy(self) -> None:
        """Sweep, and end the offered tasks that were to be cancelled and that no agent holds."""
        await tidy(self._hold.store)

    async def select(self, parts: Sequence[str], where: TaskFilter | None) -> list[Task]:
        """Return the tasks that are named, or those that fit a filter."""
        if where is not None:
            return [task async for task in selection.every(self._hold.store, where)]
        named = [await self.task(part) for part in parts]
        return list({task.id: task for task in named}.values())

    def resume(self, task_ids: Sequence[str], *, by: str, **options: Any) -> AsyncIterator[Done]:  # noqa: ANN401
        """Go on with failed tasks where they stopped; ``options`` are those of ``hold.resume``."""

        async def act(task_id: str) -> str:
            await self._hold.resume(task_id, by=by, **options)
            return (await self.task(task_id)).state

        return selection.do_each(task_ids, act)

    def retry(self, task_ids: Sequence[str], *, by: str, **options: Any) -> AsyncIterator[Done]:  # noqa: ANN401
        """Start failed tasks over in a new round; ``options`` are those of ``hold.retry``."""

        async def act(task_id: str) -> str:
            await self._hold.retry(task_id, by=by, **options)
            return (await self.task(task_id)).state

        return selection.do_each(task_ids, act)

    def cancel(self, task_ids: Sequence[str], reason: str, *, by: str) -> AsyncIterator[Done]:
        """Stop tasks and their children."""

        async def act(task_id: str) -> str:
            return await self._hold.cancel(task_id, reason, by=by)

        return selection.do_each(task_ids, act)

    async def subject(self, given: str) -> str:
        """Return what is to be paused: ``queue:<name>``, ``task:<name>``, or the id of the one task that it means."""
        if kind_of(given) is not None:
            return given
        try:
            return await self.task_id(given)
        except NotFound:
            raise nothing_to_pause(given) from None

    async def pause(self, given: str, *, by: str, reason: str | None = None) -> Pause:
        """Let nothing new begin: of a queue, of the tasks of a name, with a limit, or of one task."""
        return await self._hold.pause(await self.subject(given), by=by, reason=reason)

    async def unpause(self, given: str, *, by: str) -> tuple[str, bool]:
        """End a pause; return of what, and whether there was one."""
        subject = await self.subject(given)
        return subject, await self._hold.unpause(subject, by=by)

    async def fork(
        self,
        part: str,
        *,
        at: str | int | None,
        user_input: Sequence[Any] | Bound[Any] | None,
        key: str | None,
        by: str,
        deadline: float | None = None,
    ) -> tuple[Task, Origin]:
        """Begin a new task that shares the past of another; return it, and where it branched off."""
        task_id, point = (await self.task(part)).id, await self._moment(part, at)
        handle: Handle[Any] = await self._hold.fork(
            task_id, at=point, user_input=user_input, key=key, deadline=deadline, by=by
        )
        origin = await self._hold.forked_from(handle)
        assert origin is not None  # noqa: S101 - the Commit that made it recorded it in its journal
        return await handle.task(), origin

    async def send(self, part: str, text: str, *, by: str) -> Task:
        """Send a message to an agent; return its task."""
        task = await self.task(part)
        await self._hold.send(task.id, text, by=by)
        return task

    async def trigger_schedule(self, name: str, *, by: str) -> str:
        """Submit a task of a schedule now; return its id."""
        return (await self._hold.trigger(name, by=by)).id

    async def delete_schedule(self, name: str) -> bool:
        """Delete a schedule; return whether there was one."""
        return await self._hold.unschedule(name)

    async def budget(self, part: str) -> Ledger:
        """Return what a task may use, has used, and has set aside."""
        return await self._hold.budget((await self.task(part)).id)

    async def extend_budget(self, part: str, limits: Budget, *, by: str, note: str | None = None) -> Ledger:
        """Give a task new limits, where ``limits`` names any."""
        return await self._hold.extend_budget((await self.task(part)).id, limits, by=by, note=note)

    async def approve(self, part: str, *, by: str, note: str | None = None) -> Approval:
        """Agree to what a task asks for."""
        return await self._hold.approve(await self.approval_id(part), by=by, note=note)

    async def reject(self, part: str, *, by: str, note: str | None = None) -> Approval:
        """Refuse what a task asks for."""
        return await self._hold.reject(await self.approval_id(part), by=by, note=note)

    async def answer(self, part: str, answer: JsonValue, *, by: str, note: str | None = None) -> Approval:
        """Answer a question of a task."""
        return await self._hold.answer(await self.approval_id(part), answer, by=by, note=note)

    async def resolve(
        self, part: str, decision: str, *, result: JsonValue = None, by: str, note: str | None = None
    ) -> Effect:
        """Decide about an effect in doubt."""
        return await self._hold.resolve(await self.effect_id(part), decision, result=result, by=by, note=note)

    async def prunable(self, older_than: timedelta) -> int:
        """Count the tasks that ended longer ago than this."""
        before = await self._hold.store.now() - older_than
        return sum((await self._hold.store.count(TaskFilter(states=TERMINAL, ended_before=before))).values())

    async def prune(self, older_than: timedelta) -> Pruned:
        """Delete the next batch of what is older; ``more`` says whether to go on."""
        return await self._hold.store.prune(older_than)
