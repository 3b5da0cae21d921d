"""Whether Citus could distribute the tables by batch, by its documented rules, and what stands in its way."""

from streamer.store.db.schema import metadata

COLUMN = (
    {"batches": "id"}
    | dict.fromkeys(
        ("responses", "decisions", "carried_scores", "carried_signals", "candidate_decisions"), "batch"
    )
    | dict.fromkeys(("desk_items", "review_offers", "review_claims"), "batch")
)
"""What each distributed table would be distributed by; all others would be copied to every node, as reference tables."""


def obstacles() -> set[str]:
    """Keys without the column of distribution, and references that it does not hold together."""
    found = set()
    for name, table in metadata.tables.items():
        column = COLUMN.get(name)
        if column is not None:
            keys = [tuple(table.primary_key.columns.keys())]
            keys += [tuple(index.columns.keys()) for index in table.indexes if index.unique]
            keys += [
                tuple(one.columns.keys())
                for one in table.constraints
                if one.__visit_name__ == "unique_constraint" and one._ddl_if is None
            ]
            found |= {f"{name} ({', '.join(key)})" for key in keys if column not in key}
        for reference in table.foreign_key_constraints:
            other = COLUMN.get(reference.referred_table.name)
            pairs = {(one.parent.name, one.column.name) for one in reference.elements}
            if other is not None and (column is None or (column, other) not in pairs):
                found.add(f"{name} -> {reference.referred_table.name}")
    return found


def test_what_stands_in_the_way_is_what_the_page_says() -> None:
    assert obstacles() == {
        "batches (gate, batch_id, attempt)", "review_offers (token)",
        "calibration_inputs -> batches", "candidate_prompts -> batches", "desk_outcomes -> batches",
        "outcomes -> batches", "pending_messages -> batches",
    }  # fmt: skip
