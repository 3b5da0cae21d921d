"""What the console changes by what commands call: calibration runs, and candidate policies with another budget."""

from dataclasses import replace

from streamer.errors import UsageError
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.store.policies.proposals import require_another_person
from streamer.wiring.candidates import adopt_candidate, set_candidate
from streamer.wiring.parts import recalibrate
from streamer.wording.policies import status_text


class Changes:
    """Implements `streamer.console.app.Changes` by what the commands call."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store

    def recalibrate(self, gate: str, *, by: str, reason: str) -> int | None:
        return recalibrate(self._settings, gate, by=by, reason=reason, propose=True).proposed

    def propose_budget(self, gate: str, alpha: float, *, by: str, reason: str) -> None:
        present = self._store.gates.get(gate).settings
        if alpha == present.alpha:
            raise UsageError(f"gate {gate} has this budget already")
        try:
            wanted = replace(present, alpha=alpha)
        except ValueError as error:
            raise UsageError(str(error)) from None
        set_candidate(self._store, gate, wanted, cut=None, by=by, reason=reason)

    def adopt(self, gate: str, *, by: str, reason: str) -> str:
        if self._store.gates.get(gate).settings.two_people:
            require_another_person(gate, self._store.candidates.present(gate)[0].by, by)
        adopt_candidate(self._settings, gate, by=by, reason=reason)
        return f"It is in force at gate {gate}: {status_text(self._store.policies.newest(gate))}."
