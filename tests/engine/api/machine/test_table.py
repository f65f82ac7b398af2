"""What may be declared, what is refused and how, and the diagram."""

# ruff: noqa: ANN401, ARG001 - a handler takes its ctx and data, whatever they are and whether it needs them or not

import re
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast import Context, DuplicateName, Holdfast, IllegalMove, InvalidValue, Machine, SyncContext
from holdfast.model.machine import TransitionTable
from tests.engine.api.machine.support import TICKET


async def onwards(ctx: Context, data: Any) -> str:
    raise NotImplementedError


def ticket(**changes: Any) -> Machine[Any]:
    return Machine("ticket", **{**TICKET, **changes})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"initial": "old"}, "its initial state 'old' has no line"),
        ({"transitions": {"new": ["fixd"], "fixed": ["new"]}}, "'new' leads to 'fixd', which is not a state"),
        ({"transitions": {"new": ["rejected"], "lost": ["verified"]}}, "'lost' cannot be reached from 'new'"),
        ({"final": ["verified", "rejected", "gone"]}, "'gone' cannot be reached from 'new'"),
        ({"final": ["verified", "rejected", "fixed"]}, "'fixed' is final and has exits to 'verified', 'triaged'"),
        ({"final": []}, "it has no final state and would never end"),
        (
            {"transitions": {"new": [], "triaged": ["verified"]}},
            "'new' has no exits; give it some, or name it in final",
        ),
        (
            {
                "transitions": {"new": ["rejected", "a"], "a": ["b"], "b": ["a", "b"]},
                "final": ["rejected"],
            },
            "from 'b' no final state can be reached",
        ),
        ({"transitions": {"new": ["x" * 61]}}, "has 61 characters"),
        ({"transitions": {"new": [7]}}, "the name of a state is 7; it has to be a string"),
        ({"initial": ""}, "the name of a state is empty"),
    ],
)
def test_a_table_that_could_not_be_followed_is_refused_with_what_to_do(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(complaint)):
        ticket(**changes)


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(InvalidValue) as caught:
        ticket(initial="old", final=[])
    assert all(part in str(caught.value) for part in ["'old'", "no final state", "'verified', which is not a state"])


@pytest.mark.parametrize("name", ["", "x" * 61, "holdfast:mine", "two\nlines", None])
def test_a_machine_has_a_name_that_a_journal_can_hold(name: Any) -> None:
    with pytest.raises(InvalidValue):
        Machine(name, **TICKET)


def test_a_state_has_one_handler_and_only_states_do() -> None:
    machine = ticket()
    machine.state("new")(onwards)
    with pytest.raises(DuplicateName, match="'new' of machine 'ticket' has a handler already"):
        machine.state("new")(onwards)
    with pytest.raises(InvalidValue, match=r"no state 'nwe'; it has new, triaged, fixed, verified, rejected"):
        machine.state("nwe")
    with pytest.raises(InvalidValue, match="'verified' is a final state"):
        machine.state("verified")
    with pytest.raises(InvalidValue, match="timeout of state 'triaged' is 0 seconds"):
        machine.state("triaged", timeout=0)


def test_a_handler_takes_the_context_and_the_data() -> None:
    async def of_the_context(ctx: Context) -> str:
        raise NotImplementedError

    with pytest.raises(InvalidValue, match=r"async def handler\(ctx, data\)"):
        ticket().state("new")(of_the_context)  # type: ignore[arg-type]


def test_a_machine_is_registered_once_all_its_states_have_handlers() -> None:
    hold, machine = Holdfast("memory://"), ticket()
    machine.state("new")(onwards)
    with pytest.raises(InvalidValue, match="no handler for 'triaged', 'fixed'"):
        hold.register(machine)
    machine.state("triaged")(onwards)
    machine.state("fixed")(onwards)
    task = hold.register(machine)
    assert task.name == "ticket"
    with pytest.raises(DuplicateName):
        hold.register(machine)
    Holdfast("memory://").register(machine)


def test_what_is_not_a_definition_is_not_registered() -> None:
    with pytest.raises(InvalidValue, match="is not a task definition"):
        Holdfast("memory://").register(onwards)  # type: ignore[arg-type]


class Plain(Enum):
    NEW = "new"
    DONE = "done"


class Text(StrEnum):
    NEW = "new"
    DONE = "done"


@pytest.mark.parametrize("states", [Plain, Text])
def test_states_may_be_the_members_of_an_enum(states: type[Plain] | type[Text]) -> None:
    machine: Machine[Any] = Machine("m", initial=states.NEW, transitions={states.NEW: states.DONE}, final=states.DONE)

    @machine.state(states.NEW)
    def begin(ctx: SyncContext, data: Any) -> Plain | Text:
        return states.DONE

    assert machine.table.states == ("new", "done")


# The diagram


def test_the_diagram_shows_every_state_and_move() -> None:
    machine = ticket(transitions={"new": {"rejected": "spam", "triaged": ""}, "triaged": "verified"})
    assert machine.mermaid().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> new",
        "    new --> rejected: spam",
        "    new --> triaged",
        "    triaged --> verified",
        "    verified --> [*]",
        "    rejected --> [*]",
    ]


def test_names_that_a_diagram_cannot_use_stand_for_themselves_in_quotes() -> None:
    machine: Machine[Any] = Machine(
        "m",
        initial="in review",
        transitions={"in review": {"state_1": "all; of\nit"}, "state_1": ["end"]},
        final=["end"],
    )
    assert machine.mermaid().splitlines() == [
        "stateDiagram-v2",
        '    state "in review" as state_2',
        '    state "end" as state_3',
        "    [*] --> state_2",
        "    state_2 --> state_1: all#59; of it",
        "    state_1 --> state_3",
        "    state_3 --> [*]",
    ]


@some.composite
def tables(draw: some.DrawFn) -> dict[str, Any]:
    """Tables of a few states, most of which are not fit for use."""
    states = [f"s{number}" for number in range(draw(some.integers(1, 6)))]
    final = draw(some.lists(some.sampled_from(states), unique=True, max_size=2))
    exits = some.lists(some.sampled_from(states), unique=True, max_size=4)
    return {
        "initial": "s0",
        "transitions": {state: draw(exits) for state in states if state not in final},
        "final": final,
    }


@given(tables())
def test_a_table_is_taken_exactly_if_every_state_lies_on_a_way_from_the_beginning_to_an_end(
    table: dict[str, Any],
) -> None:
    moves = {**table["transitions"], **{state: [] for state in table["final"]}}
    ways = {state: _reached_from(state, moves) for state in moves}
    is_fit = all(state in ways["s0"] and ways[state] & {*table["final"]} for state in moves)
    try:
        TransitionTable("m", **table)
    except InvalidValue:
        assert not is_fit
    else:
        assert is_fit


@given(tables(), some.data())
def test_moves_are_allowed_exactly_as_the_table_and_the_diagram_say(
    table: dict[str, Any], data: some.DataObject
) -> None:
    try:
        machine: Machine[Any] = Machine("m", **table)
    except InvalidValue:
        return
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", machine.mermaid(), re.MULTILINE))
    source = data.draw(some.sampled_from(machine.table.states))
    target = data.draw(some.sampled_from([*machine.table.states, "elsewhere"]))
    if target in table["transitions"].get(source, []):
        machine.table.check_move(source, target)
        assert (source, target) in drawn
    else:
        with pytest.raises(IllegalMove, match=f"is in '{source}' and cannot go to '{target}'"):
            machine.table.check_move(source, target)
        assert (source, target) not in drawn


def _reached_from(start: str, moves: dict[str, list[str]]) -> set[str]:
    reached: set[str] = {start}
    while more := {target for state in reached for target in moves[state]} - reached:
        reached |= more
    return reached
