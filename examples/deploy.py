"""A deploy agent: it plans, asks before it touches production, never applies twice, rolls back if the check fails."""

import asyncio
import os

from holdfast import Absent, Agent, Budget, Happened, Holdfast, ScriptedModel, TaskFailed, tool
from holdfast.agent.scripted import call

hold = Holdfast()
cluster: dict[str, str] = {}  # what runs in production: effect id -> version
PLAN = ["Check current status", "Apply changes", "Verify again"]


@tool(risk="read_only")
def status(service: str) -> str:
    "Return which version of a service runs."
    return next(reversed(cluster.values()), "nothing deployed") + f" ({service})"


def was_applied(effect_id: str, service: str, version: str) -> Happened | Absent:
    return Happened(f"{service} is at {version}") if effect_id in cluster else Absent()


def roll_back(result: str, service: str, version: str) -> None:
    cluster.clear()
    print(f"  rolled back {service} {version}")


@tool(risk="external_action", effect="once", reconcile=was_applied, compensate=roll_back)
def apply_changes(service: str, version: str, effect_id: str) -> str:
    "Deploy a version of a service."
    cluster[effect_id] = version
    return f"{service} is at {version}"


def healthy(ctx: object, result: str) -> bool | str:
    return "1.2" in result or "the health check fails: version 1.1 is known to be bad"


def agent(name: str, version: str) -> Agent:
    script = ScriptedModel(
        [
            call("update_plan", plan=PLAN, current_step=PLAN[0]),
            call("status", service="billing"),
            call("apply_changes", service="billing", version=version),
            f"billing runs {version}.",
            "It is right.",
            "I am sure.",
        ]
    )
    return Agent(
        name,
        instructions="You deploy services. Write down your plan first.",
        tools=[status, apply_changes],
        model=os.environ.get("HOLDFAST_MODEL") or script,
        budget=Budget(max_steps=30),
        approve=["external_action"],
        verify=healthy,
    )


good, bad = hold.register(agent("deploy", "1.2")), hold.register(agent("deploy-bad", "1.1"))


async def approve_everything() -> None:
    while True:
        for asked in await hold.approvals():
            print(f"  {asked.question}")
            await hold.approve(asked.id, by="ann", note="go ahead")
        await asyncio.sleep(0.05)


async def main() -> None:
    async with hold, hold.worker():
        ann = asyncio.create_task(approve_everything())
        print(await (await hold.submit(good, "Deploy billing 1.2")).result(timeout=60))
        try:
            print(await (await hold.submit(bad, "Deploy billing 1.1")).result(timeout=60))
        except TaskFailed as failed:
            print(f"failed: {failed.failure.message}")
        ann.cancel()


if __name__ == "__main__":
    asyncio.run(main())
