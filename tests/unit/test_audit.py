"""The one-file verifier's own Ed25519 against RFC 8032 and OpenSSL, keys, and when a checkpoint is due."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamer.audit import signing
from streamer.audit.checkpointing import CheckpointFile
from streamer.audit.evidence.figures import TITLES, WORDS
from streamer.audit.evidence.framework import FAMILIES
from streamer.audit.evidence.frameworks import ALL
from streamer.errors import UsageError
from streamer.gates.batch_key import BatchKey
from streamer.gates.setting_changes import calibrated_for_another
from streamer.gates.settings import FLAT_NAMES, METHODS, GateSettings
from streamer.gates.uniforms import uniforms_for
from streamer.labels.audit_sample import is_sampled
from streamer.risk.states.decisions import AuditedDecision, AuditedDecisions
from streamer.risk.states.exposure import ExposurePlan, ExposureSequence
from streamer_verify import waits
from streamer_verify.actions import keyed_uniform, uniform_of
from streamer_verify.command import complete_lines
from streamer_verify.figures import exposure_sums
from streamer_verify.signatures import ed25519_verify

# RFC 8032, section 7.1: public key, message, signature.
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
]


@pytest.mark.parametrize(("public", "message", "signature"), VECTORS)
def test_the_vectors_of_the_rfc(public: str, message: str, signature: str) -> None:
    key, said, signed = bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(signature)
    assert ed25519_verify(key, said, signed)
    assert not ed25519_verify(key, said + b"x", signed)
    for at in (0, 31, 32, 63):
        assert not ed25519_verify(key, said, signed[:at] + bytes([signed[at] ^ 1]) + signed[at + 1 :])


def test_it_agrees_with_openssl_on_good_and_on_broken_signatures() -> None:
    rng = random.Random(5)
    for _ in range(12):
        private, public = signing.generate_keys()
        (key,) = signing.read_public_keys(public, place="here")
        message = rng.randbytes(rng.randrange(200))
        signature = bytearray(signing.base64.b64decode(signing.Signer(private).sign(message)))
        assert (
            ed25519_verify(key, message, bytes(signature))
            is signing.verify(key, message, bytes(signature))
            is True
        )
        signature[rng.randrange(64)] ^= 1 << rng.randrange(8)
        assert ed25519_verify(key, message, bytes(signature)) is False
        assert signing.verify(key, message, bytes(signature)) is False


def test_what_is_no_key_and_no_signature_is_refused() -> None:
    public, _, signature = VECTORS[0]
    order = 2**252 + 27742317777372353535851937790883648493
    high = (int.from_bytes(bytes.fromhex(signature)[32:], "little") + order).to_bytes(32, "little")
    assert not ed25519_verify(bytes.fromhex(public), b"", bytes.fromhex(signature)[:32] + high), (
        "S must be below L"
    )
    assert not ed25519_verify(b"\xff" * 32, b"", bytes.fromhex(signature))
    assert not ed25519_verify(b"", b"", bytes.fromhex(signature))
    assert not ed25519_verify(bytes.fromhex(public), b"", b"")


def test_the_draws_are_those_of_the_program() -> None:
    salt, key = bytes(range(32)), BatchKey("gäte", "bätch", 3)
    chance = keyed_uniform(salt, "audit", *map(str, key))
    assert not is_sampled(salt, key, chance)
    assert is_sampled(salt, key, chance + 1e-12)
    for unit in ("best", "batch"):
        names = ["", ""] if unit == "batch" else ["a", "b"]
        assert uniforms_for(salt, key, ["a", "b"], unit) == tuple(
            uniform_of(salt, "dither", key, name) for name in names
        )


def test_it_knows_what_a_threshold_is_calibrated_for_as_the_program_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = GateSettings(scorer="external", encoder="none", alpha=0.1)
    other: dict[str, Any] = {
        "unit": "batch", "scorer": "gram", "encoder": "e@1", "severity_kind": "judge", "alpha": 0.2, "eta": 2.0, "draws": 9,
        "delta": 0.2, "rho": 0.9, "width": 0.1, "segment_by": "language", "group_by": "session", "judged": "raw@1",
        "segment_fallback": "pooled", "label_floor": 0.2, "max_attempts": 2, "mode": "enforce", "hold_action": "escalate",
        "audit_probability": 0.7, "audit_draws": 3, "keep_texts": False, "labellers": ("ann", "ben"),
        "signed_labels": True,
    }  # fmt: skip
    forms: list[dict[str, Any]] = [{"method": method} for method in METHODS]
    forms += [
        {"shape": "smooth"},
        {"shape": "rank"},
        {"labellers": ("ann",)},
        {"labellers": ("ann", "ben", "eve")},
    ]
    # The rules of what goes together are no matter here.
    monkeypatch.setattr("streamer.gates.settings.GateSettings._check", lambda _: None)
    for form in (*forms, {"segment_by": "language"}):
        for name, value in other.items():
            before, after = replace(usual, **form), replace(usual, **(form | {name: value}))
            expected = calibrated_for_another(before, after)
            said = waits.calibrated_for_another(before.flat(), after.flat())
            assert sorted(said) == expected, (form, name)
    assert set(waits.CALIBRATED_FOR) <= set(FLAT_NAMES)


def test_keys_are_read_and_others_are_refused(tmp_path: Path) -> None:
    private, public = signing.generate_keys()
    signer = signing.Signer(private)
    other = signing.generate_keys()[1]
    assert signing.read_public_keys(public + other, place="here") == [
        signer.public_key,
        *signing.read_public_keys(other, place="here"),
    ]
    assert signing.public_pem([signer.public_key]) == public
    for text in ("", "nothing", public):
        with pytest.raises(UsageError, match="streamer audit keygen"):
            signing.Signer(text)
    with pytest.raises(UsageError, match="here: there is no public key"):
        signing.read_public_keys(private, place="here")


def test_two_that_append_take_turns(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "checkpoints.jsonl")
    assert file.append(b"1", after=None)
    assert not file.append(b"2", after=None)
    long = b"x" * 60_000
    assert file.append(long, after=b"1")
    assert file.last() == long
    file.path.write_bytes(file.path.read_bytes() + b"y" * 60_000)
    assert file.last() == long, "who was interrupted wrote no line"
    assert file.append(b"5", after=long)
    assert complete_lines(file.path.read_bytes()) == [b"1", long, b"5"]


@pytest.mark.parametrize("seed", range(4))
def test_exposure_is_bounded_as_monitoring_does(seed: int) -> None:
    """With draws of several probabilities, and labels that are missing."""
    rng = random.Random(seed)
    pieces, passed = [], []
    for _ in range(400):
        p = rng.choice([0.1, 0.4, 1.0] if seed else [0.05])
        drawn, shipped = rng.random() < p, float(rng.random() < 0.7)
        loss = None if rng.random() < 0.1 and shipped else shipped * (rng.random() < 0.15)
        pieces.append(AuditedDecision(p, drawn, loss if drawn else None, shipped))
        least, most = (0.0, 1.0) if loss is None else (loss, loss)
        passed.append((p, least / p if drawn else 0.0, most / p if drawn else 0.0))
    plan = ExposurePlan(delta=0.1, least_probability=min(one[0] for one in passed), prior_mean=0.2)
    read = ExposureSequence(plan=plan).observe(AuditedDecisions.of_pieces(pieces))
    sums = exposure_sums(passed, alpha=0.2, delta=0.1)
    for expected, over in ((read.exposure(), 400.0), (read.selective(), read.shipped)):
        found = [min(1.0, max(0.0, one / over)) for one in sums]
        assert found == pytest.approx([expected.estimate, expected.lower, expected.upper], rel=1e-9)


def test_every_framework_speaks_of_figures_there_are() -> None:
    for framework in ALL.values():
        assert {family for clause in framework.clauses for family in clause.shows} <= set(FAMILIES)
        numbers = [clause.number for clause in framework.clauses]
        assert len(set(numbers)) == len(numbers)
        assert all(clause.does_not_show and clause.asks.endswith(".") for clause in framework.clauses)
    assert set(TITLES) == set(WORDS) == set(FAMILIES)
