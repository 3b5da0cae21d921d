"""What the console's forms do: each gets a session and a form, and says where the browser goes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from streamer.console.desk import DeskPages, Done
from streamer.console.doors import Doors, Session
from streamer.console.what_if import percent_of
from streamer.errors import StreamerError
from streamer.gates import free_text
from streamer.review.access import Access
from streamer.security.accounts import Deed
from streamer.store import Store
from streamer.wording.numbers import percent

if TYPE_CHECKING:
    from streamer.console.oidc import Issuer


class Refused(StreamerError):
    """An answer other than a page: its status, and a sentence for people."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


Act = Callable[[Session, Mapping[str, str]], Done]
"""What a form does."""


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
        """What forms do, by the deed that it takes and by address."""
        return {
            "release": {"/desk/release": self.release, "/desk/reject": self.reject_at_desk},
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

    def approve(self, session: Session, form: Mapping[str, str]) -> Done:
        """Put a proposal in force."""
        gate, run = form.get("gate", ""), _number(form, "run")
        how = {"by": session.actor, "reason": _reason(form, "approved")}
        policy = self.store.calibration.activate(gate, run, **how, now=self.clock())
        self.announce()
        return Done(f"Run {run} is in force at gate {gate}, as policy {policy.version}.", "/proposals")

    def reject(self, session: Session, form: Mapping[str, str]) -> Done:
        """Reject a proposal."""
        gate, run = form.get("gate", ""), _number(form, "run")
        self.store.calibration.reject(gate, run, by=session.actor, reason=_reason(form), now=self.clock())
        said = f"Run {run} is not proposed again; the threshold of {gate} stays as it is."
        return Done(said, "/proposals")

    def close(self, session: Session, form: Mapping[str, str]) -> Done:
        """Close a gate."""
        gate = form.get("gate", "")
        policy = self.store.policies.close(gate, by=session.actor, reason=_reason(form), now=self.clock())
        self.announce()
        said = f"Gate {gate} is closed by policy {policy.version}: it ships nothing from now on."
        return Done(said, _page_of(gate))

    def rollback(self, session: Session, form: Mapping[str, str]) -> Done:
        """Go back to an older threshold."""
        gate, version = form.get("gate", ""), _number(form, "version")
        how = {"by": session.actor, "reason": _reason(form)}
        policy = self.store.policies.rollback(gate, version, **how, now=self.clock())
        self.announce()
        said = f"Gate {gate} has the threshold of policy {version} again, as policy {policy.version}."
        return Done(said, _page_of(gate))

    def mode(self, session: Session, form: Mapping[str, str]) -> Done:
        """Change between shadow and enforce."""
        gate, mode = form.get("gate", ""), form.get("mode", "")
        how = {"by": session.actor, "reason": _reason(form)}
        self.store.gates.revise(gate, {"mode": mode}, **how, now=self.clock())
        self.announce()
        said = "consumers obey it" if mode == "enforce" else "it decides, and consumers do not obey it"
        return Done(f"Gate {gate} has the mode {mode} from now on: {said}.", _page_of(gate))

    def recalibrate(self, session: Session, form: Mapping[str, str]) -> Done:
        """Have a run propose a threshold."""
        gate = form.get("gate", "")
        run = self.changes.recalibrate(gate, by=session.actor, reason=_reason(form))
        said = f"Gate {gate} was recalibrated: run {run} waits here." if run else "Nothing is proposed."
        return Done(said, "/proposals")

    def propose_budget(self, session: Session, form: Mapping[str, str]) -> Done:
        """Propose another budget."""
        gate, budget = form.get("gate", ""), percent_of(form.get("budget", ""))
        self.changes.propose_budget(gate, budget, by=session.actor, reason=_reason(form))
        self.announce()
        said = (
            f"A budget of {percent(budget)} is proposed for gate {gate}, and decided beside it from now on."
        )
        return Done(said, "/proposals")

    def adopt(self, session: Session, form: Mapping[str, str]) -> Done:
        """Put a candidate policy in force."""
        gate = form.get("gate", "")
        said = self.changes.adopt(gate, by=session.actor, reason=_reason(form, "approved"))
        self.announce()
        return Done(said, _page_of(gate))

    def stop_candidate(self, session: Session, form: Mapping[str, str]) -> Done:
        """Reject a candidate policy."""
        gate = form.get("gate", "")
        self.store.candidates.stop(gate, by=session.actor, reason=_reason(form))
        self.announce()
        said = f"Gate {gate} stays as it is; what was proposed is decided beside it no longer."
        return Done(said, "/proposals")

    def assign(self, session: Session, form: Mapping[str, str]) -> Done:
        """Say who looks after an incident."""
        incident = self.store.alerts.incident(form.get("alert", ""))
        self.store.alerts.assign(incident, form.get("assignee", ""), by=session.actor)
        return Done("", f"/incident?alert={quote(incident.first.alert.alert_id)}")

    def acknowledge(self, session: Session, form: Mapping[str, str]) -> Done:
        """Acknowledge the alerts of an incident."""
        said = [
            self.store.alerts.acknowledge(one, by=session.actor, reason=_reason(form)).alert.message
            for one in form.get("alert", "").split(",")
        ]
        return Done(f"Acknowledged: {' '.join(said)}", "/alerts")

    def release(self, session: Session, form: Mapping[str, str]) -> Done:
        """Release an answer that waits at the desk."""
        done = self.desk.release(form, by=session.actor)
        self.announce()
        return done

    def reject_at_desk(self, session: Session, form: Mapping[str, str]) -> Done:
        """Reject what waits at the desk."""
        done = self.desk.reject(form, by=session.actor)
        self.announce()
        return done

    def add_person(self, session: Session, form: Mapping[str, str]) -> Done:
        """Make an account."""
        name, accounts = form.get("name", ""), self.store.accounts
        if self.issuer is not None and "issued" in form:
            issuer = self.issuer.registration.issuer
            made = accounts.add_issued(name, roles=_roles(form), issuer=issuer, by=session.actor)
        else:
            made = accounts.add(name, roles=_roles(form), password=_password(form), by=session.actor)
        return Done(f"{made.name} may sign in now, as {', '.join(made.roles)}.", "/people")

    def change_roles(self, session: Session, form: Mapping[str, str]) -> Done:
        """Change somebody's roles."""
        name, roles = form.get("name", ""), _roles(form)
        made = self.store.accounts.set_roles(name, roles, by=session.actor, reason="other roles")
        self.access.end(made.name)
        return Done(f"{made.name} is {', '.join(made.roles)} from now on, and signs in again.", "/people")

    def set_password(self, session: Session, form: Mapping[str, str]) -> Done:
        """Change somebody's password."""
        made = self.store.accounts.set_password(form.get("name", ""), _password(form), by=session.actor)
        self.access.end(made.name)
        return Done(f"{made.name} has another password, and signs in again.", "/people")

    def close_account(self, session: Session, form: Mapping[str, str]) -> Done:
        """Close somebody's account."""
        made = self.store.accounts.close(form.get("name", ""), by=session.actor, reason="closed")
        self.access.end(made.name)
        return Done(f"{made.name} cannot sign in any more.", "/people")

    def own_password(self, session: Session, form: Mapping[str, str]) -> Done:
        """Change one's own password, given the present one."""
        if session.account is None:
            raise Refused(409, "you came by a link and have no password")
        if not self.doors.sign_in_again(session, form.get("present", "")):
            raise Refused(403, "that is not your present password")
        how = {"by": session.actor, "reason": "own password"}
        self.store.accounts.set_password(session.name, _password(form), **how)
        self.access.end(session.name)
        return Done("", "/login")


def _page_of(gate: str) -> str:
    return f"/gate/{quote(gate, safe='')}"


def _number(form: Mapping[str, str], name: str) -> int:
    text = form.get(name, "")
    if not text.isdecimal() or len(text) > 15:
        raise Refused(400, f"the form names no {name}")
    return int(text)


def _reason(form: Mapping[str, str], otherwise: str = "") -> str:
    reason = form.get("reason", "").strip() or otherwise
    if not reason:
        raise Refused(409, "say why: it goes on record")
    if (wrong := free_text.fault(reason, free_text.MOST_WHY)) is not None:
        raise Refused(409 if len(reason) > free_text.MOST_WHY else 400, f"the reason {wrong}")
    return " ".join(reason.split())


def _roles(form: Mapping[str, str]) -> list[str]:
    return [role for role in form.get("role", "").split("\n") if role]


def _password(form: Mapping[str, str]) -> str:
    if form.get("password", "") != form.get("again", ""):
        raise Refused(409, "the two passwords differ")
    return form.get("password", "")
