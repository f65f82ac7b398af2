"""What the machine sends: small worlds, so that ids, keys and guards meet often.

Everything is drawn from lists of ready-made variants, one or two choices each. Hypothesis has a budget of choices for
an example; spent on single fields, it would not last for the long stories in which stores go wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from holdfast.model.approval import DECISIONS, Approval, ApprovalState
from holdfast.model.canonical import digest
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.flow_limit import Limit, PermitRequest
from holdfast.model.operations import (
    SAME_INPUT,
    ApplyPatch,
    ConsumeApproval,
    Decide,
    Emit,
    LinkArtifact,
    Move,
    OpenApproval,
    Operation,
    Release,
    ReopenChild,
    RequestCancel,
    RequireQuiet,
    RequireUndo,
    Reserve,
    Rest,
    RotateCheckpoints,
    SaveCheckpoint,
    SetAsideCheckpoint,
    SetLimits,
    Settle,
    SettleStale,
    ShareWorker,
    SubmitChild,
    UntilChildren,
    UntilDecided,
    UntilEvent,
    UntilTime,
    UntilWoken,
    Wait,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.queries import TaskFilter
from holdfast.model.records import ArtifactLink, Checkpoint, MemoryFact
from holdfast.model.step import Step, StepState
from holdfast.model.task import IfExists, NewTask, Task
from holdfast.model.transitions import MOVES, TERMINAL, TaskState

Item = TypeVar("Item")

TASKS = ("t1", "t2", "t3", "t4", "t5", "t6")
NAMES = ("deploy", "report")
QUEUES = ("fast", "slow")
KEYS = ("k1", "k2")
LIMIT_KEYS = ("openai", "tenant:a", "tenant:b")
PERMITS = ("p1", "p2", "p3", "p4")
PER = timedelta(seconds=5)
FIRST_LIMITS = (
    Limit(name="openai", concurrency=2, rate=4, per=PER),
    Limit(name="tenant", concurrency=1, each=True),
)
CHANNELS = ("news", "weather", "inbox:t1", "taken:e1")
SHARED_ACCOUNT = "team"
CONTENTS = (b"", b"one", b"two")
ARTIFACTS = tuple(digest(content) for content in CONTENTS)
STEP_KEYS = ("collect", "apply")
EFFECTS = ("e1", "e2")
FACTS = ("f1", "f2", "f3", "f4")
OTHERS = (None, "bob")
SEARCHED = ("tea", "gre TEA", "alice li", "bob", "text", "1", "%")
PAYLOADS = (None, 0, "text", {"a": [1, "\x00"]})
AMOUNTS: tuple[Mapping[str, int], ...] = ({"tokens": 1}, {"tokens": 3}, {"steps": 1, "tokens": 5}, {"steps": 0}, {})
LIMITS: tuple[Mapping[str, int | None], ...] = ({"tokens": 4}, {"tokens": None, "steps": 2}, {"tokens": 9}, {})

ANY_STATE = list(TaskState)
SAVED_STATES = [*TaskState, *sorted(TERMINAL)]


def now_and_then(often: list[Item], seldom: list[Item]) -> SearchStrategy[Item]:
    """Draw from the first list, and one time in eight from the second."""
    return st.integers(0, 7).flatmap(lambda number: st.sampled_from(often if number else seldom))


def _after(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)


_TASK_VARIANTS: list[dict[str, Any]] = [
    {},
    {},
    {"user_input": 2},
    {"name": "report"},
    {"queue": "slow", "priority": 1},
    {"priority": -1, "agent_id": "writer"},
    {"key": "k1"},
    {"key": "k2", "user_input": 2},
    {"key": "k1", "queue": "slow"},
    {"budget": {"tokens": 6}},
    {"budget": {"tokens": 4, "steps": 1}, "schedule": "nightly"},
    {"parent_id": "t1"},
    {"parent_id": "t2", "user_input": {"a": 1}},
    {"round": 2},
    {"labels": {"tenant": "acme"}},
    {"key": "k1", "user_input": 3, "if_exists": IfExists.REPLACE, "priority": 1, "labels": {"tenant": "globex"}},
    {"key": "k2", "if_exists": IfExists.REPLACE, "budget": {"steps": 2}},
    {"key": "k1", "user_input": 4, "debounce_max": timedelta(seconds=10)},
    {"key": "k2", "queue": "slow", "debounce_max": timedelta(seconds=30), "agent_id": "writer"},
    {"labels": {"tenant": "acme", "kind": "nightly"}, "parent_id": "t3"},
    {"labels": {"tenant": "acme"}, "name": "report", "priority": 1},
    {"labels": {"tenant": "globex"}},
    {"limits": ("openai",)},
    {"limits": ("openai",), "queue": "slow", "priority": 1},
    {"limits": ("tenant:a",), "name": "report"},
    {"limits": ("openai", "tenant:a")},
    {"limits": ("openai", "tenant:b"), "parent_id": "t1"},
    {"limits": ("tenant:a",), "key": "k1", "if_exists": IfExists.REPLACE},
]
_TIME_VARIANTS: list[tuple[float | None, float | None]] = [
    (None, None),
    (None, None),
    (None, None),
    (-5, None),
    (5, None),
    (20, 60),
    (None, 5),
    (None, 20),
    (None, 60),
    (None, -5),
]


@st.composite
def new_tasks(draw: DrawFn, now: datetime) -> NewTask:
    """Tasks whose ids and keys collide; some are delayed, some have a deadline."""
    delay, deadline = draw(st.sampled_from(_TIME_VARIANTS))
    variant = {"name": "deploy", "user_input": 1, "queue": "fast"} | draw(st.sampled_from(_TASK_VARIANTS))
    return NewTask(
        id=draw(st.sampled_from(TASKS)),
        available_at=_after(now, delay),
        deadline=_after(now, deadline),
        actor="submitter",
        **variant,
    )


@st.composite
def new_limits(draw: DrawFn) -> Limit:
    """The limits of all tasks and steps, with other numbers."""
    rate, tokens = draw(st.sampled_from([None, 1, 3])), draw(st.sampled_from([None, None, 10]))
    is_timed = rate is not None or tokens is not None
    return Limit(
        name=(name := draw(st.sampled_from(["openai", "tenant"]))),
        concurrency=draw(st.sampled_from([None, 1, 2, 3])),
        rate=rate,
        tokens=tokens,
        per=draw(st.sampled_from([PER, PER / 10, 10 * PER])) if is_timed else None,
        burst=draw(st.sampled_from([0, 0, 1])) if rate is not None else 0,
        each=name == "tenant",
    )


@st.composite
def permit_requests(draw: DrawFn, worker_id: str, task_id: str) -> PermitRequest:
    """Of few ids, so that most are asked again."""
    return PermitRequest(
        id=draw(st.sampled_from(PERMITS)),
        task_id=task_id,
        worker_id=worker_id,
        keys=draw(st.lists(st.sampled_from(LIMIT_KEYS), min_size=1, max_size=3)),
        tokens=draw(st.sampled_from([0, 1, 6, 100])),
        lasts=draw(st.sampled_from([0.0, 2.5, 60.0])),
        valid_for=draw(st.sampled_from([0.0, 0.0, 3.0])),
    )


def _plain(task: NewTask) -> NewTask:
    """A child, and a task that begins in another state, cannot say what to do with the task that has its key."""
    return replace(task, if_exists=IfExists.RETURN, debounce_max=None)


def _waits(task_id: str, now: datetime) -> list[tuple[Wait, ...]]:
    time_came, soon = UntilTime(key="time", at=now), UntilTime(key="soon", at=now + timedelta(seconds=5))
    later = UntilTime(key="later", at=now + timedelta(seconds=60))
    news, more_news = UntilEvent(key="news", channel="news"), UntilEvent(key="more", channel="news", after=2)
    weather = UntilEvent(key="weather", channel="weather", after=1)
    others = tuple(other for other in TASKS if other != task_id)
    one_child, two_children = (
        UntilChildren(key="one", children=others[:1]),
        UntilChildren(key="two", children=others[1:3]),
    )
    no_child = UntilChildren(key="none", children=("unknown",))
    decided = UntilDecided(key="decided", approval_id=f"{task_id}-a1")
    decided_too = UntilDecided(key="decided too", approval_id=f"{task_id}-a2")
    return [
        (),
        (UntilWoken(key="woken"),),
        (time_came,),
        (soon,),
        (later, soon),
        (news,),
        (more_news,),
        (weather, later),
        (one_child,),
        (two_children,),
        (one_child, two_children, soon),
        (no_child,),
        (no_child, news),
        (decided,),
        (decided, decided_too, later),
        (decided_too, more_news, one_child),
    ]


@st.composite
def moves(draw: DrawFn, task_id: str, source: TaskState, now: datetime) -> Move:
    """A move that the table allows from this state, or now and then any."""
    to = draw(now_and_then(sorted(MOVES[source]) or ANY_STATE, ANY_STATE))
    again, new_round, feedback = draw(st.sampled_from([(False, False, None), (True, False, None), (True, True, "no")]))
    outcome = draw(st.sampled_from([None, "done"]))
    return Move(
        to=to,
        reason="the machine says so",
        result=outcome,
        error=None if outcome else {"type": "Oops"},
        available_at=_after(now, draw(st.sampled_from([None, None, 5]))) if to is TaskState.PENDING else None,
        deadline=_after(now, 5 if again else None) if to is TaskState.PENDING else None,
        waits=draw(st.sampled_from(_waits(task_id, now))) if to is TaskState.WAITING else (),
        counts_attempt=again,
        new_round=new_round,
        feedback=feedback,
    )


def _steps(_task_id: str, now: datetime) -> list[Operation]:
    return [
        WriteStep(
            Step(
                key=key,
                kind="step",
                position=10 * number + STEP_KEYS.index(key),
                round=number,
                state=state,
                output=b"1" if state is StepState.COMPLETED else None,
                effect_id="e1" if key == "apply" else None,
                finished_at=now if state is StepState.FAILED else None,
            )
        )
        for number, key, state in itertools.product((1, 2), STEP_KEYS, StepState)
    ]


def _effects(_task_id: str, _now: datetime) -> list[Operation]:
    return [
        WriteEffect(
            Effect(
                effect_id=effect_id,
                step_key="apply",
                effect_class=EffectClass.ONCE,
                state=state,
                compensable=thread_of is not None,
                thread_of=thread_of,
            )
        )
        for effect_id, state, thread_of in itertools.product(EFFECTS, EffectState, (None, "w1"))
    ]


def _checkpoints(_task_id: str, now: datetime) -> list[Operation]:
    saved = [
        SaveCheckpoint(
            Checkpoint(
                number=number,
                position=number,
                version=number - 1,
                body=b"{}",
                checksum="sum",
                created_at=created_at,
                damaged=damaged,
            )
        )
        for number, created_at, damaged in itertools.product((1, 2, 3), (None, now - timedelta(5)), (None, "broken"))
    ]
    rotated = [RotateCheckpoints(keep=keep, before=now) for keep in (0, 1, 2)]
    return [*saved, *rotated, *(SetAsideCheckpoint(number=number, why="damaged") for number in (1, 2, 3))]


def _approval_ids(task_id: str) -> tuple[str, ...]:
    """Two of the task's own, and one that belongs to t1."""
    return (f"{task_id}-a1", f"{task_id}-a2", "t1-a1")


def _approvals(task_id: str, now: datetime) -> list[Operation]:
    options: list[dict[str, Any]] = [
        {},
        {"arguments_hash": "other"},
        {"deciders": ("alice",)},
        {"expires_at": now + timedelta(seconds=5)},
        {"expires_at": now, "default": ApprovalState.APPROVED},
        {"expires_at": now + timedelta(seconds=5), "default": ApprovalState.APPROVED},
    ]
    return [
        OpenApproval(
            Approval(
                id=approval_id,
                **{"task_id": task_id, "question": "?", "step_key": "apply", "arguments_hash": "h"} | option,
            )
        )
        for approval_id, option in itertools.product(_approval_ids(task_id), options)
    ]


def _decisions(task_id: str, _now: datetime) -> list[Operation]:
    return [
        Decide(approval_id=approval_id, state=state, by=by, answer=by)
        for approval_id, state, by in itertools.product(_approval_ids(task_id), sorted(DECISIONS), ("alice", "bob"))
    ]


def _uses(task_id: str, _now: datetime) -> list[Operation]:
    return [
        ConsumeApproval(approval_id=approval_id, effect_id=effect_id, arguments_hash=arguments_hash)
        for approval_id, effect_id, arguments_hash in itertools.product(
            _approval_ids(task_id), EFFECTS, ("h", "h", "other")
        )
    ]


def _reservations(task_id: str, _now: datetime) -> list[Operation]:
    return [
        Reserve(account=account, step_key=key, amounts=amounts)
        for account, key, amounts in itertools.product((task_id, SHARED_ACCOUNT), STEP_KEYS, AMOUNTS)
    ]


def _settlements(task_id: str, _now: datetime) -> list[Operation]:
    settled = [
        Settle(account=account, step_key=key, amounts=amounts)
        for account, key, amounts in itertools.product((task_id, SHARED_ACCOUNT), STEP_KEYS, AMOUNTS)
    ]
    return [*settled, *[SettleStale()] * 8]


def _limits(task_id: str, _now: datetime) -> list[Operation]:
    return [
        SetLimits(account=account, limits=limits)
        for account, limits in itertools.product((task_id, SHARED_ACCOUNT), LIMITS)
    ]


def _events(_task_id: str, _now: datetime) -> list[Operation]:
    return [
        Emit(channel=channel, payload=payload, key=key)
        for channel, payload, key in itertools.product(CHANNELS, PAYLOADS, (None, "k1"))
    ]


def _quiet(_task_id: str, _now: datetime) -> list[Operation]:
    return [RequireQuiet(channel=channel, after=after) for channel, after in itertools.product(CHANNELS, range(4))]


def _flags(_task_id: str, _now: datetime) -> list[Operation]:
    return [
        RequestCancel(reason="first"),
        RequestCancel(reason="second"),
        RequireUndo(required=True),
        RequireUndo(required=True, begun=True),
        RequireUndo(required=False),
        WriteOutcome(result="half"),
        WriteOutcome(error={"type": "Oops"}),
        WriteOutcome(),
        ApplyPatch(body=b"{}", author="a"),
        ApplyPatch(body=b"[]", author="b", reason="because", step_key=STEP_KEYS[0]),
        ApplyPatch(body=b"1", author="c", step_key=STEP_KEYS[1], round=3),
    ]


def _links(_task_id: str, _now: datetime) -> list[Operation]:
    return [
        LinkArtifact(ArtifactLink(artifact_id=artifact_id, name=name, type="text", summary="", bytes=1))
        for artifact_id, name in itertools.product(ARTIFACTS, ("a", "b"))
    ]


_KINDS: tuple[Callable[[str, datetime], list[Operation]], ...] = (
    _steps,
    _effects,
    _checkpoints,
    _approvals,
    _decisions,
    _uses,
    _reservations,
    _settlements,
    _limits,
    _events,
    _quiet,
    _flags,
    _links,
)


@st.composite
def operations(draw: DrawFn, task_id: str, now: datetime, *, held: bool) -> Operation:
    """Any operation but Move, which a Commit has at most once."""
    kind = draw(st.integers(0, len(_KINDS) + 1))
    if kind < len(_KINDS):
        return draw(st.sampled_from(_KINDS[kind](task_id, now)))
    if held and kind == len(_KINDS):
        about_its_lease: list[Operation] = [Release(), Rest(resting=True), Rest(resting=False), ShareWorker()]
        about_its_lease.append(ShareWorker(acquitted=True))
        return draw(st.sampled_from(about_its_lease))
    return SubmitChild(_plain(draw(new_tasks(now))))


@st.composite
def ended_children(draw: DrawFn, now: datetime, ids: list[str]) -> SubmitChild:
    """A child that has ended before it began: something to begin again."""
    state, task_id = draw(st.sampled_from(sorted(TERMINAL))), draw(st.sampled_from(ids))
    return SubmitChild(replace(_plain(draw(new_tasks(now))), id=task_id, state=state, result="done"))


_REOPENED: list[dict[str, Any]] = [
    {},
    {"feedback": "ignored"},
    {"new_round": True},
    {"new_round": True, "feedback": "again"},
    {"new_round": True, "user_input": "k1 other"},
    {"new_round": True, "user_input": {"b": 2}},
    {"new_round": True, "user_input": None},
]


@st.composite
def reopenings(draw: DrawFn, children: list[Task], now: datetime) -> ReopenChild:
    """One of these children, as it stands; now and then as it stood, or any task."""
    child = draw(st.sampled_from(children)) if children else Task(id="t1", revision=1)
    options = {"user_input": SAME_INPUT} | draw(st.sampled_from(_REOPENED))
    delay, deadline = draw(st.sampled_from(_TIME_VARIANTS))
    lines = draw(st.sampled_from([(), tuple(op.step for op in _steps(child.id, now)[:3] if isinstance(op, WriteStep))]))
    return ReopenChild(
        child_id=draw(now_and_then([child.id], list(TASKS))),
        revision=max(1, child.revision - draw(now_and_then([0], [1, -1]))),
        reason="begun again",
        available_at=_after(now, delay),
        deadline=_after(now, deadline),
        lines=lines,
        **options,
    )


_FACT_VARIANTS: list[dict[str, Any]] = [
    {},
    {},
    {"superseded_by": "f1"},
    {"value": "green tea"},
    {"value": "Team", "verified_by": "bob"},
    {"value": "bob", "relation": True},
    {"confidence": 0.5, "source": "bob", "half_life": timedelta(days=1)},
]


@st.composite
def facts(draw: DrawFn, now: datetime) -> MemoryFact:
    """Four ids, so that they replace each other; mostly about alice, so that they meet."""
    variant = {"value": draw(st.sampled_from(PAYLOADS))} | draw(st.sampled_from(_FACT_VARIANTS))
    return MemoryFact(
        id=draw(st.sampled_from(FACTS)),
        entity=draw(now_and_then(["alice"], ["bob"])),
        attribute="likes",
        created_at=draw(st.sampled_from([None, now, now - timedelta(days=1)])),
        verified_at=draw(st.sampled_from([None, None, now])),
        **variant,
    )


def filters(now: datetime) -> SearchStrategy[TaskFilter]:
    """Each part alone, and some together."""
    return st.sampled_from(
        [
            TaskFilter(),
            TaskFilter(states=frozenset({TaskState.PENDING, TaskState.FAILED})),
            TaskFilter(queue="slow"),
            TaskFilter(name="deploy", agent_id="default"),
            TaskFilter(parent_id="t1"),
            TaskFilter(owner="w1"),
            TaskFilter(resting=True),
            TaskFilter(owner="w1", resting=False),
            TaskFilter(key="k1"),
            TaskFilter(created_after=now - timedelta(seconds=20), created_before=now),
            TaskFilter(ended_before=now - timedelta(seconds=5)),
            TaskFilter(text="DEPLOY", states=frozenset(TERMINAL)),
            TaskFilter(text="k1"),
            TaskFilter(labels={"tenant": "acme"}),
            TaskFilter(
                labels={"kind": "nightly", "tenant": "acme"}, states=frozenset({TaskState.PENDING, TaskState.WAITING})
            ),
            TaskFilter(labels={"tenant": "acme"}, parent_id="t3"),
        ]
    )
