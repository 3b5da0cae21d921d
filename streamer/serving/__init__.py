"""The gate as an HTTP service: requests become records of a log of their own, and are decided as a worker decides."""
