from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr

from holdfast.model.canonical import canonical, parse
from holdfast.model.codec import UNCHECKED, decode, encode, round_trip
from holdfast.model.errors import CodecError
from holdfast.model.limits import Limits
from holdfast.model.restore import restore
from holdfast.model.task import JsonValue
from tests.everyday import FULL


class Color(Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = "yes"


@dataclass
class Point:
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    when: datetime
    color: Color = Color.RED
    where: Point | None = None
    parts: tuple[Item, ...] = ()
    by_level: dict[Level, list[Point]] = field(default_factory=dict)


class Span(NamedTuple):
    start: int
    end: int


class Order(BaseModel):
    number: int = Field(alias="orderNumber")
    total: Decimal
    items: list[Item] = []
    tags: set[str] = set()
    level: Level | None = None


class Names(RootModel[list[str]]):
    pass


plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
offsets = st.none() | st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
folds = st.sampled_from([0, 1])
zoned = st.datetimes(datetime(1950, 1, 1), datetime(2037, 1, 1), timezones=st.timezones(), allow_imaginary=True)  # noqa: DTZ001
datetimes = st.builds(lambda d, z, f: d.replace(tzinfo=z, fold=f), st.datetimes(), offsets, folds) | zoned
times = st.builds(lambda t, z, f: t.replace(tzinfo=z, fold=f), st.times(), offsets, folds)
keys = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | plain_text
    | st.binary(max_size=5)
    | datetimes
    | times
    | st.dates()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
hashables = st.recursive(keys, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
values = st.recursive(
    hashables | st.decimals(),  # a signalling NaN cannot be hashed
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(hashables, max_size=3)
        | st.dictionaries(hashables, inner, max_size=3)
        | st.dictionaries(plain_text, inner, max_size=4)
    ),
    max_leaves=10,
)


def shape(value: JsonValue) -> object:
    """A form of any tagged value in which == means the same types, signs, zones and folds; for hashing too."""
    kind = type(value)
    if kind in (list, tuple):
        return (kind.__name__, tuple(map(shape, value)))
    if kind in (set, frozenset):
        return (kind.__name__, frozenset(map(shape, value)))
    if kind is dict:
        return ("dict", frozenset((shape(key), shape(member)) for key, member in value.items()))
    if kind is datetime:
        return ("datetime", value.replace(tzinfo=None), value.utcoffset(), value.fold, repr(value.tzinfo))
    if kind is time:
        return ("time", value.replace(tzinfo=None), value.utcoffset(), value.fold)
    return (kind.__name__, repr(value))


@given(values)
@settings(max_examples=300 if FULL else 100, deadline=None)
def test_untyped_values_come_back_exactly(value: object) -> None:
    data = encode(value, as_type=Any)
    assert shape(decode(data)) == shape(value)
    assert encode(decode(data)) == data
    assert canonical(parse(data)) == data


points = st.builds(Point, st.floats(allow_nan=False), st.integers(-9, 9) | st.floats(allow_nan=False))
items = st.recursive(
    st.builds(
        Item,
        plain_text,
        datetimes,
        st.sampled_from(Color),
        st.none() | points,
        by_level=st.dictionaries(st.sampled_from(Level), st.lists(points, max_size=2)),
    ),
    lambda inner: st.builds(Item, plain_text, datetimes, parts=st.lists(inner, max_size=2).map(tuple)),
    max_leaves=3,
)
orders = st.builds(
    Order,
    orderNumber=st.integers(),
    total=st.decimals(allow_nan=False, allow_infinity=False),
    items=st.lists(items, max_size=2),
    tags=st.sets(plain_text, max_size=3),
    level=st.none() | st.sampled_from(Level),
)


TYPED: list[tuple[object, st.SearchStrategy[object]]] = [
    (Item, items),
    (Item | None, st.none() | items),
    (list[Item], st.lists(items, max_size=3)),
    (dict[str, Point], st.dictionaries(plain_text, points, max_size=3)),
    (Point | Item | int, points | items | st.integers()),
    (tuple[Point, ...], st.lists(points, max_size=3).map(tuple)),
    (Order, orders),
    (list[Order | Item], st.lists(orders | items, max_size=3)),
    (dict[Color, Order | None], st.dictionaries(st.sampled_from(Color), st.none() | orders)),
    (set[Color], st.sets(st.sampled_from(Color))),
    (Span, st.builds(Span, st.integers(), st.integers())),
    (Names, st.builds(Names, st.lists(plain_text, max_size=3))),
]


@pytest.mark.parametrize(
    ("as_type", "strategy"),
    TYPED,
    ids=lambda case: "" if isinstance(case, st.SearchStrategy) else str(case),
)
def test_typed_values_come_back_by_their_annotation(as_type: object, strategy: st.SearchStrategy[object]) -> None:
    @given(strategy)
    @settings(max_examples=40, deadline=None)
    def check(value: object) -> None:
        data, decoded = round_trip(value, as_type)
        assert decoded == value
        assert type(decoded) is type(value)
        assert encode(decoded, as_type=as_type) == encode(decode(data, as_type), as_type=as_type)

    check()


def test_the_envelope_keeps_tags_outside_the_data() -> None:
    assert encode({"a": 1}) == b'{"data":{"a":1},"schema":1}'
    assert parse(encode({"a/b~": [date(2026, 1, 2)]})) == {
        "data": {"a/b~": ["2026-01-02"]},
        "schema": 1,
        "tags": {"/a~1b~0/0": "date"},
    }
    assert parse(encode(Point(1, 2))) == {"data": {"x": 1, "y": 2}, "schema": 1, "typed": True}


@pytest.mark.parametrize(
    "value",
    [
        {"data": 1, "schema": 1, "tags": {"": "set"}},
        {"data": {"__type__": "datetime"}, "schema": 99},
        {"tags": {"/tags": "date"}, "typed": True},
        '{"data":1,"schema":1}',
    ],
)
def test_data_that_looks_like_ours_is_only_data(value: object) -> None:
    assert decode(encode(value), Item) == value
    assert decode(encode(value)) == value


def test_the_numbers_that_are_easily_confused_stay_apart() -> None:
    value = {1: "int", "1": "text", 2.0: "float", False: "bool", None: "none"}
    assert shape(decode(encode(value))) == shape(value)
    assert math.copysign(1, decode(encode(-0.0))) == -1
    assert shape(decode(encode([1, 1.0, True, Decimal("1.0"), 10**4000 - 1]))) == shape(
        [1, 1.0, True, Decimal("1.0"), 10**4000 - 1]
    )


def test_equal_sets_and_maps_have_equal_bytes() -> None:
    assert encode({3, 1, 2, "x", b"x"}) == encode({b"x", "x", 2, 1, 3})
    assert encode({"eA==", b"x"}) == encode({b"x", "eA=="})
    assert encode({2: "b", 1: "a"}) == encode({1: "a", 2: "b"})


def test_times_keep_their_zone_offset_and_fold() -> None:
    berlin = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    decoded = decode(encode(berlin))
    assert (decoded.tzinfo, decoded.fold, decoded.utcoffset()) == (berlin.tzinfo, 1, timedelta(hours=1))
    assert b"2026-10-25T02:30:00+01:00[Europe/Berlin][fold=1]" in encode(berlin)


def test_if_the_rules_of_a_zone_changed_the_instant_is_kept() -> None:
    data = encode(datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))).replace(b"+02:00", b"+03:00")
    assert decode(data).astimezone(UTC) == datetime(2026, 7, 1, 9, tzinfo=UTC)


def test_a_time_zone_that_would_not_come_back_is_refused() -> None:
    class Odd(timezone.__base__):  # type: ignore[misc,name-defined] # tzinfo
        def utcoffset(self, _: datetime | None) -> timedelta:
            return timedelta(hours=1)

    for zone in (timezone(timedelta(hours=1), "CET"), timezone(timedelta(microseconds=1)), Odd()):
        for when in (datetime(2026, 1, 1, tzinfo=zone), time(12, tzinfo=zone)):
            with pytest.raises(CodecError, match="cannot be stored; use") as refused:
                encode({"when": when})
            assert refused.value.path == "value.when"


def test_a_time_of_day_in_a_zone_has_no_offset_and_is_refused() -> None:
    with pytest.raises(CodecError, match="zone"):
        encode(time(12, tzinfo=ZoneInfo("Europe/Berlin")))


def test_times_parsed_by_pydantic_can_be_stored() -> None:
    class Event(BaseModel):
        at: datetime

    event = Event.model_validate_json('{"at":"2026-01-01T00:00:00+05:00"}')
    assert round_trip(event, Event)[1] == event


class Text(str):
    __slots__ = ()


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - the untyped kind is what is tested


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"items": [0, 1, 2, {"when": lambda: None}]}, "result.items[3].when"),
        ([Text("x")], "result[0]"),
        (OrderedDict(a=1), "result"),
        ({"a": bytearray(b"x")}, "result.a"),
        ({"a": [object()]}, "result.a[0]"),
        ({1: open}, "result[1]"),
        ({Text("x"): 1}, "result.keys(){'x'}"),
        ({"a": 1j}, "result.a"),
        ((i for i in [1]), "result"),
        ([10**4300], "result[0]"),
        ([{"x": "\ud83d\ude00"}], "result[0].x"),
        (SecretStr("s"), "result"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_place(value: object, path: str) -> None:
    for as_type in (UNCHECKED, Any):
        with pytest.raises(CodecError) as refused:
            encode(value, as_type=as_type, name="result")
        assert refused.value.path == path


@pytest.mark.parametrize("value", [Color.RED, Level.LOW, Word.YES, Point(1, 2), Span(1, 2), Pair(1, 2), Path("/tmp")])  # noqa: S108
def test_without_a_type_it_becomes_plain_data_or_is_refused_at_the_door(value: object) -> None:
    assert type(decode(encode(value))) in {str, int, dict, tuple}
    with pytest.raises(CodecError, match="returns=") as refused:
        encode({"a": [value]}, as_type=Any, name="result")
    assert refused.value.path == "result.a[0]"
    assert round_trip(value, type(value))[1] == value
    assert type(round_trip(value, type(value))[1]) is type(value)


@dataclass
class Twin:
    x: float
    y: float


def test_a_union_that_cannot_tell_its_members_apart_is_refused() -> None:
    assert round_trip(Point(1, 2), Point | Twin)[1] == Point(1, 2)
    with pytest.raises(CodecError, match="Twin would not come back"):
        encode(Twin(1, 2), as_type=Point | Twin)


def test_a_wrong_annotation_does_not_change_plain_data() -> None:
    for value in ({"x": 1, "y": 2}, None, "5", [1, "2"]):
        assert decode(encode(value, as_type=Point), Point) == value
    assert restore({"x": "1", "y": 2}, Point) == Point(1.0, 2.0)


def test_an_int_is_accepted_where_a_float_is_annotated() -> None:
    assert round_trip(Point(1, 2), Point)[1] == Point(1.0, 2.0)


def test_a_value_that_its_own_type_would_change_is_refused() -> None:
    @dataclass
    class Wrong:
        number: int

    with pytest.raises(CodecError, match="come back changed"):
        encode(Wrong("5"), as_type=Wrong)  # type: ignore[arg-type]


def test_a_value_its_own_type_does_not_accept_is_refused_with_its_place() -> None:
    with pytest.raises(CodecError, match="does not fit") as refused:
        encode([Point("one", 2)], as_type=list[Point], name="result")  # type: ignore[arg-type]
    assert refused.value.path == "result[0].x"


def test_private_attributes_of_a_model_are_not_lost_silently() -> None:
    class Model(BaseModel):
        a: int
        _secret: int = PrivateAttr(default=0)

    model = Model(a=1)
    assert round_trip(model, Model)[1] == model
    model._secret = 5
    with pytest.raises(CodecError, match="would not come back"):
        encode(model, as_type=Model)


def test_extra_fields_of_a_model_come_back() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int

    model = Open.model_validate({"a": 1, "b": [date(2026, 1, 1)]})
    assert round_trip(model, Open)[1] == model


def test_unhashable_annotations_work() -> None:
    assert round_trip(Point(1, 2), Annotated[Point, []])[1] == Point(1, 2)


def test_a_type_that_cannot_be_restored_is_a_clear_error() -> None:
    class Opaque:
        pass

    with pytest.raises(CodecError, match="cannot be restored"):
        encode(Point(1, 2), as_type=Opaque)


def test_cycles_and_hostile_depth_are_refused() -> None:
    cycle: dict[Any, Any] = {1: 2}
    cycle["self"] = (cycle,)
    deep: Any = ()
    for _ in range(100_000):
        deep = (deep,)
    for value in (cycle, deep):
        with pytest.raises(CodecError, match="levels deep"):
            encode(value)
    node = Names(["x"])
    node.root = node  # type: ignore[assignment]
    with pytest.raises(CodecError, match="levels deep"):
        encode(node)
    for data in (b'{"data":' + b"[" * 100_000, b'{"data":' + b"[" * 99 + b"]" * 99 + b',"schema":1}'):
        with pytest.raises(CodecError, match="deep"):
            decode(data)


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: {1: v}, lambda v: Point(v, 0)]
)
def test_whatever_is_encoded_at_the_deepest_allowed_level_is_decoded(wrap: Callable[[object], object]) -> None:
    limits = Limits(max_depth=6)
    value: Any = Level.LOW
    while True:
        try:
            data = encode(value, limits=limits)
        except CodecError:
            break
        decode(data, limits=limits)
        value = wrap(value)
    assert value != Level.LOW


def test_size_is_limited() -> None:
    with pytest.raises(CodecError, match="artifact") as refused:
        encode({"log": "x" * 9_000_000}, name="result")
    assert refused.value.path == "result"
    shared: Any = (1,)
    for _ in range(40):
        shared = (shared, shared)
    with pytest.raises(CodecError, match="bytes"):
        encode(shared, limits=Limits(max_bytes=10_000))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"data":1,"schema":2}', "schema 2.*upgrade"),
        (b'{"data":1,"schema":0}', "schema 0"),
        (b'{"data":1,"schema":true}', "missing"),
        (b'{"data":1}', "missing"),
        (b'{"schema":1}', "missing"),
        (b"[1]", "missing"),
        (b'{"data":1,"data":2,"schema":1}', "twice"),
        (b'{"data":1,"more":2,"schema":1}', "unknown parts"),
        (b'{"data":1,"schema":1,"tags":[]}', "tags"),
        (b'{"data":1,"schema":1,"tags":{"":"os.system"}}', "unknown"),
        (b'{"data":1,"schema":1,"tags":{"":["date"]}}', "unknown"),
        (b'{"data":1,"schema":1,"tags":{"":"date"}}', "not a valid date"),
        (b'{"data":"x","schema":1,"tags":{"":"datetime"}}', "not a valid datetime"),
        (b'{"data":"2026-01-01T00:00[../../etc/passwd]","schema":1,"tags":{"":"datetime"}}', "not a valid datetime"),
        (b'{"data":[1],"schema":1,"tags":{"/1":"tuple"}}', "not a valid tuple"),
        (b'{"data":[1],"schema":1,"tags":{"0":"tuple"}}', "pointer"),
        (b'{"data":{"a":"x"},"schema":1,"tags":{"/a/b":"date"}}', "not a valid date"),
        (b'{"data":[[]],"schema":1,"tags":{"":"set"}}', "not a valid set"),
        (b'{"data":[1,1],"schema":1,"tags":{"":"set"}}', "not a valid set"),
        (b'{"data":[[1,2],[1,3]],"schema":1,"tags":{"":"map"}}', "not a valid map"),
        (b'{"data":[[[],1]],"schema":1,"tags":{"":"map"}}', "not a valid map"),
        (b'{"data":[1],"schema":1,"tags":{"":"map"}}', "not a valid map"),
        (b'{"data":1e300,"schema":1,"tags":{"":"timedelta"}}', "not a valid timedelta"),
        (b'{"data":"!","schema":1,"tags":{"":"bytes"}}', "not a valid bytes"),
        (b'{"data":"x","schema":1,"tags":{"":"decimal"}}', "not a valid decimal"),
        (b'{"data":7,"schema":1,"tags":{"":"uuid"}}', "not a valid uuid"),
        (b'{"data":"1","schema":1,"tags":{"":"float"}}', "not a valid float"),
    ],
)
def test_damaged_or_hostile_bytes_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(CodecError, match=why) as refused:
        decode(data, name="stored")
    assert refused.value.path == "stored"


@given(st.binary(max_size=40) | st.text('[]{}:,"01tags/schema', max_size=40).map(str.encode))
def test_no_bytes_raise_anything_but_a_codec_error(data: bytes) -> None:
    for attempt in (data, b'{"data":' + data + b',"schema":1}'):
        with suppress(CodecError):
            decode(attempt)


def test_a_uuid_stays_a_uuid() -> None:
    value = UUID(int=7)
    assert decode(encode([value])) == [value]
