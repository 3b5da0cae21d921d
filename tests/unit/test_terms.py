"""One term for each thing: what the glossary calls otherwise is written nowhere that people read."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BANNED = re.compile(
    r"error rate of shipped|wrong among (the served|these)|severity among (them|the served)|of these wrong"
    r"|held \(abstain\)|lambda would move|λ = \{|f\"lambda \{"
    # What a native speaker stumbles over; the plain words: forever; out of ten; unavailable; the aim was; manage risk.
    r"|\bfor ever\b|\btimes of ten\b|\bparts? (is|are) away\b|\bwanted (was|were)\b|\bminting\b|\bown the risk\b"
    r"|\basked wrongly\b",
    re.IGNORECASE,
)
READ = [
    *(path for kind in ("py", "j2", "html", "js") for path in (ROOT / "streamer").rglob(f"*.{kind}")),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "README.md",
]


def test_the_pattern_finds_what_it_bans() -> None:
    for text in (
        "served 64 %, wrong among the served 15 %",
        "λ = {threshold:.4f}",
        "20 % of these wrong",
        "a part is away",
        "for ever",
    ):
        assert BANNED.search(text), text


def test_what_people_read_has_the_terms_of_the_glossary() -> None:
    assert len(READ) > 300, "the files are looked for in the wrong place"
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in READ
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if BANNED.search(line)
    ]
    assert found == []
