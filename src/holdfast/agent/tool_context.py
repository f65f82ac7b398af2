"""What a tool may know about the agent that calls it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.engine.manage.artifacts import Artifacts
from holdfast.engine.manage.memory import Memory
from holdfast.model.agent_state import AgentState


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Given to a tool that has a parameter annotated with it. To change the state, return a StatePatch."""

    task_id: str
    agent_id: str
    step_key: str
    """The key of this call's step."""
    effect_id: str
    """Stable over retries and workers: an idempotency key."""
    state: AgentState
    """The agent's state as it is now."""
    artifacts: Artifacts
    """The store's artifacts: ``await context.artifacts.read_text(artifact_id)``."""
    memory: Memory
    """What agents remember beyond one task."""
