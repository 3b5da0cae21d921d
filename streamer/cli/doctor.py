"""`streamer doctor`: is everything installed and consistent, and why does a gate hold?"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import typer

from streamer import wiring
from streamer.cli import FOUND
from streamer.cli.broker import require_broker
from streamer.cli.console import counted, output, print_json
from streamer.cli.options import JsonOption, flag
from streamer.cli.policies import unread_text
from streamer.errors import StreamerError, UsageError
from streamer.extras import needed_by
from streamer.gates.policy import Policy
from streamer.gates.settings import NO_ENCODER
from streamer.scoring.scorers.external import External
from streamer.scoring.unread_answers import HELPS, SAYS, Rule
from streamer.security.visible import redact_text
from streamer.settings.settings import Settings
from streamer.settings.sources import misspelt_variables
from streamer.signing.policies import REFUSAL_TEXTS
from streamer.wording.numbers import percent, waiting_items
from streamer.wording.policies import FEWER_HELPS, cut_text, fewer_text, status_text, way_into_force

if TYPE_CHECKING:
    from streamer.store import Store

Level = Literal["ok", "warn", "fail"]
QUICK_LINKS = 50_000
"""The longest record that is verified by default: a few seconds."""

_CONNECTIONS = {
    "direct": "straight to PostgreSQL, no pooler in between",
    "session": "through a pooler such as PgBouncer that keeps a session for each client, as far as can be seen",
    "transaction": "through a pooler such as PgBouncer in transaction mode: nothing that is set, locked or prepared outlives "
    "its transaction",
}

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the doctor: what was looked at, how it is, and what to do about it."""

    level: Level
    subject: str
    text: str
    todo: str = ""


_ok, _warn, _fail = (partial(Diagnosis, level) for level in get_args(Level))


def doctor(
    full: bool = flag("--full", "Verify the whole record, however long it is."),
    json: JsonOption = False,
) -> None:
    """Check everything once: Python, settings, encoder, database, broker, topics, gates, labels, dead letters.

    Each line says what to do. Exit status 3 when something fails; warnings alone are no failure.
    """
    findings = []
    for finding in diagnose(wiring.load_settings(), full=full):
        findings.append(finding)
        if not json:
            _print(finding)
    worst = "fail" if any(f.level == "fail" for f in findings) else "ok"
    if json:
        print_json({"ok": worst == "ok", "findings": [asdict(finding) for finding in findings]})
    if worst == "fail":
        raise typer.Exit(FOUND)


def _print(finding: Diagnosis) -> None:
    from rich.text import Text

    line = Text.assemble(
        (f"{finding.level:<5}", _STYLES[finding.level]),
        (f"{finding.subject}: ", "bold"),
        finding.text,
    )
    console = output()
    console.print(line, soft_wrap=True)
    if finding.todo:
        console.print(Text(f"{'':<5}-> {finding.todo}", style="cyan"), soft_wrap=True)


def diagnose(settings: "Settings", *, full: bool = False) -> Iterator[Diagnosis]:
    """Check every part in turn. A part that breaks is a finding; the others are checked all the same."""
    for subject, look in (("python", _python), ("settings", _settings), ("encoder", _encoder)):
        yield from _guarded(subject, look, settings)
    database = list(_guarded("database", partial(_database, full=full), settings))
    yield from database
    yield from _guarded("broker", _broker, settings)
    if any(finding.level == "fail" and finding.subject == "database" for finding in database):
        return  # the text of that field cannot be inspected
    for subject, look in (
        ("gates", _gates), ("signatures", _signatures), ("labels", _labels), ("dead letters", _dead_letters),
    ):  # fmt: skip
        yield from _guarded(subject, look, settings)


def _guarded(
    subject: str, look: "Callable[[Settings], Iterator[Diagnosis]]", settings: "Settings"
) -> Iterator[Diagnosis]:
    try:
        with needed_by("this check"):
            yield from look(settings)
    except StreamerError as error:
        yield _fail(subject, redact_text(" ".join(str(error).split())))
    except Exception as error:
        first = (redact_text(str(error)).splitlines() or ["no text"])[0]
        yield _fail(
            subject,
            f"the check itself failed: {type(error).__name__}: {first}",
            "STREAMER_DEBUG=1 shows where",
        )


def _python(_settings: "Settings") -> Iterator[Diagnosis]:
    from importlib.metadata import version

    present = ".".join(map(str, sys.version_info[:3]))
    yield _ok("python", f"{present}, conformal-streamer {version('conformal-streamer')}")


def _settings(settings: "Settings") -> Iterator[Diagnosis]:

    unknown = misspelt_variables(Settings)
    if unknown:
        yield _warn(
            "settings",
            f"set, but no setting: {', '.join(unknown)}",
            "`streamer config show` lists the names",
        )
    else:
        yield _ok("settings", f"{len(settings.origins)} differ from the defaults")


def _encoder(settings: "Settings") -> Iterator[Diagnosis]:
    if settings.encoder.name == NO_ENCODER:
        yield _ok(
            "encoder",
            "none: workers decide on scores, and on embeddings where the gate accepts them",
        )
        return
    asked = wiring.endpoint_encoder(settings)
    if asked is None:
        identity = wiring.encoder_identity(settings)
        longest, scripts = wiring.what_it_reads(settings)
        limit = "texts of any length" if longest is None else f"texts of up to {longest} tokens"
        yield _ok("encoder", f"{identity.id}, dimension {identity.dimension}, reads {limit}")
        unread = [script for script, read in scripts.items() if not read]
        read = [script for script in scripts if script not in unread]
        if scripts:
            beside = f", not {', '.join(unread)}" if unread else ""
            yield _ok("scripts", f"the encoder reads {', '.join(read) or 'none of those tried'}{beside}")
        return
    with closing(asked):
        identity = asked.identity
        yield _ok(
            "encoder",
            f"{identity.id}, asked for at {identity.revision}, which gets the answers' texts",
        )


def _database(settings: "Settings", *, full: bool) -> Iterator[Diagnosis]:
    name = redact_text(settings.database.url)
    problem = wiring.check_database(settings)
    if problem is not None:
        yield _fail("database", f"{name}: {problem}", "streamer db upgrade")
        return
    yield _ok("database", f"{name}, schema up to date")
    with wiring.open_store(settings) as store:
        pooling = store.reports.pooling()
        if pooling is not None:
            yield _ok("connection", _CONNECTIONS[pooling])
        yield from _record(store, full=full, publishes=settings.kafka.bootstrap_servers is not None)


def _record(store: "Store", *, full: bool, publishes: bool) -> Iterator[Diagnosis]:
    """Recompute the Merkle logs over what was recorded; a long record only when asked.

    `publishes` : a broker is configured, for which messages wait.
    """
    links = sum(store.reports.log_sizes().values())
    waiting = store.reports.outbox_pending()
    if links > QUICK_LINKS and not full:
        yield _ok("record", f"{links} links; too long to verify by default", "streamer doctor --full")
    else:
        faults = store.evidence.log_faults()
        for fault in faults:
            yield _fail("record", fault, "keep the database as it is and compare with a backup")
        if not faults:
            yield _ok("record", f"the Merkle log verifies, {links} links")
    if store.reports.may_rewrite():
        yield _warn(
            "rights",
            "this database user could change what was recorded; workers need not be able to",
            "streamer db roles, then a user of the role streamer_app for everything but upgrades",
        )
    if waiting and publishes:
        yield _warn(
            "outbox",
            f"{counted(waiting, 'message waits', 'messages wait')} to be published",
            "run a worker: streamer worker",
        )


def _broker(settings: "Settings") -> Iterator[Diagnosis]:
    from streamer.stream.embedded_broker import is_embedded
    from streamer.stream.topics import cluster_id, log_bounds

    if settings.kafka.bootstrap_servers is None:
        yield _ok(
            "broker",
            "none is configured; `streamer serve --no-kafka` needs none, workers need STREAMER_KAFKA_BOOTSTRAP_SERVERS",
        )
        return
    require_broker(settings)
    connection = wiring.connection(settings)
    identity = settings.kafka.log_id or cluster_id(connection)
    yield _ok("broker", f"{settings.bootstrap_servers}, log {identity}")
    if is_embedded(identity):
        yield _warn(
            "broker",
            "it is the embedded broker, for trial use only: it loses everything when it stops",
        )
    else:
        problems = wiring.check_topics(settings)
        for problem in problems:
            yield _fail("topics", problem, "streamer topics create, or change the topic on the broker")
    bounds = log_bounds(connection, wiring.topics(settings).all())
    for topic in wiring.topics(settings).all():
        parts = [end - begin for (name, _), (begin, end) in bounds.items() if name == topic]
        if parts:
            yield _ok(
                "topics",
                f"{topic}: {counted(sum(parts), 'record', 'records')} on {counted(len(parts), 'partition', 'partitions')}",
            )


def _gates(settings: "Settings") -> Iterator[Diagnosis]:
    with wiring.open_store(settings) as store:
        policies = {name: active.policy for name, active in store.policies.active().items()}
        pending = store.labels.pending()
        proposals = {
            name: found for name in policies if (found := store.calibration.proposal(name)) is not None
        }
        closures = {name: store.calibration.alarm_closure(name) for name in policies}
        brought = {name: store.reports.brought_embeddings(name) for name in policies}
        unread = {name: store.reports.not_read(name) for name in policies}
        fewer = {
            name: store.calibration.fewer_answers(name, one.calibration_run)
            for name, one in policies.items()
            if one.calibration_run is not None
            and not one.ships_nothing
            and one.settings.scorer != External.name
        }
        held = {name: store.calibration.not_read(name) for name in policies}
    if not policies:
        yield _warn("gates", "there is none yet", "streamer gate create NAME")
    configured, beside = settings.encoder.name, settings.encoder.candidate
    identity = NO_ENCODER if configured == NO_ENCODER else wiring.encoder_identity(settings).id
    runs = {identity} if beside is None else {identity, wiring.encoder_identity(settings, beside).id}
    for name, policy in sorted(policies.items()):
        waiting = pending.get(name, 0)
        embeds = policy.settings.embeds and policy.settings.embeddings == "refuse"
        if embeds and policy.settings.encoder not in runs:
            yield _fail(
                f"gate {name}",
                f"needs encoder {policy.settings.encoder}, workers with these settings run {' and '.join(sorted(runs))}: "
                "all its batches are held (encoder_mismatch)",
                f"set STREAMER_ENCODER_NAME={policy.settings.encoder}, or streamer gate set {name} "
                + ("--embeddings accept" if identity == NO_ENCODER else f"--encoder {configured}"),
            )
        yield from _judge_of(policy, settings)
        yield from _own_embeddings(policy, *brought[name])
        yield from _not_read(policy, *unread[name])
        few, looked, fewest = fewer.get(name, (0, 0, 0))
        if few:
            of = counted(looked, "recent batch", "recent batches")
            yield _warn(f"gate {name}", fewer_text(few, of, fewest), FEWER_HELPS)
        waits = waiting_items(policy.settings.unit)
        if policy.state == "closed":
            todo = (
                f"publish batches to it, label what is drawn ({counted(waiting, *waits)}): "
                f"streamer label queue --gate {name}, then: streamer recalibrate {name}"
            )
            if held[name][0] == held[name][1] > 0 and not policy.settings.calibrator.of_signals:
                todo = f"its encoder read none of the newest {held[name][0]} batches: what helps is {HELPS}"
            yield _warn(f"gate {name}", status_text(policy), todo)
        else:
            yield _ok(f"gate {name}", status_text(policy))
            if waiting:
                yield _ok(
                    f"gate {name}",
                    f"{counted(waiting, *waits)} for a label",
                    f"streamer label queue --gate {name}",
                )
        closure = closures[name]
        if closure is not None and not closure.closed and closure.version > policy.version:
            yield _fail(
                f"gate {name}",
                f"an alarm should have closed it on {closure.moment:%Y-%m-%d %H:%M:%SZ} and could not: nothing is calibrated "
                "on what it decides before it has another policy",
                f"where there is a key to sign with: streamer threshold close {name} --reason ...",
            )
        if name in proposals:
            found = proposals[name]
            yield _ok(
                f"gate {name}",
                f"run {found.run} proposes {cut_text(found.cut, found.rule)}"
                + (f", which waits for a person: {found.why}" if found.why else ""),
                f"streamer threshold show {name}, then: {way_into_force(name, found.settings)}",
            )


def _judge_of(policy: "Policy", settings: "Settings") -> Iterator[Diagnosis]:
    """Say whether workers with these settings ask the judge that a gate's scores are of."""
    if not policy.settings.asks:
        return
    try:
        configured = wiring.judge_scoring_id(settings)
    except UsageError:
        configured = "none"
    if configured != policy.settings.encoder:
        yield _fail(
            f"gate {policy.gate}",
            f"its scores are of {policy.settings.encoder}, workers with these settings ask {configured}: all its batches are held "
            "(encoder_mismatch)",
            f"set the group judge to that model and its parameters, or streamer gate set {policy.gate} --encoder {configured}",
        )


def _own_embeddings(policy: "Policy", brought: int, not_taken: int) -> Iterator[Diagnosis]:
    """Say whether publishers send a gate embeddings that it does not accept, or no longer accepts."""
    settings, recently = policy.settings, counted(brought, "recent batch", "recent batches")
    if brought and settings.scorer == "gram" and settings.embeddings == "refuse":
        yield _warn(
            f"gate {policy.gate}",
            f"{recently} brought embeddings, which it refuses: such batches are held (encoder_mismatch)",
            f"publish only texts; or, if publishers are trusted to make embeddings: streamer gate set {policy.gate} "
            "--embeddings accept, and embedding_encoder in every event",
        )
    elif not_taken and settings.embeddings == "accept":
        yield _warn(
            f"gate {policy.gate}",
            f"{not_taken} of {recently} that brought embeddings were held (encoder_mismatch)",
            f"publish embedding_encoder {settings.encoder!r} with embeddings of dimension {settings.dimension}",
        )


def _not_read(policy: "Policy", looked: int, by_rule: "Mapping[Rule, int]") -> Iterator[Diagnosis]:
    """Say which share of a gate's newest batches its encoder does not read, and why."""
    if by_rule:
        shares = (f"{percent(count / looked)} ({rule}: {SAYS[rule]})" for rule, count in by_rule.items())
        yield _warn(
            f"gate {policy.gate}",
            f"of {counted(looked, 'recent batch', 'recent batches')} its encoder did not read {', '.join(shares)}",
            "label what is drawn of them"
            if policy.settings.calibrator.of_signals
            else f"shorter answers; or {HELPS}",
        )


def _signatures(settings: "Settings") -> Iterator[Diagnosis]:
    """Say which gates workers with the keys that are configured here would decide with an older policy, or none."""
    keys = wiring.policy_keys(settings)
    with wiring.open_store(settings) as store:
        newest = store.policies.versions()
    signed = [found for found in newest.values() if found.signature is not None]
    refused = {gate: reason for gate, found in sorted(newest.items()) if (reason := keys.refusal(found))}
    for gate, reason in refused.items():
        version = newest[gate].version
        yield _fail(
            f"gate {gate}",
            f"policy {version} is refused: {REFUSAL_TEXTS[reason]}; workers with the same public keys go on with the last "
            "good one, or hold everything",
            f"streamer threshold show {gate}, then, if you vouch for it: streamer threshold sign {gate} --version {version}"
            if reason in ("unsigned", "unknown_key")
            else "streamer audit verify; docs/security.md says what to do",
        )
    if not keys.demanded and signed:
        yield _warn(
            "signatures",
            f"{counted(len(signed), 'gate has a signed policy', 'gates have signed policies')}, and no public key is "
            "configured here: nobody checks them",
            "STREAMER_POLICIES_PUBLIC_KEYS_FILE, for workers too",
        )
    elif keys.demanded and not refused:
        signs = "signs" if keys.signer is not None else "cannot sign"
        yield _ok(
            "signatures",
            f"the newest policy of every gate is signed with a trusted key; this installation {signs}",
        )


def _labels(settings: "Settings") -> Iterator[Diagnosis]:
    """Say which labels are not read, and whose signatures cannot be good for lack of a public key."""
    keys = wiring.label_keys(settings)
    with wiring.open_store(settings) as store:
        gates = store.gates.list()
        unread = store.labels.unread()
    for one in gates:
        name, wanted = one.gate, one.settings
        if wanted.signed_labels:
            known = keys.trusted_labellers
            missing = sorted(set(wanted.labellers) - known) if wanted.labellers is not None else []
            if missing or not known:
                yield Diagnosis(
                    "warn" if known and wanted.labellers != tuple(missing) else "fail",
                    f"gate {name}",
                    f"it reads only signed labels, and no public key of {', '.join(missing) or 'any labeller'} is"
                    " configured here",
                    "STREAMER_LABELS_PUBLIC_KEYS_FILE, wherever labels are read; streamer label keygen makes keys",
                )
        if name in unread:
            yield _warn(
                f"gate {name}",
                unread_text(unread[name]),
                f"check where they come from; if they are legitimate: streamer gate set {name} --labellers ...",
            )


def _dead_letters(settings: "Settings") -> Iterator[Diagnosis]:
    with wiring.open_store(settings) as store:
        counts = store.dead_letters.counts(replayed=False)
    if not counts:
        yield _ok("dead letters", "none is left to send again")
        return
    by_code = ", ".join(f"{count} {code}" for code, count in sorted(counts.items()))
    yield _warn("dead letters", by_code, "streamer dead-letters list")
