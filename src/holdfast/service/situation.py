"""Where a task stands, why, and what could be done next: the sentences every front end shows. Pure: no queries here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.engine.attempt.journal import LIMIT, RESERVED
from holdfast.engine.attempt.limit_line import limits_in
from holdfast.model.approval import Approval
from holdfast.model.doubt import Decision, Doubt
from holdfast.model.failure import Failure
from holdfast.model.flow_limit import LimitUse
from holdfast.model.pause import Pause
from holdfast.model.step import Step, StepState
from holdfast.model.task import HANDOVER, MANUAL, Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import ALONE_AFTER, Worker, WorkerState
from holdfast.service.limits import about_use, keys_waited_for
from holdfast.service.next_events import Upcoming, about_try, is_retried, last_error, next_look, next_try, why_in_doubt

SLEEP = "sleep"
"""The kind of step that waits for a time and for nothing else."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that the user can do: a verb of the service, its target, and what it does."""

    verb: str
    """approve, resume, worker ...: also the name of the command."""
    target: str
    """The id to call it with; empty where it needs none."""
    why: str
    options: str = ""
    """Options of the command: ``--message HINT``."""

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"verb": self.verb, "target": self.target, "options": self.options, "why": self.why}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The answer to three questions."""

    now: str
    """Where is it?"""
    why: str = ""
    """Why is it there? Empty where there is nothing to explain."""
    then: tuple[Upcoming, ...] = ()
    """What happens by itself, and when? The nearest first; empty where that is not known."""
    next: tuple[Advice, ...] = ()
    """What can the user do about it? Empty where it goes on by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SituationEvidence:
    """Everything a situation is judged by, read at one moment."""

    task: Task
    steps: Sequence[Step]
    approvals: Sequence[Approval]
    """The open ones."""
    doubts: Sequence[Doubt]
    open_children: int
    workers: Sequence[Worker]
    at: datetime
    pause: Pause | None = None
    """What keeps it from being claimed."""
    uses: Sequence[LimitUse] = ()
    """How the keys of limits stand that it waits for."""
    pauses: Sequence[Pause] = ()
    """Everything that is paused."""
    is_gone: bool = False
    """The process of the worker that holds it is proven to be over."""

    @property
    def is_pausing(self) -> bool:
        """Whether the task itself is paused: its worker, if it has one, stops it."""
        return self.pause is not None and self.pause.subject == self.task.id


def situation_of(seen: SituationEvidence) -> Situation:
    """Return where the task stands, why, and what next."""
    situation = _by_state(seen)
    if seen.pause is None or seen.task.state.is_terminal or seen.task.state is TaskState.PENDING:
        return situation
    if seen.task.state is TaskState.WAITING or seen.is_pausing:
        why = "; ".join(filter(None, (situation.why, _about_pause(seen))))
        return replace(situation, why=why, next=(*situation.next, _unpausing(seen.pause)))
    return situation


def _by_state(seen: SituationEvidence) -> Situation:
    match seen.task.state:
        case TaskState.PENDING:
            return _pending(seen)
        case TaskState.RUNNING | TaskState.REVIEW:
            return _worked_on(seen)
        case TaskState.WAITING:
            return _waiting(seen)
        case TaskState.COMPLETED:
            return Situation(now="completed", next=_about_doubts(seen))
        case TaskState.CANCELLED:
            return Situation(now="cancelled", why=seen.task.cancel_requested or "", next=_about_doubts(seen))
        case TaskState.FAILED:
            return _failed(seen)


def current_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are under way or wait, of the newest round."""
    newest = max((step.round for step in steps), default=1)
    open_states = {StepState.RUNNING, StepState.PENDING}
    return [step for step in steps if step.round == newest and step.state in open_states and step.undone_at is None]


def is_silent(worker: Worker, at: datetime) -> bool:
    """Return whether a worker that counts as alive has been silent for longer than its lease."""
    return worker.state is not WorkerState.DEAD and at - worker.seen_at > timedelta(seconds=worker.lease)


def serves(worker: Worker, task: Task) -> bool:
    """Return whether a live worker takes tasks like this one."""
    queues, tasks = worker.details.get("queues"), worker.details.get("tasks")
    return (
        worker.state is WorkerState.LIVE
        and (queues is None or task.queue in queues)
        and (tasks is None or task.name in tasks)
    )


def _pending(seen: SituationEvidence) -> Situation:
    """Return why the task does not run, and what was tried before."""
    found = _not_begun(seen)
    if seen.pause is not None and seen.task.name != MANUAL:
        found = Situation(now="pending, paused", why=_about_pause(seen), next=(_unpausing(seen.pause),))
    why, then = _under_way(seen)
    why = "; ".join(filter(None, (found.why, why)))
    return replace(found, why=why, then=found.then + then, next=(*found.next, *_about_doubts(seen)))


def _not_begun(seen: SituationEvidence) -> Situation:
    task = seen.task
    if task.name == MANUAL:
        return Situation(now="pending", why="it was saved by hand, and no worker claims it")
    if task.available_at is not None and task.available_at > seen.at:
        why = "it is tried again later" if task.attempts else "it was asked not to begin before"
        then = Upcoming("the next attempt begins" if task.attempts else "it begins", task.available_at)
        return Situation(now=f"pending until {_clock(task.available_at)}", why=why, then=(then,))
    if task.name == HANDOVER:
        why = "it waits for an agent that claims it over MCP (holdfast mcp, or holdfast serve)"
        return Situation(now=f"pending in queue {task.queue!r}", why=why)
    if not any(serves(worker, task) and not is_silent(worker, seen.at) for worker in seen.workers):
        return Situation(
            now=f"pending in queue {task.queue!r}",
            why=f"no live worker takes {task.name!r} tasks from this queue",
            next=(Advice("worker", "", "start one, with the module that defines the task"),),
        )
    why = "workers are busy with others, or about to claim it"
    opening: tuple[Upcoming, ...] = ()
    if task.waits_for is not None:
        why, opening = about_limits([task.waits_for], seen)
    elif task.deaths >= ALONE_AFTER:
        why = f"{task.deaths} workers died with it, so one makes room to run it with as few others as it can"
    return Situation(now=f"pending in queue {task.queue!r}", why=why, then=opening)


def _worked_on(seen: SituationEvidence) -> Situation:
    task = seen.task
    doing = "being verified" if task.state is TaskState.REVIEW else "running"
    stopping = f"; asked to stop: {task.cancel_requested}" if task.cancel_requested else ""
    if seen.is_pausing and not stopping:
        stopping = "; paused: it stops at its next step"
    if task.owner is None:
        why = "its verifier has not begun" if task.state is TaskState.REVIEW else "no worker holds it: saved by hand"
        return Situation(now=f"{doing}, without a worker{stopping}", why=why)
    worker = next((one for one in seen.workers if one.id == task.owner), None)
    steps = [step.key.removeprefix(RESERVED) for step in current_steps(seen.steps) if step.state is StepState.RUNNING]
    inside = f" in {_and(steps)}" if steps else ""
    if worker is not None and is_silent(worker, seen.at):
        silence = (seen.at - worker.seen_at).total_seconds()
        if task.name == HANDOVER:
            return Situation(
                now=f"{doing}, in the hands of an agent that is silent{stopping}",
                why=f"{worker.label} was last heard of {silence:.0f} s ago, and its lease is {worker.lease:g} s; "
                "the next agent that claims takes the task over",
            )
        return Situation(
            now=f"{doing}{inside}, on a worker that is silent{stopping}",
            why=f"{name_of(worker)} was last heard of {silence:.0f} s ago, and its lease is {worker.lease:g} s; "
            "the next worker that claims takes the task back",
            next=() if _any_worker(seen) else (Advice("worker", "", "no other worker is alive: start one"),),
        )
    if worker is not None and seen.is_gone:
        return Situation(
            now=f"{doing}{inside}, on a worker whose process is gone{stopping}",
            why=f"{name_of(worker)} has died, and its lease of {worker.lease:g} s is not over yet",
            then=(Upcoming("the next worker takes it over", worker.seen_at + timedelta(seconds=worker.lease)),),
            next=() if _any_worker(seen) else (Advice("worker", "", "no other worker is alive: start one"),),
        )
    who = name_of(worker) if worker is not None else task.owner
    if task.resting or keys_waited_for(task, seen.steps):
        return replace(_waiting(seen), now=f"waiting{inside}, without a slot, on {who}{stopping}")
    why, then = _under_way(seen)
    return Situation(now=f"{doing}{inside}, on {who}{stopping}", why=why, then=then, next=_about_doubts(seen))


def _about_pause(seen: SituationEvidence) -> str:
    pause = seen.pause
    if pause is None:
        return ""
    what = "it is" if pause.subject == seen.task.id else f"{pause.subject} is"
    return f"{what} paused since {_clock(pause.at)} by {pause.by}{f': {pause.reason}' if pause.reason else ''}"


def _unpausing(pause: Pause) -> Advice:
    return Advice("unpause", pause.subject, "let it go on")


def _under_way(seen: SituationEvidence) -> tuple[str, tuple[Upcoming, ...]]:
    """Return which calls are in doubt, which tries of running steps have failed, and when the next ones begin."""
    reasons = [why_in_doubt(doubt, seen.at) for doubt in seen.doubts]
    then = [then for doubt in seen.doubts if (then := next_look(doubt, seen.at)) is not None]
    in_doubt = {doubt.effect.effect_id for doubt in seen.doubts}
    for step in current_steps(seen.steps):
        if step.effect_id in in_doubt:
            continue
        if is_retried(step):
            why, tried = about_try(step)
            reasons.append(why)
            then += [tried] if tried.at > seen.at else []
        elif step.state is StepState.RUNNING and (error := last_error(step)):
            reasons.append(f"try {next_try(step) - 1} of {step.key.removeprefix(RESERVED)!r} failed: {error}")
    return "; ".join(dict.fromkeys(reasons)), tuple(sorted(then, key=lambda one: one.at))


def _waiting(seen: SituationEvidence) -> Situation:
    reasons: list[str] = []
    then: list[Upcoming] = []
    advice: list[Advice] = []
    for approval in seen.approvals:
        reasons.append(f"a person has to decide: {approval.question}")
        advice += about_approval(approval)
    advice += _about_doubts(seen)
    for doubt in seen.doubts:
        reasons.append(why_in_doubt(doubt, seen.at))
        then += filter(None, (next_look(doubt, seen.at),))
    in_doubt = {doubt.effect.effect_id for doubt in seen.doubts}
    for step in current_steps(seen.steps):
        if step.effect_id in in_doubt:
            continue
        match step.kind:
            case kind if kind == SLEEP and step.retry_at is not None:
                reasons.append(f"it sleeps until {_clock(step.retry_at)}")
                then.append(Upcoming("it goes on", step.retry_at))
            case kind if kind == LIMIT:
                why, opening = about_limits(limits_in(step), seen)
                reasons.append(why)
                then += opening
            case "event":
                reasons.append(f"it waits for the event {step.key.removeprefix('event:')!r}")
            case _ if is_retried(step):
                why, tried = about_try(step)
                reasons.append(why)
                then.append(tried)
    if seen.open_children:
        one = seen.open_children == 1
        reasons.append(f"{seen.open_children} {'child has' if one else 'children have'} not ended")
    return Situation(
        now="waiting, and holds no worker",
        why="; ".join(dict.fromkeys(reasons)),
        then=tuple(sorted(dict.fromkeys(then), key=lambda one: one.at)),
        next=tuple(advice),
    )


def about_limits(keys: Sequence[str], seen: SituationEvidence) -> tuple[str, tuple[Upcoming, ...]]:
    """Return why a task or step that needs these keys of limits cannot begin, and what changes that by itself."""
    reasons: list[str] = []
    then: list[Upcoming] = []
    for key in keys:
        use = next((one for one in seen.uses if one.key == key), None)
        why, opens_at = about_use(key, use, seen.pauses, seen.at)
        reasons.append(f"it waits for limit {key}{why and f': {why}'}")
        then += [] if opens_at is None else [Upcoming(f"limit {key} opens", opens_at)]
    return "; ".join(reasons), tuple(then)


def _failed(seen: SituationEvidence) -> Situation:
    failure = Failure.from_json(seen.task.error)
    where = f" in step {failure.steps[0].removeprefix(RESERVED)!r}" if failure.steps else ""
    kind = failure.type_name.rpartition(".")[2]
    back = (*_first(kind, seen.task.id), Advice("retry", seen.task.id, "start it over in a new round"))
    if seen.task.deadline is not None and seen.task.deadline <= seen.at:
        back = tuple(_with_a_new_deadline(one) for one in back)
    advice = (*_about_doubts(seen), *back)
    # That the policy gives up on such errors at once does not help a person who reads the error itself.
    reason = "" if failure.reason.endswith("is in give_up_on") else failure.reason
    why = f"{kind}: {failure.message}" + (f" ({reason})" if reason else "")
    return Situation(now=f"failed{where}", why=why, next=advice)


def _first(kind: str, task_id: str) -> tuple[Advice, ...]:
    """Return how to go on with a failed task; some failures need a change first, or an option."""
    match kind:
        case "BudgetExceeded":
            raised = Advice("budget", task_id, "raise its limits first", options="--max-... N")
            return (raised, Advice("resume", task_id, "then go on where it stopped"))
        case "AgentStuck":
            return (Advice("resume", task_id, "go on, with a hint", options="--message HINT"),)
        case "Poison":
            return (Advice("resume", task_id, "go on, once it is fixed: it kept killing its workers"),)
        case "CheckpointExpired":
            return (Advice("resume", task_id, "go on, old as it is", options="--accept-stale"),)
    return (Advice("resume", task_id, "go on where it stopped"),)


def _with_a_new_deadline(advice: Advice) -> Advice:
    """Add the option that a task needs whose deadline has passed."""
    if advice.verb not in {"resume", "retry"}:
        return advice
    return replace(advice, options=" ".join(filter(None, (advice.options, "--deadline SPAN"))))


def about_approval(approval: Approval) -> tuple[Advice, ...]:
    """Return how an open approval or question can be decided, the likeliest first."""
    refuse = Advice("reject", approval.id, "refuse")
    match approval.kind:
        case "question":
            return (Advice("answer", approval.id, "answer"), refuse)
        case "budget":
            more = Advice("approve", approval.id, "grant as much again")
            return (more, Advice("answer", approval.id, "name the new limit"), refuse)
    return (Advice("approve", approval.id, "agree"), refuse)


def about_doubt(doubt: Doubt) -> Advice:
    """Return how an effect in doubt can be decided."""
    if doubt.decisions:
        return Advice("resolve", doubt.effect.effect_id, f"decide: {', '.join(doubt.decisions)}")
    at_once = [str(decision) for decision in doubt.early if decision is not Decision.ABSENT]
    later = "; absent, for when the call has settled" if Decision.ABSENT in doubt.early else ""
    return Advice("resolve", doubt.effect.effect_id, f"now, if you know better: {' or '.join(at_once)}{later}")


def _about_doubts(seen: SituationEvidence) -> tuple[Advice, ...]:
    return tuple(about_doubt(doubt) for doubt in seen.doubts if doubt.decisions or doubt.early)


def _any_worker(seen: SituationEvidence) -> bool:
    return any(serves(worker, seen.task) and not is_silent(worker, seen.at) for worker in seen.workers)


def name_of(worker: Worker) -> str:
    """Return a worker's name, with host and pid, so that a person finds the process."""
    host, pid = worker.details.get("host"), worker.details.get("pid")
    return f"{worker.label} ({host}, pid {pid})" if host and pid else worker.label


def _clock(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _and(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:3]]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > len(shown) else "")
