"""Machine: a task that goes through declared states, with one handler for each state.

    machine = Machine("ticket", initial="new", transitions={"new": ["triaged"], "triaged": ["fixed"]}, final=["fixed"])

    @machine.state("new")
    async def triage(ctx: Context, data: Any) -> str:
        return "triaged"

    ticket = hold.register(machine)
    handle = await hold.submit(ticket, {"title": "It does not start"})

``holdfast.engine.api.machine.visit`` runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar, overload

from holdfast.engine.api.definition import TaskDefinition, is_async
from holdfast.engine.api.handle import Handle
from holdfast.engine.api.machine import visit
from holdfast.engine.api.machine.visit import StateHandler
from holdfast.engine.api.sync.context import SyncContext
from holdfast.engine.attempt.context import Context
from holdfast.engine.attempt.journal import RESERVED
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import DuplicateName, InvalidValue
from holdfast.model.machine import Goto, Reached, StateName, TransitionTable, Visit, state_name
from holdfast.model.retry import Retry
from holdfast.model.task import DEFAULT_QUEUE

D = TypeVar("D")

Next: TypeAlias = StateName | Goto[D]
"""The return type of a handler."""
AsyncHandler: TypeAlias = Callable[[Context, D], Coroutine[Any, Any, Next[D]]]
BlockingHandler: TypeAlias = Callable[[SyncContext, D], Next[D]]


class Machine(Generic[D]):
    """Named states, the moves allowed between them, and one handler for each state that is not final."""

    @overload
    def __init__(
        self,
        name: str,
        *,
        initial: StateName,
        transitions: Mapping[Any, StateName | Iterable[StateName] | Mapping[Any, str]],
        final: StateName | Iterable[StateName],
        data: type[D],
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | timedelta | None = None,
        agent_id: str | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Machine[Any],
        name: str,
        *,
        initial: StateName,
        transitions: Mapping[Any, StateName | Iterable[StateName] | Mapping[Any, str]],
        final: StateName | Iterable[StateName],
        data: Any = Any,  # noqa: ANN401 - an annotation
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | timedelta | None = None,
        agent_id: str | None = None,
    ) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        initial: StateName,
        transitions: Mapping[Any, StateName | Iterable[StateName] | Mapping[Any, str]],
        final: StateName | Iterable[StateName],
        data: Any = Any,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | timedelta | None = None,
        agent_id: str | None = None,
    ) -> None:
        """Declare the table: for each state the states that may follow, ``{"new": ["triaged"]}``.

        With a dict instead of a list each move has a meaning, ``{"new": {"triaged": "a person read it"}}``, which is
        shown in the diagram and in the journal. ``data`` is the type of the data that the handlers pass on, if it is
        not plain JSON. The other options are those of ``hold.task``: a machine is a task.
        """
        self.table = TransitionTable(name, initial=initial, transitions=transitions, final=final)
        if name.startswith(RESERVED):
            raise InvalidValue(f"names that begin with {RESERVED!r} are reserved; give the machine another name")
        self.name = name
        self.data = data
        self.handlers: dict[str, StateHandler] = {}
        self._options: dict[str, Any] = {
            "queue": queue,
            "priority": priority,
            "retry": retry,
            "deadline": deadline,
            "agent_id": agent_id,
        }

    def __repr__(self) -> str:
        """Return the name of its tasks in the store."""
        return f"<machine {self.name!r}>"

    # Declaring

    def state(
        self, state: StateName, *, retry: Retry | None = None, timeout: float | timedelta | None = None
    ) -> StateDecorator[D]:
        """Make a function the handler of a state: ``handler(ctx, data)`` returns the next state, or a Goto.

        It runs once for each visit. Its calls of ``ctx`` are durable, as in any task; the code between them runs again
        if the task is resumed in the middle of a visit. Changes of ``data`` are kept. After an error the state is
        retried by its own ``retry``, if it has one, and then the task by its own. ``timeout`` limits each try, with its
        waits.
        """
        name = state_name(state)
        if name not in self.table.moves:
            raise InvalidValue(f"machine {self.name!r} has no state {name!r}; it has {', '.join(self.table.states)}")
        if self.table.is_final(name):
            raise InvalidValue(f"{name!r} is a final state of machine {self.name!r}; a final state has no handler")
        limit = None if timeout is None else as_seconds(timeout, what=f"the timeout of state {name!r}")
        return StateDecorator(self, name, retry, limit)

    def set_handler(
        self, state: str, function: Callable[..., Any], *, retry: Retry | None, timeout: float | None
    ) -> None:
        """Set the handler of a state; see ``state``."""
        if state in self.handlers:
            raise DuplicateName(f"state {state!r} of machine {self.name!r} has a handler already; give it only one")
        try:
            inspect.signature(function).bind(None, None)
        except TypeError:
            raise InvalidValue(
                f"the handler of state {state!r} has to take the context and the data: async def handler(ctx, data)"
            ) from None
        self.handlers[state] = StateHandler(function, is_async(function), retry, timeout)

    def task_definition(self) -> TaskDefinition[..., Reached[D]]:
        """Return the task that goes through the states; ``hold.register(machine)`` calls this.

        It takes the data. For type checkers it takes anything: a type cannot express that untyped data is optional.
        """
        missing = [state for state in self.table.states if not (self.table.is_final(state) or state in self.handlers)]
        if missing:
            raise InvalidValue(
                f"machine {self.name!r} has no handler for {', '.join(map(repr, missing))}; "
                f'write one for each, decorated with @machine.state("{missing[0]}"), before it is registered'
            )

        async def go(ctx: Context, data: Any) -> Any:  # noqa: ANN401
            return await visit.go_through(self, ctx, data)

        # The codec reads the types of input and result from here. Data without a type is optional.
        go.__annotations__ = {"data": self.data, "return": Reached[self.data]}  # type: ignore[name-defined]
        go.__defaults__ = (None,) if self.data is Any else None
        return TaskDefinition(go, name=self.name, **self._options)

    def mermaid(self) -> str:
        """Return the states and moves as a Mermaid diagram, from the same table that moves are checked against."""
        return self.table.mermaid()

    # Queries from outside

    async def state_of(self, handle: Handle[Any]) -> str:
        """Return the current state of a task of this machine; the initial state if it has not started."""
        visits = await self.history(handle)
        return visits[-1].state if visits else self.table.initial

    async def history(self, handle: Handle[Any]) -> list[Visit[D]]:
        """Return every state that a task of this machine has entered, in order, with reasons, times and data."""
        return await visit.read_history(self, handle)


class StateDecorator(Generic[D]):
    """What ``machine.state(...)`` returns."""

    __slots__ = ("_machine", "_retry", "_state", "_timeout")

    def __init__(self, machine: Machine[D], state: str, retry: Retry | None, timeout: float | None) -> None:
        """Only ``machine.state`` creates these."""
        self._machine = machine
        self._state = state
        self._retry = retry
        self._timeout = timeout

    @overload
    def __call__(self, handler: AsyncHandler[D], /) -> AsyncHandler[D]: ...
    @overload
    def __call__(self, handler: BlockingHandler[D], /) -> BlockingHandler[D]: ...
    def __call__(self, handler: Callable[..., Any], /) -> Callable[..., Any]:
        """Set the handler, and return the function unchanged."""
        self._machine.set_handler(self._state, handler, retry=self._retry, timeout=self._timeout)
        return handler
