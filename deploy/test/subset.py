"""Whether what was written is there after something has read it, understood it and written it again."""


def lost(written, kept, path=""):
    """What of a document is missing or different in another, which may have more: defaults, and items at the end of lists.
    Numbers and texts are one, as in quantities."""
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
