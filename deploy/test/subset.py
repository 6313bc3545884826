"""Checks whether a written document is still complete after a program has parsed it and written it again."""


def lost(written, kept, path=""):
    """Yields the parts of a document that are missing or different in another document. The other may contain more:
    defaults, and items at the end of lists. A number and an equal text count as equal, as in quantities."""
    if isinstance(written, dict) and isinstance(kept, dict):
        for key, value in written.items():
            if key in kept:
                yield from lost(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} is lost"
    elif isinstance(written, list) and isinstance(kept, list) and len(written) <= len(kept):
        for number, value in enumerate(written):
            yield from lost(value, kept[number], f"{path}[{number}]")
    elif str(written) != str(kept):
        yield f"{path} was {written!r} and is {kept!r}"
