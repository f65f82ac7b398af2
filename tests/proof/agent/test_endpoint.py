"""Agents at a real endpoint that refuses, breaks off, hangs and cuts: incomplete answers do not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import msgspec

from holdfast import TaskState
from holdfast.agent.transcript import LLM, read_answers
from holdfast.engine.steps.waits import event_channel
from holdfast.testing.chat_server import Answer, Exchange
from tests.proof.agent.casts import DISK_SCRIPT, Disk
from tests.proof.agent.endpoint import Endpoint
from tests.proof.agent.life import LEASE
from tests.proof.agent.outcome import Outcome, outcome_of, recorded, spent_tokens
from tests.proof.agent.scene import Scene, insisting, side_by_side

LOOK, CLEAN, TELL = DISK_SCRIPT
FAULTY_SCRIPT = (
    Answer(status=429, text="slow down", retry_after="1"),
    LOOK,
    Answer(status=500, text="oops"),
    msgspec.structs.replace(CLEAN, hang="mid_stream"),
    msgspec.structs.replace(CLEAN, cut_at=1000),
    msgspec.structs.replace(CLEAN, cut_at=1000, framing="until_close"),
    CLEAN,
    Answer(hang="before_headers"),
    TELL,
)
OUTCOMES = ["refused", "completed", "refused", "hung_up", "broken", "broken", "completed", "hung_up", "completed"]


async def free_disk_space(
    script: Sequence[Answer], scene: Scene, *, trap: str | None = None
) -> tuple[Outcome, list[Exchange]]:
    """Have a worker do it, or two if the first is killed; return what came of it, and what the endpoint was asked."""
    folder = scene.folder / f"endpoint-{scene.number}"
    folder.mkdir()
    with Endpoint.start(script, folder) as endpoint:
        cast = Disk(endpoint.base_url, scene.ledger, scene.number)
        if trap is not None:
            with scene.start("victim", cast, trap=trap) as victim:
                await victim.meet_its_trap()
        with scene.start("worker", cast) as worker:
            await worker.finish()
        task = await scene.task()
        assert Counter(call.name for call in scene.calls()) == {"check_disk": 1, "check_logs": 1, "clean_logs": 1}
        return await outcome_of(scene.hold, task), await scene.asked(endpoint, task)


async def test_a_run_comes_to_its_end_whatever_its_endpoint_does(scene: Scene) -> None:
    hold, undisturbed = scene.hold, scene.another()
    (expected, _), (outcome, asked) = await side_by_side(
        [free_disk_space(DISK_SCRIPT, undisturbed), free_disk_space(FAULTY_SCRIPT, scene)]
    )
    assert (expected.state, expected.result, expected.spent_steps) == (TaskState.COMPLETED, TELL.text, 6)
    used = sum(usage.total for usage in await recorded(hold, await undisturbed.task()))
    assert await spent_tokens(hold, await undisturbed.task()) == used

    assert outcome == expected
    assert [exchange.outcome for exchange in asked] == OUTCOMES
    assert asked[1].at - asked[0].at >= 1
    # Each answer is recorded once, whole, and after as many tries as it took.
    task = await scene.task()
    steps = await hold.store.steps(task.id)
    replies = [answer.reply for _, answer in read_answers(steps)]
    answers = [(reply.content, [call.name for call in reply.tool_calls]) for reply in replies]
    assert answers == [(answer.text, [call.name for call in answer.calls]) for answer in DISK_SCRIPT]
    assert [step.attempts for step in steps if step.kind == LLM] == [2, 5, 2]
    # What was cut off may have cost something: it is estimated, and not left out.
    assert await spent_tokens(hold, task) > used
    assert await answers_of(scene) == [answer.text for answer in DISK_SCRIPT]


async def answers_of(scene: Scene) -> list[str]:
    """Return the text that was streamed to watchers, of the last try of each answer."""
    texts: dict[str, str] = {}
    for event in await scene.hold.store.events(event_channel((await scene.task()).id), limit=1000):
        payload = event.payload
        if payload["kind"] == "text":
            before = "" if payload["index"] == 0 else texts[payload["step"]]
            texts[payload["step"]] = before + payload["text"]
    return [texts[step] for step in sorted(texts)]


async def test_the_wait_that_an_endpoint_asked_for_outlives_the_worker(scene: Scene) -> None:
    seconds = 2 * LEASE  # so that the next worker has to wait for more than the end of a lease
    busy = Answer(status=429, text="slow down", retry_after=f"{seconds:g}")
    outcome, asked = await insisting(partial(free_disk_space, (busy, *DISK_SCRIPT), trap="after llm:1 pending"), scene)
    assert outcome.result == TELL.text
    assert [exchange.outcome for exchange in asked] == ["refused", "completed", "completed", "completed"]
    assert asked[1].at - asked[0].at >= seconds
    assert asked[1].headers["idempotency-key"] == asked[0].headers["idempotency-key"]
