"""What travels over Kafka: one file per topic, its types and versions, and how a value is read and written.

`responses` and `labels` come in; `actions`, `thresholds` and `dead_letters` go out. `limits` says how large
anything may be, `codes` why a message is refused, `codec` how bytes become events and back.
"""
