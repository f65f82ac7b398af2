"""Budgets: reserved before a call, settled after it, never overspent and never counted twice."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.operations import Reserve, SetLimits, Settle, SettleStale
from holdfast.model.records import Account, Reservation
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    LEASE,
    Attempt,
    apply_outside,
    claimed_by,
    enter,
    move,
    running_task,
    send,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase


def tokens(limit: int | None, spent: int, reserved: int, account: str = "task") -> list[Account]:
    """Describe an account with one meter."""
    return [Account(account=account, meter="tokens", limit=limit, spent=spent, reserved=reserved)]


def reserve(amount: int, step_key: str = "call", account: str = "task") -> Reserve:
    """Hold part of the tokens for a step."""
    return Reserve(account=account, step_key=step_key, amounts={"tokens": amount})


def settle(amount: int, step_key: str = "call", account: str = "task") -> Settle:
    """Record what the step really used."""
    return Settle(account=account, step_key=step_key, amounts={"tokens": amount})


async def successor(store: StateStore, clock: ManualClock) -> Attempt:
    """Let the worker die, and another one take the task over."""
    clock.advance(LEASE)
    await store.sweep()
    await enter(store, "successor")
    return await claimed_by(store, "successor")


class BudgetContract(ContractBase):
    """Accounts, reservations and settlements."""

    async def test_a_reservation_is_held_and_then_settled(self, store: StateStore) -> None:
        """Held while the call runs; what was not used is free again."""
        attempt = await running_task(store, budget={"tokens": 100})
        await attempt.apply(reserve(40))
        assert await store.accounts("task") == tokens(100, 0, 40)
        assert (await store.load("task")).reservations == (
            Reservation(account="task", meter="tokens", step_key="call", fence=1, amount=40),
        )
        await attempt.apply(settle(25))
        assert await store.accounts("task") == tokens(100, 25, 0)
        assert (await store.load("task")).reservations == ()

    async def test_a_reservation_up_to_the_limit_fits(self, store: StateStore) -> None:
        """Exactly up to the limit."""
        attempt = await running_task(store, budget={"tokens": 100})
        await attempt.apply(reserve(60, "a"), reserve(40, "b"))
        assert await store.accounts("task") == tokens(100, 0, 100)

    async def test_a_reservation_above_the_limit_is_refused(self, store: StateStore) -> None:
        """With the numbers that a person needs."""
        attempt = await running_task(store, budget={"tokens": 100})
        await attempt.apply(settle(30, "earlier"), reserve(50, "held"))
        verdict = await attempt.send(reserve(21))
        assert verdict.refusal is Refusal.BUDGET
        refused = verdict.budget
        assert refused is not None
        assert (refused.meter, refused.limit, refused.spent, refused.reserved, refused.asked) == (
            "tokens",
            100,
            30,
            50,
            21,
        )
        assert await store.accounts("task") == tokens(100, 30, 50)

    async def test_the_first_meter_that_does_not_fit_is_named(self, store: StateStore) -> None:
        """The first by name, in any order of the call; the meters that fit are not held either."""
        attempt = await running_task(store, budget={"cost": 1, "steps": 9, "tokens": 1})
        verdict = await attempt.send(
            Reserve(account="task", step_key="call", amounts={"tokens": 2, "steps": 1, "cost": 2})
        )
        assert verdict.budget is not None
        assert verdict.budget.meter == "cost"
        assert [account.reserved for account in await store.accounts("task")] == [0, 0, 0]

    async def test_a_meter_without_a_limit_is_counted_all_the_same(self, store: StateStore) -> None:
        """A meter without a limit is still recorded."""
        attempt = await running_task(store)
        await attempt.apply(reserve(10**12))
        assert await store.accounts("task") == tokens(None, 0, 10**12)
        await attempt.apply(settle(5))
        assert await store.accounts("task") == tokens(None, 5, 0)

    async def test_settling_may_overspend(self, store: StateStore) -> None:
        """It happened: refusing to record it would not undo it."""
        attempt = await running_task(store, budget={"tokens": 10})
        await attempt.apply(reserve(10))
        await attempt.apply(settle(25))
        assert await store.accounts("task") == tokens(10, 25, 0)
        assert (await attempt.send(reserve(0))).refusal is Refusal.BUDGET

    async def test_settling_without_a_reservation_counts(self, store: StateStore) -> None:
        """It opens the meter if there is none."""
        attempt = await running_task(store)
        await attempt.apply(settle(7))
        assert await store.accounts("task") == tokens(None, 7, 0)

    async def test_settling_releases_every_meter_of_the_step(self, store: StateStore) -> None:
        """Also those that the settlement does not name."""
        attempt = await running_task(store, budget={"tokens": 10, "steps": 10})
        await attempt.apply(Reserve(account="task", step_key="call", amounts={"tokens": 5, "steps": 1}))
        await attempt.apply(settle(3))
        assert await store.accounts("task") == [
            Account(account="task", meter="steps", limit=10, spent=0, reserved=0),
            Account(account="task", meter="tokens", limit=10, spent=3, reserved=0),
        ]

    async def test_settling_one_step_leaves_the_others(self, store: StateStore) -> None:
        """A reservation belongs to its step."""
        attempt = await running_task(store, budget={"tokens": 10})
        await attempt.apply(reserve(2, "a"), reserve(3, "b"))
        await attempt.apply(settle(1, "a"))
        assert await store.accounts("task") == tokens(10, 1, 3)

    async def test_reserving_again_for_the_same_step_adds_up(self, store: StateStore) -> None:
        """A second try of the same call."""
        attempt = await running_task(store, budget={"tokens": 10})
        await attempt.apply(reserve(2))
        await attempt.apply(reserve(3))
        assert (await store.load("task")).reservations == (
            Reservation(account="task", meter="tokens", step_key="call", fence=1, amount=5),
        )

    async def test_limits_are_changed_and_removed(self, store: StateStore) -> None:
        """What was spent stays spent."""
        attempt = await running_task(store, budget={"tokens": 10})
        await attempt.apply(settle(9))
        await apply_outside(store, "task", SetLimits(account="task", limits={"tokens": 20}))
        assert await store.accounts("task") == tokens(20, 9, 0)
        await apply_outside(store, "task", SetLimits(account="task", limits={"tokens": None}))
        assert await store.accounts("task") == tokens(None, 9, 0)

    async def test_an_account_may_be_shared(self, store: StateStore) -> None:
        """By tasks that use its name; neither can overspend it."""
        one = await running_task(store, "one", "worker one")
        two = await running_task(store, "two", "worker two")
        await one.apply(SetLimits(account="team", limits={"tokens": 10}), reserve(6, account="team"))
        assert (await two.send(reserve(6, account="team"))).refusal is Refusal.BUDGET
        await one.apply(settle(1, account="team"))
        assert (await send(store, two.commit())).refusal is Refusal.OUT_OF_ORDER
        two.sequence = 0
        await two.apply(reserve(6, account="team"))
        assert await store.accounts("team") == tokens(10, 1, 6, "team")

    async def test_two_steps_of_two_tasks_do_not_settle_each_other(self, store: StateStore) -> None:
        """Even under the same key on the same account."""
        one = await running_task(store, "one", "worker one")
        two = await running_task(store, "two", "worker two")
        await one.apply(reserve(6, account="team"))
        await two.apply(reserve(3, account="team"))
        await two.apply(settle(1, account="team"))
        assert await store.accounts("team") == tokens(None, 1, 6, "team")

    async def test_racing_reservations_never_overspend(self, store: StateStore) -> None:
        """If ten ask for a third each, three get it."""
        attempts = [await running_task(store, f"task-{number}", f"worker-{number}") for number in range(10)]
        await attempts[0].apply(SetLimits(account="team", limits={"tokens": 9}))
        verdicts = await asyncio.gather(*(attempt.send(reserve(3, account="team")) for attempt in attempts))
        assert sum(verdict.applied for verdict in verdicts) == 3
        assert await store.accounts("team") == tokens(9, 0, 9, "team")

    async def test_a_take_over_counts_the_unsettled_as_spent(self, store: StateStore, clock: ManualClock) -> None:
        """The dead worker may have made the call; its real use is unknown."""
        first = await running_task(store, queue="default", budget={"tokens": 10})
        await first.apply(reserve(4))
        second = await successor(store, clock)
        await second.apply(reserve(1, "other"))
        await second.apply(SettleStale())
        assert await store.accounts("task") == tokens(10, 4, 1)

    async def test_a_take_over_settles_only_its_own(self, store: StateStore, clock: ManualClock) -> None:
        """The first call of the step may have been paid for: settling the second call does not release the first."""
        first = await running_task(store, queue="default", budget={"tokens": 10})
        await first.apply(reserve(4))
        second = await successor(store, clock)
        await second.apply(reserve(4))
        await second.apply(settle(3))
        assert await store.accounts("task") == tokens(10, 3, 4)
        await second.apply(SettleStale())
        assert await store.accounts("task") == tokens(10, 7, 0)

    @pytest.mark.parametrize("ending", [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED], ids=str)
    async def test_an_end_counts_the_unsettled_as_spent(self, store: StateStore, ending: TaskState) -> None:
        """On every account the task used."""
        attempt = await running_task(store, budget={"tokens": 10})
        await attempt.apply(reserve(4), reserve(2, account="team"))
        await attempt.apply(move(ending))
        assert await store.accounts("task") == tokens(10, 4, 0)
        assert await store.accounts("team") == tokens(None, 2, 0, "team")

    async def test_waiting_keeps_what_is_reserved(self, store: StateStore) -> None:
        """The call may still be on its way."""
        attempt = await running_task(store, budget={"tokens": 10})
        await attempt.apply(reserve(4))
        await attempt.apply(move(TaskState.WAITING))
        assert await store.accounts("task") == tokens(10, 0, 4)

    async def test_a_resent_settlement_counts_once(self, store: StateStore) -> None:
        """Like every Commit."""
        attempt = await running_task(store, budget={"tokens": 10})
        commit = attempt.commit(settle(3))
        for _ in range(3):
            await send(store, commit)
        assert await store.accounts("task") == tokens(10, 3, 0)

    async def test_the_account_outlives_the_task_until_it_is_pruned(self, store: StateStore) -> None:
        """An ended task's spending can still be read."""
        await submit_one(store, budget={"tokens": 10})
        await apply_outside(store, "task", settle(3), CANCEL)
        assert await store.accounts("task") == tokens(10, 3, 0)
        assert await store.accounts("unknown") == []
