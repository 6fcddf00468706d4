"""How a page looks: sizes of windows, what does not fit them, and the color of a place."""

import io
import re
from collections.abc import Callable
from typing import Any

WINDOW, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def sideways(page: Any, place: str = "html") -> int:
    """By how many pixels a part of the page is wider than what is seen of it."""
    found: int = page.locator(place).evaluate("(part) => part.scrollWidth - part.clientWidth")
    return found


def before_it_ended(page: Any, pattern: str, changed: Callable[[Any], Any]) -> None:
    """Answer the first such request as if it had come before the end of what it asks for."""
    late = iter([False])

    def answer(route: Any) -> Any:
        if next(late, True):
            return route.continue_()
        response = route.fetch()
        return route.fulfill(response=response, json=changed(response.json()))

    page.route(re.compile(pattern), answer)


def pixel(page: Any, x: int = 5, y: int = 400) -> Any:
    """Red, green and blue of a place."""
    from PIL import Image

    picture = page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})
    return Image.open(io.BytesIO(picture)).convert("RGB").getpixel((0, 0))
