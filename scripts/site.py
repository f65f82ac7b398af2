"""Build the documentation as a site: ``build/site/index.html``, with search, for reading offline.

    python scripts/site.py

Pages are copied first. A link that leads out of docs/, to an example or a test, has no target on the site: its text
stays, and the link is removed. A link to a page or heading that does not exist is an error, and so is a search index
that does not find a word of each language.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPY = ROOT / "build/docs"
CONFIG = ROOT / "mkdocs.yml"
FOUND = ("lease", "StoreReplaced", "аренда")
"""Words that the search has to find: one of each language, and a name of the API."""

_LINK = re.compile(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+)\)")


def main() -> int:
    """Build the site; return the exit code."""
    copy_pages()
    config = COPY.parent / CONFIG.name
    shutil.copy(CONFIG, config)
    built = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(config)], check=False
    )
    if built.returncode != 0:
        return built.returncode
    if missing := missing_words((COPY.parent / "site/search.json").read_text(encoding="utf-8")):
        print(f"the search would not find: {', '.join(missing)}", file=sys.stderr)
        return 1
    print(f"wrote {(COPY.parent / 'site/index.html').relative_to(ROOT)}")
    return 0


def missing_words(index: str) -> list[str]:
    """Return the words of FOUND that no entry of the search index contains."""
    texts = [f"{entry['title']} {entry['text']}".lower() for entry in json.loads(index)["items"]]
    return [word for word in FOUND if not any(word.lower() in text for text in texts)]


def copy_pages() -> None:
    """Copy docs/ to the folder from which the site is built."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(ROOT / "docs", COPY)
    for page in COPY.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(_LINK.sub(partial(_kept, page), text), encoding="utf-8")


def _kept(page: Path, link: re.Match[str]) -> str:
    """Return the link, or its text alone if it leads out of the site."""
    target = link[2].partition("#")[0]
    if "://" in target or not target or (page.parent / target).resolve().is_relative_to(COPY):
        return link[0]
    return link[1]


if __name__ == "__main__":
    sys.exit(main())
