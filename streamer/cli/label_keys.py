"""`streamer label keygen`: a key pair for one labeller."""

from pathlib import Path
from typing import Annotated

import typer

from streamer import wiring
from streamer.cli.console import say
from streamer.cli.key_files import write_key_files
from streamer.errors import UsageError
from streamer.gates import labeller_names


def keygen(
    labeller: Annotated[
        str, typer.Argument(metavar="WHO", help="The labeller's name; the key signs only for this one.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="New file for the private key; FILE.pub gets the public one.")
    ],
) -> None:
    """Make a key pair with which one labeller signs labels, for gates that demand it (--signed-labels).

    Keep the private key only where this labeller's labels are made. Put the public keys of all labellers, one after the
    other, into one file for everything that reads labels.
    """
    from streamer.audit.signing import generate_keys

    name = labeller_names.normalised(labeller)
    if (wrong := labeller_names.fault(name)) is not None:
        raise UsageError(f"the name of a labeller {wrong}")
    private, public = generate_keys()
    beside = write_key_files(out, wiring.key_block(name, private), wiring.key_block(name, public))
    say(f"{out}: the private key of {name}. STREAMER_LABELS_PRIVATE_KEYS_FILE, where {name} labels.")
    say(
        f"{beside}: the public key. Append it to the file named by STREAMER_LABELS_PUBLIC_KEYS_FILE, wherever labels are read:"
        " recalibrator, review page, commands."
    )
