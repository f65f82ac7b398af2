"""Every check, in the order in which people read them: first whether there is a store, last what is around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from holdfast.redaction import redacted
from holdfast.service.diagnosis import durability, growth, reachability, surroundings, workers
from holdfast.service.diagnosis.evidence import Inside, NamedApplication, StoreEvidence
from holdfast.service.diagnosis.finding import APPLICATION, Finding

_OF_THE_STORE: Final[Sequence[Callable[[StoreEvidence], Iterator[Finding]]]] = (
    surroundings.check_settings,
    reachability.check_store,
    reachability.check_schema,
    durability.check_settings,
    durability.check_version,
    durability.check_damage,
    durability.check_file_system,
    durability.check_room,
    durability.check_wal,
    durability.check_clock,
)
_OF_THE_WORK: Final[Sequence[Callable[[Inside], Iterator[Finding]]]] = (
    workers.check_workers,
    workers.check_queues,
    workers.check_pauses,
    workers.check_full_queues,
    workers.check_limits,
    workers.check_owners,
    workers.check_suspects,
    workers.check_failed,
    workers.check_approvals,
    workers.check_doubts,
    workers.check_schedules,
    growth.check_size,
    growth.check_snapshot,
)
_AROUND: Final[Sequence[Callable[[StoreEvidence], Iterator[Finding]]]] = (
    surroundings.check_application,
    surroundings.check_machine,
    surroundings.check_extras,
)

_NAMED: Final = 3
"""Tasks that a remedy names."""


def diagnose(seen: StoreEvidence) -> list[Finding]:
    """Return the findings of every check."""
    findings = [finding for check in _OF_THE_STORE for finding in check(seen)]
    if seen.inside is not None:
        findings += [finding for check in _OF_THE_WORK for finding in check(seen.inside)]
    findings += [finding for check in _AROUND for finding in check(seen)]
    return [_in_their_words(finding, seen.application) for finding in findings]


def _in_their_words(finding: Finding, application: NamedApplication | None) -> Finding:
    """Put the application's name into a remedy, so that the user can copy it. Remove every credential."""
    remedy = None if finding.remedy is None else redacted(finding.remedy)
    finding = replace(finding, words=redacted(finding.words), remedy=remedy)
    if finding.remedy is None or application is None or application.error is not None:
        return finding
    missing = sorted(finding.tasks - set(finding.tasks if application.tasks is None else application.tasks))
    if missing:
        which = ", ".join(missing[:_NAMED]) + (" and others" if len(missing) > _NAMED else "")
        return replace(finding, remedy=f"{finding.remedy}; {application.target} does not define {which}")
    return replace(finding, remedy=finding.remedy.replace(APPLICATION, application.target))
