"""Keys of labellers as files and settings, and the commands that use them."""

from pathlib import Path

import pytest

from streamer import cli, wiring
from streamer.errors import UsageError
from streamer.labels.signing import LabelKeys
from streamer.settings.settings import load_settings
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_cli import database, empty_directory, objects  # noqa: F401 - fixtures


def read(private: str | None, public: str | None) -> LabelKeys:
    return wiring.label_keys(load_settings(labels={"private_keys": private, "public_keys": public}))


@pytest.mark.usefixtures("database")
def test_keys_are_read_as_they_are_written(run: Run):
    for name, file in (("ann", "ann.pem"), (" Ben  Lee", "ben.pem"), ("ann", "new.pem")):
        assert run("label", "keygen", name, "--out", file)[0] == 0
    assert Path("ann.pem").stat().st_mode & 0o077 == 0
    status, _, err = run("label", "keygen", "ann", "--out", "ann.pem")
    assert (status, "ann.pem" in err) == (cli.WRONG_USAGE, True)
    assert run("label", "keygen", "a\u200bnn", "--out", "x.pem")[0] == cli.WRONG_USAGE
    ann, ben, new = (Path(f"{name}.pem").read_text() for name in ("ann", "ben", "new"))
    ann_pub, ben_pub, new_pub = (Path(f"{name}.pem.pub").read_text() for name in ("ann", "ben", "new"))
    keys = read(ann + ben, ann_pub + ben_pub + new_pub)
    assert keys.signs_for == keys.signs_well_for == keys.trusted_labellers == {"ann", "Ben Lee"}
    assert read(ann, None).signs_well_for == {"ann"}
    assert read(None, ann_pub.replace("\n", "\r\n")).trusted_labellers == {"ann"}
    assert read(None, None).trusted_labellers == frozenset()
    for private, public, wrong in (
        (ann, ben_pub, "lacks the key that labels.private_keys has for ann"),
        (ann + new, None, "a labeller has two private keys"),
        (None, ann_pub.partition("\n")[2], "each key is a line"),
        (None, "labeller: ann\nnothing\n", "each key is a line"),
        (None, ann_pub.replace("ann", "a\u202enn"), "the name of a labeller has an invisible character"),
        (None, ann_pub + ann_pub.replace("ann", "ben"), "one key cannot sign for two labellers"),
        (ann_pub, None, "the signing key is not an unencrypted private key"),
        (None, ann, "labels.public_keys"),
    ):
        with pytest.raises(UsageError, match=wrong) as error:
            read(private, public)
        assert "PRIVATE KEY-----\nM" not in str(error.value)


@pytest.mark.usefixtures("database")
def test_a_gate_that_names_its_labellers(run: Run, monkeypatch: pytest.MonkeyPatch):
    run("label", "keygen", "ann", "--out", "ann.pem")
    status, _, err = run("gate", "create", "x", "--labellers", "a\u200bnn")
    assert (status, "--labellers" in err) == (cli.WRONG_USAGE, True)
    for names, wrong in (
        ("a,,b", "an empty name"),
        ("a,", "an empty name"),
        (" ", "an empty name"),
        ("a,b,a", "'a' twice"),
        ("ann, \uff41nn", "'ann' twice"),
    ):
        status, _, err = run("gate", "create", "x", "--labellers", names)
        assert (status, "--labellers" in err, wrong in err) == (cli.WRONG_USAGE, True, True)
    assert run("gate", "create", "x", "--labellers", "ben, \uff41nn", "--signed-labels")[0] == 0
    (gate,) = objects(run("gate", "show", "x", "--json")[1])
    assert (gate["labellers"], gate["signed_labels"]) == (["ann", "ben"], True)
    Path("l.csv").write_text(
        "gate,batch_id,response_id,severity,kind,labeller\nx,b,a,0,human,ann\nx,b,b,0,human,eve\n"
    )
    _, _, err = run("label", "import", "l.csv")
    assert (
        "2 labels are not read: 1 by labellers that the gate does not read, 1 without a signature that a key here verifies"
        in " ".join(err.split())
    )
    status, _, err = run("label", "import", "l.csv", "--sign")
    assert (status, "no private key of 'ann', 'eve' here" in " ".join(err.split())) == (cli.WRONG_USAGE, True)
    monkeypatch.setenv("STREAMER_LABELS_PRIVATE_KEYS_FILE", "ann.pem")
    Path("l.csv").write_text("gate,batch_id,response_id,severity,kind,labeller\nx,b,a,0,human,ann\n")
    status, out, _ = run("label", "import", "l.csv", "--sign", "--json")
    (said,) = objects(out)
    assert (status, said["signed"], said["unread"]) == (0, 1, {})
    assert "not read" in " ".join(run("threshold", "show", "x")[1].split())
    out = " ".join(run("doctor")[1].split())
    assert "no public key of ben is configured here" in out
    status, _, err = run("label", "lexical", "--gate", "x")
    assert status == cli.WRONG_USAGE
    # More labels are read: a gate that was never calibrated stays closed, and the restriction is gone.
    run("gate", "set", "x", "--labellers", "none", "--no-signed-labels")
    (gate,) = objects(run("gate", "show", "x", "--json")[1])
    assert (gate["labellers"], gate["signed_labels"], gate["unread_labels"]) == (None, False, None)
