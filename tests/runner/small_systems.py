"""Memory systems of a few lines for tests of the run loop, each in a folder of its own."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.sandbox.systems import write_system

COMMON = """
import json, os, threading, urllib.request
from agentmem.memory import Answer, AnsweringSystem, Called

class _Notes:
    def open(self, dir, endpoints, limits):
        self.dir, self.endpoints, self.limits = dir, endpoints, limits
        self.path = os.path.join(dir, "notes.jsonl")
        open(self.path, "a").close()
        self.lock = threading.Lock()

    def notes(self):
        with self.lock, open(self.path) as file:
            return [json.loads(line) for line in file]

    def keep(self, unit):
        with self.lock, open(self.path, "a") as file:
            file.write(json.dumps([unit.text, [t.source_id for t in unit.turns]]) + "\\n")
        notes = self.notes()
        return Stored(added=1, store_version=len(notes))

    def found(self, k=10):
        notes = self.notes()
        entries = tuple(Entry(text, None, tuple(ids)) for text, ids in notes[-k:])
        return Retrieved(entries, len(notes))

    def post(self, path, operation=None, **body):
        ends = self.endpoints if operation is None else self.endpoints.for_operation(operation)
        data = json.dumps(body).encode()
        request = urllib.request.Request(
            ends.chat_url + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=self.limits.request_timeout_s) as reply:
            return json.load(reply)

    def chat(self, text, operation=None):
        messages = [{"role": "user", "content": text}]
        reply = self.post(
            "/chat/completions", operation, model=self.endpoints.chat_model, messages=messages
        )
        return reply["choices"][0]["message"]["content"]

    def embed(self, text, operation=None):
        self.post("/embeddings", operation, model=self.endpoints.embed_model, input=text)
"""

LOOPING = '''
class Looping(_Notes, AnsweringSystem):
    """Plans, looks up, answers, and writes down what it learned; says so as CALLS has it."""

    def construct(self, unit):
        return self.keep(unit)

    def retrieve(self, user, question, k):
        return self.found(k)

    def answer(self, user, question):
        self.chat("Plan how to answer: " + question)
        self.embed(question)
        found = self.found(3)
        text = self.chat("Answer: " + question)
        self.chat("Write down what this taught: " + question)
        return Answer(text, found.entries, found.version_read, CALLS)
'''
BUSY = '''
class Busy(_Notes, MemorySystem):
    """Takes its time to construct, and finds what is there meanwhile."""

    def construct(self, unit):
        self.chat("Digest: " + unit.text, "construct")
        return self.keep(unit)

    def retrieve(self, user, question, k):
        self.embed(question, "retrieve")
        return self.found(k)
'''
IMPATIENT = '''
class Impatient(_Notes, MemorySystem):
    """Swallows what goes wrong with its model calls, as upstreams do."""

    def construct(self, unit):
        try:
            self.chat("Digest: " + unit.text)
        except OSError:
            return Stored()
        return self.keep(unit)

    def retrieve(self, user, question, k):
        return self.found(k)
'''


def looping(folder: Path, calls: str = "()", name: str = "looping") -> Path:
    """A system that answers natively; `calls` is the Python of its `Answer.calls`."""
    adapter = COMMON + textwrap.dedent(LOOPING).replace("CALLS", calls)
    extra = 'endpoints = ["chat", "embed"]\nnative_answer = true'
    return write_system(folder / name, adapter, name, extra=extra)


def busy(folder: Path, name: str = "busy") -> Path:
    extra = 'endpoints = ["chat", "embed"]\noverlap = true'
    return write_system(folder / name, COMMON + textwrap.dedent(BUSY), name, extra=extra)


def impatient(folder: Path, name: str = "impatient") -> Path:
    extra = 'endpoints = ["chat"]'
    return write_system(folder / name, COMMON + textwrap.dedent(IMPATIENT), name, extra=extra)
