"""Tools as a model sees them: schemas from hints, words from docstrings; and arguments as the function gets them."""

import dataclasses
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from holdfast import Holdfast, Tool, ToolContext, tool
from holdfast.agent.scripted import Line, ScriptedCall, call
from holdfast.agent.tool import BadArguments
from tests.agent.support import finished, register


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Window(BaseModel):
    start: datetime
    days: int = 1


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


def schema(one: Tool) -> dict[str, Any]:
    return dict(one.spec.parameters)


def properties(one: Tool) -> dict[str, Any]:
    found: dict[str, Any] = schema(one)["properties"]
    return found


def given(one: Tool, arguments: str) -> dict[str, Any]:
    """Return what the function gets, by way of what the journal has."""
    return one.restore(one.read(arguments))


# Schemas


def test_a_schema_is_made_of_the_type_hints() -> None:
    @tool
    def act(
        name: str,
        count: int,
        ratio: float | None,
        mode: Literal["fast", "slow"] = "slow",
        *,
        labels: list[str] | None = None,
        strict: bool = False,
    ) -> None:
        """Act."""

    assert schema(act) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "count", "ratio"],
        "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
            "labels": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
            "strict": {"type": "boolean", "default": False},
        },
    }


def test_no_parameters_are_an_empty_object() -> None:
    @tool
    def act() -> None:
        """Act."""

    assert schema(act) == {"type": "object", "additionalProperties": False, "properties": {}}
    assert act.read("") == act.read("{}") == act.read("  \n") == {}


def test_what_holdfast_fills_in_is_not_in_the_schema() -> None:
    @tool
    def act(path: str, effect_id: str, about: ToolContext) -> None:
        """Act."""

    assert list(properties(act)) == ["path"]
    assert act.context_parameter == "about"
    assert act.takes_effect_id
    with pytest.raises(BadArguments, match="effect_id: Extra inputs are not permitted"):
        act.read('{"path": "a", "effect_id": "mine"}')


def test_dataclasses_and_models_are_described_whole() -> None:
    @tool
    def act(window: Window, points: list[Point]) -> None:
        """Act."""

    definitions = schema(act)["$defs"]
    assert definitions["Point"]["required"] == ["x"]
    assert definitions["Window"]["properties"]["start"] == {"type": "string", "format": "date-time"}
    assert properties(act)["points"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}


def test_titles_are_left_out_and_parameters_called_title_are_not() -> None:
    class Page(BaseModel):
        title: str

    @tool
    def act(title: str, page: Page) -> None:
        """Act."""

    assert properties(act)["title"] == {"type": "string"}
    assert schema(act)["$defs"]["Page"] == {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
    }


def test_an_unannotated_parameter_may_be_anything() -> None:
    @tool
    def act(anything, other=3):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        """Act."""

    assert properties(act) == {"anything": {}, "other": {"default": 3}}
    assert given(act, '{"anything": [1, {"a": null}]}') == {"anything": [1, {"a": None}], "other": 3}


def test_parameters_may_be_called_what_a_model_of_pydantic_may_not() -> None:
    @tool
    def act(copy: str, _path: str, model_name: str, schema: str, self_: int = 1) -> None:
        """Act."""

    names = ["copy", "_path", "model_name", "schema", "self_"]
    assert list(properties(act)) == names
    arguments = '{"copy": "a", "_path": "b", "model_name": "c", "schema": "d"}'
    assert given(act, arguments) == dict(zip(names, ["a", "b", "c", "d", 1], strict=True))


def test_constraints_of_annotations_hold() -> None:
    @tool
    def act(count: Annotated[int, Field(ge=1, le=3, description="How many.")] = 1) -> None:
        """Act."""

    assert properties(act)["count"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 3,
        "default": 1,
        "description": "How many.",
    }
    with pytest.raises(BadArguments, match="count: Input should be less than or equal to 3"):
        act.read('{"count": 4}')


# Docstrings


def test_google_docstrings_describe_the_parameters() -> None:
    @tool
    def act(path: str, depth: int, other: str) -> None:
        """Look into a folder.

        Really look, at all of it.

        Args:
            path (str): Where to begin: a path,
                absolute or not.
            depth: How deep.

        Returns:
            path: not a parameter.
        """

    assert act.description == "Look into a folder.\n\nReally look, at all of it."
    assert properties(act)["path"]["description"] == "Where to begin: a path, absolute or not."
    assert properties(act)["depth"]["description"] == "How deep."
    assert "description" not in properties(act)["other"]


def test_sphinx_docstrings_describe_the_parameters() -> None:
    @tool
    def act(path: str, depth: int) -> None:
        """Look into a folder.

        :param path: Where to begin,
            absolute or not.
        :param int depth: How deep.
        :returns: nothing
        """

    assert act.description == "Look into a folder."
    assert properties(act)["path"]["description"] == "Where to begin, absolute or not."
    assert properties(act)["depth"]["description"].startswith("How deep.")


def test_an_annotation_says_more_than_the_docstring() -> None:
    @tool
    def act(path: Annotated[str, Field(description="From the annotation.")]) -> None:
        """Look.

        Args:
            path: From the docstring.
        """

    assert properties(act)["path"]["description"] == "From the annotation."


def test_name_and_description_can_be_given() -> None:
    @tool(name="other", description="Something else.")
    def act() -> None:
        """Act."""

    assert (act.spec.name, act.spec.description) == ("other", "Something else.")
    assert repr(act) == "<tool 'other', external_action, once>"


def test_a_tool_is_still_the_function() -> None:
    @tool
    def double(number: int) -> int:
        """Double it."""
        return 2 * number

    assert double(4) == 8
    assert double.__doc__ == "Double it."


# Arguments


@tool
def everything(  # noqa: PLR0917 - one of each kind
    point: Point,
    window: Window,
    at: datetime,
    day: date,
    within: timedelta,
    color: Color,
    path: Path,
    amount: Decimal,
    number: UUID,
    tags: set[int],
    pair: tuple[int, str],
    by_number: dict[int, str],
    either: int | str,
    maybe: Point | None = None,
    *,
    mode: Literal[1, "two"] = "two",
) -> None:
    """Take everything."""


def test_arguments_arrive_as_what_the_hints_say() -> None:
    arguments = (
        '{"point": {"x": 1}, "window": {"start": "2026-01-02T03:04:05Z"}, "at": "2026-01-02T03:04:05+01:00",'
        ' "day": "2026-01-02", "within": "PT5M", "color": "blue", "path": "a/b", "amount": "1.10",'
        ' "number": "12345678-1234-5678-1234-567812345678", "tags": [1], "pair": [1, "a"], "by_number": {"1": "a"},'
        ' "either": "5"}'
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert given(everything, arguments) == {
        "point": Point(1.0),
        "window": Window(start=moment),
        "at": moment - timedelta(hours=1),
        "day": date(2026, 1, 2),
        "within": timedelta(minutes=5),
        "color": Color.BLUE,
        "path": Path("a/b"),
        "amount": Decimal("1.10"),
        "number": UUID("12345678-1234-5678-1234-567812345678"),
        "tags": {1},
        "pair": (1, "a"),
        "by_number": {1: "a"},
        "either": "5",
        "maybe": None,
        "mode": "two",
    }


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ("not json", "Invalid JSON"),
        ('{"path": "a"', "Invalid JSON"),
        ("[]", "arguments: Input should be an object"),
        ("null", "arguments: Input should be an object"),
        ("{}", "path: Field required"),
        ('{"path": 3}', "path: Input should be a valid string"),
        ('{"path": "a", "depth": "deep"}', "depth: Input should be a valid integer"),
        ('{"path": "a", "other": 1}', "other: Extra inputs are not permitted"),
        ('{"path": "\\ud800"}', "Invalid JSON"),
        ('{"path": "\ud800"}', "unable to parse raw data as a unicode string"),
    ],
)
def test_wrong_arguments_are_explained_by_name(arguments: str, wrong: str) -> None:
    @tool
    def act(path: str, depth: int = 1) -> None:
        """Act."""

    with pytest.raises(BadArguments, match=wrong) as refused:
        act.read(arguments)
    assert str(refused.value).startswith("the arguments of act are wrong: ")
    assert "parameter_" not in str(refused.value)


def test_a_default_of_none_makes_a_parameter_optional() -> None:
    @tool
    def act(path: str = None) -> None:  # type: ignore[assignment]  # noqa: RUF013
        """Act."""

    assert given(act, "{}") == {"path": None}
    assert given(act, '{"path": "a"}') == {"path": "a"}
    assert properties(act)["path"]["anyOf"] == [{"type": "string"}, {"type": "null"}]


def test_a_default_is_written_down_like_an_argument() -> None:
    @tool
    def act(point: Point = Point(1.0), color: Color = Color.BLUE, within: timedelta = timedelta(0)) -> None:  # noqa: B008
        """Act."""

    assert given(act, "{}") == {"point": Point(1.0), "color": Color.BLUE, "within": timedelta(0)}


class Client:
    async def fetch(self, path: str) -> str:
        """Fetch it."""
        return f"fetched {path}"


async def test_methods_callables_and_typed_arguments_work_through_an_agent(hold: Holdfast) -> None:
    seen: list[object] = []

    @tool(risk="read_only")
    def note(point: Point, *, at: datetime, color: Color = Color.RED) -> Point:
        """Note a point."""
        seen.extend([point, at, color])
        return Point(point.x + 1, point.y)

    script: list[Line] = [
        [call("note", point={"x": 1, "y": 2}, at="2026-01-02T03:04:05Z"), call("fetch", path="a")],
        ScriptedCall("note", '{"point": {"x": 1}, "at": "2026-01-02"}'),
        "done",
    ]
    agent, model = register(hold, script, tools=[note, Client().fetch])
    await finished(hold, agent)
    assert seen[:3] == [Point(1.0, 2.0), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), Color.RED]
    results = [message.content for message in model.requests[-1].messages if message.role == "tool"]
    assert results[:2] == ['{"x": 2.0, "y": 2.0}', "fetched a"]
