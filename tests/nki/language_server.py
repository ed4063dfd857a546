"""A client of a language server, as much of it as an editor needs to complete and explain."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class LanguageServer:
    """A running server and one open document, over the Language Server Protocol (JSON-RPC)."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._number = 0
        self._version = 0
        self._address = (folder / "opened.py").as_uri()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        able = {"hover": {"contentFormat": ["plaintext"]}, "publishDiagnostics": {}}
        self.ask(
            "initialize",
            processId=None,
            rootUri=folder.as_uri(),
            workspaceFolders=[{"uri": folder.as_uri(), "name": "test"}],
            capabilities={"textDocument": able},
        )
        self._tell("initialized")

    def open(self, text: str) -> None:
        """Put a text into the document."""
        self._version += 1
        document = {"uri": self._address, "version": self._version}
        if self._version == 1:
            whole = {**document, "languageId": "python", "text": text}
            self._tell("textDocument/didOpen", textDocument=whole)
        else:
            changes = [{"text": text}]
            self._tell("textDocument/didChange", textDocument=document, contentChanges=changes)

    def at(self, method: str, line: int, character: int) -> Any:
        """The answer of `textDocument/<method>` for a place, both numbers counted from 0."""
        return self.ask(
            f"textDocument/{method}",
            textDocument={"uri": self._address},
            position={"line": line, "character": character},
        )

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request. What the server asks meanwhile is answered."""
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._receive()
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": None})
            elif message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]

    def close(self) -> None:
        self.ask("shutdown")
        self._tell("exit")
        self._process.communicate(timeout=30)

    def _tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        size = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        assert size, "the server has ended"
        found: dict[str, Any] = json.loads(self._process.stdout.read(size))
        return found
