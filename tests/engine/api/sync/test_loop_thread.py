"""The thread under hold.sync, with something else inside."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast import StoreClosed
from holdfast.engine.api.sync import loop_thread
from holdfast.engine.api.sync.loop_thread import LoopThread


class Room:
    """A context manager that records what happened to it, and takes a given time to open."""

    def __init__(self, *, slow: bool = False) -> None:
        self.slow = slow
        self.opening = threading.Event()
        self.events: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.opening.set()
        try:
            if self.slow:
                await asyncio.sleep(3600)
            self.events.append("open")
            yield
        finally:
            self.events.append("closed")


def test_an_interrupt_while_it_opens_stops_the_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(slow=True)

    def interrupted(*_: object) -> None:
        assert room.opening.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop_thread, "_outcome", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LoopThread(room.open()).start()
    assert room.events == ["closed"]


def test_an_interrupt_before_the_loop_runs_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    hold_back = threading.Event()
    run = LoopThread._run

    def late(thread: LoopThread) -> None:
        assert hold_back.wait(60)
        run(thread)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LoopThread, "_run", late)
    monkeypatch.setattr(loop_thread, "_outcome", interrupted)
    threading.Timer(0.1, hold_back.set).start()
    with pytest.raises(KeyboardInterrupt):
        LoopThread(room.open()).start()
    assert room.events == []


def test_an_interrupted_call_has_ended_before_the_interrupt_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    room, begun = Room(), threading.Event()
    thread = LoopThread(room.open())
    thread.start()

    async def call() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            room.events.append("call ended")

    def interrupted(*_: object) -> None:
        assert begun.wait(60)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop_thread, "_outcome", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.wait(call())
    assert room.events == ["open", "call ended"]
    thread.stop()
    assert room.events == ["open", "call ended", "closed"]


def test_calls_that_race_with_its_end_are_answered_or_refused_but_never_forgotten() -> None:
    """Whatever was taken is run or cancelled: a caller that waits for nothing would wait for ever."""

    async def one() -> int:
        await asyncio.sleep(0)
        return 1

    def call(thread: LoopThread, answers: list[int | None]) -> None:
        while True:
            try:
                answers.append(thread.wait(one()))
            except StoreClosed:
                answers.append(None)
                return

    for _ in range(50):
        thread = LoopThread(Room().open())
        thread.start()
        answers: list[int | None] = []
        callers = [threading.Thread(target=call, args=(thread, answers)) for _ in range(4)]
        for caller in callers:
            caller.start()
        thread.stop()
        for caller in callers:
            caller.join(60)
            assert not caller.is_alive()
        assert answers.count(None) == len(callers)


def test_an_end_from_within_is_raised_where_it_is_stopped_and_refuses_calls() -> None:
    thread = LoopThread(Room().open())
    thread.start()

    async def leave() -> None:
        raise SystemExit(7)

    thread.send(leave())
    thread._thread.join(60)
    with pytest.raises(StoreClosed):
        thread.wait(asyncio.sleep(0))
    with pytest.raises(SystemExit):
        thread.stop()
