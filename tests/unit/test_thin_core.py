"""What the core and the list of commands load: numpy and scipy for the one, neither for the other."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import streamer
import streamer.calibration
from tests import programs

THIRD_PARTY = """
import json, sys
files = {name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__spec__", None)}
print(json.dumps(sorted(files - set(sys.stdlib_module_names) - {"streamer"})))
"""
PUBLIC = [
    *(f"streamer:{name}" for name in streamer.__all__),
    *(f"streamer.calibration:{name}" for name in streamer.calibration.__all__),
]
README = """
import numpy as np
import streamer
rng = np.random.default_rng(1)
prompts = np.repeat(np.arange(200), 5)
severities = rng.random(1000) < 0.1
scores = streamer.gram_energy(rng.normal(size=(1000, 8)))
threshold = streamer.calibrate(scores, severities.astype(float), prompts, alpha=0.2)
assert streamer.decide(scores, threshold).dtype == bool
"""


def loaded_by(program: str) -> set[str]:
    """The modules of third parties that a program loads, beyond what an interpreter of this environment starts with."""

    def run(text: str) -> set[str]:
        done = programs.run(sys.executable, "-c", text + THIRD_PARTY)
        return set(json.loads(done.stdout.splitlines()[-1]))

    return run(program) - run("")


@pytest.mark.parametrize(
    "program",
    [
        "import streamer",
        "import streamer.calibration",
        "import streamer.calibration.threshold",
        "import streamer.errors",
        "from streamer.cli import main\nmain(['--help'])",
    ],
)
def test_what_needs_no_arrays_loads_no_numpy(program: str):
    assert loaded_by(program) <= {"annotated_doc", "shellingham", "streamer_research", "typer"}


def test_the_list_of_commands_loads_no_command_and_no_rich():
    program = (
        "import sys; from streamer.cli import main; main(['--help'])\n"
        "print([n for n in sys.modules if n.startswith(('rich', 'pydantic', 'streamer.gates', 'streamer.cli.gate'))])\n"
    )
    assert programs.run(sys.executable, "-c", program).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "program",
    [
        "from streamer import calibrate, decide, gram_energy",
        "from streamer import calibrate, decide, gram_energy, LabelledGroup; from streamer.calibration import *",
        README,
    ],
    ids=["three names", "all names", "README"],
)
def test_the_core_loads_numpy_and_scipy_alone(program: str):
    assert loaded_by(program) <= {"numpy", "scipy"}


def test_a_gate_on_a_table_loads_no_library_of_tables_and_no_settings():
    program = "from streamer import *; Gate(alpha=0.5).fit({'prompt_id': [1, 2], 'score': [1, 0], 'severity': [0, 1]})"
    assert loaded_by(program) <= {"numpy", "scipy", "msgspec", "typing_extensions"}


def test_the_client_loads_httpx_and_msgspec_alone():
    of_httpx = {
        "anyio", "certifi", "h11", "httpcore2", "httpx2", "idna", "sniffio", "truststore",
        "typing_extensions",
    }  # fmt: skip
    assert (
        {"httpx2", "msgspec"}
        <= loaded_by("from streamer_client import *")
        <= of_httpx | {"msgspec", "streamer_client"}
    )


def test_the_client_gates_on_tables_and_plans_need_no_unix():
    program = """
import sys
sys.modules |= dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios"))
import streamer, streamer_client
from streamer.cli import main
rows = [{"prompt_id": f"p{i}", "answer": f"a{j}", "score": (7 * i + 3 * j) % 10 / 10, "severity": float((i + j) % 5 == 0)}
        for i in range(300) for j in range(2)]
decided = streamer.Gate(alpha=0.2, trust_score=True).fit(rows).decide(rows[:4])
assert str(decided).endswith("of 4 answers ship, for 2 of 2 prompts)"), decided
assert main("plan --alpha 0.2 --labels 50 --responses 2".split()) == 0
"""
    programs.run(sys.executable, "-c", program)


NOT_A_WORKERS = {
    "alembic", "bert_score", "confluent_kafka", "jinja2", "matplotlib", "openai", "pandas", "scipy", "sklearn", "starlette",
    "torch", "transformers", "uvicorn",
}  # fmt: skip
NOT_A_WORKERS_OF_OURS = (
    "streamer_verify", "streamer.console", "streamer.cli", "streamer.labels.judge", "streamer.labels.llm", "streamer.planning",
    "streamer.recalibration.run", "streamer.research", "streamer.review", "streamer.risk.rounds", "streamer.risk.states",
)  # fmt: skip


def test_a_worker_loads_what_workers_need():
    """All that `run_worker` and its helpers import, wherever they do; encoders load their own libraries."""
    wiring = Path(streamer.__file__).parent / "wiring"
    imports = {
        ast.unparse(node)
        for name in ("worker.py", "process.py")
        for node in ast.walk(ast.parse((wiring / name).read_text()))
        if _is_of_a_worker(node)
    }
    program = "import streamer.wiring.worker\n" + "\n".join(sorted(imports)) + "\n"
    ours = "print([n for n in sys.modules if n.startswith('streamer')])"
    done = programs.run(sys.executable, "-c", f"import sys\n{program}{ours}{THIRD_PARTY}")
    mine, others = done.stdout.splitlines()[-2:]
    assert {"faust", "sqlalchemy", "numpy"} <= set(json.loads(others))
    assert not NOT_A_WORKERS & set(json.loads(others))
    assert not [name for name in ast.literal_eval(mine) if name.startswith(NOT_A_WORKERS_OF_OURS)]


def _is_of_a_worker(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamer.")


@pytest.mark.parametrize("public", PUBLIC)
def test_every_public_name_is_found_and_listed(public: str):
    module, name = public.split(":")
    package = sys.modules[module]
    assert callable(getattr(package, name))
    assert name in dir(package)


@pytest.mark.parametrize("package", [streamer, streamer.calibration], ids=lambda package: package.__name__)
def test_type_checkers_are_told_the_same_names(package: object):
    """They read the imports, the interpreter the table: both name each public name and its module."""
    tree = ast.parse(Path(package.__file__).read_text())
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (table,) = (node for node in ast.walk(branch) if isinstance(node, ast.Dict))
    assert imported == {
        name: module for module, names in ast.literal_eval(table).items() for name in names.split()
    }
    assert set(imported) == set(package.__all__)


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match="module 'streamer' has no attribute 'calibrat'"):
        streamer.calibrat  # noqa: B018
    with pytest.raises(ImportError):
        from streamer.calibration import nothing  # noqa: F401


def test_importing_the_core_costs_little_more_than_numpy():
    """By the number of calls that the imports make, which no machine changes; where byte-code is missing, the first run writes it."""
    programs = {"numpy": "import numpy", "core": "from streamer import calibrate, decide, gram_energy"}
    programs |= {"package": "import streamer"}
    counted = "import sys\ncalls = []\nsys.setprofile(lambda *_: calls.append(1))\n{}\nsys.setprofile(None)\nprint(len(calls))"

    def calls(program: str) -> int:
        command = [sys.executable, "-c", counted.format(program)]
        return int([subprocess.check_output(command, timeout=240) for _ in range(2)][1])

    found = {name: calls(program) for name, program in programs.items()}
    assert found["core"] < 1.5 * found["numpy"], found
    assert found["package"] < 0.5 * found["numpy"], found


def test_the_composition_root_has_each_name_that_it_lists():
    from streamer import wiring

    names = " ".join(wiring._NAMES.values()).split()
    assert [name for name in names if not callable(getattr(wiring, name, None))] == []
