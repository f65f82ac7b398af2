"""The arguments of a tool come back from what is written down as they went in, or the tool is not called."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from holdfast import InvalidValue, tool
from holdfast.agent.fixed_arguments import FixedArguments, fingerprint
from holdfast.agent.round_trip import is_same
from holdfast.agent.tool import BadArguments, Tool
from holdfast.model.canonical import canonical
from holdfast.model.message import ToolCall
from tests.agent.parameters import KEPT, REFUSED_AT_ONCE, REFUSED_WHEN_CALLED, Kind


def taking(*kinds: Kind) -> Tool:
    """Return a tool with these parameters."""

    def act(**_named: object) -> None:
        """Act."""

    parameters = [inspect.Parameter(kind.name, inspect.Parameter.KEYWORD_ONLY, annotation=kind.hint) for kind in kinds]
    act.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    act.__annotations__ = {kind.name: kind.hint for kind in kinds}
    return tool(act)


def settled(value: Any) -> Any:  # noqa: ANN401
    return list(value) if isinstance(value, Iterator) else value


def test_every_kind_of_parameter_comes_back_as_it_went_in() -> None:
    for kind in KEPT:
        act = taking(kind)
        plain = act.read(json.dumps({kind.name: kind.wrote}))
        again = settled(act.restore(json.loads(canonical(plain)))[kind.name])
        once_more = settled(act.restore(plain)[kind.name])
        assert is_same(again, once_more), kind.name
        assert act.misfit(plain) is None, kind.name


def test_what_does_not_come_back_is_refused_by_the_name_of_its_parameter() -> None:
    for kind in REFUSED_WHEN_CALLED:
        act = taking(Kind("path", str, "a"), kind)
        with pytest.raises(BadArguments) as refused:
            act.read(json.dumps({"path": "a", kind.name: kind.wrote}))
        words = str(refused.value)
        assert words.startswith(f"the tool act cannot be called with these arguments: its parameter {kind.name!r}"), (
            words
        )
        assert "The tool has to be changed" in words


def test_what_can_never_come_back_is_refused_when_the_tool_is_made() -> None:
    for kind in REFUSED_AT_ONCE:
        with pytest.raises(
            InvalidValue, match=f"tool 'act' has a parameter '{kind.name}' that cannot be restored unchanged"
        ):
            taking(kind)


def test_a_default_that_does_not_come_back_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(InvalidValue, match=r"takes amount: .* = 5, and the default cannot be restored unchanged"):

        @tool
        def pay(amount: Annotated[int, AfterValidator(lambda dollars: dollars * 100)] = 5) -> None:
            """Pay."""


def test_the_model_gets_any_error_of_a_validator() -> None:
    @tool
    def act(path: Annotated[str, AfterValidator(lambda _value: {}["no"])]) -> None:
        """Act."""

    with pytest.raises(BadArguments, match="the arguments of act cannot be read: KeyError: 'no'"):
        act.read('{"path": "a"}')


SETS = """
import json
from tests.agent.parameters import KEPT
from tests.agent.test_arguments import taking
from holdfast.model.canonical import canonical
for kind in KEPT:
    if kind.name in {"tags", "nested_tags", "place", "pet"}:
        print(canonical(taking(kind).read(json.dumps({kind.name: kind.wrote}))).decode())
"""


def test_sets_are_written_in_the_same_order_by_every_process() -> None:
    written = {
        subprocess.run(
            [sys.executable, "-c", SETS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(written) == 1


# A tool that was changed


class Before(BaseModel):
    item: str


class WithDefault(BaseModel):
    item: str
    express: bool = True


class Upper(BaseModel):
    item: Annotated[str, AfterValidator(str.upper)]


class Tighter(BaseModel):
    item: str = Field(max_length=2)


def added(what: Before, path: str, *, force: bool = True) -> None: ...
def required(what: Before, path: str, *, force: bool) -> None: ...
def removed(what: Before) -> None: ...
def renamed(what: Before, place: str = "/") -> None: ...
def retyped(what: Before, path: int) -> None: ...
def defaulted(what: WithDefault, path: str) -> None: ...
def changed(what: Upper, path: str) -> None: ...
def tightened(what: Tighter, path: str) -> None: ...


CHANGED: dict[Callable[..., None], str] = {
    added: "it also takes 'force'",
    required: "it also takes 'force'",
    removed: "it does not take 'path'",
    renamed: "it does not take 'path'; it also takes 'place'",
    retyped: "path: Input should be a valid integer",
    defaulted: "it would be called with another value of 'what'",
    changed: "it would be called with another value of 'what'",
    tightened: "what.item: String should have at most 2 characters",
}


def test_arguments_that_do_not_fit_a_changed_tool_are_never_completed() -> None:
    @tool
    def act(what: Before, path: str) -> None:
        """Act."""

    plain = act.read('{"what": {"item": "disk"}, "path": "a"}')
    for function, words in CHANGED.items():
        why = tool(name="act", description="Act.")(function).misfit(plain)
        assert why is not None, words
        assert why.startswith("the tool act no longer takes the arguments that were recorded for this call: ")
        assert words in why

    @tool(name="act")
    def reordered(path: str, what: Before) -> None:
        """Act."""

    assert list(reordered.restore(plain)) == ["path", "what"], "that changes nothing"


# What is recorded of it

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab é\u200b"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.sampled_from("abcd"), JSON)


@given(wrote=ARGUMENTS, read=ARGUMENTS)
def test_a_reading_comes_back_from_what_differs_from_what_the_model_wrote(
    wrote: dict[str, Any], read: dict[str, Any]
) -> None:
    read = {**wrote, **read}  # a tool gets nothing that it does not know
    call = ToolCall(id="1", name="act", arguments=json.dumps(wrote, indent=1))
    data = FixedArguments(read).to_data(call)
    assert canonical(FixedArguments.of(data, call).arguments) == canonical(read)
    assert not data["set"].keys() & {name for name in wrote if canonical(wrote[name]) == canonical(read[name])}


def test_what_a_model_wrote_is_known_by_its_data() -> None:
    assert fingerprint('{"a": 1, "b": [2]}') == fingerprint(' {"b":[2],"a":1}')
    assert fingerprint("") == fingerprint("{}")
    assert fingerprint('{"a": 1}') != fingerprint('{"a": 1.0}')
    assert fingerprint('{"a": 1, "a": 2}') != fingerprint('{"a": 2}')
