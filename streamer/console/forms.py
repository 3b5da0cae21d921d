"""What the console's forms do: each gets a session and a form, and says where the browser goes next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from streamer.console.acts import Act, Done, Refused, Sent
from streamer.console.desk import DeskPages
from streamer.console.doors import Doors
from streamer.console.what_if import percent_of
from streamer.review.access import Access
from streamer.security.accounts import Account, Deed
from streamer.store import Store
from streamer.wording.numbers import percent

if TYPE_CHECKING:
    from streamer.console.oidc import Issuer


class Changes(Protocol):
    """What commands do with more than the store; by the same functions."""

    def recalibrate(self, gate: str, *, by: str, reason: str) -> int | None:
        """Have a run propose what the labels allow; return its number, None where nothing is proposed."""

    def propose_budget(self, gate: str, alpha: float, *, by: str, reason: str) -> None:
        """Make a candidate policy with another budget, decided beside the gate until somebody approves it."""

    def adopt(self, gate: str, *, by: str, reason: str) -> str:
        """Put the candidate policy in force; return what came of it in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Forms:
    """What signed-in people may do by the console's forms.

    `access` : who may use the review page. `changes` : what takes more than the store. `announce` has a new policy announced to the
    workers, if that can be done from here. `issuer` : where people may sign in by OpenID Connect; None: nowhere else than here.
    """

    store: Store
    doors: Doors
    access: Access
    changes: Changes
    announce: Callable[[], None]
    clock: Callable[[], datetime]
    issuer: Issuer | None = None

    @cached_property
    def desk(self) -> DeskPages:
        """The pages of the desk, whose forms are among these."""
        return DeskPages(self.store, clock=self.clock)

    def acts(self) -> dict[Deed, dict[str, Act]]:
        """What forms do, by the deed that it takes and by address. What is done at gates is announced."""
        return {
            "release": {"/desk/release": self.desk.release, "/desk/reject": self.desk.reject},
            "approve": {
                "/proposals/approve": self.approve,
                "/proposals/reject": self.reject,
                "/gates/close": self.close,
                "/gates/rollback": self.rollback,
                "/gates/mode": self.mode,
                "/gates/recalibrate": self.recalibrate,
                "/gates/budget": self.propose_budget,
                "/candidates/approve": self.adopt,
                "/candidates/reject": self.stop_candidate,
                "/alerts/acknowledge": self.acknowledge,
                "/alerts/assign": self.assign,
            },
            "administer": {
                "/people/add": self.add_person,
                "/people/roles": self.change_roles,
                "/people/password": self.set_password,
                "/people/close": self.close_account,
            },
            "look": {"/you/password": self.own_password},
        }

    def approve(self, sent: Sent) -> Done:
        """Put a proposal in force."""
        run = sent.number("run")
        policy = self.store.calibration.activate(sent.gate, run, **sent.why("approved"), now=self.clock())
        return Done(f"Run {run} is in force at gate {sent.gate}, as policy {policy.version}.", "/proposals")

    def reject(self, sent: Sent) -> Done:
        """Reject a proposal."""
        run = sent.number("run")
        self.store.calibration.reject(sent.gate, run, **sent.why(), now=self.clock())
        said = f"Run {run} is not proposed again; the threshold of {sent.gate} stays as it is."
        return Done(said, "/proposals")

    def close(self, sent: Sent) -> Done:
        """Close a gate."""
        policy = self.store.policies.close(sent.gate, **sent.why(), now=self.clock())
        said = f"Gate {sent.gate} is closed by policy {policy.version}: it ships nothing from now on."
        return Done(said, _page_of(sent.gate))

    def rollback(self, sent: Sent) -> Done:
        """Go back to an older threshold."""
        version = sent.number("version")
        policy = self.store.policies.rollback(sent.gate, version, **sent.why(), now=self.clock())
        said = f"Gate {sent.gate} has the threshold of policy {version} again, as policy {policy.version}."
        return Done(said, _page_of(sent.gate))

    def mode(self, sent: Sent) -> Done:
        """Change between shadow and enforce."""
        mode = sent.get("mode")
        self.store.gates.revise(sent.gate, {"mode": mode}, **sent.why(), now=self.clock())
        said = "consumers obey it" if mode == "enforce" else "it decides, and consumers do not obey it"
        return Done(f"Gate {sent.gate} has the mode {mode} from now on: {said}.", _page_of(sent.gate))

    def recalibrate(self, sent: Sent) -> Done:
        """Have a run propose a threshold."""
        run = self.changes.recalibrate(sent.gate, **sent.why())
        said = f"Gate {sent.gate} was recalibrated: run {run} waits here." if run else "Nothing is proposed."
        return Done(said, "/proposals")

    def propose_budget(self, sent: Sent) -> Done:
        """Propose another budget."""
        budget = percent_of(sent.get("budget"))
        self.changes.propose_budget(sent.gate, budget, **sent.why())
        said = f"A budget of {percent(budget)} is proposed for gate {sent.gate}, and decided beside it from now on."
        return Done(said, "/proposals")

    def adopt(self, sent: Sent) -> Done:
        """Put a candidate policy in force."""
        return Done(self.changes.adopt(sent.gate, **sent.why("approved")), _page_of(sent.gate))

    def stop_candidate(self, sent: Sent) -> Done:
        """Reject a candidate policy."""
        self.store.candidates.stop(sent.gate, **sent.why())
        said = f"Gate {sent.gate} stays as it is; what was proposed is decided beside it no longer."
        return Done(said, "/proposals")

    def assign(self, sent: Sent) -> Done:
        """Say who looks after an incident."""
        incident = self.store.alerts.incident(sent.get("alert"))
        self.store.alerts.assign(incident, sent.get("assignee"), by=sent.by)
        return Done("", f"/incident?alert={quote(incident.first.alert.alert_id)}")

    def acknowledge(self, sent: Sent) -> Done:
        """Acknowledge the alerts of an incident."""
        ids = sent.get("alert").split(",")
        said = [self.store.alerts.acknowledge(one, **sent.why()).alert.message for one in ids]
        return Done(f"Acknowledged: {' '.join(said)}", "/alerts")

    def add_person(self, sent: Sent) -> Done:
        """Make an account."""
        name, accounts, issuer = sent.get("name"), self.store.accounts, self.issuer
        if issuer is not None and "issued" in sent.form:
            there = issuer.registration.issuer
            made = accounts.add_issued(name, roles=sent.roles, issuer=there, by=sent.by)
        else:
            made = accounts.add(name, roles=sent.roles, password=sent.password, by=sent.by)
        return Done(f"{made.name} may sign in now, as {', '.join(made.roles)}.", "/people")

    def change_roles(self, sent: Sent) -> Done:
        """Change somebody's roles."""
        made = self.store.accounts.set_roles(sent.get("name"), sent.roles, by=sent.by, reason="other roles")
        said = f"is {', '.join(made.roles)} from now on, and signs in again"
        return self._changed(made, said)

    def set_password(self, sent: Sent) -> Done:
        """Change somebody's password."""
        made = self.store.accounts.set_password(sent.get("name"), sent.password, by=sent.by)
        return self._changed(made, "has another password, and signs in again")

    def close_account(self, sent: Sent) -> Done:
        """Close somebody's account."""
        made = self.store.accounts.close(sent.get("name"), by=sent.by, reason="closed")
        return self._changed(made, "cannot sign in any more")

    def _changed(self, account: Account, said: str) -> Done:
        self.access.end(account.name)
        return Done(f"{account.name} {said}.", "/people")

    def own_password(self, sent: Sent) -> Done:
        """Change one's own password, given the present one."""
        session = sent.session
        if session.account is None:
            raise Refused(409, "you came by a link and have no password")
        if not self.doors.sign_in_again(session, sent.get("present")):
            raise Refused(403, "that is not your present password")
        how = {"by": sent.by, "reason": "own password"}
        self.store.accounts.set_password(session.name, sent.password, **how)
        self.access.end(session.name)
        return Done("", "/login")


def _page_of(gate: str) -> str:
    return f"/gate/{quote(gate, safe='')}"
