"""Counts, bytes and names for people: one way to print them, for every room."""


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "key"), counted(2000, "key"), counted(0, "query")
    ('1 key', '2,000 keys', '0 queries')
    """
    if count == 1:
        return f"{count:,} {what}"
    return f"{count:,} {what[:-1]}ies" if what.endswith("ry") else f"{count:,} {what}s"


def amount(size: float) -> str:
    """Bytes for people.

    >>> amount(812), amount(5200), amount(3.4e9)
    ('812 B', '5.2 kB', '3.4 GB')
    """
    power = 0
    while size >= 1000 and power < 4:
        size, power = size / 1000, power + 1
    return f"{size:.1f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}" if power else f"{size:.0f} B"


def shortened(text: str, most: int = 60) -> str:
    """A name that fits into a line; of a long one the beginning, and how much there is.

    >>> shortened("user"), shortened("x" * 500, most=5)
    ('user', 'xxxxx... (500 characters)')
    """
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"
