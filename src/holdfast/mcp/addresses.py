"""The URIs of resources: what each of them names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote

from holdfast.model.errors import InvalidValue

QUEUE: Final = "task://queue"
CURRENT: Final = "task://current"
SCHEDULES: Final = "task://schedules"

STATE_TEMPLATE: Final = "state://agents/{agent_id}/tasks/{task_id}"
STEPS_TEMPLATE: Final = "state://agents/{agent_id}/tasks/{task_id}/steps{?after}"
CHECKPOINT_TEMPLATE: Final = "state://agents/{agent_id}/tasks/{task_id}/checkpoints/{number}"
QUEUE_TEMPLATE: Final = "task://queue{?queue,after}"
ARTIFACT_TEMPLATE: Final = "artifact://{artifact_id}{?offset,length}"
FACT_TEMPLATE: Final = "fact://{entity}"

_LONGEST = 2000
_TASK = re.compile(r"state://agents/(?P<agent>[^/?#]+)/tasks/(?P<task>[^/?#]+)(?P<rest>/[^?#]*)?")
_CHECKPOINT = re.compile(r"/checkpoints/(\d{1,9})")


@dataclass(frozen=True, slots=True)
class StateAddress:
    """The state of a task."""

    agent_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class StepsAddress:
    """The journal of a task, from a position on."""

    agent_id: str
    task_id: str
    after: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointAddress:
    """One checkpoint of a task."""

    agent_id: str
    task_id: str
    number: int


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """What waits, in one queue or in all of them."""

    queue: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class CurrentAddress:
    """What the caller works on, and what else runs."""


@dataclass(frozen=True, slots=True)
class SchedulesAddress:
    """What is submitted again and again."""


@dataclass(frozen=True, slots=True)
class ArtifactAddress:
    """An artifact, or a part of it."""

    artifact_id: str
    offset: int = 0
    length: int | None = None


@dataclass(frozen=True, slots=True)
class FactAddress:
    """What is remembered about an entity."""

    entity: str


TaskAddress: TypeAlias = StateAddress | StepsAddress | CheckpointAddress
Address: TypeAlias = TaskAddress | QueueAddress | CurrentAddress | SchedulesAddress | ArtifactAddress | FactAddress


def state_uri(agent_id: str, task_id: str) -> str:
    """Return the URI of a task's state."""
    return f"state://agents/{quote(agent_id, safe='')}/tasks/{quote(task_id, safe='')}"


def artifact_uri(artifact_id: str) -> str:
    """Return the URI of an artifact."""
    return f"artifact://{quote(artifact_id, safe='')}"


def fact_uri(entity: str) -> str:
    """Return the URI of what is remembered about an entity."""
    return f"fact://{quote(entity, safe='')}"


def has_nul(value: object) -> bool:
    """Return whether there is a NUL in any text of plain data: no store can hold one."""
    match value:
        case str():
            return "\0" in value
        case Mapping():
            return any(has_nul(name) or has_nul(item) for name, item in value.items())
        case list() | tuple():
            return any(map(has_nul, value))
    return False


def read_address(uri: str) -> Address | None:  # noqa: PLR0911 - one for each kind
    """Return what a URI names; None if it is not a URI of this server. Raises InvalidValue for one with mistakes."""
    if len(uri) > _LONGEST or has_nul(unquote(uri)):
        return None
    path, _, query = uri.partition("?")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    scheme, _, rest = path.partition("://")
    match scheme, rest:
        case "state", _:
            return _task_address(path, asked)
        case "task", "queue" | "queue/":
            _check(asked, {"queue", "after"}, uri)
            return QueueAddress(asked.get("queue") or None, asked.get("after") or None)
        case "task", "current" | "current/":
            _check(asked, set(), uri)
            return CurrentAddress()
        case "task", "schedules" | "schedules/":
            _check(asked, set(), uri)
            return SchedulesAddress()
        case "artifact", name if _is_name(name):
            _check(asked, {"offset", "length"}, uri)
            length = _number(asked, "length", uri) if asked.get("length") else None
            return ArtifactAddress(unquote(name), _number(asked, "offset", uri), length)
        case "fact", name if _is_name(name):
            _check(asked, set(), uri)
            return FactAddress(unquote(name))
    return None


def _task_address(path: str, asked: Mapping[str, str]) -> Address | None:
    found = _TASK.fullmatch(path)
    if found is None:
        return None
    agent, task, rest = unquote(found["agent"]), unquote(found["task"]), found["rest"]
    if rest == "/steps":
        _check(asked, {"after"}, path)
        return StepsAddress(agent, task, _number(asked, "after", path))
    _check(asked, set(), path)
    if rest is None:
        return StateAddress(agent, task)
    number = _CHECKPOINT.fullmatch(rest)
    return None if number is None else CheckpointAddress(agent, task, int(number[1]))


def _is_name(text: str) -> bool:
    return bool(text) and "/" not in text and "#" not in text


def _check(asked: Mapping[str, str], known: set[str], uri: str) -> None:
    if unknown := sorted(set(asked) - known):
        what = f"it may ask for {', '.join(sorted(known))}" if known else "it takes no query"
        raise InvalidValue(f"{uri[:200]} asks for {', '.join(unknown)[:200]}; {what}")


def _number(asked: Mapping[str, str], name: str, uri: str) -> int:
    text = asked.get(name) or "0"
    if not text.isdecimal() or len(text) > 18:  # noqa: PLR2004 - digits of the databases' largest number
        raise InvalidValue(f"{name}={text[:50]} in {uri[:200]} is not a number; count from 0")
    return int(text)
