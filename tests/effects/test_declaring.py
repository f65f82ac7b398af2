"""Declaring an effect: the function stays what it was, for callers, for the engine and for type checkers."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import get_type_hints

import pytest

from holdfast import EffectClass, InvalidValue, effects
from holdfast.effects import Probed, create_file, effect, insert_row, run_command
from holdfast.engine.steps.call import describe
from holdfast.model.doubt import Absent, Happened, Outcome


@effect("once")
def send(address: str, text: str = "", *, effect_id: str) -> list[str]:
    """Send a mail."""
    return [address, text, effect_id]


@send.reconciled_by
def was_sent(effect_id: str, address: str, text: str = "") -> Outcome:
    return Happened([address, text, effect_id]) if address else Absent()


@send.compensated_by
async def apologise(result: list[str], address: str, text: str = "") -> None: ...


@effect(EffectClass.IDEMPOTENT, reconcile=was_sent, compensate=apologise)
async def send_later(address: str) -> int:
    return len(address)


def test_a_declared_function_is_still_called_like_one() -> None:
    assert send("ann", "hello", effect_id="1") == ["ann", "hello", "1"]
    assert (send.__name__, send.__doc__) == ("send", "Send a mail.")


async def test_so_is_an_async_one() -> None:
    assert await send_later("ann") == 3


def test_it_carries_what_was_declared() -> None:
    assert (send.effect, send.reconcile, send.compensate) == (EffectClass.ONCE, was_sent, apologise)
    assert (send_later.effect, send_later.reconcile) == (EffectClass.IDEMPOTENT, was_sent)
    assert send_later.compensate is apologise
    assert repr(send) == "<once effect send>"


def test_the_engine_sees_through_it() -> None:
    sync = describe(send)
    assert (sync.is_async, sync.returns, sync.takes_effect_id) == (False, list[str], True)
    later = describe(send_later)
    assert (later.is_async, later.returns, later.takes_effect_id) == (True, int, False)
    assert list(inspect.signature(send).parameters) == ["address", "text", "effect_id"]


@pytest.mark.parametrize(
    "tool",
    [
        create_file,
        insert_row(lambda: None, "t"),  # type: ignore[arg-type,return-value]  # never connected
        run_command(["true"], markers="/somewhere"),
        effects.http_request("POST", "http://localhost/"),
    ],
    ids=["file", "row", "command", "http"],
)
def test_so_it_does_through_the_ready_made_ones(tool: Probed[..., object]) -> None:
    known = describe(tool)
    assert known.takes_effect_id
    assert known.returns is get_type_hints(tool)["return"]
    assert known.is_async is inspect.iscoroutinefunction(tool.function)
    assert tool.effect is EffectClass.ONCE


def test_an_effect_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidValue, match="pure, idempotent, once"):
        effect("twice")


def test_every_name_is_there_and_errors_are_named_as_they_are_imported() -> None:
    assert len(set(effects.__all__)) == len(effects.__all__)
    for name in effects.__all__:
        found = getattr(effects, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert found.__module__ == "holdfast.effects"


def test_importing_them_loads_no_client_and_no_driver() -> None:
    code = "import sys, holdfast.effects; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"httpx2", "psycopg", "sqlite3", "apsw"}.isdisjoint(loaded)
