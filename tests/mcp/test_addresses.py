"""URIs: what each names, that all of ours can be read back, and that nothing else gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.mcp.addresses import (
    Address,
    ArtifactAddress,
    CheckpointAddress,
    CurrentAddress,
    FactAddress,
    QueueAddress,
    StateAddress,
    StepsAddress,
    artifact_uri,
    fact_uri,
    read_address,
    state_uri,
)


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("state://agents/ops/tasks/t1", StateAddress("ops", "t1")),
        ("state://agents/a%2Fb/tasks/t%3F1", StateAddress("a/b", "t?1")),
        ("state://agents/%C3%B6/tasks/t", StateAddress("ö", "t")),
        ("state://agents/ö/tasks/t", StateAddress("ö", "t")),
        ("state://agents/ops/tasks/t1/steps", StepsAddress("ops", "t1", 0)),
        ("state://agents/ops/tasks/t1/steps?after=7", StepsAddress("ops", "t1", 7)),
        ("state://agents/ops/tasks/t1/steps?after=", StepsAddress("ops", "t1", 0)),
        ("state://agents/ops/tasks/t1/checkpoints/3", CheckpointAddress("ops", "t1", 3)),
        ("task://queue", QueueAddress()),
        ("task://queue/", QueueAddress()),
        ("task://queue?queue=a%20b&after=x", QueueAddress("a b", "x")),
        ("task://queue?queue=", QueueAddress()),
        ("task://current", CurrentAddress()),
        ("artifact://abc", ArtifactAddress("abc")),
        ("artifact://abc?offset=5&length=10", ArtifactAddress("abc", 5, 10)),
        ("artifact://sha256%3Aabc", ArtifactAddress("sha256:abc")),
        ("fact://db1", FactAddress("db1")),
        ("fact://a%2Fb%20c", FactAddress("a/b c")),
    ],
)
def test_what_a_uri_names(uri: str, address: Address) -> None:
    assert read_address(uri) == address


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "://",
        "state",
        "state://",
        "state://agents",
        "state://agents//tasks/t",
        "state://agents/a/tasks/",
        "state://agents/a/tasks/t/",
        "state://agents/a/tasks/t/approve",
        "state://agents/a/tasks/t/steps/1",
        "state://agents/a/tasks/t/checkpoints/",
        "state://agents/a/tasks/t/checkpoints/-1",
        "state://agents/a/tasks/t/checkpoints/1e3",
        "state://agents/a/tasks/t/checkpoints/9999999999",
        "state://agents/a/tasks/t#x",
        "state://agents/a/b/tasks/t",
        "state://agents/../tasks/../../etc/passwd",
        "STATE://agents/a/tasks/t",
        "task://",
        "task://queues",
        "task://../approve",
        "task://queue/x",
        "task://current#x",
        "artifact://",
        "artifact://a/b",
        "artifact://a#b",
        "fact://",
        "fact://a/b",
        "file:///etc/passwd",
        "http://127.0.0.1/",
        "approval://1",
        "state://agents/a/tasks/t%00",
        "fact://a%00",
        "state://agents/a/tasks/" + "x" * 2000,
    ],
    ids=lambda uri: uri[:50] or "nothing",
)
def test_unknown_addresses(uri: str) -> None:
    assert read_address(uri) is None


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("state://agents/a/tasks/t?after=1", "asks for after; it takes no query"),
        ("state://agents/a/tasks/t/steps?before=1", "asks for before; it may ask for after"),
        ("state://agents/a/tasks/t/steps?after=x", "after=x .* is not a number; count from 0"),
        ("state://agents/a/tasks/t/steps?after=-1", "is not a number"),
        ("state://agents/a/tasks/t/steps?after=" + "9" * 19, "is not a number"),
        ("state://agents/a/tasks/t/checkpoints/1?x=1", "it takes no query"),
        ("task://queue?limit=1", "it may ask for after, queue"),
        ("task://current?x", "it takes no query"),
        ("artifact://a?offset=1.5", "offset=1.5 .* is not a number"),
        ("artifact://a?length=-1", "length=-1 .* is not a number"),
        ("artifact://a?offset=1&where=2", "asks for where; it may ask for length, offset"),
        ("fact://a?x=1", "it takes no query"),
    ],
)
def test_what_is_ours_and_wrong_is_explained(uri: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        read_address(uri)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)


@given(NAMES, NAMES)
def test_every_uri_of_ours_can_be_read_back(agent: str, name: str) -> None:
    assert read_address(state_uri(agent, name)) == StateAddress(agent, name)
    assert read_address(f"{state_uri(agent, name)}/steps?after=3") == StepsAddress(agent, name, 3)
    assert read_address(artifact_uri(name)) == ArtifactAddress(name)
    assert read_address(fact_uri(name)) == FactAddress(name)


@given(
    st.text(max_size=200),
    st.sampled_from(["", "state://agents/", "task://", "artifact://", "fact://", "task://queue?"]),
)
def test_no_uri_is_worse_than_wrong(text: str, beginning: str) -> None:
    try:
        read_address(beginning + text)
    except InvalidValue as refusal:
        assert len(str(refusal)) < 1000  # noqa: PT017 - any of the two is fine
