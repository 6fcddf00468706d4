"""A very small inbox."""


def recieve_all(messages):
    """Keep every message, and say so."""
    kept = []
    for message in messages:
        kept.append(message)
        print(f"You recieved: {message}")
    if not kept:
        print("Nothing to recieve.")
    return kept
