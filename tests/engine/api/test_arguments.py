"""A task's arguments: checked once, on submission, and the same for every way to submit."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from holdfast import Context, Holdfast, InvalidValue, KeyConflict, NewTask, Retry, TaskFailed, TaskFilter, TaskState
from holdfast.cli.arguments import bind_json
from holdfast.engine.api.definition import TaskDefinition
from holdfast.model.task import JsonValue
from tests.engine.support import ended
from tests.mcp.support import ask, connected

Cents = Annotated[int, AfterValidator(lambda dollars: dollars * 100)]


class Opaque:
    """Nothing that pydantic knows how to check."""


@dataclass
class Order:
    item: str
    count: int


BOLT: Any = {"item": "bolt", "count": 1}


class Address(BaseModel):
    city: str


async def test_a_validator_changes_an_argument_once_by_every_door(quick: Holdfast) -> None:
    @quick.task
    async def pay(ctx: Context, amount: Cents, *more: Cents, tip: Cents = 0) -> list[int]:
        del ctx
        return [amount, *more, tip]

    @quick.task
    async def parent(ctx: Context) -> list[int]:
        return await (await ctx.submit(pay, 5)).result()

    first = await quick.submit(pay, 5)
    [many] = await quick.submit_many(pay, [(5,)])
    bound = bind_json(pay, '{"amount": 5}')
    async with connected(quick) as client:
        by_mcp = await ask(client, "submit_task", name="pay", arguments=[5])
    doors = {
        "submit": first,
        "name": await quick.submit("pay", 5),
        "many": many,
        "bind": await quick.submit(pay.bind(5)),
        "command": await quick.submit(bound),
        "mcp": quick.handle(by_mcp["task_id"]),
        "parent": await quick.submit(parent),
        "fork": await quick.fork(first, user_input=(5,)),
        "fork, bound": await quick.fork(first, user_input=bound),
    }
    all_of_them = await quick.submit(pay.bind(5, 6, tip=7))
    async with quick.worker():
        for door, handle in doors.items():
            assert await ended(handle) == [500, 0], door
        assert await ended(all_of_them) == [500, 600, 700]


async def test_arguments_come_as_their_annotations_say(quick: Holdfast) -> None:
    @quick.task
    async def take(
        ctx: Context,
        /,
        order: Order,
        day: date,
        rates: list[float],
        names: Iterable[str],
        *opaque: Opaque,
        **options: Cents,
    ) -> list[Any]:
        del ctx
        assert isinstance(order, Order)
        return [order.item, day, rates, names, opaque[0], options]

    given: Any = ({"item": "bolt", "count": 2}, "2026-03-01", (1, 2), ["a"], {"free": "form"})
    handle = await quick.submit(take.bind(*given, tip=2))
    async with quick.worker():
        assert await ended(handle) == ["bolt", date(2026, 3, 1), [1.0, 2.0], ["a"], {"free": "form"}, {"tip": 200}]


async def test_what_does_not_fit_is_refused_in_words_and_changes_nothing(hold: Holdfast) -> None:
    @hold.task
    async def take(ctx: Context, number: int, order: Order | None = None, names: Iterable[str] = ()) -> None: ...

    refused: list[tuple[TaskDefinition[..., None] | str, tuple[Any, ...], str]] = [
        (take, ("wrong",), r"arguments of task 'take': number: does not fit int: .* takes \(number: int"),
        ("take", ("wrong",), "number: does not fit int"),
        (take, (1, {"item": "bolt", "count": "many"}), "order.*count: does not fit"),
        (take, (1, None, [3]), "names: does not fit"),
        (take, (1, Address(city="Rome")), "order"),
        (take, (), "cannot be called like this"),
    ]
    for task, args, words in refused:
        with pytest.raises(InvalidValue, match=words):
            await hold.submit(task, *args, key="k")
        with pytest.raises(InvalidValue, match=words):
            await hold.submit_many(task, [args])
    assert (await hold.store.find(TaskFilter())).items == ()


async def test_keywords_that_are_not_options_say_where_they_go(quick: Holdfast) -> None:
    seen: list[str] = []

    def add(a: int, *, b: int = 0) -> int:
        return a + b

    @quick.task
    async def work(ctx: Context, n: int) -> int:
        calls: dict[str, Any] = {
            "step": partial(ctx.step, "add", add, 1, b=2),
            "transaction": partial(ctx.transaction, "add", add, 1, b=2),
            "submit": partial(ctx.submit, work, n=2),
        }
        for call in calls.values():
            with pytest.raises(InvalidValue) as refusal:
                call()
            seen.append(str(refusal.value))
        return await ctx.step("add", partial(add, b=2), n)

    refusals: list[tuple[Any, str]] = [
        (lambda: quick.submit(work, n=3), r"hold.submit has no option n=; .* hold.submit\(work.bind\(n=\.\.\.\)\)"),  # type: ignore[call-overload]
        (lambda: quick.submit("work", 3, prioritty=1), r"did you mean priority=\?"),  # type: ignore[call-overload]
        (lambda: quick.submit_many(work, [(3,)], n=3), r"hold.submit_many\(work.bind"),
        (lambda: quick.transaction(add, 1, b=2), r"hold.transaction has no option b="),  # type: ignore[call-overload]
    ]
    for call, words in refusals:
        with pytest.raises(InvalidValue, match=words):
            await call()
    async with quick.worker():
        assert await ended(await quick.submit(work, 3)) == 5
    assert "ctx.step has no option b=" in seen[0]
    assert "functools.partial(add, b=...)" in seen[0]
    assert ".bind" in seen[0]
    assert "ctx.transaction has no option b=" in seen[1]
    assert "ctx.submit(work.bind(n=...))" in seen[2]


# What earlier versions stored without a look at it


async def stored_unchecked(hold: Holdfast, name: str, user_input: JsonValue, key: str | None = None) -> str:
    [answer] = await hold.store.submit([NewTask(name=name, user_input=user_input, key=key)])
    return answer.task_id


async def test_old_input_is_given_to_the_task_as_it_was_stored(quick: Holdfast) -> None:
    @quick.task
    async def pay(ctx: Context, amount: Cents) -> list[Any]:
        del ctx
        return [amount]

    handles = [quick.handle(await stored_unchecked(quick, "pay", [value])) for value in (5, "five", None)]
    async with quick.worker():
        assert [await ended(handle) for handle in handles] == [[5], ["five"], [None]]


async def test_a_key_finds_the_task_that_was_stored_unchecked(hold: Holdfast) -> None:
    @hold.task
    async def measure(ctx: Context, rate: float, order: Order | None = None) -> None: ...

    @hold.task
    async def pay(ctx: Context, amount: Cents) -> None: ...

    old = await stored_unchecked(hold, "measure", [5, {"item": "bolt", "count": 1}], "k")
    assert (await hold.submit(measure, 5, Order("bolt", 1), key="k")).id == old
    [again] = await hold.submit_many(measure, [(5.0, {"item": "bolt", "count": 1})], key="k")
    assert again.id == old
    async with connected(hold) as client:
        order = {"item": "bolt", "count": 1}
        by_mcp = await ask(client, "submit_task", name="measure", arguments=[5, order], key="k")
    assert by_mcp["task_id"] == old
    with pytest.raises(KeyConflict):
        await hold.submit(measure, 6, key="k")
    # 5 was stored as 500: checked, and therefore another input than an unchecked 500 would be.
    await hold.submit(pay, 5, key="p")
    with pytest.raises(KeyConflict):
        await hold.submit(pay, 500, key="p")


async def test_a_new_round_goes_on_with_the_child_that_was_stored_unchecked(quick: Holdfast) -> None:
    done: list[Any] = []

    async def act(order: Order) -> None:
        done.append(order)

    @quick.task
    async def fulfil(ctx: Context, order: Order) -> None:
        await ctx.step("act", act, order, effect="once")

    @quick.task(retry=Retry(max_attempts=1))
    async def parent(ctx: Context) -> None:
        await (await ctx.submit(fulfil.bind(BOLT))).result()
        if ctx.feedback is None:
            raise RuntimeError

    handle = await quick.submit(parent)
    checked = TaskDefinition.write_input

    def unchecked(self: TaskDefinition[..., Any], args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        return list(args) if args else checked(self, args, kwargs)

    with pytest.MonkeyPatch.context() as old:
        old.setattr(TaskDefinition, "write_input", unchecked)  # as the version before stored it
        async with quick.worker():
            with pytest.raises(TaskFailed):
                await ended(handle)
    await quick.retry(handle, by="ada", feedback="again")
    async with quick.worker():
        await ended(handle)
    children = (await quick.store.find(TaskFilter(name="fulfil"))).items
    assert [(child.state, child.round) for child in children] == [(TaskState.COMPLETED, 2)]
    assert done == [BOLT]
