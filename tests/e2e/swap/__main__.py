"""Change the answers' source under many gates of one service, and count what gets out: `make swap`.

    python -m tests.e2e.swap [--seeds 3] [--old 1000] [--after N] [--step 25] [--short] [--mended] [--method full]
        [--early judge|drift|signals] [--judge .9,.95]
        [--picture FILE.png] [--story FILE.png] [--json FILE] [--outcomes FILE] [--beside FILE] [--data FOLDER]

Real Kafka, PostgreSQL, worker and recalibrator; the answers of ../shared/data. After the change a share of the prompts gets
answers to another prompt that agree with each other.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from streamer.scoring.encoders.registry import load_encoder
from tests.conftest import SHARED_DATA
from tests.e2e.scenario.population import read_prompts
from tests.e2e.swap.answers import Answers
from tests.e2e.swap.lives import SHORT, SHORT_LIVES, Lengths, Life, full_lives, mended_lives
from tests.e2e.swap.outcomes import Outcome
from tests.e2e.swap.picture import draw, draw_story
from tests.e2e.swap.report import sentences, table
from tests.e2e.swap.service import ALPHA, Service
from tests.services.kafka import KafkaBroker, what_kafka_needs
from tests.services.postgres import PostgresServer, what_postgres_needs

STORY = Life(seed=1, swapped=0.5, old=False, never=0.02)
"""The gate of `--story`."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="gates that differ in their seed only")
    full = Lengths()
    parser.add_argument("--old", type=int, default=full.old, help="decisions of old gates before the change")
    parser.add_argument("--after", type=int, help="decisions after it")
    parser.add_argument("--step", type=int, default=full.step, help="decisions between two pauses")
    parser.add_argument("--short", action="store_true", help="a smaller form, with gates of its own")
    parser.add_argument(
        "--mended",
        action="store_true",
        help="gates whose answers are mended after the closing, until they are open again",
    )
    parser.add_argument(
        "--method", choices=("mean", "full"), default=full.method, help="of the gates: a cut, or all signals"
    )
    parser.add_argument("--early", choices=("judge", "drift", "signals"), default="none", help="what warns")
    parser.add_argument(
        "--judge",
        type=lambda text: tuple(map(float, text.split(","))),
        default=full.judge,
        help="its sensitivity and specificity, with --early judge",
    )
    parser.add_argument("--picture", type=Path, help="draw bad answers over decisions into this PNG")
    parser.add_argument(
        "--story",
        type=Path,
        help="draw one gate into this PNG, beside its like of --beside: half swapped soon after it opened",
    )
    parser.add_argument("--outcomes", type=Path, help="take what --json wrote earlier, and run nothing")
    parser.add_argument("--json", type=Path, help="write all outcomes to this file")
    parser.add_argument(
        "--beside", type=Path, help="outcomes that --json wrote earlier: dashed in the picture"
    )
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="folder of the response clouds")
    arguments = parser.parse_args()
    outcomes = read(arguments.outcomes) if arguments.outcomes else run(arguments, full)
    print(table(outcomes), sentences(outcomes), sep="\n\n")
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(outcomes))
    earlier = read(arguments.beside) if arguments.beside else []
    if arguments.picture:
        draw(outcomes, earlier, ALPHA, arguments.picture)
    if arguments.story:
        (now, before) = ([one for one in some if one.life == STORY] for some in (outcomes, earlier))
        if not now or not before:
            parser.error("--story needs that gate in the outcomes, and in those of --beside")
        draw_story(now[0], before[0], arguments.story)
    return 0


def read(path: Path) -> list[Outcome]:
    return msgspec.json.decode(path.read_bytes(), type=list[Outcome])


def chosen(arguments: argparse.Namespace, full: Lengths) -> tuple[Sequence[Life], Lengths]:
    """Which gates are to live, and how long."""
    own = {name: getattr(arguments, name) for name in ("method", "early", "judge")}
    if arguments.short:
        return SHORT_LIVES, replace(SHORT, **own)
    lives = mended_lives(arguments.seeds) if arguments.mended else full_lives(arguments.seeds)
    after = full.mended_after if arguments.mended else full.after
    after = arguments.after or after
    return lives, replace(full, old=arguments.old, after=after, step=arguments.step, **own)


def run(arguments: argparse.Namespace, full: Lengths) -> list[Outcome]:
    """Start the services, lead all gates through their lives, and return what became of them."""
    lives, lengths = chosen(arguments, full)
    data = arguments.data / "triviaqa_llama13b_20x.jsonl.gz"
    if not data.exists():
        sys.exit(f"no {data.name}: put the response clouds into {arguments.data}")
    for need in (what_kafka_needs(), what_postgres_needs()):
        if need:
            sys.exit(": ".join(need))
    prompts = read_prompts(
        data,
        load_encoder("all-MiniLM-L6-v2", device="cpu").encode,
        questions=60 if arguments.short else 200,
        each=3,
        answers=4,
    )
    answers = [Answers.of(prompt) for prompt in prompts]
    del prompts
    broker, database = KafkaBroker(), PostgresServer(durable=False)
    try:
        broker.start()
        database.start()
        with tempfile.TemporaryDirectory(prefix="streamer-swap-") as folder:
            return Service(
                bootstrap=broker.bootstrap,
                database_url=database.create_database(),
                prefix="swap.",
                directory=Path(folder),
                answers=answers,
                lives=lives,
                lengths=lengths,
                tell=lambda text: print(text, file=sys.stderr, flush=True),
            ).run()
    finally:
        broker.remove()
        database.remove()


if __name__ == "__main__":
    sys.exit(main())
