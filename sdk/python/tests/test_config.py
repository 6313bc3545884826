"""The search for the address, the token and the certificates."""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import troupe
from troupe._config import find, is_this_machine


class ConfigTest(unittest.TestCase):
    """Each test has an environment and a home of its own."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.home = Path(directory.name)
        environment = mock.patch.dict(os.environ, {"HOME": str(self.home)}, clear=True)
        environment.start()
        self.addCleanup(environment.stop)

    def write(self, path: str, text: str) -> Path:
        """Writes a file below the home."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def test_address_of_argument_then_environment_then_default(self) -> None:
        self.assertEqual(find(None, None).address, "127.0.0.1:50052")
        os.environ["TROUPE_SUPERVISOR_URL"] = "http://localhost:7"
        self.assertEqual(find(None, None).address, "localhost:7")
        self.assertEqual(find("127.0.0.1:8", None).address, "127.0.0.1:8")
        self.assertEqual(find("http://[::1]:9", None).address, "[::1]:9")
        self.assertEqual(find("https://troupe.example.com", None).address, "troupe.example.com:443")
        for text in ("ftp://host:1", "http://", "http://host:port", "http://[::1"):
            with self.assertRaises(troupe.ConfigError):
                find(text, None)

    def test_context_names_server(self) -> None:
        token = self.write("prod-token", "of-the-context")
        self.write(
            ".config/troupe/config.yaml",
            f"current: prod\ncontexts:\n  prod:\n    supervisor: http://10.0.0.1:7\n    token_file: {token}\n"
            "  local:\n    supervisor: http://127.0.0.1:8\n    registry: http://127.0.0.1:9\n",
        )
        found = find(None, None)
        self.assertEqual((found.address, found.token.expose()), ("10.0.0.1:7", "of-the-context"))
        self.assertEqual(find(None, "given").token.expose(), "given")
        self.assertEqual(find(None, None, context="local").address, "127.0.0.1:8")
        os.environ["TROUPE_CONTEXT"] = "local"
        self.assertEqual(find(None, None).address, "127.0.0.1:8")
        named = find("http://10.0.0.2:1", None, context="prod")
        self.assertEqual((named.address, named.token.expose()), ("10.0.0.2:1", "of-the-context"))
        del os.environ["TROUPE_CONTEXT"]
        # The token of the context does not belong to another server.
        other = find("http://10.0.0.2:1", None)
        self.assertEqual((other.address, other.token.expose()), ("10.0.0.2:1", ""))
        with self.assertRaisesRegex(troupe.ConfigError, 'unknown context "staging"'):
            find(None, None, context="staging")
        for text in ("contexts: [", "- a list", "contexts: 5\ncurrent: prod"):
            self.write(".config/troupe/config.yaml", text)
            with self.assertRaises(troupe.ConfigError):
                find(None, None, context="prod")
        self.write(".config/troupe/config.yaml", "")
        self.assertEqual(find(None, None).address, "127.0.0.1:50052")

    def test_running_services_are_found(self) -> None:
        state = self.write(".local/share/troupe/up.json", f'{{"pid": {os.getpid()}, "supervisor": "127.0.0.1:7"}}')
        self.assertEqual(find(None, None).address, "127.0.0.1:7")
        self.assertEqual(find("127.0.0.1:8", None).address, "127.0.0.1:8")
        for text in ('{"pid": 4194304, "supervisor": "127.0.0.1:7"}', '{"pid": 1}', "[]", "x"):
            state.write_text(text)
            self.assertEqual(find(None, None).address, "127.0.0.1:50052", text)
        state.write_text(f'{{"pid": {os.getpid()}, "supervisor": "10.0.0.1:7"}}')
        self.assertEqual(find(None, None).address, "127.0.0.1:50052")

    def test_token_of_argument_then_environment_then_file_then_data(self) -> None:
        self.assertEqual(find(None, None).token.expose(), "")
        self.write(".local/share/troupe/operator.token", "of-the-data\n")
        found = find(None, None).token
        self.assertEqual((found.expose(), found.is_found), ("of-the-data", True))
        self.assertEqual(find("http://10.0.0.1:1", None).token.expose(), "")
        os.environ["TROUPE_DATA_DIR"] = str(self.write("data/operator.token", "of-the-directory").parent)
        self.assertEqual(find("http://10.0.0.1:1", None).token.expose(), "of-the-directory")
        os.environ["TROUPE_TOKEN_FILE"] = str(self.write("token", "\n of-the-file\nanother\n"))
        self.assertEqual(find(None, None).token.expose(), "of-the-file")
        os.environ["TROUPE_TOKEN"] = "of-the-environment"
        self.assertEqual(find(None, None).token.expose(), "of-the-environment")
        given = find(None, "given").token
        self.assertEqual((given.expose(), given.is_found), ("given", False))

    def test_invalid_token_is_not_shown(self) -> None:
        with self.assertRaises(troupe.ConfigError) as raised:
            find(None, "two s3crets")
        self.assertNotIn("s3crets", str(raised.exception))
        self.assertNotIn("s3cret", repr(find(None, "s3cret")))
        with self.assertRaises(troupe.ConfigError):
            find(None, None, token_file=self.home / "none")

    def test_certificates_need_tls(self) -> None:
        ca = self.write("ca.pem", "")
        self.assertIsNotNone(find("troupe.example.com:1", None, ca=ca).credentials)
        self.assertIsNone(find("http://127.0.0.1:1", None, ca=ca).credentials)
        with self.assertRaises(troupe.ConfigError):
            find("http://troupe.example.com:1", None, ca=ca)
        with self.assertRaises(troupe.ConfigError):
            find("https://troupe.example.com:1", None, client_cert=ca)
        with self.assertRaises(troupe.ConfigError):
            find("https://troupe.example.com:1", None, ca=self.home / "none")

    def test_loopback_hosts(self) -> None:
        for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3", "::ffff:127.0.0.1"):
            self.assertTrue(is_this_machine(host), host)
        for host in ("10.0.0.1", "localhost.example.com", "0.0.0.0", ""):
            self.assertFalse(is_this_machine(host), host)
