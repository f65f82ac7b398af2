"""The lease of an agent outside: one text that names the task and the fence, and proves the claim.

Every client can read who holds a task, so the name of the holder proves nothing. The worker's id is made of a secret
that only the claimant got.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from dataclasses import dataclass

from holdfast.model.errors import InvalidValue

SHORTEST, LONGEST, USUAL = 1.0, 3600.0, 300.0
"""Seconds an agent may stay silent. It thinks for minutes; after an hour another agent should get the task."""

_MOST_DIGITS = 18
"""Digits of a fence: more than the databases hold."""


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """One claim."""

    task_id: str
    fence: int
    secret: str

    @property
    def worker_id(self) -> str:
        """The incarnation that holds the task."""
        return worker_id_of(self.secret)

    def __str__(self) -> str:
        """Return the text that the claimant gets."""
        return f"{self.task_id}/{self.fence}/{self.secret}"

    def __repr__(self) -> str:
        """Leave the secret out: this may be logged."""
        return f"<lease on task {self.task_id} under fence {self.fence}>"

    @classmethod
    def read(cls, text: str) -> LeaseToken:
        """Read what ``str`` wrote. Raises InvalidValue."""
        task_id, _, rest = text.strip().partition("/")
        fence, _, secret = rest.partition("/")
        is_number = fence.isdecimal() and len(fence) <= _MOST_DIGITS
        if not task_id or not secret or not is_number or int(fence) < 1:
            raise InvalidValue(
                "that is not a valid lease; pass the text claim_task returned as 'lease', exactly as it was"
            )
        return cls(task_id, int(fence), secret)


def new_secret() -> str:
    """Return a secret that cannot be guessed."""
    return secrets.token_urlsafe(18)


def worker_id_of(secret: str) -> str:
    """Return the id of the incarnation that belongs to a secret. The secret cannot be found from the id."""
    return str(uuid.UUID(bytes=hashlib.sha256(secret.encode()).digest()[:16]))


def checked_seconds(seconds: float) -> float:
    """Refuse a lease too short to renew, or too long to notice that the agent is gone. Raises InvalidValue."""
    if not SHORTEST <= seconds <= LONGEST:
        raise InvalidValue(
            f"a lease of {seconds:g} seconds is out of range; choose {SHORTEST:g} to {LONGEST:g}, and renew it with "
            "report_progress while you work"
        )
    return float(seconds)
