"""`streamer init`: a folder to start in, with settings, an example table and a gate."""

import io
import shutil
from collections.abc import Iterable, Sequence
from contextlib import chdir, suppress
from pathlib import Path

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import note, print_json, say
from streamer.cli.gate import wanted_settings
from streamer.cli.options import JsonOption, share
from streamer.clouds.simulation import SIMULATED_KIND, simulate_clouds
from streamer.errors import UsageError, why
from streamer.gates.declared import LEAST_ALPHA
from streamer.security.csv_cells import CsvTable
from streamer.security.visible import redact_text
from streamer.settings.sources import DEFAULT_CONFIG_FILE

SETTINGS = """\
# Settings of the commands that run in this folder. `streamer config show` prints them all, and where each came from.

[database]
url = "sqlite:///.streamer/audit.db"     # the record: gates, decisions, labels

# [kafka]
# bootstrap_servers = "localhost:9092"   # without it commands use the `streamer dev` that runs here
"""
IGNORED = ".streamer/\nevaluation/\n*.pem\n"
ANSWERS = "answers.csv"
PROMPTS, EACH, SEED = 80, 5, 4


def init(
    folder: Path = opt.argument("FOLDER", "The folder; created if missing.", Path("my-gate")),
    gate: str = opt.option("GATE", "Name of the gate.", "first", parser=opt.gate_name),
    alpha: float = opt.option("A", "Its budget on exposure risk.", 0.1, parser=share),
    json: JsonOption = False,
) -> None:
    """Make a folder to start in: settings, a table of example answers, a gate, and three commands to go on.

    The answers are simulated, and so are their severities: put your own in their place. Existing files are not overwritten.
    """
    actor = opt.who(None)
    if not LEAST_ALPHA <= alpha < 1:
        raise UsageError(f"--alpha must be at least {LEAST_ALPHA:g} and less than 1, not {alpha:g}")
    files = {str(DEFAULT_CONFIG_FILE): SETTINGS, ".gitignore": IGNORED, ANSWERS: None}
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise UsageError(f"{folder} has {', '.join(there)} already: name another folder")
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(_answers() if text is None else text, encoding="utf-8", newline="")
        with chdir(folder):
            settings = wiring.load_settings()
            given = {"alpha": alpha, "severity_kind": SIMULATED_KIND, "audit_probability": 1.0}
            wiring.migrate(settings)
            with wiring.open_store(settings) as store:
                store.gates.create(
                    gate, wanted_settings(gate, given, settings, store), by=actor, reason="streamer init"
                )
    except BaseException as error:
        _remove(folder, files, made)
        if isinstance(error, OSError):
            raise UsageError(f"cannot write {folder}: {why(error)}") from None
        raise
    commands = {
        f"streamer evaluate {ANSWERS} --alpha {alpha:g}": "is a gate worth it? the report is in evaluation/",
        "streamer dev": "broker, worker and HTTP endpoint; leave it running and use a second terminal",
        f"streamer publish {ANSWERS} --gate {gate} --labels": f"then: streamer recalibrate {gate}",
    }
    if json:
        print_json({"folder": str(folder), "gate": gate, "commands": list(commands)})
        return
    say(f"{folder} has streamer.toml, {ANSWERS} ({PROMPTS} prompts, simulated) and the gate {gate}.")
    note(
        f"The gate's record is in {redact_text(settings.database.url)}. It starts closed, and in shadow mode."
    )
    say(f"\ncd {folder}")
    width = max(map(len, commands))
    for command, does in commands.items():
        say(f"{command:{width}}   # {does}")


def _remove(folder: Path, files: Iterable[str], made: Sequence[Path]) -> None:
    """Take back what was begun, so that the same command can be given again; what was there before stays."""
    with suppress(OSError):
        if made:
            shutil.rmtree(folder)
            for above in made[1:]:
                above.rmdir()
        else:
            for name in files:
                (folder / name).unlink(missing_ok=True)


def _answers() -> str:
    text = io.StringIO(newline="")
    table = CsvTable(text)
    table.write(("prompt_id", "prompt", "answer", "severity", "kind"))
    for cloud in simulate_clouds(seed=SEED, clouds=PROMPTS, responses=EACH):
        for response in cloud.responses:
            table.write((cloud.batch_id, cloud.question, response.text, response.severity, SIMULATED_KIND))
    return text.getvalue()
