"""The revisions, in the order of their names. One that was released is never changed."""
