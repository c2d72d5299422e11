"""What keys do: where the person looks, scrolls, sorts, filters and searches. Knows no terminal and does no I/O."""

from __future__ import annotations

from collections.abc import Callable

from agent.top.engines import engines_of, worst_first
from agent.top.frame import Prompt, Row, body_height, cursor_of, page_of, screen
from agent.top.history import Who
from agent.top.seen import Page, Pick, Room, Seen, Where
from agent.top.views.registry import INTO, VIEWS

MOST_TYPED = 64
MOST_WAY = 32
SEEK = {"left": -10.0, "right": 10.0, "shift+left": -60.0, "shift+right": 60.0}


class Desk:
    """One person's place in the views. ``seek``, ``pause`` and ``faster`` are what drives a replay: seconds, nothing,
    a factor; ``pause`` holds the screen of a live agent.
    """

    def __init__(
        self,
        where: Where,
        *,
        seek: Callable[[float], None] = lambda _seconds: None,
        pause: Callable[[], None] = lambda: None,
        faster: Callable[[float], None] = lambda _factor: None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self.where = where
        self.prompt: Prompt | None = None
        self.helping = False
        self.note = ""
        self._seek, self._pause, self._faster, self._leave = seek, pause, faster, leave
        self._scrolls: dict[str, int] = {}
        self._seen = Seen("")
        self._size = (80, 24)
        self._page = Page()
        self._follow = False  # the chosen row is kept in sight: once it was chosen, until the person scrolls away
        self._keys: dict[str, Callable[[], None]] = {
            "q": leave,
            "ctrl+c": leave,
            "question_mark": self._help,
            "escape": self._back,
            "enter": self._into,
            "tab": lambda: self._turn(1),
            "shift+tab": lambda: self._turn(-1),
            "up": lambda: self._move(-1),
            "k": lambda: self._move(-1),
            "down": lambda: self._move(1),
            "j": lambda: self._move(1),
            "pageup": lambda: self._leaf(-1),
            "pagedown": lambda: self._leaf(1),
            "home": lambda: self._end(first=True),
            "end": lambda: self._end(first=False),
            "left_square_bracket": lambda: self._beside(-1),
            "right_square_bracket": lambda: self._beside(1),
            "s": lambda: self._sort(1),
            "S": self._turn_order,
            "f": lambda: self._ask("filter"),
            "slash": lambda: self._ask("search"),
            "n": lambda: self._find(1),
            "N": lambda: self._find(-1),
            "space": pause,
            "plus": lambda: faster(2.0),
            "minus": lambda: faster(0.5),
        }
        self._keys |= {str(number): (lambda name=name: self._go(name)) for number, name in enumerate(VIEWS, 1)}  # type: ignore[misc]
        self._keys |= {key: (lambda seconds=seconds: seek(seconds)) for key, seconds in SEEK.items()}  # type: ignore[misc]

    def rows(self, seen: Seen, size: tuple[int, int]) -> list[Row]:
        """Return the screen for what is seen now."""
        self._seen, self._size = seen, size
        room = body_height(seen, *size)
        self._page = page_of(seen, self.where, Room(size[0], room), helping=self.helping)
        self._settle(room)
        return screen(
            seen,
            self.where,
            self._page,
            size,
            scroll=self._scroll,
            prompt=self.prompt,
            note=self.note,
            helping=self.helping,
        )

    def press(self, key: str, character: str | None = None) -> None:
        """Take a key; ``character``: what it types, None where it types nothing."""
        self.note = ""
        if self.prompt is not None:
            self._type(self.prompt, key, character)
            return
        if self.helping:
            self.helping = False
            if key not in ("q", "ctrl+c"):
                return
        do = self._keys.get(key)
        if do is not None:
            do()

    # -- views ------------------------------------------------------------------------------------------------------

    def _go(self, view: str) -> None:
        """Show a view of the whole node; what was chosen on the way there is forgotten, but for the engine's own."""
        self._remember()
        self.where.view = view
        if view != "engine":
            self.where.engine = None
        self.where.tenant = None
        self._follow = False

    def _turn(self, step: int) -> None:
        names = list(VIEWS)
        self._go(names[(names.index(self.where.view) + step) % len(names)])

    def _into(self) -> None:
        pick = self._chosen()
        if self.where.view == "actions":
            if pick is not None:
                self.where.opened = "" if self.where.opened == pick.key else pick.key
            return
        if self.where.view == "engine":  # it has no rows: all of it is the engine
            found = self.where.engine or self._worst()
            if found is not None:
                self._remember()
                self.where.view, self.where.engine, self.where.tenant = "tenants", found, None
            return
        if pick is None:
            return
        if pick.engine is None:
            self.note = f"{pick.text.split()[0]} is not about an engine: there is nothing more to show"
            return
        self._remember()
        into = INTO[self.where.view]
        self.where.view, self.where.engine = into, pick.engine
        self.where.tenant = pick.tenant if into == "blocks" else None
        self._scrolls[into] = 0
        self._follow = False

    def _worst(self) -> Who | None:
        state = self._seen.state
        ranked = worst_first(engines_of(state)) if state is not None else []
        return ranked[0].who if ranked else None

    def _remember(self) -> None:
        where = self.where
        here = (where.view, where.engine, where.tenant)
        if not where.way or where.way[-1] != here:
            where.way.append(here)
        del where.way[:-MOST_WAY]

    def _back(self) -> None:
        where = self.where
        if where.pattern:
            where.pattern = ""
        elif where.opened and where.view == "actions":
            where.opened = ""
        elif where.way:
            where.view, where.engine, where.tenant = where.way.pop()
            self._follow = True
        elif where.view != "node":
            where.view, where.engine, where.tenant = "node", None, None

    def _beside(self, step: int) -> None:
        """Go to the next engine; in views of all engines that is the first."""
        state = self._seen.state
        every = [each.who for each in engines_of(state)] if state is not None else []
        if not every:
            return
        if self.where.view not in ("engine", "tenants", "blocks"):
            self._remember()
            self.where.view = "engine"
        now = self.where.engine or (self._worst() if self.where.view == "engine" else None)
        place = every.index(now) + step if now in every else (0 if step > 0 else -1)
        self.where.engine, self.where.tenant = every[place % len(every)], None

    def _help(self) -> None:
        self.helping = True

    # -- rows -------------------------------------------------------------------------------------------------------

    @property
    def _scroll(self) -> int:
        return self._scrolls.get("help" if self.helping else self.where.view, 0)

    @_scroll.setter
    def _scroll(self, value: int) -> None:
        room = body_height(self._seen, *self._size)
        most = max(0, len(self._page.lines) - room)
        self._scrolls["help" if self.helping else self.where.view] = min(most, max(0, value))

    def _settle(self, room: int) -> None:
        """Keep the scroll within the page, and the chosen row with what belongs to it in sight."""
        self._scroll = self._scroll
        place = cursor_of(self._page, self.where)
        if place is None or not self._follow or self.helping:
            return
        picks = self._page.picks
        first = picks[place].line
        last = picks[place + 1].line - 1 if place + 1 < len(picks) else first
        last = max(first, min(last, first + room - 1))
        if place == 0 and last < room:
            self._scroll = 0
        elif first < self._scroll:
            self._scroll = first
        elif last >= self._scroll + room:
            self._scroll = last - room + 1

    def _chosen(self) -> Pick | None:
        place = cursor_of(self._page, self.where)
        return None if place is None else self._page.picks[place]

    def _choose(self, place: int) -> None:
        self.where.cursors[self.where.view] = self._page.picks[place].key
        self._follow = True

    def _move(self, step: int) -> None:
        """Choose the next row where the chosen one is in sight; else, and beyond the last, read on line by line."""
        place = cursor_of(self._page, self.where)
        if place is not None and 0 <= place + step < len(self._page.picks):
            room = body_height(self._seen, *self._size)
            if self._follow or self._scroll <= self._page.picks[place].line < self._scroll + room:
                self._choose(place + step)
                return
        self._follow = False
        self._scroll = self._scroll + step

    def _leaf(self, step: int) -> None:
        room = body_height(self._seen, *self._size)
        self._scroll = self._scroll + step * max(1, room - 1)
        self._follow = False
        inside = [
            place for place, pick in enumerate(self._page.picks) if self._scroll <= pick.line < self._scroll + room
        ]
        if inside:
            self._choose(inside[0] if step < 0 else inside[-1])

    def _end(self, *, first: bool) -> None:
        self._scroll = 0 if first else len(self._page.lines)
        if self._page.picks:
            self._choose(0 if first else len(self._page.picks) - 1)
            self._follow = first

    def _sort(self, step: int) -> None:
        if not self._page.orders:
            self.note = "there is nothing to sort here"
            return
        place, backwards = self.where.order(self.where.view)
        self.where.sorts[self.where.view] = ((place + step) % len(self._page.orders), backwards)

    def _turn_order(self) -> None:
        if self._page.orders:
            place, backwards = self.where.order(self.where.view)
            self.where.sorts[self.where.view] = (place, not backwards)

    # -- typing -----------------------------------------------------------------------------------------------------

    def _ask(self, what: str) -> None:
        self.prompt = Prompt(what, self.where.pattern if what == "filter" else "")

    def _type(self, prompt: Prompt, key: str, character: str | None) -> None:
        what, text = prompt.what, prompt.text
        if key == "ctrl+c":
            self._leave()
        elif key == "escape":
            self.prompt = None
            if what == "filter":
                self.where.pattern = ""
        elif key == "enter":
            self.prompt = None
            if what == "filter":
                self.where.pattern = text
            else:
                self.where.sought = text
                self._find(1)
        else:
            if key == "backspace":
                text = text[:-1]
            elif key == "ctrl+u":
                text = ""
            elif character is not None and character.isprintable() and len(text) < MOST_TYPED:
                text += character
            self.prompt = Prompt(what, text)
            if what == "filter":  # at once, while it is typed
                self.where.pattern = text

    def _find(self, step: int) -> None:
        wanted = self.where.sought.casefold()
        picks = self._page.picks
        if not wanted:
            self.note = "nothing is sought: / asks for what"
            return
        here = cursor_of(self._page, self.where)
        begin = 0 if here is None else here
        for turn in range(1, len(picks) + 1):
            place = (begin + step * turn) % len(picks)
            if wanted in picks[place].text.casefold():
                self._choose(place)
                return
        self.note = f"no row here has {self.where.sought!r}"
