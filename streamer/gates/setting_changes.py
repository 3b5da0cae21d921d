"""What a change of a gate's settings means for its threshold. Pure."""

from streamer.gates.settings import PARAMETERS, SETTINGS, GateSettings

CALIBRATED_FOR = tuple(name for name, one in SETTINGS.items() if one.calibrated)
"""With the parameters of method and shape: what a threshold is calibrated for."""


def unread(settings: GateSettings) -> frozenset[str]:
    """Return the settings that have no effect on this gate: `delta` under the method `mean`, for example."""
    other = set(PARAMETERS) - set(settings.calibrator.ranges()) - set(settings.shape.ranges())
    if settings.segment_by is None:
        other.add("segment_fallback")
    if settings.embeddings != "accept":
        other.add("dimension")
    if not settings.calibrator.of_signals:
        other.add("signals")
    return frozenset(other)


def calibrated_for_another(before: GateSettings, after: GateSettings) -> list[str]:
    """Return, sorted, the settings that a threshold depends on and that differ between `before` and `after`.

    A change of any of these makes the threshold meaningless: the gate closes until it is recalibrated. So does one by
    which labels that it may rest on are not read any more; that more labels are read concerns only later runs.
    """
    unread_by_both = unread(before) & unread(after)
    was, will_be = before.flat(), after.flat()
    changed = {
        name for name in CALIBRATED_FOR if name not in unread_by_both and was[name] != will_be[name]
    } | {
        name
        for name in PARAMETERS
        if name not in unread_by_both and before.parameter(name) != after.parameter(name)
    }
    if after.labellers is not None and (
        before.labellers is None or not set(before.labellers) <= set(after.labellers)
    ):
        changed.add("labellers")
    if after.signed_labels and not before.signed_labels:
        changed.add("signed_labels")
    return sorted(changed)


def differences(before: GateSettings, after: GateSettings) -> dict[str, tuple[object, object]]:
    """Return the settings that differ: name -> (before, after)."""
    was, now = before.named(), after.named()
    return {name: (was[name], now[name]) for name in was if was[name] != now[name]}
