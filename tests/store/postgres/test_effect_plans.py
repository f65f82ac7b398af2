"""Among very many effects, the few in doubt and the one with a known id are found by index."""

from __future__ import annotations

import itertools
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast.model.effect import EffectState
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.listings import effects_query
from tests.store.postgres.support import execute

ROWS = 100_000
DOUBTFUL = (EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN)
FILL = f"""
    INSERT INTO holdfast.effects (task_id, effect_id, step_key, effect_class, state, round, fence, attempt, arguments,
                                  arguments_hash, compensable, updated_at)
    SELECT 'task-' || n / 10, 'effect-' || n, 'step', 'once',
           CASE WHEN n % 1000 < 3 THEN (ARRAY['armed', 'in_doubt', 'needs_human'])[n % 1000 + 1] ELSE 'done' END,
           1, 1, 1, 'null', '', false, now()
    FROM generate_series(1, {ROWS}) AS n
"""
"""In every thousand, one of each kind of doubt."""


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
def plans(request: pytest.FixtureRequest) -> str:
    """Made for each call, and kept for all of them: a prepared statement ends up with one or the other."""
    mode: str = request.param
    return mode


@pytest.fixture
def filled(url: str, store: PostgresStore) -> str:
    assert store.capabilities.durable
    execute(url, FILL, "ANALYZE holdfast.effects")
    return url


def index_of(url: str, plans: str, query: tuple[str, list[object]]) -> set[str]:
    """Return the names of the indexes that the query reads; it must read nothing but indexes."""
    text, values = query
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET plan_cache_mode = {plans}".encode())
        connection.execute(f"PREPARE question AS {text.replace('{schema}', 'holdfast')}".encode())
        arguments = sql.SQL(", ").join(map(sql.Literal, values))
        explain = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE question ({})").format(arguments)
        [(explained,)] = connection.execute(explain).fetchall()
    nodes = list(_nodes(explained[0]["Plan"]))
    assert "Seq Scan" not in {node["Node Type"] for node in nodes}, explained
    return {node["Index Name"] for node in nodes if "Index Name" in node}


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *itertools.chain.from_iterable(map(_nodes, plan.get("Plans", ())))]


def test_doubts_are_listed_by_their_index(filled: str, plans: str) -> None:
    for size in (1, 2, 3):
        for states in itertools.combinations(DOUBTFUL, size):
            query = effects_query(task_id=None, effect_id=None, states=states, limit=100)
            assert index_of(filled, plans, query) == {"effects_in_doubt"}, states


def test_an_effect_is_found_by_its_id(filled: str, plans: str) -> None:
    for states in (None, {EffectState.DONE}, set(DOUBTFUL)):
        query = effects_query(task_id=None, effect_id="effect-77777", states=states, limit=100)
        assert index_of(filled, plans, query) == {"effects_by_id"}, states


def test_the_effects_of_a_task_are_found_by_its_key(filled: str, plans: str) -> None:
    query = effects_query(task_id="task-7", effect_id=None, states=None, limit=100)
    assert index_of(filled, plans, query) == {"effects_pkey"}


async def test_they_are_the_right_ones(filled: str, store: PostgresStore) -> None:
    """What the indexes find is what was asked for."""
    assert filled
    assert [found.task_id for found in await store.effects(effect_id="effect-77777")] == ["task-7777"]
    assert len(await store.effects(states=set(DOUBTFUL), limit=10_000)) == 3 * ROWS // 1000
    assert (await store.summary()).doubts == 2 * ROWS // 1000
