"""The result of a measurement, and the aim for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from rich.table import Table

from benchmarks.subject import Rate


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound on a ratio, or on the figure itself if there is nothing to compare it with."""

    bound: float
    at_most: bool = False
    unit: str = ""

    def is_met_by(self, value: float) -> bool:
        """Return whether the value meets the bound."""
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        """Return the aim as a short text."""
        return f"{'<=' if self.at_most else '>='} {self.bound:g} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: the median of some rounds."""

    store: str
    what: str
    unit: str
    ours: float
    aim: Aim
    against: str = ""
    reference: float | None = None
    ratio: float | None = None
    cpu: float | None = None
    """Microseconds of our process for each item."""
    rounds: list[float] = field(default_factory=list)
    """The result of each round: the ratio, or the figure itself if there is none."""

    @property
    def met(self) -> bool | None:
        """Whether the aim is reached; None if the other side could not be measured."""
        if self.against and self.ratio is None:
            return None
        return self.aim.is_met_by(self.ours if self.ratio is None else self.ratio)

    def __str__(self) -> str:
        """Return the figure as one line."""
        beside = f", {_number(self.ratio)} of {_number(self.reference)} {self.against}" if self.ratio else ""
        return f"{self.store}: {self.what}: {_number(self.ours)} {self.unit}{beside}"

    def to_json(self) -> dict[str, object]:
        """Return it in the form for the JSON file."""
        return asdict(self) | {"aim": str(self.aim), "met": self.met}


def compared(
    store: str, what: str, unit: str, ours: Sequence[Rate], other: Sequence[float], *, against: str, aim: Aim
) -> Figure:
    """Make a figure of rounds that each measured ours and the other side, or, without peers, only ours."""
    ratios = [one.per_second / another for one, another in zip(ours, other, strict=True)] if other else []
    return Figure(
        store=store,
        what=what,
        unit=unit,
        ours=median(rate.per_second for rate in ours),
        aim=aim,
        cpu=median(rate.cpu for rate in ours),
        against=against if other else f"{against}: not measured",
        reference=median(other) if other else None,
        ratio=median(ratios) if ratios else None,
        rounds=ratios,
    )


def table_of(figures: Sequence[Figure]) -> Table:
    """Return the table of the figures."""
    table = Table("store", "what")
    for heading in ("ours", "against", "ratio", "aim", "met?", "CPU us each"):
        table.add_column(heading, justify="left" if heading == "against" else "right")
    for figure in figures:
        table.add_row(
            figure.store,
            figure.what,
            f"{_number(figure.ours)} {figure.unit}",
            " ".join(filter(None, [_number(figure.reference), figure.against])),
            _number(figure.ratio),
            str(figure.aim),
            {True: "yes", False: "[red]no[/]", None: "-"}[figure.met],
            _number(figure.cpu),
        )
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits are enough
