"""The mission: an agent of twelve steps, six answers and six calls, of every kind of effect, that talks to a ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from holdfast import (
    Absent,
    Agent,
    AgentState,
    Budget,
    Happened,
    Holdfast,
    KnownFact,
    Price,
    StatePatch,
    StepState,
    TaskDefinition,
    TaskState,
    Tool,
    tool,
)
from holdfast.agent.model import Model
from holdfast.agent.scripted import call
from holdfast.model.task import JsonValue
from holdfast.testing.chat_server import Answer
from holdfast.testing.ledger import Entry, Ledger
from tests.proof.agent.outcome import Outcome
from tests.proof.agent.watching import Trail
from tests.proof.engine.conditions import eventually

Strategy: TypeAlias = Literal["every_step", "every_iteration", "on_state_change"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

PLAN = ["Look around", "Clean up", "Apply changes", "Verify again"]
PAUSE = 0.01
"""Seconds between two words of an answer, so that one can be interrupted."""

TIMEOUT, SETTLE = 8.0, 1.0
"""Seconds of the call that must not be made twice: as short as a busy machine allows, as the next worker waits for
them."""

SCRIPT = (
    Answer(text="I look around first.", calls=(call("check_disk"),), pause=PAUSE),
    Answer(text="Now I know what to do.", calls=(call("update_plan", plan=PLAN, current_step=PLAN[1]),), pause=PAUSE),
    Answer(
        text="I read the logs while I clean up.",
        calls=(call("read_logs"), call("clean_logs", folder="/var/log")),
        pause=PAUSE,
    ),
    Answer(text="There is room.", calls=(call("apply_changes", service="billing", version="1.2"),), pause=PAUSE),
    Answer(text="Does it run?", calls=(call("check_health", service="billing"),), pause=PAUSE),
    Answer(text="I freed 20 GB and billing runs 1.2.", pause=PAUSE),
)
RESULT = SCRIPT[-1].text
STEPS = len(SCRIPT) + sum(len(answer.calls) for answer in SCRIPT)

PURE = frozenset({"check_disk", "update_plan", "read_logs", "check_health"})
LIMITS = Budget(max_steps=20, max_llm_tokens=1_000_000, max_wall_time_ms=3_600_000, max_cost=50)
PRICES = {"small": Price(input=1, output=2)}


def most_lost(strategy: Strategy, *, limited: bool) -> int:
    """Return how many answers one kill can cost: those that were thought since the last thing that had to be durable.

    The promise of the strategies, for this script. A reservation makes everything before it durable, so with limits
    there is never more than one.
    """
    if limited or strategy != "on_state_change":
        return 1
    waiting = most = 0
    for answer in SCRIPT:
        waiting += 1
        most = max(most, waiting)
        if any(made.name not in PURE for made in answer.calls):
            waiting = 0
    return most


def define(
    hold: Holdfast, model: Model, ledger: Ledger, trail: Trail, number: int, *, strategy: Strategy, limited: bool
) -> TaskDefinition[..., str]:
    """Register the agent for mission ``number``."""
    return hold.register(
        Agent(
            "devops",
            instructions="You are an autonomous DevOps agent.",
            model=model,
            tools=make_tools(ledger, trail, number),
            budget=LIMITS if limited else None,
            prices=PRICES,
            checkpoint=strategy,
            observe=observe,
        )
    )


def make_tools(ledger: Ledger, trail: Trail, number: int) -> list[Tool]:
    """Return the tools. Each tells the ledger, and the trail where it is."""

    async def do(name: str, effect_id: str) -> None:
        trail.reach(f"entered {name}")
        await ledger.call_async(effect_id, name, body=number)
        trail.reach(f"did {name}")

    def logs_are_cleaned() -> bool:
        """Say whether the call beside it is over, so that all runs have the same order: first that one, then this."""
        if not trail.was_at("entered clean_logs"):
            return any((entry.name, entry.body) == ("clean_logs", number) for entry in ledger.entries())
        return trail.was_at("after clean_logs:3.1 completed")

    @tool(risk="read_only")
    async def check_disk(effect_id: str) -> tuple[str, StatePatch]:
        """Check current disk usage."""
        await do("check_disk", effect_id)
        fact = KnownFact(key="disk", value="95%", source="df")
        return "Disk Usage: 95% (CRITICAL). Large folder: /var/log", StatePatch(append_facts=(fact,))

    @tool(risk="read_only")
    async def read_logs(effect_id: str) -> str:
        """Read the logs. They are long."""
        await do("read_logs", effect_id)
        await eventually("the logs are cleaned", logs_are_cleaned)
        return "\n".join(f"{line} nothing unusual" for line in range(400))

    @tool(risk="write_local", effect="idempotent")
    async def clean_logs(folder: str, effect_id: str) -> tuple[str, StatePatch]:
        """Delete old logs to free space."""
        await do("clean_logs", effect_id)
        fact = KnownFact(key="freed", value="20 GB", source=folder)
        return "Logs cleaned. Freed 20GB.", StatePatch(append_facts=(fact,), complete_steps=(PLAN[0],))

    async def was_applied(effect_id: str, service: str, version: str) -> Happened | Absent:
        trail.reach("amid reconcile")
        calls = await asyncio.to_thread(ledger.seen, effect_id)
        return Happened(_applied(service, version)) if calls else Absent()

    @tool(effect="once", reconcile=was_applied, timeout=TIMEOUT, settle=SETTLE)
    async def apply_changes(service: str, version: str, effect_id: str) -> str:
        """Deploy a version of a service."""
        await do("apply_changes", effect_id)
        return _applied(service, version)

    @tool(risk="read_only")
    async def check_health(service: str, effect_id: str) -> dict[str, JsonValue]:
        """Ask a service how it is."""
        await do("check_health", effect_id)
        return {"service": service, "healthy": True}

    return [check_disk, read_logs, clean_logs, apply_changes, check_health]


def observe(name: str, arguments: Mapping[str, JsonValue], result: JsonValue, state: AgentState) -> StatePatch | None:
    """Turn a tool's result into a change of the state."""
    if name != "check_health":
        return None
    fact = KnownFact(key=str(arguments["service"]), value=result, source=name)
    return StatePatch(append_facts=(fact,), complete_steps=(*state.plan[:2],))


def _applied(service: str, version: str) -> str:
    return f"{service} is at {version}"


def check_end(outcome: Outcome) -> None:
    """Check that an undisturbed mission is correct: otherwise comparing with it proves nothing."""
    assert (outcome.state, outcome.result) == (TaskState.COMPLETED, RESULT)
    assert outcome.spent_steps == len(outcome.transcript) == STEPS
    assert len(outcome.agent_state.known_facts) == 3
    assert len(outcome.agent_state.artifacts) == 1
    assert all(state is StepState.COMPLETED for _, _, state in outcome.steps)


def check_world(calls: Sequence[Entry]) -> None:
    """Compare with the ledger: each call under one effect id, and the one that must not be made twice made once."""
    counts = Counter(call.name for call in calls)
    assert counts.keys() == {*PURE, "clean_logs", "apply_changes"} - {"update_plan"}
    assert counts["apply_changes"] == 1, calls
    assert len({(call.name, call.effect_id) for call in calls}) == len(counts), calls
