"""What a tokenizer says of texts that a model does not read."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from streamer.scoring.unread_answers import CUT, UNREAD, mostly_unknown

SCRIPTS = {
    "Latin": "The capital of France is Paris.",
    "Greek": "Η πρωτεύουσα της Γαλλίας είναι το Παρίσι.",
    "Cyrillic": "Столица Франции — Париж.",
    "Armenian": "Ֆրանսիայի մայրաքաղաքը Փարիզն է։",
    "Georgian": "საფრანგეთის დედაქალაქია პარიზი.",
    "Hebrew": "בירת צרפת היא פריז.",
    "Arabic": "عاصمة فرنسا هي باريس.",
    "Ethiopic": "የፈረንሳይ ዋና ከተማ ፓሪስ ናት።",
    "Devanagari": "फ़्रांस की राजधानी पेरिस है।",
    "Bengali": "ফ্রান্সের রাজধানী প্যারিস।",
    "Gurmukhi": "ਫ਼ਰਾਂਸ ਦੀ ਰਾਜਧਾਨੀ ਪੈਰਿਸ ਹੈ।",
    "Gujarati": "ફ્રાન્સની રાજધાની પેરિસ છે.",
    "Tamil": "பிரான்சின் தலைநகரம் பாரிஸ்.",
    "Telugu": "ఫ్రాన్స్ రాజధాని పారిస్.",
    "Thai": "เมืองหลวงของฝรั่งเศสคือปารีส",
    "Burmese": "ပြင်သစ်နိုင်ငံ၏ မြို့တော်မှာ ပါရီ ဖြစ်သည်။",
    "Khmer": "រដ្ឋធានីនៃប្រទេសបារាំងគឺប៉ារីស។",
    "Chinese": "法国的首都是巴黎。",
    "Japanese": "猫は机の下で静かに眠っている。",
    "Korean": "프랑스의 수도는 파리입니다.",
}
"""One sentence in each of twenty scripts."""

_SPACE = "▁"
"""SentencePiece's token for what precedes a word; its span is the word's first character."""


def tokenized(
    tokenizer: Tokenizer, texts: Sequence[str], vectors: NDArray[np.float32], *, strict: bool
) -> dict[int, Encoding]:
    """Tokenize texts, and return the tokens of those that are read, by their places; the others get their rows.

    `tokenizer`: truncates where the model does. `vectors`: shape (len(texts), d); the row of a text
    that is not read is filled. `strict`: False: all count as read.
    """
    plain = [text if text.isascii() else unicodedata.normalize("NFC", text) for text in texts]
    names = (getattr(tokenizer.model, "unk_token", None), "[UNK]", "<unk>")
    word = next((one for name in names if name and (one := tokenizer.token_to_id(name)) is not None), None)
    unknown = {word, tokenizer.token_to_id(_SPACE)}
    read: dict[int, Encoding] = {}
    for place, (text, tokens) in enumerate(zip(plain, tokenizer.encode_batch(plain), strict=True)):
        known = [span for one, span in zip(tokens.ids, tokens.offsets, strict=True) if one not in unknown]
        if not strict:
            read[place] = tokens
        elif tokens.overflowing:
            vectors[place] = CUT
        elif (len(known) < len(tokens.ids) or not text.isascii()) and mostly_unknown(text, known):
            vectors[place] = UNREAD
        else:
            read[place] = tokens
    return read


def scripts_read(tokenizer: Tokenizer) -> dict[str, bool]:
    """Whether the tokens of a sentence in each of `SCRIPTS` are known."""
    rows = np.ones((len(SCRIPTS), 1), dtype=np.float32)
    read = tokenized(tokenizer, list(SCRIPTS.values()), rows, strict=True)
    return {script: place in read for place, script in enumerate(SCRIPTS)}


def reading_tokenizer(model: Any) -> Tokenizer | None:
    """A copy of a sentence-transformers model's tokenizer that truncates where the model does; None where it has no such one."""
    backend = getattr(getattr(model, "tokenizer", None), "backend_tokenizer", None)
    if backend is None:
        return None
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_padding()
    copy.no_truncation()
    if model.max_seq_length is not None:
        copy.enable_truncation(model.max_seq_length)
    return copy
