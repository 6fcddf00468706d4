// Selected sessions on their way from one page to another: more than an address takes.

const KEY = "proctor-selection";

/** Keep sessions for the page that is opened next. */
export function keepSelection(sessions) {
  sessionStorage.setItem(KEY, JSON.stringify(sessions));
}

/** The sessions that the page before has kept, if the address asks for them. */
export function takeSelection() {
  if (!new URLSearchParams(location.search).has("selection")) return [];
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) || [];
  } catch {
    return [];
  }
}
