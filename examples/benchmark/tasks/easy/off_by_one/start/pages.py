"""Cut a list into pages."""


def page_count(entries, size):
    return len(entries) // size + 1


def page(entries, size, number):
    first = (number - 1) * size
    return entries[first : first + size] if number < page_count(entries, size) else []
