"""What a gate and a policy are, and how a policy decides one batch. Pure."""
