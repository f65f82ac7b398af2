"""The same from blocking code."""

import inspect

import pytest

from holdfast import Holdfast, StateConflict, SyncHoldfast
from tests.engine.manage.state.support import begin, flagged


@pytest.mark.parametrize("name", ["state", "patch_state", "state_history", "state_diff", "fork", "forked_from"])
def test_every_call_has_its_blocking_twin(name: str) -> None:
    blocking, asynchronous = (inspect.signature(getattr(kind, name)) for kind in (SyncHoldfast, Holdfast))
    assert list(blocking.parameters) == list(asynchronous.parameters)
    assert [one.default for one in blocking.parameters.values()] == [
        one.default for one in asynchronous.parameters.values()
    ]


def test_a_script_reads_and_patches_a_state(url: str) -> None:
    hold = Holdfast(url)
    with hold.sync as h:
        task = h.wait(begin(hold))
        h.patch_state(task, flagged("careful"), version=1, by="alice", reason="because")
        with pytest.raises(StateConflict):
            h.patch_state(task, flagged("late"), version=1, by="bob")
        assert h.state(task).risk_flags == ("careful",)
        assert h.state(task, at=1).risk_flags == ()
        assert [one.author for one in h.state_history(task)] == ["agent", "alice"]
        assert [change.new for change in h.state_diff(task, 1)] == ["careful"]
        fork = h.fork(h.handle(task), patch=flagged("other way"))
        assert h.state(fork.id).risk_flags == ("careful", "other way")
        found = h.forked_from(fork)
        assert found is not None
        assert (found.task_id, found.version) == (task, 2)
