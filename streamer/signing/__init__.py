"""What signatures and commitments cover: policies, labels, and a gate's secrets. Pure values; `audit` has the keys."""
