"""Checking against an untrusted JSON Schema within a limit of work: a schema of one page can ask for years of it.

Each keyword that is applied costs work, by the data it reads, and the work is limited. What cannot be counted
that way is not checked at all: regular expressions, comparing everything with everything, and what follows references
on paths of its own. That opens no hole: the schema is the server's, and the server checks what it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import attrs
from jsonschema import Draft202012Validator, validators  # type: ignore[import-untyped]
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing import Registry

MOST_WORK = 100_000
"""Units for one check of arguments, or of a schema: a few tenths of a second. A few hundred units are usual."""

MOST_DEPTH = 150
"""Keywords within keywords. Python's own limit is not far beyond it, and the libraries underneath do not survive that.
"""

UNCHECKED = frozenset({"pattern", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"})

_TURNED = {"not": None, "disallow": None, "if": None, "contains": None, "oneOf": "anyOf"}
"""Keywords that can fail because a part below them passes. A part that is not checked always passes, so these are not
checked with it; the value is the keyword to check instead."""

_WHOLE = frozenset({"enum", "const", "dependentRequired", "dependencies"})
"""Keywords that read all of their value, not just its beginning."""

_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_FOLLOWING = 10
"""What it costs to find what a reference names."""

_SIZE_OF_A_UNIT = 200
"""Bytes that can be written into the words of an error in about the time that a keyword takes."""

Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


class TooMuchWork(Exception):
    """The limit of work is reached."""


class TooDeep(Exception):
    """The schema refers to itself without end, or is nested too deep."""


class _Work:
    """The work that one check may still do."""

    def __init__(self, size: int) -> None:
        self._left = MOST_WORK
        self._depth = 0
        self._each_error = 1 + size // _SIZE_OF_A_UNIT
        """An error quotes its subject, which may be all of the arguments and of the schema."""

    def spend(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise TooMuchWork

    @contextmanager
    def deeper(self) -> Iterator[None]:
        if self._depth == MOST_DEPTH:
            raise TooDeep(f"more than {MOST_DEPTH} keywords within each other")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def note_error(self) -> None:
        self.spend(self._each_error)


_WORK: ContextVar[_Work] = ContextVar("holdfast_mcp_validating")


class Validator:
    """One schema."""

    def __init__(self, schema: Mapping[str, Any], size: int, *, draft: object = None) -> None:
        """``size`` is how many bytes it takes, ``draft`` what it names as its ``$schema``."""
        self._size = size
        named = {} if draft is None else {"$schema": draft}
        self._draft = validators.validator_for(named, default=Draft202012Validator)
        # With an empty registry, because the usual one fetches what a reference names.
        self._checking = _bounded(self._draft, is_partial=_mentions_unchecked(schema))(schema, registry=Registry())

    def faults(self, arguments: Mapping[str, Any], size: int) -> Iterator[Any]:
        """Yield what is wrong with arguments of that size. Raises TooMuchWork, TooDeep, and errors of the library."""
        return _counted(self._checking.iter_errors(arguments), self._size + size)

    def faults_of_schema(self) -> Iterator[Any]:
        """Yield what is wrong with the schema itself. Raises TooMuchWork."""
        described = self._draft.META_SCHEMA
        checking = _bounded(self._draft, is_partial=False)(described, registry=REGISTRY)
        return _counted(checking.iter_errors(self._checking.schema), self._size)


def _counted(faults: Iterator[Any], size: int) -> Iterator[Any]:
    token = _WORK.set(_Work(size))
    try:
        yield from faults
    finally:
        _WORK.reset(token)


@cache
def _bounded(draft: Any, *, is_partial: bool) -> Any:  # noqa: ANN401 - jsonschema has no types
    """Return a draft of JSON Schema that counts; ``is_partial`` for schemas of which not all is checked."""
    known: dict[str, Keyword] = dict(draft.VALIDATORS)
    checked = {name: _counting(name, keyword) for name, keyword in known.items()}
    left_out: dict[str, str | None] = dict.fromkeys(UNCHECKED) | (_TURNED if is_partial else {})
    for name, instead in left_out.items():
        if name in known:
            checked[name] = _unchecked if instead is None else checked[instead]
    bounded = validators.extend(draft, checked)
    # Its own evolve would switch to another draft, without the limit, wherever a part of the schema names one.
    bounded.evolve = attrs.evolve
    return bounded


def _counting(name: str, keyword: Keyword) -> Keyword:
    def apply(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401
        work = _WORK.get()
        looked_through = _nodes(value) if name in _WHOLE else _length(value)
        work.spend((_FOLLOWING if name in _REFERENCES else 1) + looked_through + _length(instance))
        if name == "additionalProperties" and "patternProperties" in schema:
            return  # regular expressions decide which of them are additional
        with work.deeper():
            for error in keyword(validator, value, instance, schema) or ():
                work.note_error()
                yield error

    return apply


def _unchecked(*_: object) -> Iterator[Any]:
    return iter(())


def _length(value: Any) -> int:  # noqa: ANN401 - JSON
    return len(value) if isinstance(value, list | dict) else 0


def _nodes(value: Any) -> int:  # noqa: ANN401 - JSON
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_nodes, inside))


def _mentions_unchecked(schema: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(schema, dict):
        return not UNCHECKED.isdisjoint(schema) or any(map(_mentions_unchecked, schema.values()))
    return isinstance(schema, list) and any(map(_mentions_unchecked, schema))
