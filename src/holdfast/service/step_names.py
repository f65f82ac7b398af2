"""Steps as people name them: by their key, by the number in front of them, or by what they are shown as."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engine.attempt.journal import RESERVED, ROUND_SIZE
from holdfast.model.errors import InvalidValue
from holdfast.model.step import Step

_SHOWN = 5


def shown_name(step: Step) -> str:
    """Return the name under which a step is shown; for a step that the engine named, its kind."""
    return step.kind if step.key.startswith(RESERVED) else step.key


def number_of(step: Step) -> str:
    """Return the number of a step within its round; from the second round on with the round in front."""
    within = step.position % ROUND_SIZE
    return f"{step.round}.{within}" if step.round > 1 else str(within)


def find_step(steps: Sequence[Step], wanted: str) -> Step | None:
    """Return the step that ``wanted`` names. A key is looked for first; of several rounds the newest counts.

    Raises InvalidValue for a name that several steps of one round have.
    """
    by_key = [step for step in steps if step.key == wanted]
    if by_key:
        return by_key[-1]
    by_number = [step for step in steps if number_of(step) == wanted]
    if by_number:
        return by_number[0]
    named = [step for step in steps if shown_name(step) == wanted]
    named = [step for step in named if step.round == named[-1].round]
    if len(named) > 1:
        some = ", ".join(f"{number_of(step)} ({step.key})" for step in named[:_SHOWN])
        more = " and more" if len(named) > _SHOWN else ""
        raise InvalidValue(
            f"{wanted!r} could be any of several steps: {some}{more}; type the number of one, or its key"
        )
    return named[0] if named else None
