"""The story as lines: what was done, and when."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Moment:
    """Something that happened; `mark` is short enough for a picture."""

    at: float
    text: str
    mark: str


@dataclass
class Timeline:
    """Moments in Unix seconds, from `began` on."""

    began: float = field(default_factory=time.time)
    moments: list[Moment] = field(default_factory=list)

    def tell(self, text: str, *, mark: str = "", at: float | None = None) -> None:
        moment = Moment(time.time() if at is None else at, text, mark)
        self.moments.append(moment)
        print(f"{moment.at - self.began:6.1f} s  {text}", flush=True)
