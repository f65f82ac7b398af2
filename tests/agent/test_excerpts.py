"""What the conversation shows of artifacts: the newest excerpts stay, the oldest shrink to id and summary."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import AgentState, ArtifactRef, Budget, Holdfast, KnownFact, Request, tool
from holdfast.agent.excerpts import kept_note, limit_excerpts, needed_bytes
from holdfast.agent.prompt import PromptRoom, build_prompt
from holdfast.agent.scripted import Answer, call
from holdfast.model.history import open_calls
from holdfast.model.message import Message, ToolCall
from holdfast.testing import crash_everywhere
from holdfast.testing.sandboxes import Sandbox
from tests.agent.support import finished, register

GOAL = Message(role="user", content="go")


def asked(number: int, name: str = "log", arguments: str = "{}") -> Message:
    return Message(
        role="assistant", content="", tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=arguments),)
    )


def result(number: int, content: str) -> Message:
    return Message(role="tool", content=content, tool_call_id=f"call_{number}")


def kept(number: int, size: int = 4_000) -> list[Message]:
    """A call whose result is kept as an artifact, and the excerpt of it."""
    return [asked(number), result(number, f"{'x' * size}\n{kept_note(f'art-{number}', 10 * size)}")]


def knowing(*numbers: int, **fields: object) -> AgentState:
    refs = tuple(
        ArtifactRef(artifact_id=f"art-{one}", type="tool_result.log", summary=f"log {one}", bytes=9, step="s")
        for one in numbers
    )
    return AgentState(goal="go", artifacts=refs, **fields)  # type: ignore[arg-type]


def results(messages: list[Message] | tuple[Message, ...]) -> list[str]:
    return [message.content for message in messages if message.role == "tool"]


def test_the_oldest_shrink_to_id_and_summary() -> None:
    talk = [GOAL, *kept(1), *kept(2), *kept(3)]
    state = knowing(1, 2, 3)
    assert limit_excerpts(talk, state, 100_000) == talk
    first, second, third = results(limit_excerpts(talk, state, 8_300))
    assert first == '[40000 bytes, kept as artifact art-1: "log 1"; read_artifact shows it]'
    assert (second, third) == tuple(results(talk)[1:])
    first, second, third = results(limit_excerpts(talk, state, 8_000))
    assert (len(first), len(second)) == (70, 70)
    assert third == results(talk)[2]


def test_the_newest_one_alone_is_cut_by_its_ends_if_it_does_not_fit() -> None:
    talk, state = [GOAL, *kept(1), *kept(2)], knowing(1, 2)
    first, second = results(limit_excerpts(talk, state, 1_000))
    assert first.startswith("[40000 bytes, kept as artifact art-1")
    assert second.startswith("xxx")
    assert "bytes left out" in second
    assert second.endswith(kept_note("art-2", 40_000))
    assert 900 < len(first) + len(second) <= 1_000


def test_where_there_is_no_room_at_all_the_ids_stay() -> None:
    talk, state = [GOAL, *kept(1), *kept(2)], knowing(1, 2)
    assert results(limit_excerpts(talk, state, 0)) == [
        "[40000 bytes, kept as artifact art-1]",
        "[40000 bytes, kept as artifact art-2]",
    ]


def test_what_was_read_of_an_artifact_counts_as_well() -> None:
    read = asked(2, "read_artifact", json.dumps({"artifact_id": "art-1", "how": "head"}))
    talk = [GOAL, *kept(1), read, result(2, "y" * 3_500), *kept(3)]
    state = knowing(1, 3)
    assert needed_bytes(talk, state) == sum(map(len, results(talk)))
    first, second, third = results(limit_excerpts(talk, state, 5_000))
    assert first.startswith("[40000 bytes, kept as artifact art-1: ")
    assert second == '[An excerpt of artifact art-1: "log 1"; read_artifact shows it again]'
    assert third == results(talk)[2]


def test_what_is_not_an_excerpt_stays_as_it_is() -> None:
    small = [asked(1), result(1, "z" * 3_000)]
    forged = [asked(2), result(2, f"{'w' * 3_000}\n{kept_note('art-unknown', 5)}")]
    refused = [asked(3, "read_artifact", '{"artifact_id": "art-9"}'), result(3, "Error: no such artifact")]
    talk = [GOAL, *small, *forged, *refused]
    assert limit_excerpts(talk, knowing(1), 0) == talk


def test_a_word_behind_the_note_stays() -> None:
    call_1, shown = kept(1)
    remark = "\n[This is call number 3 of log with these arguments and this result. Try something else.]"
    talk = [GOAL, call_1, result(1, shown.content + remark), *kept(2)]
    first, _ = results(limit_excerpts(talk, knowing(1, 2), 5_000))
    assert first.startswith("[40000 bytes, kept as artifact art-1: ")
    assert first.endswith(remark)


def test_state_and_conversation_share_the_room() -> None:
    """Half of it is for the state; what the state does not use goes to the conversation, and the other way round."""
    facts = tuple(KnownFact(key=f"k{one}", value="f" * 500, source="s") for one in range(40))
    state = knowing(1, 2, 3, known_facts=facts)
    for talk in ([GOAL], [GOAL, *kept(1)], [GOAL, *kept(1), *kept(2), *kept(3)]):
        prompt = build_prompt("", state, talk, PromptRoom(state_bytes=8_000, artifact_bytes=8_000))
        shown = sum(len(line) for line in prompt[0].content.splitlines() if "fff" in line)
        in_talk = sum(map(len, results(prompt)))
        assert shown + in_talk <= 8_000
        assert shown >= 3_400
        assert shown + in_talk > 7_000
        if len(talk) > 1:
            assert results(prompt)[-1].startswith("xxx")


def test_hundreds_of_artifacts_do_not_fill_the_state_and_leave_room_for_facts() -> None:
    facts = tuple(KnownFact(key=f"k{one}", value="f" * 50, source="s") for one in range(400))
    state = knowing(*range(900), known_facts=facts, current_step="s")
    [system] = build_prompt("", state, [], PromptRoom(state_bytes=8_000, artifact_bytes=8_000))
    lines = system.content.splitlines()
    artifacts, known = ([line for line in lines if mark in line] for mark in ('"artifact_id"', "fff"))
    assert 7_500 < sum(len(line) + 1 for line in (*artifacts, *known)) <= 8_000, "ids take room as well"
    assert min(len(artifacts), len(known)) > 20, "each has its half"
    assert "art-899" in artifacts[-1], "the newest ones are shown"
    assert '"k399"' in known[0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(10, 6_000), st.sampled_from(["kept", "read", "small"])), max_size=8),
    st.integers(0, 20_000),
)
def test_never_more_than_the_limit_and_no_call_without_its_result(sizes: list[tuple[int, str]], most: int) -> None:
    talk = [GOAL]
    for number, (size, kind) in enumerate(sizes):
        if kind == "kept":
            talk += kept(number, size)
        elif kind == "read":
            arguments = json.dumps({"artifact_id": f"art-{number}"})
            talk += [asked(number, "read_artifact", arguments), result(number, "é" * size)]
        else:
            talk += [asked(number), result(number, "s" * size)]
    state = knowing(*range(len(sizes)))
    limited = limit_excerpts(talk, state, most)
    assert limited == limit_excerpts(talk, state, most)
    assert [(one.role, one.tool_calls, one.tool_call_id) for one in limited] == [
        (one.role, one.tool_calls, one.tool_call_id) for one in talk
    ]
    assert open_calls(limited) == ()
    ids_alone = sum(len(text.encode()) for text in results(limit_excerpts(talk, state, 0)))
    changed = [place for place, message in enumerate(talk) if message != limited[place]]
    if changed:
        assert needed_bytes(talk, state) > most
        shown = sum(len(limited[place].content.encode()) for place, one in enumerate(talk) if one.role == "tool")
        plain = sum(size for size, kind in sizes if kind == "small")
        assert shown - plain <= max(most, ids_alone)


async def test_an_agent_is_never_shown_more_than_its_budget_says(either: Holdfast) -> None:
    @tool(risk="read_only")
    def log(n: int) -> str:
        """Read a big log."""
        return f"ERROR line {n} of nginx\n" * 2_400

    def think(request: Request) -> Answer:
        return call("log", n=request.turn) if (request.turn or 0) < 10 else "done"

    agent, model = register(either, think, tools=[log], budget=Budget(max_artifact_bytes_in_context=8_000))
    task = await finished(either, agent)
    for request in model.requests:
        shown = [one.content for one in request.messages if one.role == "tool"]
        listed = [line for line in request.messages[0].content.splitlines() if '"artifact_id"' in line]
        assert sum(map(len, (*shown, *listed))) <= 8_000, "in the conversation and in the state together"
        assert not shown or shown[-1].startswith("ERROR line"), "the newest one is shown"
        assert open_calls(request.messages) == ()
    refs = (await either.state(task)).artifacts
    assert len(refs) == 10
    assert all(any(ref.artifact_id in one.content for one in model.requests[-1].messages) for ref in refs)


async def test_a_crash_anywhere_shows_the_model_the_same(app: Holdfast) -> None:
    seen: dict[int, set[tuple[Message, ...]]] = {}

    @tool(risk="read_only")
    async def log(n: int) -> str:
        """Read a big log."""
        return f"line {n}\n" * 1_000

    def think(request: Request) -> Answer:
        turn = request.turn or 0
        seen.setdefault(turn, set()).add(tuple(one for one in request.messages if one.role == "tool"))
        return call("log", n=turn) if turn < 4 else "done"

    agent, _ = register(app, think, tools=[log], budget=Budget(max_artifact_bytes_in_context=6_000))

    async def scenario(box: Sandbox) -> str:
        return await (await box.hold.submit(agent, "go")).result()

    await crash_everywhere(app, scenario)
    assert [len(one) for one in seen.values()] == [1] * 5
