"""`streamer review`: a page on this machine where people give severities to what the audit sample drew.

`items` has the values and the port that a store has to be for it; an implementation imports only that file.
"""
