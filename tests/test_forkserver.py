from multiprocessing import forkserver

import tests.forked
import tests.proof.agent.life
import tests.proof.effects.life


def test_what_one_module_wants_preloaded_does_not_take_away_what_another_wants() -> None:
    """Each child would import all of it: that doubles the time of every proof and of every command."""
    wanted = {module.__name__ for module in (tests.proof.agent.life, tests.proof.effects.life, tests.forked)}
    assert wanted <= set(forkserver._forkserver._preload_modules)  # type: ignore[attr-defined]
