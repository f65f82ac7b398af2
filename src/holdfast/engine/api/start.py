"""The start of an agent's task: what its state holds from the beginning, as the caller of ``submit`` gives it.

It is a StatePatch that is stored with the task's arguments, in the same transaction. So it counts as an argument: the
same key with another start is a KeyConflict. The first attempt, or a patch from outside that comes earlier, makes the
first state from it: see ``first_state``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from holdfast.engine.api.definition import Bound, Definitions, TaskDefinition
from holdfast.engine.manage.artifacts import link_to
from holdfast.model.agent_state import AgentState, ArtifactRef, KnownFact
from holdfast.model.budget import Budget
from holdfast.model.checks import check_integer, check_name
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import LinkArtifact
from holdfast.model.patch import StatePatch
from holdfast.model.payload import from_json
from holdfast.model.records import Artifact
from holdfast.model.state_size import check_patch_size
from holdfast.model.task import JsonValue
from holdfast.model.transitions import OPEN
from holdfast.store.base import StateStore

SUBMITTER: Final = "submit"
"""The source of facts that are given without a source."""

START: Final = "start"
"""The argument of an agent's task that holds the start."""

Facts: TypeAlias = Sequence[KnownFact] | Mapping[str, JsonValue]
"""Facts, or a dict of keys and values: then the submitter is their source."""
ArtifactNames: TypeAlias = Sequence[ArtifactRef | Artifact | str]
"""Artifacts as in a state, as ``hold.artifacts.write`` returned them, or their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a caller of ``submit`` gives in addition to the text."""

    state: AgentState | None = None
    plan: Sequence[str] | None = None
    facts: Facts | None = None
    artifacts: ArtifactNames | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was given."""
        return all(one is None for one in (self.state, self.plan, self.facts, self.artifacts))


async def starting(
    store: StateStore,
    definitions: Definitions,
    task: TaskDefinition[..., Any] | Bound[Any] | str,
    many: Sequence[Sequence[Any]],
    start: Start,
) -> tuple[list[Bound[Any]], StatePatch]:
    """Return an agent's task for each of these arguments with the start, and the start as it is stored."""
    definition = _agent(definitions, task)
    patch, goal = await patch_of(store, start), "" if start.state is None else start.state.goal
    bound: list[Bound[Any]] = []
    for args in many:
        text, named = _text_and_rest(definition, task, args, goal)
        given = patch if goal in {"", text} else replace(patch, goal=goal)
        more = {} if given.is_empty else {START: given.to_json()}
        bound.append(definition.bind(text, **named, **more))
    return bound, patch


def as_state(
    definitions: Definitions, task: object, args: tuple[Any, ...], start: Start
) -> tuple[tuple[Any, ...], Start]:
    """If an AgentState is given in place of an agent's text, use it as the state, and its goal as the text."""
    if len(args) != 1 or not isinstance(args[0], AgentState):
        return args, start
    _agent(definitions, task)
    if start.state is not None:
        raise InvalidValue("two states are given, one by position and one as state=; give only one")
    return (), replace(start, state=args[0])


def start_in(user_input: JsonValue) -> StatePatch:
    """Return the start that is stored with the arguments of a task; empty if there is none. Raises InvalidValue."""
    given = _stored_start(user_input)
    return StatePatch() if given is None else StatePatch.from_json(from_json(given, Any, name=START), START)


def with_start_of(user_input: JsonValue, origin: JsonValue) -> JsonValue:
    """Return arguments with the start of the origin's arguments, unless they have their own start."""
    start = _stored_start(origin)
    if start is None or _stored_start(user_input) is not None:
        return user_input
    args, named = (user_input["args"], user_input["kwargs"]) if isinstance(user_input, dict) else (user_input, {})
    return {"args": args or [], "kwargs": {**named, START: start}}


def _stored_start(user_input: JsonValue) -> JsonValue:
    named = user_input.get("kwargs") if isinstance(user_input, dict) else None
    return named.get(START) if isinstance(named, dict) else None


def limits_with_start(definition: TaskDefinition[..., Any], user_input: JsonValue) -> Mapping[str, int]:
    """Check the start in the arguments of a task; return the limits of its budget.

    Raises InvalidValue for a start that is not valid.
    """
    if definition.rules is None or (start := start_in(user_input)).is_empty:
        return definition.budget_limits
    check_patch_size(start)
    for artifact in start.add_artifacts:
        check_name("artifact id", artifact.artifact_id)
        check_integer("the bytes of an artifact", artifact.bytes, lowest=0)
    if start.budget is None:
        return definition.budget_limits
    if start.budget.max_cost is not None and definition.unpriced is not None:
        raise InvalidValue(f"a max_cost of {definition.name!r} would never be reached: {definition.unpriced}")
    tight = definition.rules.budget.tightened(start.budget)
    return {str(meter): limit for meter, limit in tight.limits().items()}


async def link_artifacts(store: StateStore, task_ids: Iterable[str], start: StatePatch, *, by: str) -> None:
    """Link the artifacts of the start to the tasks, so that no prune deletes them before the tasks start."""
    links = tuple(LinkArtifact(link_to(artifact)) for artifact in start.add_artifacts)
    if links:
        # Only open tasks: the key may be that of an earlier task that has ended, and needs no link.
        guard = [(task_id, Expect(states=OPEN)) for task_id in task_ids]
        await store.commit([Commit(task_id=one, guard=open_, operations=links, actor=by) for one, open_ in guard])


# What the caller gave


def _agent(definitions: Definitions, task: object) -> TaskDefinition[..., Any]:
    definition: object = task.definition if isinstance(task, Bound) else task
    if isinstance(definition, str):
        definition = definitions.get(definition)
    if not isinstance(definition, TaskDefinition) or definition.rules is None:
        name = definition.name if isinstance(definition, TaskDefinition) else task
        raise InvalidValue(
            f"{name!r} cannot start with state=, plan=, facts= or artifacts=; only agents registered here can"
        )
    return definition


def _text_and_rest(
    definition: TaskDefinition[..., Any], task: object, args: Sequence[Any], goal: str
) -> tuple[Any, dict[str, Any]]:
    """Return the text for the agent, by default the goal of its state, and its keyword arguments."""
    named: dict[str, Any] = {}
    if isinstance(task, Bound):
        if args:
            raise InvalidValue("give the arguments to bind() or to submit(), not to both")
        read, named = definition.read_input(task.user_input)
        args = read or ([named.pop("text")] if "text" in named else [])
        if START in named:
            raise InvalidValue(f"the arguments were bound with a {START} already; give the state in one place")
    if len(args) > 1:
        raise InvalidValue(f"{definition.name!r} takes one text; {len(args)} arguments were given")
    if not args and not goal:
        raise InvalidValue(f"give {definition.name!r} a text, or a state with a goal")
    return (args[0] if args else goal), named


async def patch_of(store: StateStore, start: Start) -> StatePatch:
    """Return the start as the patch that is stored, without the goal. Raises InvalidValue."""
    state = _checked(start.state)
    plan = state.plan if start.plan is None else _texts("plan", start.plan)
    patch = StatePatch(
        append_facts=(*state.known_facts, *_facts(start.facts)),
        replace_plan=plan or None,
        add_questions=state.open_questions,
        add_artifacts=(
            *state.artifacts,
            # They belong to the current step: a model is shown the artifacts of its current step.
            *[await _artifact(store, one, state.current_step) for one in _listed(start.artifacts)],
        ),
        set_flags=state.risk_flags,
        current_step=state.current_step,
        complete_steps=state.completed_steps,
        constraints=state.constraints if state.constraints.human_in_the_loop is not None else None,
        budget=state.budget if state.budget != Budget(on_exhausted=state.budget.on_exhausted) else None,
    )
    return StatePatch.from_json(patch.to_json(), START)


def _checked(state: AgentState | None) -> AgentState:
    if state is None:
        return AgentState(goal="")
    if not isinstance(state, AgentState):
        raise InvalidValue(
            f"state is a {type(state).__name__}; give an AgentState, or AgentState.from_json(...) of a JSON document"
        )
    try:
        # A dataclass does not check the values of its fields.
        return AgentState.from_json(state.to_json())
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(f"the state holds a value that is not valid: {error}") from None


def _texts(what: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not all(isinstance(x, str) for x in given):
        raise InvalidValue(f"{what} is {given!r}; give a list of texts")
    return tuple(given)


def _facts(given: Facts | None) -> tuple[KnownFact, ...]:
    if isinstance(given, Mapping):
        return tuple(KnownFact(key=str(key), value=value, source=SUBMITTER) for key, value in given.items())
    facts: object = () if given is None else given
    if isinstance(facts, str | bytes) or not isinstance(facts, Sequence):
        raise InvalidValue(f"facts is {facts!r}; give a list of KnownFact, or a dict of keys and values")
    for fact in facts:
        if not isinstance(fact, KnownFact):
            raise InvalidValue(f"{fact!r} is not a KnownFact; write KnownFact(key=..., value=..., source=...)")
    return tuple(facts)


def _listed(given: ArtifactNames | None) -> Sequence[ArtifactRef | Artifact | str]:
    if given is None:
        return ()
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidValue(f"artifacts is {given!r}; give a list of artifacts, or of their ids")
    return given


async def _artifact(store: StateStore, given: ArtifactRef | Artifact | str, step: str | None) -> ArtifactRef:
    """Return an artifact as it is listed in a state. Raises InvalidValue if it is not in this store."""
    if not isinstance(given, ArtifactRef | Artifact | str):
        raise InvalidValue(f"{given!r} is not an artifact; give an artifact from hold.artifacts.write, or its id")
    artifact_id = given.artifact_id if isinstance(given, ArtifactRef) else given if isinstance(given, str) else given.id
    stored = await store.artifact(check_name("artifact id", artifact_id))
    if stored is None:
        raise InvalidValue(
            f"artifact {artifact_id!r} is not in this store; put it there first: await hold.artifacts.write(...), "
            "or add_artifact over MCP"
        )
    if isinstance(given, ArtifactRef):
        return replace(given, bytes=stored.size, step=given.step if given.step is not None else step)
    return ArtifactRef(artifact_id=stored.id, type=stored.media_type, summary="", bytes=stored.size, step=step)
