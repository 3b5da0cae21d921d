"""PostgreSQL over TLS: the server proves who it is, we prove who we are, and a refusal says why."""

from collections.abc import Iterator

import pytest

from streamer.errors import Unavailable
from streamer.store import check, migrate
from tests.services.certificates import Authority
from tests.services.postgres_tls import PostgresTls, what_postgres_tls_needs
from tests.services.requirements import missing

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server(certificates: Authority) -> Iterator[PostgresTls]:
    if need := what_postgres_tls_needs():
        missing(*need)
    found = PostgresTls(certificates)
    yield found
    found.stop()


def test_the_record_is_kept_over_a_verified_connection(server: PostgresTls, certificates: Authority) -> None:
    url = server.url(sslmode="verify-full", sslrootcert=str(certificates.certificate))
    assert migrate(url).current
    assert check(url) is None


def test_a_client_certificate_stands_beside_the_password(
    server: PostgresTls, certificates: Authority, strangers: Authority
) -> None:
    verified = {"sslmode": "verify-full", "sslrootcert": str(certificates.certificate)}
    own, forged = certificates.sign("carl"), strangers.sign("carl")
    migrate(server.url("carl", **verified, sslcert=str(own.certificate), sslkey=str(own.key)))
    with pytest.raises(Unavailable, match="certificate"):
        migrate(server.url("carl", **verified))
    with pytest.raises(Unavailable, match=r"unknown ca|certificate"):
        migrate(server.url("carl", **verified, sslcert=str(forged.certificate), sslkey=str(forged.key)))


def test_a_refusal_says_what_is_wrong_and_no_password(
    server: PostgresTls, certificates: Authority, strangers: Authority
) -> None:
    trusted = str(certificates.certificate)
    for url, complaint in (
        (
            server.url(sslmode="verify-full", sslrootcert=str(strangers.certificate)),
            "certificate verify failed",
        ),
        (
            server.url(sslmode="verify-full", sslrootcert=trusted, host="localhost"),
            'does not match host name "localhost"',
        ),
        (
            server.url(sslmode="verify-full", sslrootcert=trusted, password="hunter2"),
            'password authentication failed for user "ana"',
        ),
        (server.url(sslmode="disable"), "no encryption"),
        (server.url(sslmode="verify-full", sslrootcert="/no/such.pem"), "/no/such.pem.* does not exist"),
    ):
        with pytest.raises(Unavailable, match=complaint) as caught:
            check(url)
        assert "hunter2" not in str(caught.value)
        assert "ana-secret" not in str(caught.value)
