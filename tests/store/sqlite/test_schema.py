"""The schema defends what the model promises."""

from __future__ import annotations

import itertools
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.model.approval import ApprovalState
from holdfast.model.effect import EffectClass, EffectState
from holdfast.model.queries import Noun
from holdfast.model.step import StepState
from holdfast.model.task import FLAT_KEYS
from holdfast.model.transitions import TaskState, is_legal
from holdfast.store.idparts import about
from holdfast.store.sqlite.connection import MIGRATIONS, connect
from holdfast.store.sqlite.listings import approvals_query, effects_query
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.rows import TASK_COLUMNS
from holdfast.store.sqlite.sql import QUERIES


@pytest.fixture
def connection() -> apsw.Connection:
    made = connect(":memory:", durable=False)
    migrate(made, ":memory:")
    made.execute("""
        INSERT INTO tasks (id, name, agent_id, queue, priority, input_digest, search, state, rank, available_at,
                           created_at, updated_at)
        VALUES ('t', 'n', 'a', 'q', 0, '', '', 'pending', 0, 0, 0, 0)
    """)
    return made


def accepts(connection: apsw.Connection, sql: str, *values: object) -> bool:
    connection.execute("SAVEPOINT attempt")
    try:
        connection.execute(sql, values)
    except apsw.ConstraintError:
        return False
    finally:
        connection.execute("ROLLBACK TO attempt; RELEASE attempt")
    return True


def test_the_check_on_transitions_is_the_models_table(connection: apsw.Connection) -> None:
    sql = "INSERT INTO transitions VALUES ('t', 2, ?, ?, '', '', 0, 0)"
    allowed = {pair for pair in itertools.product(TaskState, TaskState) if accepts(connection, sql, *pair)}
    pairs = itertools.product(TaskState, TaskState)
    assert allowed == {(source, target) for source, target in pairs if is_legal(source, target, by_parent=True)}


def test_only_a_first_transition_may_come_from_nowhere(connection: apsw.Connection) -> None:
    sql = "INSERT INTO transitions VALUES ('t', ?, NULL, 'pending', '', '', 0, 0)"
    assert accepts(connection, sql, 1)
    assert not accepts(connection, sql, 2)


@pytest.mark.parametrize("state", TaskState)
def test_a_task_has_ended_if_and_only_if_it_says_when(connection: apsw.Connection, state: TaskState) -> None:
    sql = "UPDATE tasks SET ready = 0, state = ?, finished_at = ?"
    assert accepts(connection, sql, state, 1) == state.is_terminal
    assert accepts(connection, sql, state, None) != state.is_terminal


def test_no_ended_task_is_leased_and_no_leased_task_is_ready(connection: apsw.Connection) -> None:
    assert not accepts(connection, "UPDATE tasks SET state = 'failed', finished_at = 1, owner = 'w'")
    assert not accepts(connection, "UPDATE tasks SET ready = 1, owner = 'w'")
    assert accepts(connection, "UPDATE tasks SET ready = 1")


@pytest.mark.parametrize(
    ("table", "column", "names"),
    [
        ("tasks", "state", TaskState),
        ("steps", "state", StepState),
        ("effects", "state", EffectState),
        ("effects", "effect_class", EffectClass),
    ],
)
def test_every_enum_column_lists_the_enum(
    connection: apsw.Connection, table: str, column: str, names: type[TaskState]
) -> None:
    sql = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get
    listed = re.search(rf"CHECK \(({column} = '\w+'(?:\s+OR {column} = '\w+')*)\)", sql)
    assert listed is not None
    assert set(re.findall(r"'(\w+)'", listed[1])) == {str(name) for name in names}


def test_the_task_query_reads_the_columns_of_the_row_in_order() -> None:
    found = re.search(r"SELECT (.*?) FROM", QUERIES["task_row"])
    assert found is not None
    columns = tuple(re.split(r",\s*", found[1]))
    assert columns[:-1] == TASK_COLUMNS
    assert columns[-1].startswith("EXISTS")  # the last value is computed


def plan_of(connection: apsw.Connection, query: tuple[str, list[Any]]) -> str:
    sql, values = query
    return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values))


def test_open_approvals_are_found_without_reading_everything(connection: apsw.Connection) -> None:
    plan = plan_of(connection, approvals_query(task_id=None, states={ApprovalState.OPEN}, limit=100))
    assert "USING INDEX approvals_open" in plan


DOUBTFUL = (EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN)


@pytest.mark.parametrize(
    "states",
    [set(chosen) for size in (1, 2, 3) for chosen in itertools.combinations(DOUBTFUL, size)],
    ids=lambda states: " ".join(sorted(states)),
)
def test_doubts_are_found_without_reading_everything(connection: apsw.Connection, states: set[EffectState]) -> None:
    plan = plan_of(connection, effects_query(task_id=None, effect_id=None, states=states, limit=100))
    assert "SEARCH effects USING INDEX effects_in_doubt" in plan


def test_doubts_are_counted_without_reading_everything(connection: apsw.Connection) -> None:
    plan = plan_of(connection, (QUERIES["count_doubts"], []))
    assert "SEARCH effects USING COVERING INDEX effects_in_doubt" in plan


@pytest.mark.parametrize("states", [None, {EffectState.NEEDS_HUMAN}, {EffectState.DONE}], ids=str)
def test_an_effect_is_found_by_its_id(connection: apsw.Connection, states: set[EffectState] | None) -> None:
    plan = plan_of(connection, effects_query(task_id=None, effect_id="e", states=states, limit=100))
    assert plan == "SEARCH effects USING INDEX effects_by_id (effect_id=?)"


@pytest.mark.parametrize("noun", Noun)
def test_the_beginning_of_an_id_is_looked_up_in_an_index(connection: apsw.Connection, noun: Noun) -> None:
    plan = plan_of(connection, (about(noun, QUERIES["ids_that_begin"]), ["a", 10]))
    assert re.fullmatch(r"SEARCH \w+ USING (COVERING INDEX \w+|PRIMARY KEY) \(\w+>\? AND \w+<\?\)", plan)


def test_queues_are_counted_without_reading_what_has_ended(connection: apsw.Connection) -> None:
    assert "SCAN tasks USING INDEX tasks_open" in plan_of(connection, (QUERIES["queues"], [0]))


def test_no_query_is_prepared_again_for_each_value(tmp_path: Path) -> None:
    with closing(connect(str(tmp_path / "store.db"), durable=True)) as connection:
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1)


HOT = {
    "task_head": 1,
    "ending_head": 1,
    "advance": 3,
    "end": 4,
    "task_row": 1,
    "ready_tasks": 5,
    "suspect_tasks": 5,
    "lease_task": 6,
    "claimed_records": 2,
    "owned": 1,
    "owned_to_stop": 1,
    "worker_lease": 1,
    "pauses_by_kind": 0,
    "held_by_the_dead": 1,
    "due_timers": 2,
    "passed_deadlines": 2,
    "due_delayed": 2,
    "due_approvals": 2,
    "next_due": 0,
    "any_suspect": 0,
    "unfinished": 1,
    "wait_that_holds": 2,
    "waiting_for_channel": 2,
    "journal": 3,
    "task_by_id": 1,
    "task_by_key": 2,
    "position": 1,
    "position_at_submission": 2,
    "insert_input": 2,
    "next_event_number": 1,
}


@pytest.mark.parametrize(("query", "parameters"), HOT.items())
def test_no_hot_query_reads_a_whole_table(connection: apsw.Connection, query: str, parameters: int) -> None:
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[query]}", ("x",) * parameters)]
    # Going through a partial index from end to end is fine: it holds only the rows the query is about.
    scans = [line for line in plan if re.match(r"SCAN (?!\w+ USING (COVERING )?INDEX)(?!\(|CONSTANT)", line)]
    assert scans == [], plan
    assert not [line for line in plan if "TEMP B-TREE FOR ORDER BY" in line and query == "ready_tasks"]


def test_what_was_begun_before_scoped_keys_stays_flat(tmp_path: Path) -> None:
    """Begun by a claim, or by a line of its journal; and a process of the version before can claim nothing any more."""
    path = str(tmp_path / "store.db")
    with closing(connect(path, durable=True)) as old, closing(connect(path, durable=True)) as new:
        migrate(old, path, MIGRATIONS[:1])
        for task_id, fence in (("claimed", 1), ("fresh", 0), ("saved", 0)):
            old.execute(
                "INSERT INTO tasks (id, name, agent_id, queue, priority, input_digest, search, state, rank, "
                "available_at, created_at, updated_at, fence) "
                "VALUES (?, 'n', 'a', 'q', 0, '', '', 'pending', 0, 0, 0, 0, ?)",
                (task_id, fence),
            )
            old.execute("INSERT INTO inputs VALUES (?, x'31')", (task_id,))
            old.execute("INSERT INTO transitions VALUES (?, 1, NULL, 'pending', '', '', 0, 0)", (task_id,))
        old.execute(
            "INSERT INTO steps VALUES ('saved', 1, 'k', 'step', 1, 'completed', 1, 0, '', " + "NULL, " * 6 + "NULL)"
        )
        read_by_each_claim = "SELECT * FROM task_records WHERE id = 'fresh'"
        assert old.execute(read_by_each_claim).fetchall()
        migrate(new, path)
        forms = dict(new.execute("SELECT id, key_form FROM shown_tasks"))
        assert forms == {"claimed": FLAT_KEYS, "fresh": 0, "saved": FLAT_KEYS}
        assert new.execute("SELECT count(*) FROM transitions").get == 3
        with pytest.raises(apsw.SQLError, match="task_records"):
            old.execute(read_by_each_claim)


def test_a_prune_finds_trees_by_index(connection: apsw.Connection) -> None:
    plan = plan_of(connection, (QUERIES["prunable_tasks"], [0, 10]))
    assert "SEARCH t USING COVERING INDEX tasks_finished" in plan or "SEARCH t USING INDEX tasks_finished" in plan, plan
    assert plan.count("SEARCH c USING COVERING INDEX tasks_children (parent_id=?)") == 2, plan
    assert "SCAN tasks" not in plan
    assert not re.search(r"SCAN [tcmpe]\b", plan), plan
    assert "SEARCH e USING COVERING INDEX effects_in_doubt (state=? AND task_id=?)" in plan, plan


def test_a_prune_finds_events_by_index(connection: apsw.Connection) -> None:
    """Those that stay are passed over in the index of ages, with two looks by id each."""
    plan = plan_of(connection, (QUERIES["prune_events"], [0, 10]))
    assert "SEARCH e USING COVERING INDEX events_by_age (at<?)" in plan, plan
    assert "SEARCH t USING PRIMARY KEY (id=?)" in plan, plan
    assert "SEARCH f USING COVERING INDEX effects_by_id (effect_id=?)" in plan, plan
    assert "SCAN" not in plan, plan
    assert "TEMP B-TREE" not in plan, plan
