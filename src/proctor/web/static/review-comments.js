// Comments of a reviewer on the lines of a patch: drafts in this browser until they are sent back to the agent.

import { el, remember, remembered } from "./dom.js";
import { visible } from "./texts.js";

const LONGEST = 5000;
const same = (left, right) => left.file === right.file && left.line === right.line && left.side === right.side;

export class ReviewComments {
  /** `changed()` is called when comments are added or removed. */
  constructor(session, changed) {
    this.key = `proctor-review-${session}`;
    this.changed = changed;
    this.list = remembered(this.key, []);
  }

  save(list) {
    this.list = list;
    remember(this.key, list);
    this.changed();
  }

  clear() {
    this.save([]);
  }

  /** The comments on a line, for `diffView`. */
  on(place) {
    return this.list.filter((one) => same(one, place)).map((one) => this.view(one));
  }

  /** Open a form below the row of a line. */
  open(place, row) {
    if (row.nextElementSibling?.matches(".line-comment-form")) return row.nextElementSibling.querySelector("textarea").focus();
    const text = el("textarea", { rows: 3, maxlength: LONGEST, "aria-label": `Comment on line ${place.line} of ${visible(place.file)}`, placeholder: "What should the agent change?" });
    const form = el(
      "form",
      { class: "line-comment-form" },
      text,
      el("div", { class: "actions" }, el("button", { type: "button", class: "compact quiet", onclick: () => form.remove() }, "Cancel"), el("button", { type: "submit", class: "compact" }, "Add comment")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!text.value.trim()) return;
      const comment = { ...place, text: text.value.trim() };
      form.replaceWith(this.view(comment));
      this.save([...this.list, comment]);
    });
    row.after(form);
    text.focus();
  }

  view(comment) {
    const remove = el("button", { type: "button", class: "quiet compact" }, "Remove");
    const box = el("div", { class: "line-comment" }, el("p", {}, visible(comment.text)), remove);
    remove.addEventListener("click", () => {
      box.remove();
      this.save(this.list.filter((one) => !(same(one, comment) && one.text === comment.text)));
    });
    return box;
  }
}
