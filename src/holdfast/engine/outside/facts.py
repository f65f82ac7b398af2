"""Facts of agents outside: whose they are, and which are repetitions."""

from __future__ import annotations

from dataclasses import replace

from holdfast.model.agent_state import AgentState, KnownFact
from holdfast.model.canonical import canonical
from holdfast.model.patch import StatePatch


def without_known_facts(patch: StatePatch, state: AgentState) -> StatePatch:
    """Leave out facts that repeat the last fact of the same source about the same key."""
    last = {(fact.key, fact.source): fact for fact in state.known_facts}
    new = tuple(
        fact
        for fact in patch.append_facts
        if (known := last.get((fact.key, fact.source))) is None or not _are_equal(known, fact)
    )
    return replace(patch, append_facts=new)


def fact_of_agent(fact: KnownFact, by: str) -> KnownFact:
    """Return a fact of an agent outside, under its name."""
    return replace(fact, source=f"{by}/{fact.source}" if fact.source else by, at=None)


def _are_equal(one: KnownFact, other: KnownFact) -> bool:
    """Compare as JSON, as facts are: to Python 1 and True are the same value."""
    return canonical(replace(one, at=None).to_json()) == canonical(replace(other, at=None).to_json())
