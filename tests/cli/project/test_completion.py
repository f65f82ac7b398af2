"""Completion in a shell."""

import shlex
import subprocess
import sys
from pathlib import Path

from tests.cli.project.support import PATIENCE, clean_environment

AS_INSTALLED = "import sys; sys.argv[0] = 'holdfast'; from holdfast.cli import main; main()"
"""As the script on the PATH runs it: completion uses the name of the program."""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", AS_INSTALLED, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=clean_environment(**environment),
        timeout=PATIENCE,
    )
    return answer.stdout


def test_the_script_for_a_shell(tmp_path: Path) -> None:
    """The shell is the one that the command was started in."""
    command = shlex.join([sys.executable, "-c", AS_INSTALLED, "--show-completion"])
    script = subprocess.check_output(
        ["bash", "-c", f"{command}; exit $?"],  # a lone command would replace its shell
        text=True,
        cwd=tmp_path,
        env=clean_environment(),
        timeout=PATIENCE,
    )
    assert "_HOLDFAST_COMPLETE=complete_bash" in script
    assert "complete -o default -F" in script


def test_what_is_offered(tmp_path: Path) -> None:
    def offered(words: str) -> list[str]:
        asked = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return run(tmp_path, **asked).split()

    assert offered("holdfast sh") == ["show"]
    assert {"config", "doctor", "init", "bench"} <= set(offered("holdfast "))
    assert "--thorough" in offered("holdfast doctor --")
    assert {"failed", "waiting", "open"} <= set(offered("holdfast list --state "))
    assert offered("holdfast cancel --state failed,wai") == ["failed,waiting"]
    assert offered("holdfast approvals --state re") == ["rejected"]
