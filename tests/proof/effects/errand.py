"""The tasks of this proof: each makes one call to the ledger, in a step of the kind that its name says."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeAlias
from urllib.parse import urlencode

from holdfast import Absent, Context, Happened, Holdfast, Intent, TaskDefinition
from holdfast.testing.ledger import Ledger, Trouble
from tests.proof.effects.roads import KINDS, Kind
from tests.proof.effects.trap import STEP, Trap

TIMEOUT, SETTLE = 2.0, 0.5
"""Seconds of the step: short, as the next worker waits for them, and yet longer than a call ever takes."""

UNDER_WAY = ("sending", "sent", "recorded")
"""Places within a call."""

ON_ITS_WAY = 1300
"""Milliseconds between the arrival of a call at the ledger and its record, where its caller is killed in between.

Longer than a lease: the next worker, if it asks at once, hears that it did not happen. Shorter than the call's time.
"""

LATE_ANSWER = 1000
"""Milliseconds between the record of a call and its answer, where its caller is killed in between."""

TERMS: dict[Kind, dict[str, Any]] = {
    "checked": {"effect": "once", "settle": SETTLE},
    "unchecked": {"effect": "once", "settle": SETTLE},
    "idempotent": {"effect": "idempotent"},
    "pure": {"effect": "pure"},
}

Errand: TypeAlias = TaskDefinition[[int, str], int]


def expected_result(number: int) -> int:
    """What an errand with this number returns."""
    return 2 * number


def define(
    hold: Holdfast,
    ledger: Ledger,
    trap: Trap,
    *,
    timeout: float = TIMEOUT,
    hesitation: float = 0.0,
    trouble: Trouble | None = None,
) -> dict[Kind, Errand]:
    """Define a task of each kind, and return them by kind.

    A call awaits something for ``hesitation`` seconds before it is sent; ``trouble`` is what the ledger makes of it.
    """
    asked = trouble or {}

    async def pay(number: int, effect_id: str) -> int:
        trap.reach("entered")
        if trap.place in UNDER_WAY:
            call_in_pieces(ledger, trap, effect_id, number)
        else:
            await asyncio.sleep(hesitation)
            await ledger.call_async(effect_id, STEP, body=number, **asked)
        trap.reach("answered")
        return number

    def pay_in_a_thread(number: int, effect_id: str) -> int:
        trap.reach("entered")
        if trap.place in UNDER_WAY:
            call_in_pieces(ledger, trap, effect_id, number)
        else:
            ledger.call(effect_id, STEP, body=number, **asked)
        trap.reach("answered")
        return number

    async def was_paid(effect_id: str, number: int) -> Happened | Absent:
        trap.reach("before reconcile")
        calls = await asyncio.to_thread(ledger.seen, effect_id)
        trap.reach("amid reconcile")
        return Happened(number) if calls else Absent()

    async def choose(number: int) -> int:
        return number

    def make(kind: Kind) -> Errand:
        terms = TERMS[kind] | ({"reconcile": was_paid} if kind == "checked" else {})

        @hold.task(name=kind)
        async def errand(ctx: Context, number: int, manner: str) -> int:
            arms: Callable[[int], list[Intent]] | None = None
            if manner == "carried":
                arms = lambda chosen: [Intent(STEP, pay, chosen, timeout=timeout, settle=SETTLE)]  # noqa: E731
            chosen = await ctx.step("choose", choose, number, arms=arms)
            function = pay_in_a_thread if manner == "blocking" else pay
            return expected_result(await ctx.step(STEP, function, chosen, timeout=timeout, **terms))

        return errand

    return {kind: make(kind) for kind in KINDS}


def call_in_pieces(ledger: Ledger, trap: Trap, effect_id: str, number: int) -> None:
    """Make a call, and come to the trap's place while it is under way."""
    delays = {"sent": {"delay_before_ms": ON_ITS_WAY}, "recorded": {"delay_after_ms": LATE_ANSWER}}
    delay = delays.get(str(trap.place), {})
    with closing(http.client.HTTPConnection("127.0.0.1", ledger.port)) as connection:
        body = json.dumps({"name": STEP, "body": number, "caller": os.getpid()})
        trap.reach("sending")
        connection.request("POST", f"/calls/{effect_id}?{urlencode(delay)}", body)
        # On loopback it has arrived as soon as it is sent: no kill can prevent that.
        trap.reach("sent")
        while not ledger.seen(effect_id):
            time.sleep(0.005)
        trap.reach("recorded")
        connection.getresponse().read()
