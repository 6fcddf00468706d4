"""Cut a list into pages."""


def page_count(entries, size):
    """How many pages there are; none without entries."""
    if size < 1:
        raise ValueError("a page holds at least one entry")
    return -(-len(entries) // size)


def page(entries, size, number):
    """The entries of a page, counted from 1."""
    if not 1 <= number <= page_count(entries, size):
        return []
    first = (number - 1) * size
    return entries[first : first + size]
