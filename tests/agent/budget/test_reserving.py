"""Reserved before a call, settled in the Commit that records its answer; a crash neither frees nor doubles anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast import (
    Agent,
    Budget,
    Holdfast,
    ModelError,
    ModelRefused,
    Price,
    Reply,
    Request,
    Retry,
    StepState,
    TaskState,
    Usage,
)
from holdfast.agent.model import note_unseen
from holdfast.agent.prompt import estimate_prompt
from holdfast.agent.scripted import Answer, Line, call
from holdfast.model.operations import Reserve, Settle, WriteStep
from holdfast.testing import Sandbox, crash_everywhere, sandbox
from tests.agent.budget.support import PATIENCE, asked, books, completed, failed, line, look, register, why
from tests.engine.conftest import watch
from tests.engine.support import Watched, until
from tests.ready_schema import new_file

__all__ = ["watch"]

AT_ONCE = Retry(max_attempts=6, initial=0.001, max_delay=0.001, retry_on=(ModelError, TimeoutError, OSError))


async def test_while_the_model_answers_its_call_is_reserved(either: Holdfast) -> None:
    seen: list[tuple[dict[str, tuple[int | None, int, int]], Request]] = []

    async def peek(request: Request) -> Answer:
        [task] = (await either.store.find()).items
        seen.append((await books(either, task.id), request))
        return call("look") if request.turn == 0 else "done"

    agent, _ = register(
        either,
        peek,
        tools=[look],
        usage=Usage(input_tokens=20, output_tokens=5),
        prices={"scripted": Price(1, 10)},
        budget=Budget(max_steps=9, max_llm_tokens=9_000, max_cost=1),
        max_output_tokens=100,
    )
    task = await completed(either, agent)
    for number, (held, request) in enumerate(seen):
        prompt = estimate_prompt(request.messages, request.tools)
        assert request.max_output_tokens == 100
        assert held == {
            "steps": (9, 2 * number, 1),
            "llm_tokens": (9_000, 25 * number, prompt + 100),
            "cost_micros": (1_000_000, 70 * number, prompt + 1_000),
        }
    assert len(seen) == 2
    assert await books(either, task) == {
        "steps": (9, 3, 0),
        "llm_tokens": (9_000, 50, 0),
        "cost_micros": (1_000_000, 140, 0),
    }


async def test_the_answer_and_what_it_took_are_one_commit(
    tmp_path_url: str, watch: Callable[[], list[Watched]]
) -> None:
    watches = watch()
    async with Holdfast(tmp_path_url) as hold:
        agent, _ = register(
            hold, [call("look"), "done"], tools=[look], budget=Budget(max_steps=9, max_llm_tokens=9_000)
        )
        await completed(hold, agent)
        commits = [commit.operations for batch in watches[-1].batches for commit in batch]
    answers = [
        operations
        for operations in commits
        for one in operations
        if isinstance(one, WriteStep) and one.step.kind == "llm" and one.step.state is StepState.COMPLETED
    ]
    assert len(answers) == 2
    assert all(any(isinstance(one, Settle) and "llm_tokens" in one.amounts for one in with_) for with_ in answers)
    # A reservation is durable before the call, and not together with a Commit that could be refused.
    assert sum(isinstance(one, Reserve) for operations in commits for one in operations) == 2


@pytest.fixture
def tmp_path_url(tmp_path: Path) -> str:
    return f"sqlite:///{new_file(tmp_path / 'hold.db')}"


# Tries without an answer


async def test_what_the_endpoint_refused_costs_nothing(either: Holdfast) -> None:
    refusals = [ModelError("slow down", status=429), ModelError("broken", status=500)]
    agent, model = register(
        either,
        [*refusals, "done"],
        usage=Usage(input_tokens=20, output_tokens=5),
        budget=Budget(max_steps=1, max_llm_tokens=1_000),
        model_retry=AT_ONCE,
    )
    task = await completed(either, agent)
    assert len(model.requests) == 3
    assert await books(either, task) == {"steps": (1, 1, 0), "llm_tokens": (1_000, 25, 0)}


async def test_nothing_is_held_while_the_next_try_is_a_long_time_off(app: Holdfast) -> None:
    later = ModelError("slow down", status=429, retry_after=7_200)
    agent, _ = register(app, [later, "done"], budget=Budget(max_steps=1, max_llm_tokens=1_000))
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            await box.idle()
            assert await books(app, task) == {"steps": (1, 0, 0), "llm_tokens": (1_000, 0, 0)}
            await box.advance(10_000)
            assert await task.result() == "done"
            assert (await books(app, task))["steps"] == (1, 1, 0)


class Cut:
    """A model whose stream is cut after some text, a few times, and which then answers."""

    name = "cut"

    def __init__(self, said: Sequence[str]) -> None:
        self.said = list(said)
        self.requests: list[Request] = []

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        self.requests.append(request)
        if len(self.requests) <= len(self.said):
            if self.said[len(self.requests) - 1]:
                on_text(self.said[len(self.requests) - 1])
            raise ModelError("the stream was cut")
        return Reply(content="done", usage=Usage(input_tokens=20, output_tokens=5))


async def test_a_cut_stream_costs_what_it_probably_took(either: Holdfast) -> None:
    model = Cut(["x" * 400, "", "y" * 40])
    agent = either.register(
        Agent("agent", model=model, builtins=False, budget=Budget(max_llm_tokens=9_000), model_retry=AT_ONCE)
    )
    task = await completed(either, agent)
    assert len(model.requests) == 4
    prompt = estimate_prompt(model.requests[0].messages, ())
    # The try that was cut before its first text counts as never answered.
    assert (await line(either, task, "llm_tokens")).spent == (prompt + 100) + (prompt + 10) + 25
    assert (await line(either, task, "llm_tokens")).reserved == 0
    assert (await line(either, task, "steps")).spent == 1


class By:
    """A model that answers as a function does, which is given the number of the request."""

    name = "by"

    def __init__(self, answer: Callable[[int, Callable[[str], None]], Reply]) -> None:
        self.answer = answer
        self.requests: list[Request] = []

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        self.requests.append(request)
        return self.answer(len(self.requests), on_text)


DONE = Reply(content="done", usage=Usage(input_tokens=20, output_tokens=5))


async def spent_by(hold: Holdfast, model: By) -> int:
    """Return the tokens of a task in which only the model call is tried again."""
    agent = hold.register(
        Agent(
            "agent",
            model=model,
            builtins=False,
            budget=Budget(max_llm_tokens=900_000),
            retry=Retry(max_attempts=1),
            model_retry=AT_ONCE,
        )
    )
    task = await completed(hold, agent)
    assert await task.result() == "done"
    return (await line(hold, task, "llm_tokens")).spent


async def test_a_cut_stream_costs_what_arrived_unseen_too(hold: Holdfast) -> None:
    """Reasoning and arguments of tool calls. An empty piece counts as a beginning: the model has read the prompt."""
    pieces = ["x" * 400, "", "\u044f" * 40]

    def answer(number: int, on_text: Callable[[str], None]) -> Reply:
        if number > len(pieces):
            return DONE
        note_unseen(on_text, pieces[number - 1])
        raise ModelError("the stream was cut")

    model = By(answer)
    spent = await spent_by(hold, model)
    prompt = estimate_prompt(model.requests[0].messages, ())
    assert spent == (prompt + 100) + prompt + (prompt + 40) + 25
    note_unseen(pieces.append, "a plain function counts nothing")
    assert len(pieces) == 3


async def test_an_error_in_mid_stream_costs_what_came_before_it(hold: Holdfast) -> None:
    """Unlike a refusal with the same status, before which nothing was written."""

    def answer(number: int, on_text: Callable[[str], None]) -> Reply:
        if number > 2:
            return DONE
        if number == 1:
            on_text("x" * 400)
        raise ModelError("too many requests", status=429)

    model = By(answer)
    assert await spent_by(hold, model) == estimate_prompt(model.requests[0].messages, ()) + 100 + 25


async def test_an_answer_that_cannot_be_kept_is_tried_again_and_paid_for(hold: Holdfast) -> None:
    """In JSON it takes six times as many bytes: the journal would refuse it, and that would end the task."""
    said = "\x01" * 2_000_000

    def answer(number: int, on_text: Callable[[str], None]) -> Reply:
        if number > 1:
            return DONE
        on_text(said)
        return Reply(content=said)

    assert await spent_by(hold, By(answer)) > len(said) // 4


async def test_a_call_that_gave_up_leaves_nothing_reserved(hold: Holdfast) -> None:
    agent, _ = register(
        hold, [ModelRefused("no such model", status=404)], budget=Budget(max_steps=4, max_llm_tokens=900)
    )
    task = await failed(hold, agent)
    assert "no such model" in str(await why(task))
    assert await books(hold, task) == {"steps": (4, 0, 0), "llm_tokens": (900, 0, 0)}


async def test_cut_streams_can_spend_the_budget_between_two_tries(hold: Holdfast) -> None:
    model = Cut(["x" * 400] * 50)
    agent = hold.register(
        Agent(
            "agent",
            model=model,
            builtins=False,
            budget=Budget(max_llm_tokens=400, max_steps=5),
            model_retry=Retry(max_attempts=50, initial=0.001, max_delay=0.001, retry_on=(ModelError,)),
        )
    )
    task = await failed(hold, agent)
    assert "BudgetExceeded" in str(await why(task))
    assert "llm_tokens" in str(await why(task))
    assert 1 < len(model.requests) < 6
    found = await books(hold, task)
    assert found["llm_tokens"][2] == found["steps"][2] == 0
    assert found["steps"][1] == 0  # the call was never answered


# Crashes


async def test_steps_are_counted_once_wherever_a_worker_dies(app: Holdfast) -> None:
    script: list[Line] = [
        [call("look", place="a"), call("look", place="b")],
        call("record_fact", key="k", value="v"),
        "done",
    ]
    agent, _ = register(app, script, tools=[look], builtins=True, budget=Budget(max_steps=20, max_llm_tokens=500_000))
    over: list[int] = []

    async def scenario(box: Sandbox) -> tuple[int, int, int, str]:
        task = await box.hold.submit(agent, "go")
        result = await task.result()
        found = await books(box.hold, task)
        over.append(found["llm_tokens"][1])
        return found["steps"][1], found["steps"][2], found["llm_tokens"][2], result

    survived = await crash_everywhere(app, scenario)
    assert survived.result == (6, 0, 0, "done")
    assert survived.crashes >= 12
    # What a dead worker had reserved counts as spent: some runs paid more tokens, none paid fewer.
    assert min(over) == over[0]
    assert max(over) > over[0]


async def test_a_dead_workers_reservation_counts_as_spent_and_is_written_down(app: Holdfast) -> None:
    seen: list[dict[str, tuple[int | None, int, int]]] = []

    async def peek(_: Request) -> Answer:
        [begun] = (await app.store.find()).items  # its handle may not be there yet
        seen.append(await books(app, begun.id))
        return "done"

    agent, model = register(
        app,
        [peek],
        usage=Usage(input_tokens=20, output_tokens=5),
        budget=Budget(max_steps=9, max_llm_tokens=9_000),
        max_output_tokens=100,
    )
    async with sandbox(app) as box:
        crash = box.crash("llm:1", when="after_effect")
        task = await app.submit(agent, "go")
        await task.result()
        assert crash.happened == 1
        prompt = estimate_prompt(model.requests[0].messages, ())
        held = prompt + 100
        assert seen == [
            {"steps": (9, 0, 1), "llm_tokens": (9_000, 0, held)},
            {"steps": (9, 1, 0), "llm_tokens": (9_000, held, held)},  # before the call is made once more
        ]
        assert await books(app, task) == {"steps": (9, 1, 0), "llm_tokens": (9_000, held + 25, 0)}
        kinds = [step.kind for step in await app.store.steps(task.id)]
        assert sorted(kinds) == ["llm", "taken_over"]
    assert len(model.requests) == 2


async def test_a_budget_that_a_dead_worker_used_up_stays_used_up(app: Holdfast) -> None:
    agent, model = register(app, ["done"], budget=Budget(max_llm_tokens=120), max_output_tokens=100)
    async with sandbox(app) as box:
        box.crash("llm:1", when="after_effect")
        task = await app.submit(agent, "go")
        assert "llm_tokens" in str(await why(task))
        await app.extend_budget(task, Budget(max_llm_tokens=1_000), by="ann")
        await app.resume(task)
        assert await task.result() == "done"
    assert len(model.requests) == 2


async def test_the_last_step_can_be_made_once_more_after_a_crash(app: Holdfast) -> None:
    """It is counted already, so it needs no room for itself."""
    agent, model = register(app, ["done"], budget=Budget(max_steps=1))
    async with sandbox(app) as box:
        box.crash("llm:1", when="after_effect", times=3)
        task = await app.submit(agent, "go")
        assert await task.result() == "done"
        assert (await books(app, task))["steps"] == (1, 1, 0)
    assert len(model.requests) == 4


async def test_calls_that_had_to_be_granted_are_counted_once_wherever_a_worker_dies(app: Holdfast) -> None:
    """An answer that asks for more than was left: it is kept, and its calls are counted in a Commit of their own."""
    three = [call("look", place=str(number)) for number in range(3)]
    agent, _ = register(app, [three, "done"], tools=[look], budget=Budget(max_steps=2, on_exhausted="ask"))

    async def scenario(box: Sandbox) -> dict[str, tuple[int | None, int, int]]:
        task = await box.hold.submit(agent, "go")
        question = await asked(box.hold, task)

        async def is_waiting() -> bool:
            return (await task.task()).state is TaskState.WAITING

        await until(is_waiting, patience=PATIENCE)  # so that every run has the same Commits
        await box.hold.answer(question.id, 5, by="ann")
        await task.result(timeout=3_600)
        found = await books(box.hold, task)
        return {"steps": found["steps"]}

    survived = await crash_everywhere(app, scenario)
    assert survived.result == {"steps": (5, 5, 0)}
    assert survived.crashes >= 12


async def test_what_was_settled_under_a_lost_lease_is_settled_once(app: Holdfast) -> None:
    """The Commit with the answer arrives, and its worker dies before it knows."""
    agent, model = register(app, [call("look"), "done"], tools=[look], budget=Budget(max_steps=9))
    async with sandbox(app) as box:
        box.crash("llm:1", when="after_commit")
        box.crash("look:1.0", when="after_commit")
        task = await app.submit(agent, "go")
        await task.result()
        assert (await books(app, task))["steps"] == (9, 3, 0)
    assert len(model.requests) == 2
