"""Names with their levels, frozen: what a case, a configuration or a problem is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.errors import StudyError

Level = str | int


class Values(Mapping[str, Level]):
    """A frozen, hashable mapping of names to levels that keeps its order."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Level] | None = None, /, **more: Level) -> None:
        object.__setattr__(self, "_items", {**(items or {}), **more})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Values are frozen: {name} cannot be set")

    def __getitem__(self, name: str) -> Level:
        return self._items[name]  # type: ignore[attr-defined,no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def __repr__(self) -> str:
        return "Values(" + ", ".join(f"{name}={level!r}" for name, level in self.items()) + ")"

    def __reduce__(self) -> tuple[object, ...]:
        return (Values, (dict(self),))

    def replace(self, **changes: Level) -> Values:
        """The same mapping with some levels changed; an unknown name raises StudyError."""
        unknown = sorted(set(changes) - set(self))
        if unknown:
            raise StudyError(f"no such name: {', '.join(unknown)}; there are {', '.join(self)}")
        return Values({**self, **changes})

    def number(self, name: str) -> int:
        """The level of `name` as an int; StudyError when it is not one."""
        level = self[name]
        if not isinstance(level, int):
            raise StudyError(f"{name} is {level!r}, not a number")
        return level

    def word(self, name: str) -> str:
        """The level of `name` as a str; StudyError when it is not one."""
        level = self[name]
        if not isinstance(level, str):
            raise StudyError(f"{name} is {level!r}, not a word")
        return level
