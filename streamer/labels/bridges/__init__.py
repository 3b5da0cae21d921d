"""The label queue in the JSON of labelling tools, and their exports as labels: one file a tool."""
