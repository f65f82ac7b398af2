"""The first state of an agent's task: from its text, the agent's rules, the task before it, and its start.

    EMPTY -> what the task before it knew (after=) -> the start (state=, plan=, facts=, artifacts=)

The agent's constraints and budget count too, and a start can only tighten them. The first state is version 1. The first
attempt writes it, or a patch from outside that comes earlier, while no worker has the task. Both write the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.engine.api.definition import AgentRules, Definitions, TaskDefinition
from holdfast.engine.api.start import START, SUBMITTER, start_in
from holdfast.engine.manage.artifacts import link_to
from holdfast.engine.manage.past_state import EMPTY, fold
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import Unreadable
from holdfast.model.errors import PRUNED, InvalidValue, NotFound
from holdfast.model.operations import LinkArtifact
from holdfast.model.patch import StatePatch, apply
from holdfast.model.state_size import fit_patch
from holdfast.model.task import JsonValue, Task
from holdfast.store.base import StateStore

GIVEN = "submitted with this state"
"""The reason of the first patch if a start was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The operations that write the first state."""

    patch: StatePatch
    links: tuple[LinkArtifact, ...]
    """Links to the artifacts in the first state."""
    author: str
    reason: str

    @property
    def state(self) -> AgentState:
        """The first state."""
        return apply(EMPTY, fit_patch(self.patch))


def first_patch(rules: AgentRules, text: str, start: StatePatch, before: AgentState = EMPTY) -> StatePatch:
    """Return the patch that makes the first state: the text of this task, and what earlier tasks knew."""
    known = apply(
        AgentState(
            goal=text,
            plan=before.plan,
            known_facts=before.known_facts,
            open_questions=before.open_questions,
            artifacts=before.artifacts,
            current_step=before.current_step,
            completed_steps=before.completed_steps,
        ),
        start,
    )
    return StatePatch(
        goal=known.goal,
        constraints=rules.constraints.tightened(known.constraints),
        budget=rules.budget.tightened(known.budget),
        replace_plan=known.plan or None,
        append_facts=known.known_facts,
        add_questions=known.open_questions,
        add_artifacts=known.artifacts,
        set_flags=known.risk_flags,
        current_step=known.current_step,
        complete_steps=known.completed_steps,
    )


async def opening(
    store: StateStore, rules: AgentRules, task_id: str, text: str, *, start: StatePatch, before: AgentState = EMPTY
) -> Opening:
    """Return the opening of an agent's task."""
    patch = first_patch(rules, text, start, before)
    links = tuple(LinkArtifact(link_to(artifact)) for artifact in patch.add_artifacts)
    if start.is_empty:
        return Opening(patch=patch, links=links, author=SUBMITTER, reason="")
    submitted, *_ = await call_store(partial(store.history, task_id))
    return Opening(patch=patch, links=links, author=submitted.actor, reason=GIVEN)


async def opening_of(store: StateStore, definitions: Definitions, task: Task) -> Opening | None:
    """Return the opening of a task that has no state yet; None if it does not belong to an agent defined here."""
    definition = definitions.get(task.name)
    if definition is None or definition.rules is None:
        return None
    text, after = _asked(definition, task.user_input)
    before = EMPTY if after is None else await state_before(store, definitions, after)
    return await opening(store, definition.rules, task.id, text, start=start_in(task.user_input), before=before)


async def state_before(store: StateStore, definitions: Definitions, task_id: str) -> AgentState:
    """Return the last state of the task that another task continues."""
    task = await call_store(partial(store.get, task_id))
    if task is None:  # it existed when the other task was submitted
        raise NotFound("task", task_id, where=PRUNED)
    if task.version > 0:
        return fold(await call_store(partial(store.patches, task_id)))
    never_begun = await opening_of(store, definitions, task)
    return EMPTY if never_begun is None else never_begun.state


def _asked(definition: TaskDefinition[..., Any], user_input: JsonValue) -> tuple[str, str | None]:
    """Return the text of an agent's task, and the id of the task that it continues."""
    if isinstance(user_input, Unreadable):
        raise InvalidValue(f"the stored input of {definition.name!r} {user_input}")
    args, named = definition.read_input(user_input)
    text, after = (args[0] if args else named.get("text")), named.get("after")
    if not isinstance(text, str) or not isinstance(after, str | None):
        raise InvalidValue(f"the stored input of {definition.name!r} is not the input of an agent: {START}")
    return text, after
