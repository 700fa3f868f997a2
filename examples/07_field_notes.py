"""Field notes on a device: saved without a network, synced later, nothing lost and nothing twice.

    python examples/07_field_notes.py note "two herons at the weir"
    python examples/07_field_notes.py list
    python examples/07_field_notes.py sync                  # into log.sqlite, for a try at home
    python examples/07_field_notes.py sync landed://host:10000

Without a word it plays all of that once. The notes live in field-notes.db in this directory.
"""

import sys
from uuid import UUID

import landed
from landed.offline import Queue, Saving

WEIR = landed.AggregateKey(org=UUID(int=1), type=UUID(int=6), id=UUID(int=1))
NOTED = 1


def open_notes() -> Queue:
    queue = Queue.open("field-notes.db")  # makes the device's client id, once
    table = "CREATE TABLE IF NOT EXISTS notes (number INTEGER PRIMARY KEY, text TEXT)"
    queue.save(lambda saving: saving.execute(table))
    return queue


def note(queue: Queue, text: str) -> None:
    def work(saving: Saving) -> int:
        saved = saving.enqueue(WEIR, NOTED, text.encode())  # the event, with its number for good
        saving.execute("INSERT INTO notes VALUES (?, ?)", (saved.client_seq, text))  # our own view
        return saved.client_seq

    print(f"saved as {queue.save(work)}")  # on the disk: the battery may be taken out now


def show(queue: Queue) -> None:
    waiting = {entry.client_seq for _, entry in queue.pending()}
    rows = queue.save(lambda saving: saving.execute("SELECT * FROM notes").fetchall())
    for number, text in rows:
        print(f"{number}  {text}{'   (waiting)' if number in waiting else ''}")


def sync(queue: Queue, url: str = "sqlite:///log.sqlite") -> None:
    synced = queue.sync(lambda: landed.connect(url), timeout_s=30)
    print(f"{synced.landed} landed, {synced.left} left")


def main() -> None:
    with open_notes() as queue:
        match sys.argv[1:]:
            case ["note", text]:
                note(queue, text)
            case ["sync", *url]:
                sync(queue, *url)
            case ["list"]:
                show(queue)
            case _:
                note(queue, "two herons at the weir")
                note(queue, "the ladder is blocked")
                show(queue)
                sync(queue)
                show(queue)


if __name__ == "__main__":
    main()
