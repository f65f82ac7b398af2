"""Bad input: it raises an InvalidValue that names what is wrong, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.commit import Commit, Expect, Refusal
from holdfast.model.effect import Effect, EffectClass, EffectState, Evidence
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import (
    ConsumeApproval,
    Emit,
    Move,
    OpenApproval,
    Reserve,
    SetLimits,
    SubmitChild,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.patch import StatePatch
from holdfast.model.queries import Noun, TaskFilter
from holdfast.model.records import MemoryFact
from holdfast.model.size import LARGEST_BYTES
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import StateStore
from holdfast.store.keep_verbs import KeepVerbs
from holdfast.store.read_verbs import ReadVerbs
from holdfast.store.work_verbs import WorkVerbs
from holdfast.testing.contract._support import new_task, outside, row, running_task, send, step, submit_one
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot

DECIDED = Approval(
    task_id="task", question="?", step_key="s", id="ask", state=ApprovalState.APPROVED, decided_by="stranger"
)

UNSENDABLE: dict[str, tuple[Any, ...]] = {
    "patch without its operation": (StatePatch(),),
    "letters for operations": ("abc",),
    "a result that is not JSON": (WriteOutcome(result=float("nan")),),
    "a payload that is not JSON": (Emit(channel="c", payload=object()),),
    "an input that is not JSON": (SubmitChild(NewTask(name="n", user_input={1: 2})),),
    "a limit that is NaN": (SetLimits(account="a", limits={"tokens": float("nan")}),),  # type: ignore[dict-item]
    "a time that a high priority ranks before all time": (
        Move(to=TaskState.PENDING, reason="again", available_at=datetime(1, 1, 2, tzinfo=UTC)),
    ),
    "a time that a low priority ranks after all time": (
        Move(to=TaskState.PENDING, reason="again", available_at=datetime(9999, 12, 31, tzinfo=UTC)),
    ),
    "a limit below nothing": (SetLimits(account="a", limits={"tokens": -5}),),
    "an amount below nothing": (Reserve(account="a", step_key="s", amounts={"tokens": -5}),),
    "an approval decided before it was asked": (OpenApproval(DECIDED),),
    "an approval that approves itself": (
        OpenApproval(DECIDED),
        ConsumeApproval(approval_id="ask", effect_id="e", arguments_hash=""),
    ),
    "a key no index could hold": (Emit(channel="c", payload=1, key="x" * 6000),),
    "a worker no text could name": (
        WriteEffect(
            Effect(
                effect_id="e",
                step_key="s",
                effect_class=EffectClass.ONCE,
                state=EffectState.ARMED,
                thread_of="worker\x00",
            )
        ),
    ),
    "a step key no index could hold": (Reserve(account="a", step_key="x" * 6000, amounts={"tokens": 1}),),
}

UNSEEKABLE: tuple[Any, ...] = ("a\0b", "\ud800", 7, b"id")
"""Values that not every database could search for."""
UNNAMEABLE = (*UNSEEKABLE, "", "x" * 201, "two\nlines")
UNCOUNTABLE = (1.5, True, "1", None, 1 << 60)
LIMITS = (0, -1, 10_001, 1.5, None)
PLURALS = ("task", None, 7, ["a\0b"], [7])
ANY_FACT = MemoryFact(id="new", entity="e", attribute="a", value=1)

BAD_CLAIMS: tuple[dict[str, Any], ...] = (
    {"worker_id": "a\0b"},
    {"queues": ("a\0b",)},
    {"names": ("\ud800",)},
    {"limit": 1 << 40},
)
BAD_EVIDENCE: tuple[dict[str, Any], ...] = (
    {"task_id": ""},
    {"effect_id": "two\nlines"},
    {"fence": -1},
    {"body": "text"},
    {"at": datetime(2026, 1, 1)},  # noqa: DTZ001 - without a zone
)

BAD: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("task_id", "worker_id", "effect_id", "approval_id", "artifact_id", "fact_id", "account", "entity"), UNSEEKABLE
    ),
    **dict.fromkeys(("attribute", "other", "before_task", "events.channel", "position.channel"), UNSEEKABLE),
    **dict.fromkeys(("step.key", "emit.actor"), UNSEEKABLE),
    **dict.fromkeys(("emit.channel", "emit.key", "queued.queue", "media_type"), UNNAMEABLE),
    **dict.fromkeys(("after", "of_round", "key_form"), UNCOUNTABLE),
    **dict.fromkeys(("find.after", "queued.after"), ("", "no cursor", "\ud800", 7)),
    "recall.after": (ANY_FACT,),
    "limit": LIMITS,
    **dict.fromkeys(("task_ids", "also"), PLURALS),
    "states": (["armed", "open"],),
    "where": tuple(
        replace(TaskFilter(), **{part: bad})
        for part in ("queue", "name", "agent_id", "parent_id", "owner", "key", "text")
        for bad in UNSEEKABLE
    ),
    "claim": tuple(replace(Claim(worker_id="w", number=1, limit=1, names=("job",)), **bad) for bad in BAD_CLAIMS),
    "tasks": (
        [new_task(user_input={"a": [float("inf")]})],
        [new_task(available_at=datetime.max.replace(tzinfo=UTC), priority=-1)],
    ),
    "connection": (None, 7, "postgresql://", object()),
    "worker": (NewWorker(details={"a": object()}),),
    "emit.payload": ({1, 2}, float("nan")),
    "noun": ("task", None),
    "part": ("", *UNSEEKABLE),
    "text": (7, None),
    "content": ("text", None, 7),
    "offset": (-1, 1.5, None),
    "length": (-1, 1.5),
    "older_than": (timedelta(-1), 7, None),
    "evidence": tuple(replace(Evidence(task_id="t", effect_id="e", fence=1, body=b""), **bad) for bad in BAD_EVIDENCE),
}
"""Values that each argument rejects; ``verb.argument`` takes precedence over the argument's name alone."""

GOOD: dict[str, dict[str, Any]] = {
    "submit": {"tasks": []},
    "submission_on": {"connection": None, "tasks": []},
    "register": {"worker": NewWorker(id="w")},
    **{verb: {"worker_id": "w"} for verb in ("heartbeat", "drain", "retire", "owned")},
    **{verb: {"claim": None} for verb in ("claim", "has_suspect")},
    "acquire": {"task_id": "t", "worker_id": "w", "key_form": 1},
    "sweep": {"limit": 1},
    "load": {"task_id": "t", "after": 0},
    "emit": {"channel": "c", "payload": 1, "key": "k", "actor": "a"},
    **{verb: {"task_id": "t"} for verb in ("get", "standing", "history", "steps", "checkpoints", "artifact_links")},
    **{verb: {"task_ids": []} for verb in ("revisions", "last_steps")},
    "find": {"where": None, "limit": 1, "after": None},
    "count": {"where": None},
    "queued": {"queue": "q", "limit": 1, "after": None},
    "ids": {"noun": Noun.TASK, "part": "p", "limit": 1},
    "step": {"task_id": "t", "key": "k", "of_round": 1},
    "effects": {"task_id": "t", "effect_id": "e", "states": None, "limit": 1},
    "evidence": {"task_id": "t", "effect_id": "e"},
    "patches": {"task_id": "t", "after": 0},
    "approvals": {"task_id": "t", "states": None, "limit": 1},
    "approval": {"approval_id": "a"},
    "accounts": {"account": "a"},
    "events": {"channel": "c", "after": 0, "limit": 1},
    "position": {"channel": "c", "before_task": "t"},
    "put_artifact": {"content": b"", "media_type": "text/plain"},
    "artifact": {"artifact_id": "a"},
    "read_artifact": {"artifact_id": "a", "offset": 0, "length": 1},
    "fact": {"fact_id": "f"},
    "subject": {"entity": "e", "attribute": "a", "other": "o", "also": ()},
    "recall": {"entity": "e", "attribute": "a", "other": "o", "after": None, "limit": 1},
    "search": {"text": "t", "limit": 1},
    "forget": {"fact_id": "f"},
    "add_evidence": {"evidence": None},
    "prune": {"older_than": timedelta(1), "limit": 1},
}
"""Valid arguments of each verb; the test replaces each with bad values. Without ``commit`` and ``remember``."""
WITHOUT_ARGUMENTS = {"summary", "queues", "workers", "vitals"}


class BadInputContract(ContractBase):
    """Bad input to every method."""

    async def test_what_cannot_be_sent(self, store: StateStore) -> None:
        """Rejected before anything is written, also of the other Commits in the call."""
        attempt = await running_task(store)
        await submit_one(store, "other")
        before = await snapshot(store)
        good = outside("other", Move(to=TaskState.CANCELLED, reason="fine"))
        for name, operations in UNSENDABLE.items():
            with row(name):
                with pytest.raises(InvalidValue):
                    await store.commit([good, Commit(task_id="task", guard=attempt.guard(1), operations=operations)])
                assert await snapshot(store) == before

    async def test_every_verb_refuses_what_no_store_could_mean(self, store: StateStore) -> None:
        """For every argument: with InvalidValue, and with nothing changed."""
        verbs = {
            name for group in (WorkVerbs, ReadVerbs, KeepVerbs) for name in vars(group) if not name.startswith("_")
        }
        assert verbs == {*GOOD, *WITHOUT_ARGUMENTS, "commit", "remember"}
        before = await snapshot(store)
        for verb, good in GOOD.items():
            for argument in good:
                for bad in BAD.get(f"{verb}.{argument}") or BAD[argument]:
                    with row(f"{verb}({argument}={bad!r})"), pytest.raises(InvalidValue):
                        await getattr(store, verb)(**{**good, argument: bad})
        assert await snapshot(store) == before

    async def test_a_bad_payload_is_named_by_its_place(self, store: StateStore) -> None:
        """Its path in the value, at any depth."""
        with pytest.raises(InvalidValue, match=r"user_input\.a\[0\]"):
            await store.submit([new_task(user_input={"a": [float("inf")]})])

    @pytest.mark.parametrize("operation", [WriteOutcome(result=1), WriteStep(step())], ids=["outcome", "step"])
    async def test_what_only_the_holder_may_write(self, store: StateStore, operation: WriteOutcome | WriteStep) -> None:
        """While a worker holds a task, no other caller writes its outcome or its journal."""
        attempt = await running_task(store)
        assert (await send(store, outside("task", operation))).refusal is Refusal.LEASED
        await attempt.apply(operation)

    async def test_a_resent_commit_names_its_children_again(self, store: StateStore) -> None:
        """Also a child that existed before, under its key."""
        await submit_one(store, "old", name="job", key="k")
        attempt = await running_task(store)
        commit = attempt.commit(SubmitChild(new_task("kid", key="k")), SubmitChild(new_task("new")))
        first = await send(store, commit)
        assert first.children == (Submitted(task_id="old", created=False), Submitted(task_id="new", created=True))
        again = await send(store, commit)
        assert again.duplicate
        assert again.children == (Submitted(task_id="old", created=False), Submitted(task_id="new", created=False))

    async def test_times_of_any_zone_are_kept_as_moments(self, store: StateStore) -> None:
        """They are returned in UTC."""
        deadline = datetime.fromisoformat("2030-01-01T12:00:00+05:30")
        task = await submit_one(store, deadline=deadline)
        assert task.deadline == deadline
        assert task.deadline is not None
        assert task.deadline.tzinfo is UTC

    async def test_an_outsider_needs_a_request_that_can_be_remembered(self, store: StateStore) -> None:
        """It has to be a valid name, like everything that is looked up."""
        await submit_one(store)
        commit = Commit(task_id="task", guard=Expect(request=""), operations=())
        with pytest.raises(InvalidValue, match="request"):
            await store.commit([commit])

    async def test_what_is_too_large_together_is_refused_with_its_size(self, store: StateStore) -> None:
        """It is too large for a database, and sending it again would not help; the other Commits may be sent again."""
        attempt = await running_task(store)
        body = b"1" * (LARGEST_BYTES // 40)  # one object, used many times
        lines = [WriteStep(step(f"k{n}", position=n, output=body)) for n in range(1, 42)]
        before = await snapshot(store)
        with pytest.raises(InvalidValue, match=r"task takes \d{3},\d{3},\d{3} bytes in 41 operations.*artifacts"):
            await store.commit([attempt.commit(*lines)])
        with pytest.raises(InvalidValue, match=r"41 tasks take \d{3},\d{3},\d{3} bytes.*in parts"):
            await store.submit([new_task(f"t{n}", user_input=body.decode()) for n in range(41)])
        assert await snapshot(store) == before
