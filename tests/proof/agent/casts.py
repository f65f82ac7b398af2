"""Casts: the agents of each scene, as data that can be sent to another process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from holdfast import Absent, Agent, Budget, Happened, Holdfast, Retry, TaskDefinition, Tool, tool
from holdfast.agent.scripted import call
from holdfast.testing.chat_server import Answer
from holdfast.testing.ledger import Ledger
from tests.proof.agent import mission
from tests.proof.agent.life import Stage
from tests.proof.agent.mission import LIMITS, PAUSE, PRICES, SETTLE, TIMEOUT, Strategy


@dataclass(frozen=True)
class Mission:
    """The agent of one mission."""

    base_url: str
    ledger: Ledger
    number: int
    strategy: Strategy
    limited: bool

    def __call__(self, hold: Holdfast, stage: Stage) -> TaskDefinition[..., str]:
        model = stage.model(self.base_url)
        return mission.define(
            hold, model, self.ledger, stage.trail, self.number, strategy=self.strategy, limited=self.limited
        )


FAMILY_SCRIPT = (
    Answer(text="I have it looked up.", calls=(call("researcher", request="What is SQLite for?"),), pause=PAUSE),
    Answer(text="SQLite is for one machine.", pause=PAUSE),
)
RESEARCHER_SCRIPT = (
    Answer(text="I order the book.", calls=(call("order_book", title="SQLite"),), pause=PAUSE),
    Answer(text="It runs inside the process.", pause=PAUSE),
)


@dataclass(frozen=True)
class Family:
    """A lead that has its only tool, another agent, order a book."""

    base_url: str
    researcher_url: str
    ledger: Ledger
    number: int

    def __call__(self, hold: Holdfast, stage: Stage) -> TaskDefinition[..., str]:
        researcher = Agent(
            "researcher",
            description="Finds things out.",
            model=stage.model(self.researcher_url, of="researcher"),
            tools=[self._tool(stage)],
            queue=stage.queue,
            builtins=False,
            prices=PRICES,
        )
        return hold.register(
            Agent(
                "lead",
                model=stage.model(self.base_url),
                tools=[researcher.as_tool(share=0.5)],
                budget=LIMITS,
                prices=PRICES,
            )
        )

    def _tool(self, stage: Stage) -> Tool:
        async def was_ordered(effect_id: str, title: str) -> Happened | Absent:
            calls = await asyncio.to_thread(self.ledger.seen, effect_id)
            return Happened(f"{title} is on its way") if calls else Absent()

        @tool(effect="once", reconcile=was_ordered, timeout=TIMEOUT, settle=SETTLE)
        async def order_book(title: str, effect_id: str) -> str:
            """Order a book."""
            stage.trail.reach("entered order_book")
            await self.ledger.call_async(effect_id, "order_book", body=self.number)
            stage.trail.reach("did order_book")
            return f"{title} is on its way"

        return order_book


ASKING_SCRIPT = (
    Answer(text="One question.", calls=(call("ask_question", question="Which namespace?"),)),
    Answer(text="Then I deploy.", calls=(call("deploy", namespace="staging"),)),
    Answer(text="It runs in staging."),
)


@dataclass(frozen=True)
class Asking:
    """An agent that asks a person first for an answer, then for an approval."""

    base_url: str
    ledger: Ledger
    number: int

    def __call__(self, hold: Holdfast, stage: Stage) -> TaskDefinition[..., str]:
        @tool
        async def deploy(namespace: str, effect_id: str) -> str:
            """Deploy it."""
            await self.ledger.call_async(effect_id, "deploy", body=self.number)
            return f"deployed to {namespace}"

        return hold.register(
            Agent("asking", model=stage.model(self.base_url), tools=[deploy], approve=["external_action"])
        )


DISK_SCRIPT = (
    Answer(text="I look at the disk and the logs.", calls=(call("check_disk"), call("check_logs"))),
    Answer(text="Old logs fill it, so I delete them.", calls=(call("clean_logs"),)),
    Answer(text="The disk was full of logs. I freed 20GB."),
)
IDLE = 8.0
"""Seconds of silence after which an endpoint is taken to hang: more than a busy machine keeps one that works silent."""


@dataclass(frozen=True)
class Disk:
    """The agent that frees disk space, at an endpoint that may hang."""

    base_url: str
    ledger: Ledger
    number: int

    def __call__(self, hold: Holdfast, stage: Stage) -> TaskDefinition[..., str]:
        async def do(name: str, effect_id: str, result: str) -> str:
            await self.ledger.call_async(effect_id, name, body=self.number)
            return result

        @tool(risk="read_only")
        async def check_disk(effect_id: str) -> str:
            """Check current disk usage."""
            return await do("check_disk", effect_id, "Disk Usage: 95% (CRITICAL). Large folder: /var/log")

        @tool(risk="read_only")
        async def check_logs(effect_id: str) -> str:
            """Say how old the logs are."""
            return await do("check_logs", effect_id, "The oldest is of 1998.")

        @tool(risk="write_local", effect="idempotent")
        async def clean_logs(effect_id: str) -> str:
            """Delete old logs to free space."""
            return await do("clean_logs", effect_id, "Logs cleaned. Freed 20GB.")

        return hold.register(
            Agent(
                "devops",
                instructions="You are an autonomous DevOps agent.",
                model=stage.model(self.base_url, idle_timeout=IDLE),
                tools=[check_disk, check_logs, clean_logs],
                budget=Budget(max_steps=20, max_wall_time_ms=300_000, max_llm_tokens=200_000),
                model_retry=Retry(max_attempts=6, initial=0.05, jitter="none"),
            )
        )
