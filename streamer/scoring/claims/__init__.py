"""Claims of an answer: how it is cut, and how far the other answers support each. Pure."""
