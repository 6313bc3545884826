"""Tests against the pair of the TROUPE_ variables: `python -m tests`."""
