"""The gate between processes stays open, whatever becomes of the transaction behind it."""

from pathlib import Path

import apsw
import pytest

from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.gate import file_gate
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.store.sqlite.writer import INLINE_ITEMS, MOST_HERE

ITEMS = {"alone on the loop": 1, "begun on the loop": INLINE_ITEMS + 1, "in the thread": MOST_HERE + 1}


@pytest.mark.parametrize("items", ITEMS.values(), ids=ITEMS.keys())
async def test_a_transaction_that_cannot_begin_lets_the_others_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, items: int
) -> None:
    """Otherwise every other process would wait for this one, for ever."""
    path = tmp_path / "agents.db"

    def fail(**options: object) -> WriteTransaction:
        del options
        raise apsw.IOError("disk I/O error")

    def nothing(tx: WriteTransaction) -> str:
        del tx
        return "written"

    async with SqliteStore(path) as store:
        assert store._backend.writer is not None
        with monkeypatch.context() as broken:
            broken.setattr(store._backend.writer, "_begin", fail)
            with pytest.raises(apsw.IOError):
                await store._backend.writer.write(nothing, items=items)
        other = file_gate(str(path))
        try:
            assert other.try_enter()
        finally:
            other.close()
        assert (await store._backend.writer.write(nothing, items=items))[0] == "written"
