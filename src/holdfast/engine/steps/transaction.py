"""Doing a transaction: the task's own SQL and the line of its journal, in one transaction of the database.

It is the only kind of step that is done exactly once. After a crash, either both are there or neither is. So a
transaction without a record has written nothing, and its function is called again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.engine.attempt.exits import as_failure
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.runtime.services import Services
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.steps.call import (
    ONE_TRY,
    Call,
    Compensation,
    StepLine,
    Terms,
    as_compensation,
    describe,
    effect_id,
    fix_arguments,
)
from holdfast.engine.steps.one_try import after_failure, begin, digest_arguments, failure_of, recordable, tries_of
from holdfast.engine.steps.open_transaction import SyncTransaction, Transaction
from holdfast.engine.steps.step import replay, written_with
from holdfast.engine.steps.waits import pause_until
from holdfast.model.errors import InvalidValue, JournalMismatch, ReadOnlyStore, StepFailed, StoreBusy, StoreUnavailable
from holdfast.model.failure import Exited, Try
from holdfast.model.operations import Operation
from holdfast.model.step import OVER, Step, StepState
from holdfast.store.transaction import StoreTransaction

TIMEOUT = 10.0
"""Seconds for which a transaction may stay open by default."""

_KIND = "transaction"


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


def transaction_call(
    key: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    name: str,
    timeout: float,
    returns: Any,  # noqa: ANN401
    terms: Terms | None,
) -> Call:
    """Return one call of ``ctx.transaction``."""
    return Call(key, function, args, ONE_TRY, timeout, returns, kind=_KIND, name=name, terms=terms)


def undo_terms(name: str, compensate: Callable[..., Any] | Compensation | None) -> Terms | None:
    """Return how a transaction is undone: by another transaction, or, with a Compensation, by a step."""
    undo = as_compensation(name, compensate)
    if undo is None:
        return None
    return Terms(compensate=undo, undone_in_transaction=not isinstance(compensate, Compensation))


async def run_transaction(attempt: StepOwner, call: Call, *, repeat: bool) -> Any:  # noqa: ANN401
    """Return the recorded result, or do the transaction, which also records its result."""
    if attempt.over or attempt.stopping is not None:
        raise Unwind
    fix_arguments(call)  # after a rollback the function is called again, and must get the same arguments
    if call.terms is not None:
        attempt.discovery.announce(call)
    recorded = attempt.find(call.key, _KIND)
    if (
        recorded is not None
        and recorded.state in OVER
        and (attempt.discovery.is_under_way or recorded.undone_at is None)
    ):
        if recorded.state is StepState.FAILED:
            await attempt.discovery.let_branches_pass()
        await attempt.take_turn(recorded)
        return await replay(attempt, call, recorded, _type_of(call))
    line, tries = begin(attempt, call, recorded, await digest_arguments(attempt, call.args)), tries_of(recorded)
    earlier = None if repeat or recorded is not None else _earlier(attempt, call, line.digest)
    if earlier is not None:
        return await _adopt(attempt, call, line, earlier)
    undone = recorded.effect_id or "" if recorded is not None and recorded.undone_at is not None else ""
    line.effect_id = effect_id(attempt.task.id, attempt.task.round, call.key, after=undone)  # seen by later rounds
    return await _do(attempt, call, line, tries)


async def run_undo(attempt: StepOwner, call: Call) -> None:
    """Undo a transaction by another one, which also records the undo."""
    fix_arguments(call)
    recorded = attempt.find(call.key, call.kind)
    if recorded is not None and recorded.state is StepState.FAILED:
        raise StepFailed(failure_of(recorded), step=call.key)
    if recorded is None or recorded.state is not StepState.COMPLETED:
        if recorded is not None and recorded.retry_at is not None:
            await pause_until(attempt, recorded, recorded.retry_at)
        await _do(
            attempt,
            call,
            begin(attempt, call, recorded, await digest_arguments(attempt, call.args)),
            tries_of(recorded),
        )


async def _do(attempt: StepOwner, call: Call, line: StepLine, tries: tuple[Try, ...]) -> Any:  # noqa: ANN401
    timeout = TIMEOUT if call.timeout is None else call.timeout
    while True:
        await attempt.begin_work()
        done = await call_store(lambda: _try(attempt, call, line, timeout))
        if not isinstance(done, _Failed):
            return done
        await attempt.check()  # the error of a step that was being stopped has no meaning
        tries = await after_failure(attempt, call, line, tries, done.error)
        line.attempts += 1


def _earlier(attempt: StepOwner, call: Call, arguments: str) -> Step | None:
    """Return the same transaction of an earlier round: with the same arguments, or under the same key."""
    journal = attempt.journal

    def counts(step: Step) -> bool:
        return step.kind == _KIND and step.state is StepState.COMPLETED and step.undone_at is None

    if (made := journal.made_before(call.name, call.key, {arguments} - {""}, counts)) is not None:
        return made
    same_key = journal.earlier(call.key)
    if same_key is None or not counts(same_key) or journal.is_reserved(same_key, call.key):
        return None
    return None if journal.has_other_input and same_key.digest != arguments else same_key


async def _adopt(attempt: StepOwner, call: Call, line: StepLine, earlier: Step) -> Any:  # noqa: ANN401
    """Record the result of an earlier round as the result of this round."""
    if earlier.digest and earlier.digest != line.digest:
        attempt.fatal = JournalMismatch(
            f"transaction {call.key!r} of task {attempt.task.id} was done in an earlier round, with other arguments "
            "than the code now passes. Give the new one another name, or pass repeat=True to do it in each round"
        )
        raise attempt.fatal
    value = await replay(attempt, call, earlier, _type_of(call))
    line.effect_id, now = earlier.effect_id, attempt.services.time.now()
    await attempt.outbox.commit(line.written(attempt.task, StepState.COMPLETED, output=earlier.output, finished_at=now))
    return value


async def _try(attempt: StepOwner, call: Call, line: StepLine, timeout: float) -> Any:  # noqa: ANN401
    """Do the transaction. Raises only errors of the store after which it can be done again."""
    began = attempt.services.time.now()

    async def work(opened: StoreTransaction) -> tuple[Any, tuple[Operation, ...]]:
        by = attempt.lease.worker_id
        transaction = Transaction(attempt.services, opened, labels=attempt.task.labels, by=by)
        value = await call_in(attempt.services, transaction, call.function, call.args_to_call_with())
        result = await recordable(attempt, call, value, _type_of(call))
        result.check()  # then nothing of the transaction is written
        attempt.under_way.end(line)
        line.began = began
        now = attempt.services.time.now()
        written = line.written(attempt.task, StepState.COMPLETED, output=result.output, finished_at=now)
        return result.value, (written, *written_with(attempt, call, line, result.value))

    # Without a start time the engine does not record it as running. That record would wait for the transaction, and
    # then overwrite its line.
    line.began = None
    attempt.under_way.begin(line)
    try:
        return await attempt.outbox.transact(work, timeout=timeout)
    except (StoreUnavailable, StoreBusy, ReadOnlyStore):
        raise
    except Exception as error:  # noqa: BLE001 - the policy decides what it means
        line.began = began
        return _Failed(error)
    finally:
        attempt.under_way.end(line)


async def transact(services: Services, function: Callable[..., Any], args: tuple[Any, ...], *, timeout: float) -> Any:  # noqa: ANN401
    """Do a transaction outside of any task."""

    async def work(opened: StoreTransaction) -> tuple[Any, None]:
        return await call_in(services, Transaction(services, opened, labels={}), function, args), None

    try:
        value, _ = await services.store.transact(work, timeout=timeout)
    except Exited as exited:
        raise exited.error from None
    return value


async def call_in(
    services: Services, transaction: Transaction, function: Callable[..., Any], args: tuple[Any, ...]
) -> Any:  # noqa: ANN401
    """Call a function with its transaction: an async function here, any other in a thread."""
    if describe(function).is_async:
        branch = asyncio.current_task()
        try:
            return await function(transaction, *args)
        except Exception:
            raise
        except BaseException as error:
            if services.owner.is_other:
                raise  # a process that was forked inside the function ends, and has nothing to roll back
            raise as_failure(error, branch) from None
    blocking = SyncTransaction(transaction, asyncio.get_running_loop())
    value = await services.threads.run(lambda: function(blocking, *args))
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidValue(
            f"{function!r} is not an async function but returned a coroutine; pass the async function itself, and its "
            "arguments after it"
        )
    return value


def _type_of(call: Call) -> Any:  # noqa: ANN401
    return describe(call.function).returns if call.returns is None else call.returns
