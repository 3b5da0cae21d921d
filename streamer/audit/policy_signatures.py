"""Whether each policy of a record is signed with a key that is trusted, from the first one on that is."""

from collections import Counter
from collections.abc import Iterable

from streamer.signing.policies import REFUSAL_TEXTS, PolicyKeys, PolicyVersion
from streamer_verify.verifier import Verifier


def check_signatures(policies: Iterable[PolicyVersion], keys: PolicyKeys, verifier: Verifier) -> None:
    """Name what is refused. What comes before a gate's first trusted policy is only counted: keys come and go.

    Parameters
    ----------
    policies : every version of every gate, the oldest of each gate first.
    """
    if not keys.demanded:
        if any(found.signature is not None for found in policies):
            verifier.notes["signatures"] = "signatures of policies: no public key of theirs is configured"
        return
    trusted: set[str] = set()
    earlier: Counter[str] = Counter()
    for found in policies:
        refusal = keys.refusal(found)
        verifier.counts["policy signatures"] += found.signature is not None
        if refusal is None:
            trusted.add(found.gate)
        elif refusal in ("unsigned", "unknown_key") and found.gate not in trusted:
            earlier[found.gate] += 1
        else:
            verifier.fault("policy", f"policies {found.gate} {found.version}", REFUSAL_TEXTS[refusal])
    for gate, count in sorted(earlier.items()):
        verifier.notes[f"signatures of {gate}"] = (
            f"{count} policies of {gate} from before the first that is signed with a trusted key"
        )
