"""Turn titles into parts of web addresses."""


def slugify(title: str) -> str:
    """`Hello, World!` becomes `hello-world`."""
    kept = [letter if letter.isalnum() else "-" for letter in title.lower()]
    return "".join(kept)
