"""Models that fail: retried when that may help, durably; refused ones are not."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import (
    Agent,
    Holdfast,
    ModelError,
    ModelRefused,
    ModelUnreachable,
    Reply,
    Request,
    Retry,
    TaskFailed,
    TaskState,
)
from holdfast.agent.scripted import Answer, call
from holdfast.testing import Sandbox, crash_everywhere
from holdfast.testing.skipping_clock import START
from tests.agent.support import PATIENCE, keys_of, look, register


async def test_a_model_error_is_retried_as_late_as_the_endpoint_asks(app: Holdfast, box: Sandbox) -> None:
    agent, model = register(app, [ModelError("slow down", status=429, retry_after=7200), "done"])
    handle = await app.submit(agent, "go")
    assert await handle.result(timeout=3 * 3600) == "done"
    trace = await box.trace(handle)
    assert trace.took >= timedelta(hours=2)
    assert TaskState.WAITING in trace.states or TaskState.PENDING in trace.states[1:]  # no slot was taken
    assert len(model.requests) == 2
    assert await keys_of(app, handle) == ["llm:1"]


async def test_the_wait_of_a_retry_survives_crashes(app: Holdfast) -> None:
    open_at = START + timedelta(minutes=10)
    boxes: list[Sandbox] = []

    def answer(request: Request) -> Answer | ModelError:
        """Be busy for ten minutes, and say so."""
        ahead = (open_at - boxes[-1].clock.now()).total_seconds()
        if ahead > 0:
            return ModelError("slow down", status=429, retry_after=ahead)
        return call("look") if request.turn == 0 else "done"

    agent, model = register(app, answer, tools=[look])

    async def scenario(box: Sandbox) -> str:
        boxes.append(box)
        model.requests.clear()
        handle = await box.hold.submit(agent, "go")
        result = await handle.result(timeout=3 * 3600)
        assert len(model.requests) <= 4  # and one more for the call under way
        return result

    survived = await crash_everywhere(app, scenario)
    assert survived.result == "done"


@pytest.mark.parametrize("error", [ModelError("broken"), TimeoutError("slow"), ConnectionResetError("cut")])
@pytest.mark.usefixtures("box")
async def test_a_model_that_never_answers_ends_in_a_failure(app: Holdfast, error: Exception) -> None:
    agent, model = register(
        app, lambda _: error, model_retry=Retry(max_attempts=3), retry=Retry(max_attempts=1)
    )  # fmt: skip
    handle = await app.submit(agent, "go")
    with pytest.raises(TaskFailed, match=str(error)):
        await handle.result(timeout=24 * 3600)
    assert len(model.requests) == 3


async def test_an_endpoint_that_cannot_be_reached_is_tried_for_long_and_then_the_task_fails_once(
    app: Holdfast, box: Sandbox
) -> None:
    agent, model = register(app, lambda _: ModelUnreachable("cannot reach http://127.0.0.1:9/v1"))
    handle = await app.submit(agent, "go")
    with pytest.raises(TaskFailed, match="cannot reach"):
        await handle.result(timeout=24 * 3600)
    assert len(model.requests) == 60  # and not as often again in each attempt of the task
    assert timedelta(minutes=25) < (await box.trace(handle)).took < timedelta(minutes=60)


@pytest.mark.usefixtures("box")
async def test_an_outage_uses_up_none_of_the_tries_that_other_errors_have(app: Holdfast) -> None:
    away, broken = ModelUnreachable("away"), ModelError("broken")
    errors = iter([*[away] * 40, broken, broken, *[away] * 40, broken, broken, broken])
    agent, model = register(app, lambda _: next(errors, "done"), retry=Retry(max_attempts=1))
    handle = await app.submit(agent, "go")
    assert await handle.result(timeout=24 * 3600) == "done"
    assert len(model.requests) == 86


@pytest.mark.usefixtures("box")
async def test_a_policy_of_ones_own_says_what_an_outage_is(app: Holdfast) -> None:
    policy = Retry(max_attempts=2)
    agent, model = register(app, lambda _: ModelUnreachable("away"), model_retry=policy, retry=policy)
    handle = await app.submit(agent, "go")
    with pytest.raises(TaskFailed, match="away"):
        await handle.result(timeout=24 * 3600)
    assert len(model.requests) == 4


@pytest.mark.parametrize("retry", [None, Retry(max_attempts=5)])
async def test_a_refused_request_fails_at_once(hold: Holdfast, retry: Retry | None) -> None:
    agent, model = register(
        hold, lambda _: ModelRefused("no such model", status=404), retry=retry, model_retry=retry
    )  # fmt: skip
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match="no such model") as failed:
            await handle.result(timeout=PATIENCE)
    assert failed.value.failure.type_name == "holdfast.ModelRefused"
    assert len(model.requests) == 1


async def test_a_refused_task_can_be_resumed_once_that_is_mended(hold: Holdfast) -> None:
    is_mended = False

    def answer(_: Request) -> Answer | ModelRefused:
        return "done" if is_mended else ModelRefused("wrong key")

    agent, _ = register(hold, answer)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)
        is_mended = True
        await hold.resume(handle)
        assert await handle.result(timeout=PATIENCE) == "done"


class Broken:
    """A model whose author made a mistake."""

    name = "broken"

    def __init__(self, mistakes: list[object]) -> None:
        self._mistakes = mistakes
        self.asked = 0

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        del request, on_text
        mistake = self._mistakes[min(self.asked, len(self._mistakes) - 1)]
        self.asked += 1
        if isinstance(mistake, Exception):
            raise mistake
        return mistake  # type: ignore[return-value]


@pytest.mark.usefixtures("box")
async def test_an_error_that_is_not_the_models_is_the_tasks_to_retry(app: Holdfast) -> None:
    model = Broken([KeyError("choices"), KeyError("choices"), Reply(content="done")])
    agent = app.register(Agent("agent", model=model))
    handle = await app.submit(agent, "go")
    assert await handle.result(timeout=3600) == "done"
    assert model.asked == 3


@pytest.mark.parametrize("nonsense", [None, "a text", {"content": "a text"}])
async def test_a_model_that_returns_no_reply_fails_the_task_with_a_clear_error(
    hold: Holdfast, nonsense: object
) -> None:
    model = Broken([nonsense])
    agent = hold.register(Agent("agent", model=model, retry=Retry(max_attempts=1)))
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match=r"broken returned .*; complete\(\) has to return a Reply"):
            await handle.result(timeout=PATIENCE)
