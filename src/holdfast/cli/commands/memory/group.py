"""The Typer application of the group."""

from __future__ import annotations

import typer

from holdfast.cli.commands.memory.change import forget, relate, store, verify
from holdfast.cli.commands.memory.recall import conflicts, history, recall, search
from holdfast.cli.commands.memory.transfer import export, import_facts

memory = typer.Typer(
    name="memory",
    help="What is known beyond one task: facts, with their sources and confidence.",
    no_args_is_help=True,
)

memory.command("recall")(recall)
memory.command("search")(search)
memory.command("conflicts")(conflicts)
memory.command("history")(history)
memory.command("store")(store)
memory.command("relate")(relate)
memory.command("verify")(verify)
memory.command("forget")(forget)
memory.command("export")(export)
memory.command("import")(import_facts)
