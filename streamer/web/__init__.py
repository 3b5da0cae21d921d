"""What every server of web pages and requests here needs: where it listens, which hosts it answers to, how it runs."""
