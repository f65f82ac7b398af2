"""Questions, and what is refused at their door: nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.checks import check_integer, check_name
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.queries import Noun, Page, QueueCounts, Summary, TaskFilter, Vitals
from holdfast.model.records import Account, Checkpoint, Event, PatchRecord
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Worker
from holdfast.store.backend import Backend, Pending
from holdfast.store.checks import check_all_sought, check_filter, check_limit, check_sought, check_states
from holdfast.store.idparts import check_part


class ReadVerbs:
    """Questions. Listings are in order of (created_at, id) unless they say otherwise."""

    _backend: Backend

    def get(self, task_id: str) -> Pending[Task | None]:
        """Return the task, or None."""
        check_sought("task id", task_id)
        return self._backend.get(task_id)

    def standing(self, task_id: str) -> Pending[Task | None]:
        """Return the task without its input, or None: ``user_input`` is None, and the rest is as ``get`` returns it.

        For those who wait for its end and look after every change. A store that can leave a large input unread should.
        """
        check_sought("task id", task_id)
        return self._backend.standing(task_id)

    def revisions(self, task_ids: Collection[str]) -> Pending[dict[str, int]]:
        """Return the revision of each task, which grows with every change; one that does not exist is absent.

        For a caller that watches many: nothing else need be read to see that nothing happened.
        """
        check_all_sought("task ids", task_ids)
        return self._backend.revisions(task_ids)

    def find(
        self,
        where: TaskFilter | None = None,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = True,
    ) -> Pending[Page[Task]]:
        """Return one page of tasks; ``after`` is the ``next`` of the page before. Any other cursor is refused."""
        check_filter(where)
        check_limit(limit)
        return self._backend.find(where or TaskFilter(), limit, after, newest_first=newest_first)

    def count(self, where: TaskFilter | None = None) -> Pending[dict[TaskState, int]]:
        """Count tasks by state; states without any are absent."""
        check_filter(where)
        return self._backend.count(where or TaskFilter())

    def summary(self) -> Pending[Summary]:
        """Count everything a person wants to see first."""
        return self._backend.summary()

    def queues(self) -> Pending[list[QueueCounts]]:
        """Count the tasks that have not ended, queue by queue, by name; a queue without any is absent."""
        return self._backend.queues()

    def queued(self, *, queue: str | None = None, limit: int = 50, after: str | None = None) -> Pending[Page[Task]]:
        """Return one page of pending tasks that no worker holds, in the order in which they will be claimed.

        First those that are due, whether or not a sweep has seen it, by rank, then id, as ``claim`` takes them; then
        the delayed ones, by when they become due. All queues together are one ranking. Left out is what no claim
        takes: a task whose deadline has passed (unless it must undo), and one that is paused itself. Those of a paused
        queue or name are listed: they come in this order when it is unpaused.

        ``after`` is the ``next`` of the page before; any other cursor is refused. What is due is decided by the time
        of the first page, so that nothing moves merely because time passes from page to page.
        """
        if queue is not None:
            check_name("queue", queue)
        check_limit(limit)
        return self._backend.queued(queue, limit, after)

    def ids(self, noun: Noun, part: str, *, limit: int = 10) -> Pending[list[str]]:
        """Return, sorted, ids that begin with ``part``; if there are none, those whose end is or begins with it.

        For people who type a few characters of an id: its beginning tells when it was made, its end is random, and its
        last eight characters are what they are shown. Nothing in ``part`` is a pattern.
        """
        check_part(noun, part)
        check_limit(limit)
        return self._backend.ids(noun, part, limit)

    def vitals(self, *, thorough: bool = False) -> Pending[Vitals]:
        """Say how the store is doing. What this user may not see is left out.

        ``thorough`` looks through the whole file for damage, where the store is one (SQLite); it takes its time.
        """
        return self._backend.vitals(thorough=thorough)

    def history(self, task_id: str) -> Pending[list[Transition]]:
        """Return every move of the task, first to last."""
        check_sought("task id", task_id)
        return self._backend.history(task_id)

    def steps(self, task_id: str) -> Pending[list[Step]]:
        """Return the whole journal of all rounds, by position."""
        check_sought("task id", task_id)
        return self._backend.steps(task_id)

    def step(self, task_id: str, key: str, *, of_round: int) -> Pending[Step | None]:
        """Return the line under one key of the journal, or None. A long journal is not read for it."""
        check_sought("task id", task_id)
        check_sought("step key", key)
        check_integer("of_round", of_round)
        return self._backend.step(task_id, key, of_round)

    def last_steps(self, task_ids: Collection[str]) -> Pending[dict[str, Step]]:
        """Return the newest line of each task's journal, without its payloads; a task that has none is absent."""
        check_all_sought("task ids", task_ids)
        return self._backend.last_steps(task_ids)

    def effects(
        self,
        *,
        task_id: str | None = None,
        effect_id: str | None = None,
        states: Collection[EffectState] | None = None,
        limit: int = 100,
    ) -> Pending[list[Effect]]:
        """Return effects by (task id, effect id): of one task, or across all, such as those that need a human.

        An effect id alone finds its effect, whichever task it belongs to.
        """
        check_sought("task id", task_id, optional=True)
        check_sought("effect id", effect_id, optional=True)
        check_states(states, EffectState)
        check_limit(limit)
        return self._backend.effects(task_id, effect_id, states, limit)

    def evidence(self, task_id: str, effect_id: str) -> Pending[list[Evidence]]:
        """Return what fenced workers reported late, oldest first."""
        check_sought("task id", task_id)
        check_sought("effect id", effect_id)
        return self._backend.evidence(task_id, effect_id)

    def patches(self, task_id: str, *, after: int = 0) -> Pending[list[PatchRecord]]:
        """Return the patches with a version above ``after``, in order."""
        check_sought("task id", task_id)
        check_integer("after", after)
        return self._backend.patches(task_id, after)

    def checkpoints(self, task_id: str) -> Pending[list[Checkpoint]]:
        """Return all checkpoints by number, damaged ones included."""
        check_sought("task id", task_id)
        return self._backend.checkpoints(task_id)

    def approvals(
        self, *, task_id: str | None = None, states: Collection[ApprovalState] | None = None, limit: int = 100
    ) -> Pending[list[Approval]]:
        """Return approvals by id."""
        check_sought("task id", task_id, optional=True)
        check_states(states, ApprovalState)
        check_limit(limit)
        return self._backend.approvals(task_id, states, limit)

    def approval(self, approval_id: str) -> Pending[Approval | None]:
        """Return one approval, or None."""
        check_sought("approval id", approval_id)
        return self._backend.approval(approval_id)

    def accounts(self, account: str) -> Pending[list[Account]]:
        """Return the meters of a budget account, by meter."""
        check_sought("account", account)
        return self._backend.accounts(account)

    def workers(self) -> Pending[list[Worker]]:
        """Return all workers still kept, by id."""
        return self._backend.workers()

    def events(self, channel: str, *, after: int = 0, limit: int = 100) -> Pending[list[Event]]:
        """Return the channel's events with a number above ``after``, in order."""
        check_sought("channel", channel)
        check_integer("after", after)
        check_limit(limit)
        return self._backend.events(channel, after, limit)

    def position(self, channel: str, *, before_task: str | None = None) -> Pending[int]:
        """Return the number of the channel's last event (from before the submission of this task); 0 without any.

        It is where a reader starts who wants only what comes later (or what came since the submission). Where all kept
        events are later, it is right in front of the first of them; where nothing is kept, it is the channel's last
        number: a prune takes no reader back.

        Time does not decide which event came first: a clock may step back. An event whose emit had returned when the
        submission began is from before it; an event whose emit was under way is later. In one Commit, and in one batch
        of them, the order in which they stand decides. Raises NotFound where there is no such task.
        """
        check_sought("channel", channel)
        check_sought("task id", before_task, optional=True)
        return self._backend.position(channel, before_task)
