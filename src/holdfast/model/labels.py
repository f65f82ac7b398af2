"""Labels: short names with a value, by which people find tasks again."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue

MAX_LABELS = 16
"""Of one task. Each is a row of an index."""

MAX_LABEL_NAME = 64
"""Characters. With the value and the task's id it has to fit into an index row of PostgreSQL."""


def check_labels(labels: Mapping[str, str], *, what: str = "labels") -> None:
    """Refuse labels that some database could not hold or a person could not type as ``name=value``."""
    if not isinstance(labels, Mapping):
        raise InvalidValue(f"{what} is {labels!r}; give names with values, as {{'tenant': 'acme'}}")
    if len(labels) > MAX_LABELS:
        raise InvalidValue(f"{len(labels)} labels are too many for one task; at most {MAX_LABELS} fit")
    for name, value in labels.items():
        check_label_name(name)
        check_name(f"the label {name!r}", value)


def check_label_name(name: str) -> None:
    """Refuse what cannot be the name of a label."""
    check_name("the name of a label", name)
    if len(name) > MAX_LABEL_NAME:
        raise InvalidValue(f"the label {name!r} has {len(name)} characters; at most {MAX_LABEL_NAME} fit")
    if "=" in name:
        raise InvalidValue(f"the label {name!r} has an equals sign, which separates it from its value: name=value")


def merged_labels(inherited: Mapping[str, str], own: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels of a child: those of its parent, and its own, which win."""
    if own is not None:
        check_labels(own)
    return {**inherited, **(own or {})}
