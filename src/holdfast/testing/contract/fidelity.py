"""Fidelity: stored values are returned exactly as they were given."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import Decide, Emit, OpenApproval, WriteOutcome, WriteStep
from holdfast.model.records import MemoryFact
from holdfast.model.worker import NewWorker
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import apply_outside, new_task, row, step, stored, submit_one
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import all_tasks


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


PAYLOADS: dict[str, Any] = {
    "true": True,
    "false": False,
    "zero": 0,
    "one as float": 1.0,
    "minus zero": -0.0,
    "tiny": 5e-324,
    "huge float": 1.7976931348623157e308,
    "third": 1 / 3,
    "beyond 64 bits": 2**64,
    "beyond a float": 10**400 + 1,
    "negative": -(2**63) - 1,
    "empty text": "",
    "NUL": "a\x00b",
    "every control character": "".join(map(chr, range(32))) + "\x7f",
    "lone surrogates": "\ud800 and \udfff",
    "beyond the basic plane": "\U0001f980 𝄞",
    "not normalised": "e\u0301 é",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd",
    "separators": "\u2028\u2029",
    "replacement": "\ufffd\ufeff",
    "looks like SQL": "'; DROP TABLE tasks; --",
    "looks like JSON": '{"a": "\\u0000"}',
    "empty object": {},
    "empty list": [],
    "odd keys": {"": 1, "\x00": 2, " ": 3, "\ud800": 4, "a.b": 5, "$type": 6, "__class__": 7},
    "looks like a tag": {"$date": "2026-01-01", "@type": "Task"},
    "deep": _nested(64),
    "wide": list(range(5000)),
    "long": "x" * 1_000_000,
    "mixed": {"list": [None, True, 1, 1.5, "ü", {"k": []}]},
}

NOT_JSON: dict[str, Any] = {
    "object": object(),
    "nan": float("nan"),
    "inf": float("inf"),
    "bytes": b"bytes",
    "tuple": (1, 2),
    "int key": {1: 2},
    "too deep": _nested(65),
    "set": {"a": {1}},
    "too many digits": 10**5000,
}


def same(left: object, right: object) -> bool:
    """Compare as JSON does: 1, 1.0 and true are three values, and so are 0.0 and -0.0."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


class FidelityContract(ContractBase):
    """Payloads, bytes and times."""

    async def test_payloads_come_back_exactly(self, store: StateStore) -> None:
        """In every place that stores JSON."""
        for name, payload in PAYLOADS.items():
            with row(name):
                task = await submit_one(store, name, user_input=payload)
                assert same(task.user_input, payload)
                approval = Approval(task_id=name, question="?", step_key="s", id=f"ask {name}")
                await apply_outside(
                    store,
                    name,
                    WriteOutcome(result=payload, error=payload),
                    OpenApproval(approval),
                    Decide(approval_id=approval.id, state=ApprovalState.ANSWERED, by="bob", answer=payload),
                    Emit(channel=name, payload=payload),
                )
                task = await stored(store, name)
                assert same(task.result, payload)
                assert same(task.error, payload)
                answered = await store.approval(approval.id)
                assert answered is not None
                assert same(answered.answer, payload)
                [event] = await store.events(name)
                assert same(event.payload, payload)
                assert same((await store.emit("direct", payload)).payload, payload)
                await store.remember(MemoryFact(entity=name, attribute="a", value=payload))
                [fact] = await store.recall(name)
                assert same(fact.value, payload)
                assert same((await store.load(name)).task.result, payload)
        for found in await all_tasks(store):
            with row(found.id):
                assert same(found.user_input, PAYLOADS[found.id])

    async def test_none_is_no_outcome(self, store: StateStore) -> None:
        """An input of None is an input; a result of None counts as none."""
        task = await submit_one(store, user_input=None, result=None)
        assert (task.user_input, task.result, task.error) == (None, None, None)

    async def test_what_json_cannot_bring_back_is_refused(self, store: StateStore) -> None:
        """Before anything is stored."""
        for name, bad in NOT_JSON.items():
            with row(name):
                with pytest.raises(InvalidValue):
                    await store.submit([new_task(user_input=bad)])
                with pytest.raises(InvalidValue):
                    await store.emit("news", bad)
                assert await all_tasks(store) == []
                assert await store.events("news") == []

    async def test_a_bad_payload_in_a_commit_is_refused_with_the_whole_call(self, store: StateStore) -> None:
        """No store could store it."""
        await submit_one(store)
        with pytest.raises(InvalidValue):
            await apply_outside(store, "task", WriteStep(step()), WriteOutcome(result=object()))
        assert await store.steps("task") == []

    @pytest.mark.parametrize("body", [b"", b"\x00", b"\xff\xfe", bytes(range(256)) * 300], ids=len)
    async def test_bytes_come_back_exactly(self, store: StateStore, body: bytes) -> None:
        """The journal's outputs are canonical JSON, but no store looks inside; empty is not missing."""
        await submit_one(store)
        await apply_outside(store, "task", WriteStep(step(output=body, error=body)))
        [found] = await store.steps("task")
        assert (found.output, found.error) == (body, body)

    async def test_times_are_kept_to_the_microsecond_in_utc(self, store: StateStore, clock: ManualClock) -> None:
        """For any zone they were given in."""
        clock.advance(timedelta(microseconds=123_457))
        east = timezone(timedelta(hours=5, minutes=30))
        deadline = datetime(2031, 2, 3, 4, 5, 6, 789_123, tzinfo=east)
        task = await submit_one(store, deadline=deadline)
        assert task.deadline == deadline
        assert task.deadline.utcoffset() == timedelta()
        assert task.created_at == clock.now()
        assert (await store.now()) == clock.now()

    @pytest.mark.parametrize("year", [1, 1969, 9999])
    async def test_times_far_away(self, store: StateStore, clock: ManualClock, year: int) -> None:
        """A deadline may be long ago, and a delay may be very long."""
        far = clock.now().replace(year=year)
        await submit_one(store, deadline=far, available_at=far)
        task = await stored(store)
        assert (task.deadline, task.available_at) == (far, far)

    async def test_priorities(self, store: StateStore) -> None:
        """Any that a person would choose."""
        for priority in (0, 1, -1, 100, -100, 10_000, -10_000):
            with row(priority):
                assert (await submit_one(store, f"{priority}", priority=priority)).priority == priority

    async def test_leases_of_odd_length(self, store: StateStore) -> None:
        """A fraction of a second is a lease too."""
        worker = await store.register(NewWorker(id="w", lease=0.25))
        assert worker.lease == 0.25
        assert [found.lease for found in await store.workers()] == [0.25]
