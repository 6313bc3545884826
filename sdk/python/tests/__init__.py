"""Tests against the real services. TROUPE_BIN names the directory of their binaries."""
