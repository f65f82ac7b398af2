"""What went wrong in the database, in our own words: no exception of psycopg leaves the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import conninfo

from holdfast.model.errors import (
    Conflict,
    HoldfastError,
    InvalidURL,
    LeaseHeld,
    NoPlace,
    NotFound,
    QueueFull,
    ReadOnlyStore,
    RowDamaged,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    WorkerDead,
)
from holdfast.model.flow_limit import Limit, limit_name, no_limit
from holdfast.model.pause import paused_message
from holdfast.model.task import stays_in_queue
from holdfast.model.worker import newer_keys_message
from holdfast.store.facts import foreign_fact

# Deadlock, serialization failure, lock not available, statement or transaction timeout: the database has undone
# everything.
_UNDONE = frozenset({"40P01", "40001", "55P03", "57014", "25P04"})
# A prepared statement that is not there, or is there already: another session answers than the one that prepared it.
_UNPREPARED = frozenset({"26000", "42P05"})
_NO_PRIVILEGE = "42501"
READ_ONLY = "25006"
# Insufficient resources (a full disk, no memory), operator intervention, system error, internal error: trouble of the
# server's own. What it was sent is not to blame, and may well succeed later.
_TROUBLE = ("53", "57", "58", "XX")
# Damaged data, a damaged index. It is waited for a person: to fail tasks, and to undo what they did, would be worse.
_DAMAGED = frozenset({"XX001", "XX002"})
# Cardinality, data, constraints, a view's check, limits of the program: what was sent is to blame, and always will be.
_CONTENT = ("21", "22", "23", "44", "54")
_TOO_LARGE = "invalid memory alloc request size"
# Undefined table, function, schema, column, type: not the schema this code speaks.
UNDEFINED = frozenset({"42P01", "42883", "3F000", "42703", "42704"})


def was_undone(error: psycopg.Error) -> bool:
    """Say whether the statement surely had no effect and may succeed when it is sent again."""
    return error.sqlstate in _UNDONE or error.sqlstate == READ_ONLY or is_trouble(error)


def is_damage(error: psycopg.Error) -> bool:
    """Say whether the server finds stored data damaged. Waiting does not mend that, and other rows may be whole."""
    return error.sqlstate in _DAMAGED


def is_trouble(error: psycopg.Error) -> bool:
    """Say whether the server cannot do what it was asked for now, whatever that was; nothing was done."""
    return (error.sqlstate or "").startswith(_TROUBLE) and not is_lost(error) and not _is_too_large(error)


def _is_too_large(error: psycopg.Error) -> bool:
    """Say whether a value is larger than the server can hold in memory: an internal error by number only."""
    return error.sqlstate == "XX000" and (error.diag.message_primary or "").startswith(_TOO_LARGE)


def is_lost(error: psycopg.Error) -> bool:
    """Say whether the connection or the server went away, which leaves the outcome of a write unknown."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(("08", "57P"))


def is_unprepared(error: psycopg.Error) -> bool:
    """Say whether a prepared statement did not run because the server has no such statement, or none that fits."""
    if error.sqlstate in _UNPREPARED:
        return True
    # "cached plan must not change result type": since it was prepared, a migration has changed what it returns.
    return error.sqlstate == "0A000" and error.diag.source_function == "RevalidateCachedQuery"


def is_refused(cause: BaseException | None) -> bool:
    """Say whether the database refused what it was sent for its content: sent again, it is refused again.

    Only such errors may refuse a Commit. Anything else says nothing about the task, and must not fail it.
    """
    if not isinstance(cause, psycopg.Error):
        return False
    return (cause.sqlstate or "").startswith(_CONTENT) or _is_too_large(cause)


def leaves_usable(error: psycopg.Error) -> bool:
    """Say whether the connection can be used for other statements after this error.

    After a fail-over it may lead to a server that can only be read from now on; a new connection may find the primary.
    """
    return error.sqlstate in _UNDONE or is_refused(error) or (error.sqlstate or "").startswith("HF")


def place(url: str) -> str:
    """Name the server and database of a URL for messages: never the password."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise InvalidURL(
            "the database URL cannot be read; write postgresql://user:password@host:5432/database"
        ) from None
    host = parts.get("host") or parts.get("hostaddr") or "the local server"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"database {parts.get('dbname') or parts.get('user') or 'default'} on {host}{port}"


def translate(error: psycopg.Error, where: str) -> HoldfastError:  # noqa: PLR0911 - one case a meaning
    """Return the error of our tree that says what this one means."""
    detail = error.diag.message_detail or ""
    words = (error.diag.message_primary or str(error)).strip().splitlines()
    message = words[0] if words else type(error).__name__
    match error.sqlstate:
        case "HF001" if message in _REFUSED_SUBMISSIONS:
            return _REFUSED_SUBMISSIONS[message](json.loads(detail))
        case "HF002" | "HF003" | "HF006" as state:
            return _in_our_words(state, detail)
        case state if state in UNDEFINED:
            return SchemaMismatch(f"the schema in {where} is not the one this version speaks ({message})")
        case state if state == READ_ONLY:
            return ReadOnlyStore(f"{where} can only be read ({message}); connect to the primary, or wait for one")
        case state if state == _NO_PRIVILEGE:
            return StoreError(f"{where}: {message}; let its owner grant the rights in grants.sql to this role")
    if is_damage(error):
        return RowDamaged(
            f"{where} has damaged data ({message}, SQLSTATE {error.sqlstate}), which no waiting mends; repair it, or "
            "restore a backup, nothing was written"
        )
    if is_trouble(error):
        trouble = StoreUnavailable(
            f"{where} cannot do its work ({message}, SQLSTATE {error.sqlstate}); see to the server, nothing was written"
        )
        trouble.refuses_statement = (error.sqlstate or "").startswith("XX")
        return trouble
    if is_lost(error) or was_undone(error):
        return StoreUnavailable(f"{where} cannot be reached or gave up ({message}); try again later")
    refused = StoreError(f"{where} refused a statement: {message} (SQLSTATE {error.sqlstate})")
    refused.refuses_statement = True
    return refused


def _in_our_words(state: str, detail: str) -> HoldfastError:
    match state:
        case "HF002":
            return WorkerDead(detail)
        case "HF003":
            return NotFound("task", detail)
        case _:
            return foreign_fact(detail)


def full_queue(detail: Mapping[str, Any]) -> QueueFull:
    """Return the error for a queue that a submission found full."""
    return QueueFull(detail["queue"], detail["limit"])


def no_place(detail: Mapping[str, Any]) -> NoPlace:
    """Return the error for a task that may not work now: its queue, or one of its limits, has no place."""
    return NoPlace(detail["task_id"], detail.get("queue", ""), detail.get("limit", 0), key=detail.get("key", ""))


def unknown_limit(detail: Mapping[str, Any]) -> HoldfastError:
    """Return the error for a key of no limit, or of another form than its limit asks for."""
    key, each = detail["key"], detail["each"]
    return no_limit(key, None if each is None else Limit(name=limit_name(key), each=each))


def _other_queue(there: Mapping[str, Any]) -> HoldfastError:
    return stays_in_queue(there["task"], there["queue"], there["wanted"])


_REFUSED_SUBMISSIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], HoldfastError]]] = {
    "full": full_queue,
    "limit": unknown_limit,
    "other queue": _other_queue,
}


def lease_refused(error: psycopg.Error, task_id: str, key_form: int) -> HoldfastError | None:
    """Return why a task could not be leased, if that is what the error says."""
    detail = error.diag.message_detail or ""
    match error.sqlstate:
        case "HF004":
            return LeaseHeld(task_id, detail)
        case "HF005":
            return Conflict(f"task {task_id} is {detail}; resume or retry it before working on it")
        case "HF008":
            return Conflict(paused_message(task_id, detail))
        case "HF009":
            return no_place(json.loads(detail))
        case "HF007":
            return Conflict(newer_keys_message(task_id, key_form=int(detail), spoken=key_form))
    return None


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn whatever psycopg raises in the block into an error of our tree."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, where) from error
