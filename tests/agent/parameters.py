"""Every kind of parameter that a tool may have: what the model writes for it, and whether it can be called with it."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Json,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    RootModel,
    SecretBytes,
    SecretStr,
    WrapValidator,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

T = TypeVar("T")
NUMBERS = count(1)


def add_slash(value: str) -> str:
    return value + "/"


def end_in_slash(value: str) -> str:
    return value.rstrip("/") + "/"


def wrap_and_double(value: Any, handler: Callable[[Any], int]) -> int:  # noqa: ANN401
    return handler(value) * 2


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Place(TypedDict, total=False):
    name: str
    tags: set[str]


@dataclass
class Plain:
    when: date
    tags: frozenset[str] = frozenset()
    made_as: int = dataclass_field(default_factory=lambda: next(NUMBERS))


@pydantic_dataclass
class Checked:
    path: Annotated[str, AfterValidator(end_in_slash)]


class Order(BaseModel):
    item: str
    request_id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    made_at: datetime = Field(default_factory=lambda: datetime.now().astimezone())


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")
    first: int = Field(alias="firstNumber")
    second: int = Field(validation_alias=AliasChoices("secondNumber", "second_number"))


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: set[str] = set()


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: Page[T] | None = None


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    net: Decimal

    @computed_field
    def gross(self) -> Decimal:
        return self.net * 2


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int = 1


class Names(RootModel[list[str]]):
    pass


class Shouting(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def _shout(cls, text: str) -> str:
        return text.upper()


class Prefixed(BaseModel):
    item: str

    @field_validator("item")
    @classmethod
    def _prefix(cls, item: str) -> str:
        return "sku-" + item


class Hidden(BaseModel):
    item: str
    dry_run: bool = Field(default=False, exclude=True)


class Login(BaseModel):
    user: str
    passwords: list[SecretStr]


class Opened(BaseModel):
    password: SecretStr

    @field_serializer("password")
    def _open(self, password: SecretStr) -> str:
        return password.get_secret_value()


class Losing(BaseModel):
    amount: float

    @field_serializer("amount")
    def _round(self, amount: float) -> int:
        return int(amount)


class Renamed(BaseModel):
    inner: int = Field(default=0, serialization_alias="outer")


class Counting(BaseModel):
    item: str
    _number: int = PrivateAttr(default_factory=lambda: next(NUMBERS))


class Swapping(BaseModel):
    source: str
    target: str

    @model_validator(mode="after")
    def _swap(self) -> Swapping:
        self.source, self.target = self.target, self.source
        return self


class Unvalidated(BaseModel):
    amount: Annotated[int, AfterValidator(lambda dollars: dollars * 100)] = 5


@dataclass(frozen=True)
class Kind:
    """One kind of parameter."""

    name: str
    hint: Any
    wrote: Any
    """What the model writes."""


KEPT: Sequence[Kind] = [
    Kind("text", str, " a  b\u3000\u200b"),
    Kind("whole", int, 5),
    Kind("fraction", float, 5),
    Kind("anything", Any, {"b": [1, None], "a": {}}),
    Kind("maybe", int | None, None),
    Kind("either", int | str, "5"),
    Kind("decimal_or_text", Decimal | str, 1.5),
    Kind("moment", datetime, "2026-01-02T03:04:05.000006+02:00"),
    Kind("naive", datetime, "2026-01-02T03:04:05"),
    Kind("day", date, "2026-01-02"),
    Kind("clock", time, "03:04:05+02:00"),
    Kind("span", timedelta, "PT5M0.5S"),
    Kind("amount", Decimal, "1.10"),
    Kind("raw", bytes, "grün"),
    Kind("base64", Base64Bytes, "AP8="),
    Kind("path", Path, "a/b"),
    Kind("number", uuid.UUID, "12345678-1234-5678-1234-567812345678"),
    Kind("colour", Colour, "red"),
    Kind("literal", Literal[1, "two"], "two"),
    Kind("tags", set[str], ["c", "a", "b"]),
    Kind("nested_tags", dict[str, list[frozenset[str]]], {"x": [["c", "a", "b"], ["z", "y"]]}),
    Kind("pair", tuple[int, str], [1, "a"]),
    Kind("by_number", dict[int, Decimal], {"2": "1.0", "1": "2"}),
    Kind("lazily", Iterable[int], [1, 2]),
    Kind("point", Point, [1, 2]),
    Kind("place", Place, {"tags": ["b", "a"]}),
    Kind("plain", Plain, {"when": "2026-01-02", "tags": ["b", "a"]}),
    Kind("checked", Checked, {"path": "a"}),
    Kind("order", Order, {"item": "disk"}),
    Kind("aliased", Aliased, {"firstNumber": 1, "second_number": 2}),
    Kind("pet", Annotated[Cat | Dog, Discriminator("kind")], {"kind": "dog", "tricks": ["sit", "roll"]}),
    Kind("page", Page[Order], {"items": [{"item": "a"}], "next": {"items": [{"item": "b"}]}}),
    Kind("computed", Computed, {"net": "1.5"}),
    Kind("extra", Extra, {"more": [1]}),
    Kind("names", Names, ["b", "a"]),
    Kind("shouting", Shouting, {"text": "a"}),
    Kind("json", Json[dict[str, int]], '{"b": 1, "a": 2}'),
    Kind("opened", Opened, {"password": "hunter2"}),
    Kind("before", Annotated[str, BeforeValidator(str.strip)], " a "),
    Kind("after", Annotated[str, AfterValidator(end_in_slash)], "a"),
    Kind("wrap", Annotated[int, WrapValidator(lambda value, handler: abs(handler(value)))], -5),
]
"""They come back from what is written down as they went in."""

REFUSED_WHEN_CALLED: Sequence[Kind] = [
    Kind("cents", Annotated[int, AfterValidator(lambda dollars: dollars * 100)], 5),
    Kind("before", Annotated[str, BeforeValidator(add_slash)], "a"),
    Kind("wrap", Annotated[int, WrapValidator(wrap_and_double)], 5),
    Kind("validated", Annotated[Any, PlainValidator(lambda _value: object())], 5),
    Kind("prefixed", Prefixed, {"item": "disk"}),
    Kind("nested", list[dict[str, Prefixed]], [{"a": {"item": "disk"}}]),
    Kind("losing", Losing, {"amount": 1.5}),
    Kind("rounded", Annotated[float, PlainSerializer(int)], 1.5),
    Kind("failing", Annotated[int, PlainSerializer(lambda _value: 1 / 0)], 1),
    Kind("renamed", Renamed, {"inner": 3}),
    Kind("counting", Counting, {"item": "a"}),
    Kind("swapping", Swapping, {"source": "a", "target": "b"}),
    Kind("unvalidated", Unvalidated, {}),
    Kind("ordered", OrderedDict[str, int], {"b": 1, "a": 2}),
    Kind("iterables", list[Iterable[int]], [[1]]),
]
"""Whether they come back depends on the value."""

REFUSED_AT_ONCE: Sequence[Kind] = [
    Kind("secret", SecretStr, "hunter2"),
    Kind("secret_bytes", SecretBytes | None, "hunter2"),
    Kind("login", Login, {"user": "ann", "passwords": ["hunter2"]}),
    Kind("hidden", Hidden, {"item": "a", "dry_run": True}),
    Kind("deep", dict[str, list[Hidden | None]], {}),
]
"""Part of them is never written down."""
