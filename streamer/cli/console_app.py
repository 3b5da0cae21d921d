"""`streamer console`: gates, decisions, proposals, alerts and labelling in a browser; and who may use it."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import note, picked, print_json, print_list, say, tell, warn
from streamer.cli.services import UntilStdinClosesOption, begin, collected, stop_when_stdin_closes
from streamer.errors import UsageError
from streamer.security.accounts import LEAST_CHARACTERS, ROLES, Account
from streamer.wiring.console import OpenedConsole
from streamer.wording.numbers import when

if TYPE_CHECKING:
    from streamer.store.people.accounts import Accounts

PORT = 8471
"""Fixed, so that an open page finds the program again after a restart."""

app = typer.Typer()
users = typer.Typer(no_args_is_help=True, help="People who use the console: add, list and change them.")
app.add_typer(users, name="user")

_RoleOption = Annotated[
    list[str],
    opt.option("ROLE", f"What the person may do: {', '.join(ROLES)}; may be repeated.", ..., "--role"),
]
_NameArgument = Annotated[str, opt.argument("NAME", "The person's name.")]
_StdinOption = Annotated[
    bool, opt.flag("--password-stdin", "Read the password from standard input instead of asking for it.", ...)
]


@app.callback(invoke_without_command=True)
def console(
    context: typer.Context,
    as_: str | None = opt.option(
        "NAME",
        "Under which name whoever opens the printed link acts. Default: your login name.",
        None,
        "--as",
    ),
    port: int = opt.port("Port of the console", PORT),
    host: opt.HostOption = "127.0.0.1",
    public_url: str | None = opt.option(
        "URL", "Address by which people reach it through a proxy with TLS, like https://streamer.example."
    ),
    proxies: int | None = opt.option(
        "N",
        "How many proxies are in front, if nobody reaches the console but through them: the N-th address from the end of "
        "X-Forwarded-For is who guesses at passwords. Default: with --public-url one, on this machine.",
        min=0,
        max=16,
    ),
    oidc: str | None = opt.option(
        "ISSUER",
        "Have people sign in at this OpenID Connect issuer too; what else it takes are settings, STREAMER_OIDC_*.",
    ),
    until_stdin_closes: UntilStdinClosesOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Serve the console until Ctrl-C: gates, decisions, proposals, alerts and labelling in a browser.

    Until there are accounts it prints a link with a secret: anyone who has it can do everything. `streamer console user add`
    makes accounts; from then on people sign in, and each does what their roles allow.
    """
    if context.invoked_subcommand is not None:
        return
    settings = wiring.load_settings()
    if oidc is not None:
        settings = settings.model_copy(update={"oidc": settings.oidc.model_copy(update={"issuer": oidc})})
    begin(settings)
    if until_stdin_closes:
        stop_when_stdin_closes()

    def announce(opened: OpenedConsole) -> None:
        _print(opened, json=json or collected())

    try:
        wiring.run_console(
            settings,
            name=opt.who(as_, "--as"),
            host=host,
            port=port,
            public=public_url,
            proxies=proxies,
            announce=announce,
        )
    except KeyboardInterrupt:
        if not json:
            note("Stopped.")


@users.command("add")
def add(
    name: _NameArgument,
    role: _RoleOption,
    password_stdin: _StdinOption = False,
    oidc: bool = opt.flag(
        "--oidc",
        "The person signs in at the issuer of STREAMER_OIDC_ISSUER, under this name, and has no password here.",
    ),
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Make an account, or open a closed one again. It asks for the password twice."""
    settings = wiring.load_settings()
    issuer = settings.oidc.issuer
    if oidc and (issuer is None or password_stdin):
        raise UsageError(
            "say where people sign in with STREAMER_OIDC_ISSUER (or [oidc] in streamer.toml)"
            if issuer is None
            else "who signs in at the issuer has no password here: leave --password-stdin out"
        )
    with wiring.open_store(settings) as store:
        first = not store.accounts.any()
        if oidc and issuer is not None:
            account = store.accounts.add_issued(name, roles=role, issuer=issuer, by=by)
        else:
            account = store.accounts.add(name, roles=role, password=_password(password_stdin), by=by)
        people = store.accounts.list()
    tell(
        json,
        _account_json(account),
        f"{account.name} may sign in at the console, as {', '.join(account.roles)}.",
    )
    if json:
        return
    if first:
        note("From now on people sign in; links that were printed open nothing any more.")
    _note_nobody(people)


@users.command("list")
def list_(json: opt.JsonOption = False) -> None:
    """List everybody who has or had an account."""
    with wiring.record() as store:
        found = store.accounts.list()
    print_list(
        json,
        found,
        ["name", "roles", "signs in", "since", "by", "why"],
        lambda one: [
            one.name, "closed" if one.closed else ", ".join(one.roles), _where(one), when(one.created_at), one.created_by,
            one.reason,
        ],
        none="There is no account yet; `streamer console user add NAME --role administrator` makes one.",
        to_json=_account_json,
    )  # fmt: skip


@users.command("roles")
def roles(
    name: _NameArgument,
    role: _RoleOption,
    reason: opt.ReasonOption = "other roles",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Change a person's roles. Their sessions end."""
    _change(lambda accounts: accounts.set_roles(name, role, by=by, reason=reason), json)


@users.command("password")
def password(
    name: _NameArgument,
    password_stdin: _StdinOption = False,
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Give a person another password. Their sessions end."""
    _change(lambda accounts: accounts.set_password(name, _password(password_stdin), by=by), json)


@users.command("close")
def close(
    name: _NameArgument,
    reason: opt.ReasonOption = "closed",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Close an account: the person's sessions end, and they cannot sign in any more."""
    _change(lambda accounts: accounts.close(name, by=by, reason=reason), json)


def _password(stdin: bool) -> str:
    """Ask for a password twice, or read its line. It is never an argument, which others of this machine could read."""
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask for the password at; give it on standard input, with --password-stdin"
        )
    found: str = typer.prompt(
        f"Password ({LEAST_CHARACTERS} characters or more)",
        hide_input=True,
        confirmation_prompt=True,
        err=True,
    )
    return found


def _change(change: "Callable[[Accounts], Account]", json: bool) -> None:
    with wiring.record() as store:
        account, people = change(store.accounts), store.accounts.list()
    now = (
        "cannot sign in any more" if account.closed else f"is {', '.join(account.roles)}, and signs in again"
    )
    tell(json, _account_json(account), f"{account.name} {now}.")
    _note_nobody(people)


def _note_nobody(people: Sequence[Account]) -> None:
    if not any("administrator" in one.roles for one in people):
        note("Nobody is an administrator: `streamer console user add NAME --role administrator`.")


def _where(account: Account) -> str | None:
    if account.closed:
        return None
    return "with a password" if account.issued is None else f"at {account.issued.issuer}"


def _account_json(account: Account) -> dict[str, object]:
    return {
        **picked(account, "name roles"),
        "issuer": None if account.issued is None else account.issued.issuer,
        "revision": account.revision,
        "at": account.created_at,
        "by": account.created_by,
        "reason": account.reason,
    }


def _print(opened: OpenedConsole, *, json: bool) -> None:
    if opened.issuer_fault is not None:
        warn(
            f"Nobody can sign in at {opened.issuer} now: {opened.issuer_fault}. Whoever has a password here can, and each "
            "sign-in asks the issuer again."
        )
    if json:
        print_json(picked(opened, "url link issuer metrics"))
        sys.stdout.flush()
        return
    say(opened.link or opened.url)
    sys.stdout.flush()
    if opened.issuer is not None:
        note(
            f"People sign in at {opened.issuer}; it sends them back to {opened.url}oidc/callback. Press Ctrl-C to stop."
        )
    elif opened.link is None:
        note("People sign in with their accounts; press Ctrl-C to stop.")
    else:
        note(
            "Anyone with this link can do everything, until there are accounts (streamer console user add); press Ctrl-C to "
            "stop."
        )
