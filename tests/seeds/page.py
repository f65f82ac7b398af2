"""The tables of proofs in docs/course.md and docs/course.ru.md: ``python -m tests.seeds.page`` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.seeds.chapters import CHAPTERS, NO_STORE, ROOT, STATE_MANAGEMENT, Chapter, Proof, read_proofs

BEGIN = "<!-- Written from tests/seeds by `python -m tests.seeds.page`. -->\n"
END = "<!-- Until here. -->\n"


@dataclass(frozen=True)
class Version:
    """The page in one language."""

    page: Path
    head: tuple[str, str, str, str]
    no_store: str
    russian: bool = False

    def title(self, chapter: Chapter) -> str:
        return chapter.russian_title if self.russian else chapter.title


VERSIONS = (
    Version(ROOT / "docs/course.md", ("section", "in Holdfast", "stores", "test"), "none"),
    Version(ROOT / "docs/course.ru.md", ("раздел", "в Holdfast", "хранилища", "тест"), "нет", russian=True),
)


def written(version: Version, text: str) -> str:
    """Return the page with fresh tables between the two marks."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{version.page.name} lacks one of the marks around its tables")
    proofs = read_proofs()
    tables = "\n".join(table(version, chapter, proofs) for chapter in CHAPTERS)
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def table(version: Version, chapter: Chapter, proofs: dict[tuple[str, str], Proof]) -> str:
    """Return the table of one chapter: every heading, and the test of every section."""
    lines = [f"**{version.title(chapter)}**", "", f"| {' | '.join(version.head)} |", "|---|---|---|---|"]
    for heading in chapter.headings:
        name = heading.russian if version.russian else heading.name
        if heading.kind == "group":
            lines.append(f"| *{name}* | | | |")
            continue
        proven_in = chapter if heading.kind == "section" else STATE_MANAGEMENT
        proof = proofs[proven_in.number, heading.name]
        stores = version.no_store if proof.stores == NO_STORE else proof.stores
        test = f"[`{proof.test}`](../tests/seeds/{proof.path.name})"
        lines.append(f"| {name} | {proof.ours} | {stores} | {test} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for one in VERSIONS:
        one.page.write_text(written(one, one.page.read_text(encoding="utf-8")), encoding="utf-8")
