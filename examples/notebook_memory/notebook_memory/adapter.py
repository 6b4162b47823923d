"""A notebook: remembers every turn and finds those that share most words with a question."""

import re

from agentmem.memory import Entry, MemorySystem, RecordFile, Retrieved, Stored, passages


def words(text):
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 2}


class Notebook(MemorySystem):
    def open(self, dir, endpoints, limits):
        self.dir = dir
        self.file = RecordFile(f"{dir}/notes.jsonl")
        self.notes = list(self.file.read())

    def construct(self, unit):
        found = [[p.shown, p.source_ids] for p in passages(unit)]
        self.notes.append({"user": unit.user, "unit": unit.unit_id, "passages": found})
        self.file.append(self.notes[-1])
        return Stored(added=len(found), store_version=self.file.version)

    def flush(self):
        self.file.sync()

    def retrieve(self, user, question, k):
        asked = words(question)
        mine = (note for note in reversed(self.notes) if note["user"] == user)
        found = [
            Entry(text, float(len(asked & words(text))), tuple(ids) if ids else None)
            for note in mine
            for text, ids in note["passages"]
        ]
        found = sorted((e for e in found if e.score), key=lambda e: -e.score)
        return Retrieved(tuple(found[:k]), self.file.version)

    def forget(self, user=None, unit_ids=()):
        kept = [
            n
            for n in self.notes
            if user not in (None, n["user"]) or (unit_ids and n["unit"] not in unit_ids)
        ]
        removed = len(self.notes) - len(kept)
        if removed:
            self.file.rewrite(kept)
        self.notes = kept
        return removed

    def close(self):
        self.file.close()
