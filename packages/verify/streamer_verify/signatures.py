"""Ed25519 (RFC 8032), the keys in files, and what the signatures of policies and labels cover."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from typing import Any

from streamer_verify.settings import SIGNED_AS_FLOATS, SIGNED_IF_OTHER, SIGNED_SETTINGS
from streamer_verify.values import PLAIN, canonical_json, parsed, sha256

_P = 2**255 - 19

_L = 2**252 + 27742317777372353535851937790883648493

_D = -121665 * pow(121666, -1, _P) % _P

_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

_Point = tuple[int, int, int, int]


def _add(a: _Point, b: _Point) -> _Point:
    """Add two points in extended coordinates (X, Y, Z, T), x = X/Z, y = Y/Z, xy = T/Z."""
    m = (a[1] - a[0]) * (b[1] - b[0]) % _P
    n = (a[1] + a[0]) * (b[1] + b[0]) % _P
    o = 2 * a[3] * b[3] * _D % _P
    q = 2 * a[2] * b[2] % _P
    e, f, g, h = n - m, q - o, q + o, n + m
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _point(encoded: bytes) -> _Point | None:
    """Decode 32 bytes to a point; None when they are none."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _encoded(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


_BASE = _point(bytes.fromhex("58" + "66" * 31))


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Report whether `signature` (64 bytes) by the key `public` (32 bytes) is good for `message`."""
    if len(public) != 32 or len(signature) != 64 or _BASE is None:
        return False
    key, s = _point(public), int.from_bytes(signature[32:], "little")
    if key is None or s >= _L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _L
    minus: _Point = (_P - key[0], key[1], 1, _P - key[3])
    both, total = _add(_BASE, minus), (0, 1, 1, 0)
    for bit in range(255, -1, -1):  # S B - k A, both products in one pass
        total = _add(total, total)
        pick = (s >> bit & 1) + 2 * (k >> bit & 1)
        if pick:
            total = _add(total, (_BASE, minus, both)[pick - 1])
    return _encoded(total) == signature[:32]


def dsse(kind: str, payload: bytes) -> bytes:
    """Write what a DSSE signature covers: type and payload, each with its length."""
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)


def signed_text(kind: str, value: Any) -> bytes:
    """Write what the signature of a policy, a label or a restoration covers."""
    return dsse(f"application/vnd.streamer.{kind}.v1+json", canonical_json(value))


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _signed_rule(text: str | None) -> dict[str, Any]:
    """A policy's rule as its signature has it: real numbers as floats, however they were stored."""
    rule = PLAIN if text is None else json.loads(text)
    given, curve = rule["parameters"], rule["curve"]
    parameters = dict(given)
    for name in ("width", "quantile", "alpha", "floor", "ridge", "ship_above"):
        if name in given:
            parameters[name] = _float(given[name])
    if rule["kind"] == "segments":
        parameters["own"] = {
            name: {"state": cut["state"], "lambda": _float(cut["lambda"])}
            for name, cut in given["own"].items()
        }
    if curve is not None:
        curve = [[_float(level), _float(total)] for level, total in curve]
    return {"kind": rule["kind"], "parameters": parameters, "curve": curve}


_OF_POLICY = (
    "gate", "version", "gate_revision", "state", "calibrated", "calibration_run", "valid_from", "guarantee", "reason"
)  # fmt: skip


def policy_statement(
    policy: dict[str, Any], settings: dict[str, Any], gate: dict[str, Any], record_id: str
) -> bytes:
    """Write what the signature of a policy covers, from its row, its revision's, its gate's and the record's id."""
    signed = {}
    for name in (*SIGNED_SETTINGS, *SIGNED_IF_OTHER):
        value = settings.get(name)
        if name in ("labellers", "parameters"):
            value = parsed(value)
        if name in SIGNED_AS_FLOATS:
            value = _float(value)
        if name not in SIGNED_IF_OTHER or (name in settings and value != SIGNED_IF_OTHER[name]):
            signed[name] = value
    seed = sha256(b"streamer.seed.v1\x00" + canonical_json([gate["name"], gate["seed"]]))
    return signed_text(
        "policy",
        {
            "format": 1, "record": record_id, "settings": signed, "lambda": _float(policy["threshold"]),
            "rule": _signed_rule(policy["rule"]), "seed": seed, "audit_salt": gate["audit_salt"],
            "by": policy["created_by"], **{name: policy[name] for name in _OF_POLICY},
        },
    )  # fmt: skip


def read_public_keys(text: str) -> list[bytes]:
    """Read every Ed25519 public key (32 bytes) from PEM text. Raises `ValueError` when there is none."""
    keys = []
    for block in text.split("-----BEGIN PUBLIC KEY-----")[1:]:
        der = base64.b64decode("".join(block.partition("-----END")[0].split()))
        if len(der) != 44 or der[:12] != bytes.fromhex("302a300506032b6570032100"):
            raise ValueError("a public key is not an Ed25519 key")
        keys.append(der[12:])
    if not keys:
        raise ValueError("there is no public key in PEM form")
    return keys


def read_label_keys(text: str) -> dict[str, tuple[str, bytes]]:
    """Read whose labels which key signs, by the key's id: each block follows a line `labeller: NAME`. Raises `ValueError`."""
    found = {}
    for block in re.split(r"^labeller:", text.replace("\r\n", "\n"), flags=re.MULTILINE)[1:]:
        name, _, pem = block.partition("\n")
        for key in read_public_keys(pem):
            found[sha256(key)] = (unicodedata.normalize("NFKC", name).strip(), key)
    if not found:
        raise ValueError("there is no line `labeller: NAME` with a public key after it")
    return found


def label_statement(label: dict[str, Any], record_id: str) -> bytes:
    """Write what the signature of a label covers."""
    said = {name: label[name] for name in OF_LABEL}
    for name in ("severity", "raw_severity"):
        said[name] = None if label.get(name) is None else float(label[name]) + 0.0
    if label.get("severities"):
        said["severities"] = {name: float(one) + 0.0 for name, one in label["severities"].items()}
    return signed_text("label", {"format": 1, "record": record_id, **said})


OF_LABEL = ("gate", "batch_id", "attempt", "response_id", "kind", "labeller", "labelled_at")
