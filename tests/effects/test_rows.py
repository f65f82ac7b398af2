"""insert_row on a real SQLite file and a real PostgreSQL server."""

from __future__ import annotations

import sqlite3  # noqa: TID251 - a user's own database, in a file that Holdfast never opens
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import InvalidValue
from holdfast.effects import Impossible, NotReached, Probed, RowRefused, insert_row
from holdfast.model.doubt import Absent, Happened, Outcome
from tests.postgres_server import PostgresServer, free_port

ID = "0f8b7c9e-1111-5222-8333-444455556666"
Connect = Callable[[], Any]

TABLE = """
CREATE TABLE payments (
    id INTEGER PRIMARY KEY,
    effect_id TEXT UNIQUE,
    invoice TEXT UNIQUE,
    amount INTEGER CHECK (amount > 0)
)
"""


@pytest.fixture(params=["sqlite3", "psycopg"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    if request.param == "sqlite3":
        yield partial(sqlite3.connect, tmp_path / "shop.db", timeout=30)
        return
    server: PostgresServer = request.getfixturevalue("postgres18")
    url = server.create_database()
    yield partial(psycopg.connect, url)
    server.drop_database(url)


@pytest.fixture
def payments(connect: Connect) -> Connect:
    execute(connect, TABLE)
    return connect


def execute(connect: Connect, statement: str) -> list[tuple[Any, ...]]:
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = list(cursor.fetchall()) if cursor.description else []
        connection.commit()
        return rows


def is_sqlite(connect: Connect) -> bool:
    with closing(connect()) as connection:
        return isinstance(connection, sqlite3.Connection)


def ask(tool: Probed[..., str], row: dict[str, Any]) -> Outcome:
    assert tool.reconcile is not None
    outcome = tool.reconcile(ID, row)
    assert isinstance(outcome, Happened | Absent)
    return outcome


def test_a_row_is_inserted_under_the_effect_id(payments: Connect) -> None:
    tool = insert_row(payments, "payments")
    row = {"id": 7, "invoice": "A-17", "amount": 5}
    assert ask(tool, row) == Absent()
    assert execute(payments, "SELECT * FROM payments") == [], "to ask is not to insert"
    assert tool(row, effect_id=ID) == ID
    assert execute(payments, "SELECT id, effect_id, invoice, amount FROM payments") == [(7, ID, "A-17", 5)]
    assert ask(tool, row) == Happened(ID)


def test_a_second_insert_under_the_same_id_does_nothing(payments: Connect) -> None:
    """Also where the row breaks every other constraint too, being the same row."""
    tool = insert_row(payments, "payments")
    row = {"id": 7, "invoice": "A-17", "amount": 5}
    for _ in range(2):
        assert tool(row, effect_id=ID) == ID
    assert execute(payments, "SELECT COUNT(*) FROM payments") == [(1,)]


@pytest.mark.parametrize(
    "row", [{"id": 1, "invoice": "taken"}, {"id": 2, "amount": -1}], ids=["another's invoice", "a check"]
)
def test_what_the_database_refuses_is_proof(payments: Connect, row: dict[str, Any]) -> None:
    execute(payments, "INSERT INTO payments (id, invoice) VALUES (99, 'taken')")
    tool = insert_row(payments, "payments")
    with pytest.raises(RowRefused):
        tool(row, effect_id=ID)
    assert execute(payments, "SELECT id FROM payments") == [(99,)]


def test_a_database_that_cannot_be_reached_is_proof_but_no_answer(tmp_path: Path) -> None:
    gone = f"postgresql://ann@127.0.0.1:{free_port()}/none"
    connections: list[Connect] = [partial(sqlite3.connect, tmp_path / "no" / "where"), partial(psycopg.connect, gone)]
    for connect in connections:
        tool = insert_row(connect, "payments")
        with pytest.raises(NotReached):
            tool({"amount": 5}, effect_id=ID)
        with pytest.raises((sqlite3.OperationalError, psycopg.OperationalError)):
            ask(tool, {"amount": 5})


def test_a_key_without_a_constraint_is_refused(connect: Connect) -> None:
    """Otherwise the second insert would be an unnoticed second row."""
    execute(connect, "CREATE TABLE loose (effect_id TEXT, amount INTEGER)")
    tool = insert_row(connect, "loose")
    with pytest.raises(Exception, match=r"(?i)on conflict"):
        tool({"amount": 5}, effect_id=ID)
    with pytest.raises(Exception, match=r"(?i)on conflict"):
        ask(tool, {"amount": 5})
    assert execute(connect, "SELECT * FROM loose") == []


def test_a_key_column_that_does_not_exist_is_not_taken_for_a_text(payments: Connect) -> None:
    """SQLite reads a quoted name that it does not know as a string, where it can."""
    with pytest.raises(Exception, match="effekt"):
        ask(insert_row(payments, "payments", key_column="effekt"), {"amount": 5})


@pytest.mark.parametrize(
    "name", ['with "quotes"', "with 100% sense", "with %s", "with ?", 'x"; DROP TABLE y; --', "ä b"]
)
def test_names_are_names_whatever_is_in_them(connect: Connect, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    execute(connect, f"CREATE TABLE {quoted} (effect_id TEXT UNIQUE, {quoted} TEXT)")
    tool = insert_row(connect, name)
    tool({name: "it's 100 %s"}, effect_id=ID)
    assert execute(connect, f"SELECT * FROM {quoted}") == [(ID, "it's 100 %s")]
    assert ask(tool, {name: "it's 100 %s"}) == Happened(ID)


def test_a_table_may_be_named_with_its_schema(connect: Connect) -> None:
    schema = "main" if is_sqlite(connect) else "public"
    execute(connect, "CREATE TABLE plain (effect_id TEXT UNIQUE)")
    tool = insert_row(connect, (schema, "plain"))
    tool({}, effect_id=ID)
    assert execute(connect, "SELECT * FROM plain") == [(ID,)]


def test_a_row_cannot_bring_a_key_of_its_own(payments: Connect) -> None:
    with pytest.raises(Impossible, match="effect id"):
        insert_row(payments, "payments")({"effect_id": "mine"}, effect_id=ID)


@pytest.mark.parametrize("wrong", ["", "nul\0", 5])
def test_an_invalid_name_is_refused(payments: Connect, wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidValue):
        insert_row(payments, wrong if wrong != 5 else (wrong,))
    with pytest.raises(Impossible):
        insert_row(payments, "payments")({wrong: 1}, effect_id=ID)


def test_autocommit_is_refused_because_a_question_could_not_be_taken_back(payments: Connect) -> None:
    def automatic() -> Any:  # noqa: ANN401
        connection = payments()
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        else:
            connection.autocommit = True
        return connection

    tool = insert_row(automatic, "payments")
    with pytest.raises(Impossible, match="autocommit"):
        tool({"amount": 5}, effect_id=ID)
    with pytest.raises(Impossible, match="autocommit"):
        ask(tool, {"amount": 5})
    assert execute(payments, "SELECT * FROM payments") == []


def test_a_connection_of_a_class_of_the_users_own_is_understood(tmp_path: Path) -> None:
    class Careful(sqlite3.Connection):
        pass

    connect = partial(sqlite3.connect, tmp_path / "shop.db", factory=Careful)
    execute(connect, TABLE)
    assert insert_row(connect, "payments")({"amount": 5}, effect_id=ID) == ID


def test_something_that_is_not_a_connection_is_refused() -> None:
    class Nothing:
        def close(self) -> None: ...

    with pytest.raises(Impossible, match="not a connection"):
        insert_row(Nothing, "payments")({}, effect_id=ID)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_commit_that_is_still_under_way_is_waited_for(payments: Connect, end: str) -> None:
    """The worker is gone, its transaction is not: to look for the row would find nothing, in both cases."""
    answers: list[Outcome] = []
    asking = threading.Thread(
        target=lambda: answers.append(ask(insert_row(payments, "payments"), {"id": 1, "amount": 5}))
    )
    with closing(payments()) as under_way:
        under_way.cursor().execute(f"INSERT INTO payments (id, effect_id, amount) VALUES (1, '{ID}', 5)")
        assert execute(payments, "SELECT * FROM payments") == []
        asking.start()
        asking.join(0.5)
        answered_early = bool(answers)
        getattr(under_way, end)()
    asking.join()
    assert not answered_early, "it answered before that was decided"
    assert answers == [Happened(ID) if end == "commit" else Absent()]


class Unlucky:
    """A connection that is lost at its commit: after the database heard of it, or before."""

    heard: bool

    def commit(self) -> None:
        if self.heard:
            super().commit()  # type: ignore[misc]
        raise ConnectionResetError("the connection was lost")


class UnluckySqlite(Unlucky, sqlite3.Connection): ...


class UnluckyPostgres(Unlucky, psycopg.Connection[Any]): ...


@pytest.mark.parametrize("heard", [True, False])
def test_a_commit_without_an_answer_is_not_a_proof_and_reconcile_finds_out(
    payments: partial[Any], heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unlucky, "heard", heard, raising=False)
    lost = (
        partial(payments, factory=UnluckySqlite)
        if is_sqlite(payments)
        else partial(UnluckyPostgres.connect, *payments.args)
    )
    row = {"id": 1, "amount": 5}
    with pytest.raises(ConnectionResetError):
        insert_row(lost, "payments")(row, effect_id=ID)
    assert ask(insert_row(payments, "payments"), row) == (Happened(ID) if heard else Absent())


def test_a_connection_that_the_server_ends_is_not_a_proof(postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    execute(partial(psycopg.connect, url), TABLE)

    class Ended(psycopg.Connection[Any]):
        def commit(self) -> None:
            execute(partial(psycopg.connect, url), f"SELECT pg_terminate_backend({self.info.backend_pid}, 60000)")
            super().commit()

    with pytest.raises(psycopg.OperationalError):
        insert_row(partial(Ended.connect, url), "payments")({"id": 1}, effect_id=ID)
    assert ask(insert_row(partial(psycopg.connect, url), "payments"), {"id": 1}) == Absent()
