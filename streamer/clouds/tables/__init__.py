"""Tables of answers: CSV, JSON Lines and Parquet in, response clouds out."""
