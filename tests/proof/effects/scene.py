"""A scene with two workers: one that is frozen, cut off or killed, and the heir that takes its task over."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from holdfast import Handle, Holdfast
from holdfast.model.doubt import Decision, Doubt
from holdfast.model.effect import Effect, Evidence
from holdfast.testing.ledger import Entry, Ledger
from tests.proof.effects.errand import TIMEOUT, Errand, define, expected_result
from tests.proof.effects.life import Life, Orders
from tests.proof.effects.roads import Kind, Manner
from tests.proof.effects.trap import Trap
from tests.proof.engine.conditions import eventually
from tests.proof.engine.test_frozen_worker import everything_about

LEASE = 2.5
"""Seconds: short, as a test waits for its end, and yet long enough for living workers to keep it."""

_numbers = itertools.count(1)
"""Of tasks: all scenes share a ledger, which knows them by their numbers."""


@dataclass
class Scene:
    """One task, a store and a ledger."""

    url: str
    ledger: Ledger
    folder: Path
    kind: Kind = "checked"
    manner: Manner = "async"
    timeout: float = TIMEOUT
    number: int = field(default_factory=lambda: next(_numbers))
    """Of the task that both work on."""
    hold: Holdfast = field(init=False)
    errand: Errand = field(init=False)
    handle: Handle[int] = field(init=False)

    async def __aenter__(self) -> Self:
        self.hold = Holdfast(self.url)
        self.errand = define(self.hold, self.ledger, Trap(None, lambda: None), timeout=self.timeout)[self.kind]
        await self.hold.__aenter__()
        self.handle = await self.submit(self.number)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.hold.__aexit__(None, None, None)

    async def submit(self, number: int) -> Handle[int]:
        """Submit a task for the workers of this scene; the same one for the same number."""
        return await self.hold.submit(self.errand, number, self.manner, queue=f"errand-{self.number}", key=str(number))

    @property
    def gate(self) -> Path:
        """Once this file exists, the first worker goes on from where it is held."""
        return self.folder / "gate"

    def start(self, label: str, **orders: Any) -> Life:  # noqa: ANN401 - what Orders takes
        """Start a worker, which works until it is stopped."""
        return Life(
            Orders(
                url=self.url,
                ledger=self.ledger,
                log=self.folder / f"{label}.log",
                number=self.number,
                kind=self.kind,
                manner=self.manner,
                timeout=self.timeout,
                lease=LEASE,
                enough=self.folder / f"enough-{label}",
                **orders,
            )
        )

    # What is known

    async def everything(self) -> dict[str, Any]:
        """All that the store holds about the task, except evidence, which is there to be added to."""
        found = await everything_about(self.hold.store, self.handle.id)
        return {name: rows for name, rows in found.items() if not name.startswith("evidence")}

    async def effect(self) -> Effect:
        [effect] = await self.hold.store.effects(task_id=self.handle.id)
        return effect

    async def evidence(self) -> list[Evidence]:
        return await self.hold.store.evidence(self.handle.id, (await self.effect()).effect_id)

    async def until_evidence(self) -> None:
        async def is_there() -> bool:
            return bool(await self.evidence())

        await eventually("a late result is kept as evidence", is_there)

    async def until_doubt(self) -> Doubt:
        """Wait until a person is asked what happened."""
        open_ones: list[Doubt] = []

        async def is_asked() -> bool:
            doubts = await self.hold.doubts(self.handle)
            open_ones[:] = [doubt for doubt in doubts if Decision.ABSENT in doubt.decisions]
            return bool(open_ones)

        await eventually("a person is asked", is_asked)
        return open_ones[0]

    def calls(self) -> list[Entry]:
        """What the ledger says was really done for the task."""
        return [entry for entry in self.ledger.entries() if entry.body == self.number]


async def freeze_at_trap(scene: Scene, sleeper: Life) -> None:
    """Stop a worker right where it is held, and let it go on from there when it wakes up."""
    await sleeper.until_it_says("held")
    await sleeper.freeze()
    scene.gate.touch()


async def be_of_use_again(scene: Scene, sleeper: Life) -> None:
    """See that a worker lets go of what it lost, and does another task: by then it no longer works on the old one."""
    await sleeper.until_it_says("another worker has it")
    number = next(_numbers)
    later = await scene.submit(number)
    assert await later.result(timeout=60) == expected_result(number)
