// Marks texts of which axe need not read the colors, which takes most of its time: those with the same styles as
// another text, on elements with the same styles, here or on a page before: `known` are its kinds of texts. What lies on
// or under something that is not around it is not marked. Returns the kinds of texts that are new.
(known) => {
  const PROPERTIES = [
    ...["color", "backgroundColor", "backgroundImage", "opacity", "fontSize", "fontWeight", "textShadow"],
    ...["filter", "mixBlendMode", "clipPath", "visibility", "display", "position", "zIndex"],
  ];
  const keys = new Map([[null, ""]]);
  const positioned = [];
  const content = (element, part) => getComputedStyle(element, part).content;

  /** A short name of a long text, the same on every page. */
  function digest(text) {
    let [high, low] = [7, 11];
    for (let place = 0; place < text.length; place++) {
      high = Math.imul(high ^ text.charCodeAt(place), 2654435761);
      low = Math.imul(low ^ text.charCodeAt(place), 1597334677);
    }
    return `${high >>> 0}.${low >>> 0}`;
  }

  /** Equal for elements that look alike and are in elements that look alike. */
  function key(element) {
    if (!keys.has(element)) {
      const style = getComputedStyle(element);
      if (style.position !== "static" || style.float !== "none") {
        positioned.push([element, element.getBoundingClientRect()]);
      }
      const long = [
        ...[key(element.parentElement), element.localName, element.getAttribute("class")],
        ...[element.hasAttribute("disabled"), element.getAttribute("aria-disabled")],
        ...[content(element, "::before"), content(element, "::after")],
        ...PROPERTIES.map((name) => style[name]),
      ].join("|");
      keys.set(element, digest(long));
    }
    return keys.get(element);
  }

  const areApart = (a, b) =>
    a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const overlaps = (element, box) =>
    positioned.some(
      ([other, area]) => !areApart(box, area) && !other.contains(element) && !element.contains(other),
    );

  const elements = [...document.querySelectorAll("body *")];
  elements.forEach(key);
  const seen = new Set(known);
  for (const element of elements) {
    element.removeAttribute("data-equal");
    const box = element.getBoundingClientRect();
    if (overlaps(element, box)) continue;
    const parts = [...element.childNodes].filter((part) => part.nodeType === Node.TEXT_NODE);
    const text = parts.map((part) => part.data.trim()).join("");
    // Axe does not judge texts that are short, of symbols only, without size, or of disabled fields.
    const kind = [
      ...[key(element), Math.min(text.length, 2), /[\p{L}\p{N}]/u.test(text), box.width * box.height > 0],
      element.closest("label")?.control?.disabled,
    ].join("|");
    if (seen.has(kind)) element.setAttribute("data-equal", "");
    seen.add(kind);
  }
  axe.configure({ rules: [{ id: "color-contrast", selector: ":not([data-equal])" }] });
  return [...seen].slice(known.length);
}
