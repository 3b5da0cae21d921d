"""Whether texts share a pass is found out at start: where a row depends on how many there are, each text has its own."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from streamer.scoring.encoders import ctranslate2_encoder
from streamer.scoring.encoders.ctranslate2_encoder import CTranslate2Encoder
from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.scoring.encoders.plain_bert import PlainBert


class Tokenizer:
    model = SimpleNamespace(unk_token="[UNK]")

    def token_to_id(self, _token: str) -> int:
        return 0

    def encode(self, text: str) -> Any:
        ids = [1, *(len(word) for word in text.split()), 2]
        return SimpleNamespace(ids=ids, offsets=[(0, 1)] * len(ids), overflowing=[])

    def encode_batch(self, texts: Sequence[str]) -> list[Any]:
        return [self.encode(text) for text in texts]


class Model:
    """Its rows change from so many in a pass on."""

    def __init__(self, other_from: int) -> None:
        self._other_from = other_from
        self.passes: list[int] = []

    def forward_batch(self, tokens: Sequence[Sequence[int]]) -> Any:
        self.passes.append(len(tokens))
        hidden = np.array(tokens, dtype=np.float32)[:, :, np.newaxis] * np.array([1, 2, 3], dtype=np.float32)
        if len(tokens) >= self._other_from:
            hidden[:, :, 0] += np.float32(1e-4)
        return SimpleNamespace(last_hidden_state=hidden)


@pytest.mark.parametrize(
    ("other_from", "shared"),
    [(10_000, True), (20, False), (500, False)],
    ids=["never", "twenty", "full pass"],
)
def test_texts_share_passes_only_where_no_row_changes(
    monkeypatch: pytest.MonkeyPatch, other_from: int, shared: bool
) -> None:
    model = Model(other_from)
    monkeypatch.setattr(ctranslate2_encoder, "load_tokenizer", lambda _: Tokenizer())
    monkeypatch.setattr(ctranslate2_encoder, "load_model", lambda *_, **__: model)
    monkeypatch.setattr(ctranslate2_encoder, "_tokens_of_a_pass", {})
    identity = EncoderIdentity("stub", "local", "0" * 64, 3, "ctranslate2")
    encoder = CTranslate2Encoder(cast("PlainBert", None), identity, threads=1)
    tried = len(model.passes)
    again = CTranslate2Encoder(cast("PlainBert", None), identity, threads=1)
    assert len(model.passes) - tried == 8, "one for each length: what was found out once is known"
    text = " ".join(["word"] * 14)
    for one in (encoder, again):
        model.passes.clear()
        rows = one.encode([text] * 40)
        one.close()
        assert len(model.passes) == (1 if shared else 40)
        assert len({row.tobytes() for row in rows}) == 1
