"""Checks of an agent's description: mistakes are refused where they are made, not when its task is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from holdfast.model.budget import Budget
from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue

T = TypeVar("T")


def checked_text(what: str, text: str) -> str:
    """Refuse a value that is not a str."""
    if not isinstance(text, str):
        raise InvalidValue(f"{what} is {text!r}; it has to be a text")
    return text


def checked_names(what: str, names: Sequence[str]) -> tuple[str, ...]:
    """Refuse a single name in place of a list: it would be read as a list of letters."""
    if isinstance(names, str):
        raise InvalidValue(f'{what} is {names!r}; name them in a list: {what}=["{names}"]')
    return tuple(check_name(f"one of {what}", name) for name in names)


def checked_budget(budget: Budget | None) -> Budget:
    """Refuse a number in place of a budget. None is a budget without limits."""
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidValue(f"budget is {budget!r}; write budget=Budget(max_steps=20), for example")
    return budget or Budget()


def checked_function(what: str, function: Callable[..., T] | None) -> Callable[..., T] | None:
    """Refuse what cannot be called."""
    if function is not None and not callable(function):
        raise InvalidValue(f"{what} is {function!r}; give a function")
    return function


def checked_list(what: str, items: Iterable[T]) -> list[T]:
    """Refuse a single item in place of a list."""
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InvalidValue(f"{what} is {items!r}; name them in a list: {what}=[...]")
    return list(items)
