"""The address and the token of the supervisor, found as the `troupe` command finds them.

Each value comes from the first of its sources that has one:

- Address: the argument, `TROUPE_SUPERVISOR_URL`, the context, the services that `troupe up` runs on the data directory,
  `http://127.0.0.1:50052`.
- Token: the argument, `TROUPE_TOKEN`, the token file, `operator.token` in the data directory. The argument,
  `TROUPE_TOKEN_FILE` or the context names the token file. A token from the default data directory is sent to this
  machine only.
- Certificates: the arguments, `TROUPE_CA`, `TROUPE_CLIENT_CERT` and `TROUPE_CLIENT_KEY`, the context.
- Context: the argument, `TROUPE_CONTEXT`, the current context in `~/.config/troupe/config.yaml`.

An address from the argument or from `TROUPE_SUPERVISOR_URL` selects another server. No context applies then, unless the
argument or `TROUPE_CONTEXT` names one.
"""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import grpc
import yaml

from .errors import ConfigError

DEFAULT_ADDRESS = "http://127.0.0.1:50052"
TOKEN_FILE = "operator.token"
# The state of `troupe up` in the data directory.
STATE_FILE = "up.json"


class Token:
    """A token and its source. The representation does not reveal the token."""

    def __init__(self, text: str = "", *, path: Path | None = None, is_found: bool = False) -> None:
        self._text = text
        self._path = path
        self._version: tuple[int, int] | None = None
        # Whether the token comes from the data directory and not from the caller. Such a token may belong to another
        # service.
        self.is_found = is_found
        if path is not None:
            self._load(path)

    def expose(self) -> str:
        """Returns the token, or an empty text if there is no token. Reads a token file again after a change."""
        if self._path is not None:
            try:
                self._load(self._path)
            except ConfigError:
                # The file may be incomplete because it is being replaced. Use the last token for this call.
                pass
        return self._text

    def _load(self, path: Path) -> None:
        try:
            found = path.stat()
            version = (found.st_mtime_ns, found.st_ino)
            if version == self._version:
                return
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the token file {path}: {error}") from error
        first = next((line.strip() for line in lines if line.strip()), "")
        if not first:
            raise ConfigError(f"there is no token in {path}")
        self._text, self._version = checked(first), version

    def __repr__(self) -> str:
        return "Token(…)"


@dataclass(frozen=True)
class Target:
    """The supervisor to connect to."""

    # The address for gRPC: `host:port`.
    address: str
    # None: plaintext.
    credentials: grpc.ChannelCredentials | None
    token: Token


def find(
    address: str | None,
    token: str | None,
    *,
    context: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    client_cert: str | os.PathLike[str] | None = None,
    client_key: str | os.PathLike[str] | None = None,
) -> Target:
    """Returns the target of these arguments and of the environment."""
    named = context or _variable("TROUPE_CONTEXT")
    given = (address or _variable("TROUPE_SUPERVISOR_URL") or "").strip()
    server = {} if given and not named else _context(named)
    text = given or server.get("supervisor") or _running(data_dir) or DEFAULT_ADDRESS
    ca = ca or _variable("TROUPE_CA") or server.get("ca")
    client_cert = client_cert or _variable("TROUPE_CLIENT_CERT")
    client_key = client_key or _variable("TROUPE_CLIENT_KEY")
    if not client_cert and not client_key:
        client_cert, client_key = server.get("client_cert"), server.get("client_key")
    files = tuple(Path(path) if path else None for path in (ca, client_cert, client_key))
    token_file = token_file or _variable("TROUPE_TOKEN_FILE") or server.get("token_file")
    if "://" not in text:
        text = ("https://" if any(files) else "http://") + text
    scheme, host, port = _parts(text)
    if any(files) and scheme == "http" and not is_this_machine(host):
        raise ConfigError(f'certificates are given, but "{text}" does not use TLS; use a URL that begins with https')
    credentials = _credentials(*files) if scheme == "https" else None
    default_port = 443 if credentials else 80
    bracketed = f"[{host}]" if ":" in host else host
    return Target(
        address=f"{bracketed}:{port or default_port}",
        credentials=credentials,
        token=_token(host, token, token_file, data_dir),
    )


def is_this_machine(host: str) -> bool:
    """Returns whether a host is a loopback address or `localhost`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def checked(token: str) -> str:
    """Returns the token if a header can carry it."""
    if not all("!" <= letter <= "~" for letter in token):
        raise ConfigError("the token has characters that cannot be sent; use visible ASCII characters only")
    return token


def _context(name: str | None) -> dict[str, str]:
    """Returns the settings of the context with this name. Without a name, returns those of the current context."""
    base = Path(_variable("XDG_CONFIG_HOME") or "")
    if not base.is_absolute():
        base = Path(_variable("HOME") or "") / ".config"
    path = base / "troupe" / "config.yaml"
    config: dict[str, Any] = {}
    if path.is_absolute() and path.exists():
        try:
            config = _mapping(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot read the contexts in {path}: {error}") from error
    name = name or str(config.get("current") or "")
    if not name:
        return {}
    server = _mapping(_mapping(config.get("contexts")).get(name))
    if not server:
        raise ConfigError(f'unknown context "{name}"; `troupe context list` lists the contexts')
    return {key: str(value) for key, value in server.items() if value is not None}


def _mapping(value: object) -> dict[str, Any]:
    """Returns the value if it is a mapping, and otherwise an empty mapping."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _running(data_dir: str | os.PathLike[str] | None) -> str:
    """Returns the address of the supervisor that `troupe up` runs on the data directory. Empty if none runs."""
    directory = data_dir or _variable("TROUPE_DATA_DIR") or _default_data_dir()
    if directory is None:
        return ""
    try:
        state = json.loads((Path(directory) / STATE_FILE).read_text(encoding="utf-8"))
        # A killed process leaves its file behind, so check that the process exists.
        os.kill(state["pid"], 0)
        address = str(state["supervisor"])
    except (OSError, OverflowError, ValueError, TypeError, KeyError):
        return ""
    return f"http://{address}" if is_this_machine(_parts(f"http://{address}")[1]) else ""


def _parts(text: str) -> tuple[str, str, int | None]:
    """Returns scheme, host and port of a URL."""
    try:
        url = urlsplit(text)
        if url.scheme in ("http", "https") and url.hostname:
            return url.scheme, url.hostname, url.port
    except ValueError:
        pass
    raise ConfigError(f'invalid address of the supervisor: "{text}"; expected a URL like {DEFAULT_ADDRESS}')


def _token(
    host: str, given: str | None, file: str | os.PathLike[str] | None, data_dir: str | os.PathLike[str] | None
) -> Token:
    text = (given or _variable("TROUPE_TOKEN") or "").strip()
    if text:
        return Token(checked(text))
    if file:
        return Token(path=Path(file))
    directory = data_dir or _variable("TROUPE_DATA_DIR")
    if not directory:
        if not is_this_machine(host):
            return Token()
        directory = _default_data_dir()
        if directory is None:
            return Token()
    path = Path(directory) / TOKEN_FILE
    if not path.exists() or not path.read_text(encoding="utf-8").strip():
        return Token()
    return Token(path=path, is_found=True)


def _default_data_dir() -> Path | None:
    base = Path(_variable("XDG_DATA_HOME") or "")
    if not base.is_absolute():
        home = Path(_variable("HOME") or "")
        if not home.is_absolute():
            return None
        base = home / ".local" / "share"
    return base / "troupe"


def _credentials(ca: Path | None, certificate: Path | None, key: Path | None) -> grpc.ChannelCredentials:
    if (certificate is None) != (key is None):
        raise ConfigError("a client certificate needs its key, and a key its certificate")
    try:
        roots, chain, private = (None if path is None else path.read_bytes() for path in (ca, certificate, key))
    except OSError as error:
        raise ConfigError(f"cannot read a certificate: {error}") from error
    return grpc.ssl_channel_credentials(root_certificates=roots, private_key=private, certificate_chain=chain)


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None
