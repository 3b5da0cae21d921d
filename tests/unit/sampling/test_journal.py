"""The journal: whole lines only, one writer, one plan."""

from pathlib import Path
from typing import Any

import pytest

from streamer.errors import UsageError
from streamer.labels.llm.record import Choice, TokenUsage
from streamer_research.sampling import Arm, Prompt, Recipe, SamplingPlan
from streamer_research.sampling.journal import ReplyJournal, read_journal
from streamer_research.sampling.plan import RecordPart
from streamer_research.sampling.replies import Ledger, Reply, publishable

BATCH = RecordPart("q1", "answer", 0)


def document(**recipe: Any) -> dict[str, Any]:
    return SamplingPlan((Prompt("q1", "Why?"),), Recipe(**recipe), (Arm(0, "m", "h", 1.0),)).document()


def reply(*texts: str, positions: tuple[int, ...] = (0, 1), refusal: str | None = None) -> Reply:
    return Reply(
        batch=BATCH, positions=positions[: len(texts)],
        choices=tuple(Choice(text, "stop", refusal) for text in texts), arm=0,
        sent={"model": "m", "temperature": 1.0}, model="m-1", fingerprint=None,
        usage=TokenUsage(3, 4), seconds=0.25,
    )  # fmt: skip


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written = [reply("a", "Straße \x00 \ud800 巴黎"), reply("c", positions=(5,))]
    with ReplyJournal(path, document()) as journal:
        assert journal.replies == ()
        journal.append(written)
    with ReplyJournal(path, document()) as journal:
        assert list(journal.replies) == written
        journal.append([reply("d", positions=(6,))])
    assert len(read_journal(path, document())) == 3


@pytest.mark.parametrize("cut", [1, 20, 10_000])
def test_a_line_that_was_cut_in_two_is_no_line(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    with ReplyJournal(path, document()) as journal:
        journal.append([reply("a")])
        before = path.read_bytes()
        journal.append([reply("b")])
    whole = path.read_bytes()
    path.write_bytes(whole[: max(len(before), len(whole) - cut)])
    assert len(read_journal(path, document())) == 1
    with ReplyJournal(path, document()) as journal:
        assert list(journal.replies) == [reply("a")]
        journal.append([reply("c")])
    assert list(read_journal(path, document())) == [reply("a"), reply("c")]


def test_a_first_line_that_was_cut_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"schema": "strea')
    with ReplyJournal(path, document()) as journal:
        journal.append([reply("a")])
    assert len(read_journal(path, document())) == 1


def test_two_runs_at_once(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with ReplyJournal(path, document()), pytest.raises(UsageError, match="another run writes"):
        ReplyJournal(path, document())


def test_another_plan_says_what_is_different(tmp_path: Path) -> None:
    path = tmp_path / "j"
    ReplyJournal(path, document(answers=10)).close()
    with pytest.raises(UsageError, match="answers was 10, is 12"):
        ReplyJournal(path, document(answers=12))
    with pytest.raises(UsageError, match="answers was 10, is 12"):
        read_journal(path, document(answers=12))


@pytest.mark.parametrize(
    "text", [b"hello\n", b"[]\n", b'{"schema": "x", "plan": {}}\n', b'{"question_id": "q"}\n']
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(text)
    with pytest.raises(UsageError, match="not a journal"):
        ReplyJournal(path, document())
    assert path.read_bytes() == text


@pytest.mark.parametrize("line", [b"rubbish\n", b"{}\n", b'{"batch": 7}\n', b"[]\n"])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "j"
    ReplyJournal(path, document()).close()
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(UsageError, match="line 2 is damaged"):
        ReplyJournal(path, document())


def test_what_of_it_goes_into_clouds() -> None:
    ledger = Ledger()
    ledger.add([reply("a", " \x00\n"), reply("no", positions=(2,), refusal="filtered")])
    wanted = {BATCH: (0, 1, 2, 3)}
    assert ledger.texts(BATCH) == {0: "a"}
    assert ledger.missing(wanted) == {BATCH: (3,)}
    assert ledger.missing(wanted, again=True) == {BATCH: (1, 2, 3)}
    ledger.add([reply("b", positions=(1,))])
    assert ledger.texts(BATCH) == {0: "a", 1: "b"}


def test_texts_that_no_event_may_carry_are_mended() -> None:
    assert publishable("a\0b \ud800c") == "ab \ufffdc"
    assert publishable("\ud83d\ude00") == "\U0001f600"
    assert len(publishable("é" * 100_000).encode()) == 65_536
