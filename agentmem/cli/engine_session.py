"""`agentmem engine session`: look at, drop, export and import sessions of a running server."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import unicodedata
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from agentmem.errors import DataError, EngineError, UsageError

HELP = """\
Sessions of a running `agentmem serve`. Exported files lie in the folder that the server was started
with (--session-dir); a copy may be imported any number of times, a moved session has one owner: the
engine that imports it, and the old one answers 409 from then on.

examples:
  agentmem engine session list
  agentmem engine session export notes notes.session
  agentmem engine session export notes notes.session --move
  agentmem engine session import notes.session --url http://127.0.0.1:8001
"""
ANSWER_S = 300.0


def add(actions: Any) -> None:
    """Register the action."""
    cmd = actions.add_parser(
        "session",
        help="list, drop, export and import sessions of a running server",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = cmd.add_subparsers(dest="what", metavar="WHAT", required=True)
    _common(what.add_parser("list", help="what is kept, the one used last first"))
    drop = what.add_parser("drop", help="forget a session and free what only it holds")
    drop.add_argument("session", metavar="ID")
    _common(drop)
    export = what.add_parser("export", help="write a session's file")
    export.add_argument("session", metavar="ID")
    export.add_argument("file", metavar="FILE", help="name in the server's session folder")
    export.add_argument("--move", action="store_true", help="whoever imports it owns the session")
    _common(export)
    import_ = what.add_parser("import", help="take in a session's file")
    import_.add_argument("file", metavar="FILE", help="name in the server's session folder")
    import_.add_argument("--as", dest="session", metavar="ID", help="under another id")
    _common(import_)


def _common(cmd: argparse.ArgumentParser) -> None:
    cmd.add_argument("--url", default="http://127.0.0.1:8000", help="the server")
    cmd.add_argument("--api-key", help="or variable AGENTMEM_API_KEY")
    cmd.add_argument("--cache-salt", metavar="SALT", help="the tenant, where it is not the key")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the action."""
    if getattr(args, "session", None) == "":
        raise UsageError("an empty session id names no session")
    what = {"list": _list, "drop": _drop, "export": _export, "import": _import}[args.what]
    try:
        what(args)
    except (KeyError, TypeError):  # JSON, but not of this kind
        raise UsageError(f"{args.url} does not answer as an engine of agentmem") from None
    return 0


def _list(args: argparse.Namespace) -> None:
    rows = _ask(args, "GET", "/v1/sessions")["data"]
    print(f"{'requests':>9} {'computed':>9} {'cached':>9} {'MB held':>9} {'MB own':>9}  session")
    for row in rows:
        tokens = f"{row['requests']:>9} {row['computed_tokens']:>9} {row['cached_tokens']:>9}"
        sizes = f"{row['bytes_held'] / 1e6:>9.2f} {row['bytes_unique'] / 1e6:>9.2f}"
        print(f"{tokens} {sizes}  {row['id']}")


def _drop(args: argparse.Namespace) -> None:
    told = _ask(args, "DELETE", f"/v1/sessions/{_quoted(args.session)}")
    print(f"dropped {told['id']}: {told['freed_bytes'] / 1e6:.2f} MB free")


def _export(args: argparse.Namespace) -> None:
    body = {"path": args.file, "move": args.move}
    told = _ask(args, "POST", f"/v1/sessions/{_quoted(args.session)}/export", body)
    how = "offered to whoever imports it first" if told["moved"] else "copied"
    print(f"{told['id']}: {told['tokens']} tokens, {told['bytes'] / 1e6:.2f} MB, {how}")
    print(told["path"])


def _import(args: argparse.Namespace) -> None:
    body = {"path": args.file} | ({"session_id": args.session} if args.session else {})
    told = _ask(args, "POST", "/v1/sessions/import", body)
    whose = f", owner number {told['epoch']}" if told["moved"] else ""
    print(f"{told['id']}: {told['tokens']} tokens, {told['bytes'] / 1e6:.2f} MB{whose}")


def _ask(args: argparse.Namespace, method: str, path: str, body: Any = None) -> Any:
    """The server's reply; DataError or EngineError with its reason."""
    url = args.url.rstrip("/").removesuffix("/v1") + path
    key = args.api_key or os.environ.get("AGENTMEM_API_KEY")
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = _header("--api-key", f"Bearer {key}")
    if args.cache_salt:
        headers["X-Cache-Salt"] = _header("--cache-salt", args.cache_salt)
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as err:
        raise _refused(err) from None
    except urllib.error.URLError as err:
        raise EngineError(
            f"cannot reach {args.url}: {err.reason}; is `agentmem serve` up?"
        ) from None
    except (ValueError, OSError, http.client.HTTPException) as err:
        raise UsageError(f"{args.url} does not answer as an engine: {err}") from None


def _refused(err: urllib.error.HTTPError) -> DataError | EngineError:
    try:
        error = json.load(err)["error"]
        reason = f"{error['message']} ({err.code})"
    except (ValueError, KeyError, TypeError):
        reason = f"the server answered {err.code}"
    return DataError(reason) if err.code in (404, 409) else EngineError(reason)


def _header(option: str, value: str) -> str:
    """The value such that it is sent as UTF-8; UsageError for what no header can hold."""
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in value):
        raise UsageError(f"{option} has control characters, which no request can carry")
    return value.encode().decode("latin-1")


def _quoted(session_id: str) -> str:
    return urllib.parse.quote(session_id, safe="")
