"""Write the reference pages from the code: docs/reference-api.md, docs/reference/ and docs/reference-cli.md.

    python scripts/reference.py            writes them
    python scripts/reference.py --check    fails if they are not up to date

Their content comes from docstrings, signatures and the help texts of the command; change it there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # a script starts in its own folder, the imports below one folder higher

from scripts.reference_pages.api import api_pages  # noqa: E402
from scripts.reference_pages.cli import cli_page  # noqa: E402

COMMAND = "python scripts/reference.py"

AFTER_THE_COMMANDS = """
## Read next

- [From a terminal](terminal.md): a tour of the commands
- [JSON](json.md): the documents that `--json` prints
- [The API](reference-api.md): the other reference
"""


def pages() -> dict[Path, str]:
    """Return the expected text of each reference page."""
    texts = {**api_pages(), "reference-cli.md": cli_page() + AFTER_THE_COMMANDS}
    return {ROOT / "docs" / name: text for name, text in texts.items()}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them; return the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not up to date")
    check = parser.parse_args(arguments).check
    texts = pages()
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not up to date; run: {COMMAND}", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
