"""Claims of an answer: how it is cut into them, and how far the other answers support each. Pure."""
