"""How large anything in an event may be."""

from dataclasses import dataclass

RECORD_OVERHEAD_BYTES = 16 * 1024
"""Topics that carry inputs allow this much for what comes with a value: key, headers, the record batch."""

OUTPUT_HEADROOM_BYTES = 64 * 1024
"""Topics, producers and the relay that carry outputs allow this much more than one input may have, so that
a dead letter (the whole input and why it was refused) always fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what an event may hold; a message beyond one of them is refused, never cut.

    Raises `ValueError` when a bound makes no sense.

    Attributes
    ----------
    max_responses : most responses of one batch, >= 2.
    max_text_bytes : most bytes of UTF-8 in one response's text.
    max_value_bytes : most bytes in a record's value.
    max_identifier : most characters in a batch id, response id or labeller, 1..200.
    min_dimension, max_dimension : range of an embedding's dimension, >= 2.
    max_depth : most levels of arrays and objects, 5..500; the event itself is level 1.
    max_curve_bytes : most bytes of JSON in the curve of a threshold event's rule.
    """

    max_responses: int = 256
    max_text_bytes: int = 64 * 1024
    max_value_bytes: int = 1024 * 1024
    max_identifier: int = 200
    min_dimension: int = 2
    max_dimension: int = 4096
    max_depth: int = 64
    max_curve_bytes: int = 256 * 1024

    def __post_init__(self) -> None:
        for name, ok, want in (
            ("max_responses", self.max_responses >= 2, "at least 2"),
            ("max_text_bytes", self.max_text_bytes >= 1, "at least 1"),
            ("max_value_bytes", self.max_value_bytes >= 1024, "at least 1024"),
            ("max_identifier", 1 <= self.max_identifier <= 200, "in 1..200"),
            ("min_dimension", self.min_dimension >= 2, "at least 2"),
            ("max_dimension", self.max_dimension >= self.min_dimension, "at least min_dimension"),
            # The standard parser gives up near 1000 levels; the event's own parts need 5.
            ("max_depth", 5 <= self.max_depth <= 500, "in 5..500"),
            ("max_curve_bytes", self.max_curve_bytes >= 0, "0 or more"),
        ):
            if not ok:
                raise ValueError(f"{name} must be {want}, not {getattr(self, name)!r}")

    @property
    def max_input_bytes(self) -> int:
        """Most bytes (key, value and headers together) of a record that is read; of a larger one, an excerpt."""
        return self.max_value_bytes + RECORD_OVERHEAD_BYTES

    @property
    def max_output_bytes(self) -> int:
        """Most bytes (key, value and headers together) of a record that this product publishes."""
        return self.max_value_bytes + OUTPUT_HEADROOM_BYTES


DEFAULT_LIMITS = Limits()
"""The limits that the published JSON Schemas state."""
