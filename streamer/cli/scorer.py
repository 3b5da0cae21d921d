"""`streamer scorer`: scorers of other packages."""

import os
import subprocess
import sys
from pathlib import Path

import typer

from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.console import print_json, print_table, say, warn
from streamer.errors import UsageError
from streamer.scoring.contract import Finding
from streamer.scoring.contract import check as findings
from streamer.scoring.plugins import entry_points, frozen, scorer_of
from streamer.scoring.registry import EVERY

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(json: opt.JsonOption = False) -> None:
    """List the scorers that `gate create --scorer` takes: those of this package, and installed entry points of streamer.scorers."""
    rows = [(one.name, "", "", one.title) for one in EVERY.values()]
    for name in sorted(entry_points()):
        try:
            spec = frozen(name)
        except ValueError as error:
            rows.append((name, "", "", f"cannot be used: {error}"))
        else:
            rows.append((name, f"{spec.distribution} {spec.version}", spec.frozen_name, spec.entry_point))
    if json:
        names = ("name", "package", "frozen", "about")
        print_json({"scorers": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        print_table(("scorer", "package", "a gate names it", "about"), rows)


@app.command()
def check(
    scorer: str = opt.argument("NAME|MODULE:CLASS", "An installed scorer, or a class that can be imported."),
    json: opt.JsonOption = False,
) -> None:
    """Test a scorer against what every scorer must do, and say what fails; the exit status is then 1.

    It scores batches of made-up answers, with copies, blank and long ones: twice, in other orders, after other batches, and in
    processes of its own with other hash seeds.
    """
    if "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # a class that is being written is in no package yet
    if ":" in scorer:
        place = scorer
    elif scorer in entry_points():
        place = entry_points()[scorer].value
    else:
        raise UsageError(
            f"there is no installed scorer {scorer!r}; `streamer scorer list` shows them, and MODULE:CLASS names a class"
        )
    try:
        scorer_of(place)
    except ValueError as error:
        raise UsageError(str(error)) from None
    found = [
        *findings(lambda: scorer_of(place)),
        Finding("other processes score the same", _elsewhere(place)),
    ]
    broken = [one for one in found if one.broken is not None]
    if json:
        print_json({"scorer": place, "parts": [{"part": one.part, "broken": one.broken} for one in found]})
    else:
        for one in found:
            if one.broken is None:
                say(f"holds   {one.part}")
            else:
                warn(f"broken  {one.part}: {one.broken}")
    if broken:
        raise typer.Exit(FAILED)


_ELSEWHERE = """
import json, sys
from streamer.scoring.contract import scores_of
from streamer.scoring.plugins import scorer_of
sys.stdout.writelines(["\\n", json.dumps(scores_of(scorer_of(sys.argv[1])))])
"""


def _elsewhere(place: str) -> str | None:
    """Say what differs between processes; None: nothing."""
    told = []
    for seed in ("0", "1"):
        paths = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(  # noqa: S603 - this interpreter, with our own program
            [sys.executable, "-c", _ELSEWHERE, place],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        told.append(done.stdout.strip().splitlines()[-1])
    return (
        None if told[0] == told[1] else "scores depend on the hash seed, as an order of sets or hash() does"
    )
