"""What people are asked: the kinds of requests, and what each decision about an effect in doubt means."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from holdfast.engine.effects.doubt import DOUBT
from holdfast.engine.manage.budget import BUDGET
from holdfast.engine.steps.approval import APPROVAL, QUESTION
from holdfast.model.doubt import Decision

__all__ = ["APPROVAL", "BUDGET", "DOUBT", "MEANING", "QUESTION"]

MEANING: Final[Mapping[Decision, str]] = MappingProxyType(
    {
        Decision.HAPPENED: "it did happen: the step is completed, with the result you give, or with null",
        Decision.ABSENT: "it did not happen: the step is tried again, under the same effect id",
        Decision.COMPENSATE: "undo it, in case it happened; the step then fails",
        Decision.ABANDON: "leave it as it is, whatever that is; the step fails, now and in later rounds",
        Decision.UNDONE: "a person has undone it by hand, after its own undo failed",
    }
)
