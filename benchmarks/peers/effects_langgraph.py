"""LangGraph: ``python -m benchmarks.peers.effects_langgraph FILE ERRANDS`` (see errand.py).

A graph of five nodes, one thread for each order. The work of a node is wrapped in a task, as LangGraph advises for side
effects. It is resumed as documented: invoke it again with the same thread id and None as the input. ``mode`` is the
durability, or empty for its default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # type: ignore[import-not-found]
from langgraph.func import task  # type: ignore[import-not-found]
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]

from benchmarks.peers.errand import STEPS, Errands, perform, read_arguments, run_all


class Order(TypedDict):
    """The graph's state."""

    order: str
    done: str


def node(errands: Errands, step: str) -> Callable[[Order], Awaitable[dict[str, str]]]:
    """Return the function of one node."""

    async def _do(order: str) -> str:
        return await perform(errands, order, step)

    do: Any = task(name=step)(_do)

    async def run_step(state: Order) -> dict[str, str]:
        return {"done": await do(state["order"])}

    return run_step


def build(errands: Errands, saver: AsyncSqliteSaver) -> Any:  # noqa: ANN401 - LangGraph's compiled graph
    """Return the graph: one node after the other."""
    graph = StateGraph(Order)
    for before, step in zip((START, *STEPS), STEPS, strict=False):
        graph.add_node(step, node(errands, step))
        graph.add_edge(before, step)
    graph.add_edge(STEPS[-1], END)
    return graph.compile(checkpointer=saver)


async def main() -> None:
    """Run the rest, each order from its last checkpoint."""
    database, errands = read_arguments()
    options = {"durability": errands.mode} if errands.mode else {}
    async with AsyncSqliteSaver.from_conn_string(database) as saver:
        graph = build(errands, saver)

        async def run(order: str) -> None:
            config = {"configurable": {"thread_id": order}}
            is_new = await saver.aget_tuple(config) is None  # or was killed before its first checkpoint
            # Do not ask whether the state names a next node: after a kill between a node's writes and the next
            # checkpoint it names none, although the graph has not ended.
            await graph.ainvoke({"order": order, "done": ""} if is_new else None, config, **options)

        await run_all(errands, run)


if __name__ == "__main__":
    asyncio.run(main())
