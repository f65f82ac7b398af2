"""The application of the demo: an agent that deploys a service in ten steps. Its workers are ``holdfast worker``.

The model is a script, so that the demo needs only this machine. Everything else is as for any agent: tools with their
risk and their effect, a plan, a budget, an approval, a deadline. A tool's effect on the world is a line in the ledger.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from holdfast import Holdfast
from holdfast.agent.agent import Agent
from holdfast.agent.scripted import ScriptedModel, call
from holdfast.agent.tool import tool
from holdfast.cli.demo.ledger import What, note, read
from holdfast.model.agent_state import AgentState, KnownFact
from holdfast.model.budget import Budget
from holdfast.model.doubt import Absent, Happened
from holdfast.model.patch import StatePatch
from holdfast.model.task import JsonValue

LEDGER, PACE = "DEMO_LEDGER", "DEMO_PACE"
"""Environment variables for the workers: the ledger's file, and how many times slower than usual the tools are."""

PLAN = {
    "check_status": "Check current status",
    "collect_config": "Collect config",
    "build_image": "Build the image",
    "run_tests": "Run the tests",
    "push_image": "Push the image",
    "backup_database": "Back up the database",
    "migrate_schema": "Migrate the schema",
    "apply_changes": "Apply changes",
    "verify_health": "Verify again",
    "switch_traffic": "Switch traffic",
}
"""The tool of each step of the plan."""
STEPS = tuple(PLAN)
FATAL_STEP = STEPS[7]

_FILE = Path(os.environ.get(LEDGER, "ledger.txt"))
_PACE = float(os.environ.get(PACE, "1"))
_SECONDS = 0.35 * _PACE
_ANSWER_SECONDS = 3.0 * _PACE
"""Seconds between the changes and their answer. Long enough for a kill in between, also on a busy machine. Not longer,
because a take-over has to wait for it."""


async def do_work(step: str, effect_id: str) -> None:
    """Do what a step does: take some time, and leave a line in the ledger."""
    await asyncio.sleep(_SECONDS)
    note(_FILE, What.DID, step, effect_id)


@tool(risk="read_only")
async def check_status(service: str, effect_id: str) -> str:
    """Say which version of a service runs."""
    await do_work("check_status", effect_id)
    return f"{service} runs 1.1"


@tool(risk="read_only")
async def collect_config(service: str, effect_id: str) -> dict[str, str]:
    """Read the settings of a service."""
    await do_work("collect_config", effect_id)
    return {"service": service, "namespace": "production", "replicas": "3"}


@tool(risk="write_local", effect="idempotent")
async def build_image(service: str, version: str, effect_id: str) -> str:
    """Build the image of a version."""
    await do_work("build_image", effect_id)
    return f"{service}:{version}"


@tool(risk="read_only")
async def run_tests(image: str, effect_id: str) -> str:
    """Run the tests of an image."""
    await do_work("run_tests", effect_id)
    return f"all tests of {image} passed"


@tool(risk="write_local", effect="idempotent")
async def push_image(image: str, effect_id: str) -> str:
    """Push an image to the registry."""
    await do_work("push_image", effect_id)
    return f"{image} is in the registry"


@tool(risk="write_local", effect="once")
async def backup_database(service: str, effect_id: str) -> str:
    """Back up the database of a service."""
    await do_work("backup_database", effect_id)
    return f"backup {service}-before-1.2"


@tool(risk="write_local", effect="once")
async def migrate_schema(service: str, version: str, effect_id: str) -> str:
    """Migrate the database of a service to the schema of a version."""
    await do_work("migrate_schema", effect_id)
    return f"the schema of {service} is at {version}"


async def was_applied(effect_id: str, image: str, replicas: int) -> Happened | Absent:
    """Look into the ledger whether the changes were made."""
    note(_FILE, What.ASKED, "apply_changes", effect_id)
    did = read(_FILE).pids(What.DID, "apply_changes", effect_id)
    return Happened(f"{replicas} replicas of {image} are up") if did else Absent()


@tool(
    risk="write_local", effect="once", reconcile=was_applied, timeout=_ANSWER_SECONDS + 0.5 * _PACE, settle=0.2 * _PACE
)
async def apply_changes(image: str, replicas: int, effect_id: str) -> str:
    """Start replicas of an image beside the ones that serve traffic."""
    await do_work("apply_changes", effect_id)
    await asyncio.sleep(_ANSWER_SECONDS)  # it has happened, but the worker does not know it yet
    return f"{replicas} replicas of {image} are up"


@tool(risk="read_only")
async def verify_health(service: str, effect_id: str) -> str:
    """Ask the new replicas how they are."""
    await do_work("verify_health", effect_id)
    return f"3 of 3 replicas of {service} are healthy"


@tool(risk="external_action", effect="once")
async def switch_traffic(service: str, version: str, effect_id: str) -> str:
    """Send the users of a service to a version."""
    await do_work("switch_traffic", effect_id)
    return f"{service} {version} serves all traffic"


def observe(name: str, arguments: Mapping[str, JsonValue], result: JsonValue, state: AgentState) -> StatePatch | None:
    """Put a tool's result into the agent's state: its step of the plan is done, and its answer is a fact."""
    del arguments, state
    if name not in PLAN:
        return None
    following = STEPS[STEPS.index(name) + 1 :][:1]
    return StatePatch(
        complete_steps=(PLAN[name],),
        current_step=PLAN[following[0]] if following else None,
        append_facts=(KnownFact(key=PLAN[name], value=result, source=name),),
    )


GOAL = "Deploy billing 1.2 to production."

TOOLS = (
    *(check_status, collect_config, build_image, run_tests, push_image),
    *(backup_database, migrate_schema, apply_changes, verify_health, switch_traffic),
)

_SCRIPT = ScriptedModel(
    [
        call("update_plan", plan=list(PLAN.values()), current_step=PLAN[STEPS[0]]),
        call("check_status", service="billing"),
        call("collect_config", service="billing"),
        call("build_image", service="billing", version="1.2"),
        call("run_tests", image="billing:1.2"),
        call("push_image", image="billing:1.2"),
        call("backup_database", service="billing"),
        call("migrate_schema", service="billing", version="1.2"),
        call("apply_changes", image="billing:1.2", replicas=3),
        call("verify_health", service="billing"),
        call("switch_traffic", service="billing", version="1.2"),
        "billing 1.2 is live.",
    ]
)

hold = Holdfast()

deploy = hold.register(
    Agent(
        "deploy",
        instructions="You deploy services. Write down your plan first, then follow it.",
        tools=TOOLS,
        model=_SCRIPT,
        budget=Budget(max_steps=30, max_wall_time_ms=300_000, max_llm_tokens=30_000),
        approve=["external_action"],
        observe=observe,
        builtins=["update_plan"],
        deadline=timedelta(minutes=10),
    )
)
