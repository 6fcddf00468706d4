// Filters and sorts the items of this file. Text is inserted as text; nothing is requested from anywhere.
(() => {
  const data = JSON.parse(document.getElementById("item-data").textContent);
  const box = document.getElementById("item-explorer");
  const PAGE = 200;
  const el = (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
  const texts = data.texts;
  const columns = data.columns;
  const textOf = (name, row) => texts[columns[name][row]];
  const levelOf = (name, row) => { const value = data.factors[name][row]; return value === null ? "" : texts[value]; };
  const used = (name) => columns[name].some((value) => value !== 0);
  const money = (value) => (value === null ? "–" : value === 0 ? "$0" : `$${value.toPrecision(3)}`);
  const shown = [
    { key: "status", title: "Status", text: (row) => textOf("status", row) },
    { key: "reason", title: "Reason", text: (row) => textOf("reason", row) },
    ...Object.keys(data.factors).filter((name) => name !== "repository").map((name) => ({ key: `factor:${name}`, title: name, text: (row) => levelOf(name, row) })),
    { key: "prompt", title: "Prompt", long: true, text: (row) => textOf("prompt", row) },
    { key: "agent", title: "Agent", text: (row) => textOf("agent", row) },
    { key: "model", title: "Model", text: (row) => textOf("model", row) },
    { key: "answer", title: "Answer", long: true, text: (row) => textOf("answer", row) },
    { key: "error", title: "Error", long: true, text: (row) => textOf("error", row) },
    { key: "check", title: "Check output", long: true, text: (row) => textOf("check", row) },
    ...Object.keys(data.scores).map((name) => ({ key: `score:${name}`, title: name, number: (row) => data.scores[name][row], text: (row) => { const value = data.scores[name][row]; return value === null ? "" : typeof value === "number" ? Number(value.toPrecision(4)).toString() : value; } })),
    { key: "seconds", title: "Seconds", number: (row) => columns.seconds[row], text: (row) => (columns.seconds[row] === null ? "" : columns.seconds[row].toString()) },
    { key: "tokens", title: "Tokens", number: (row) => columns.tokens[row], text: (row) => columns.tokens[row].toLocaleString("en-US") },
    { key: "cost", title: "Cost", number: (row) => columns.cost[row], text: (row) => money(columns.cost[row]) },
  ].filter((column) => !["agent", "model", "reason", "answer", "error", "check", "prompt"].includes(column.key) || used(column.key))
    .filter((column) => !(column.key === "factor:model" && used("model")) && !(column.key === "factor:task" && data.factors.task.every((value, row) => value === columns.prompt[row])));

  const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const filters = ["status", "model", "agent", "reason"].filter((name) => used(name) && new Set(columns[name]).size > 1);
  let limit = PAGE;

  const search = el("input", { type: "search", placeholder: "Search prompts, answers, errors", "aria-label": "Search items", value: state.search || "" });
  search.addEventListener("input", () => change({ search: search.value }));
  const selects = filters.map((name) => {
    const values = [...new Set(columns[name])].map((number) => texts[number]).filter(Boolean).sort();
    const select = el("select", { "aria-label": name }, el("option", { value: "" }, `any ${name}`), ...values.map((value) => el("option", { value }, value)));
    select.value = state[name] || "";
    select.addEventListener("change", () => change({ [name]: select.value }));
    return select;
  });
  const total = el("span", { role: "status" });
  const body = el("tbody");
  const head = el("tr");
  const more = el("button", { type: "button", class: "more" }, "Show more");
  more.addEventListener("click", () => { limit += PAGE; draw(); });
  box.append(el("div", { class: "tools" }, search, ...selects, total), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Items" }, el("table", { class: "dense" }, el("thead", {}, head), body)), more);

  function change(values) {
    Object.assign(state, values);
    limit = PAGE;
    const kept = Object.entries(state).filter(([, value]) => value);
    history.replaceState(null, "", kept.length ? `#${new URLSearchParams(kept)}` : "#items");
    draw();
  }

  function rows() {
    const words = (state.search || "").toLowerCase();
    const found = [];
    for (let row = 0; row < data.count; row++) {
      if (filters.some((name) => state[name] && textOf(name, row) !== state[name])) continue;
      if (words && !["id", "prompt", "answer", "error", "check"].some((name) => textOf(name, row).toLowerCase().includes(words))) continue;
      found.push(row);
    }
    const by = shown.find((column) => column.key === state.sort);
    if (by) {
      const sign = state.down ? -1 : 1;
      const value = by.number || by.text;
      const isEmpty = (one) => one === null || one === "";
      found.sort((one, other) => {
        const [first, second] = [value(one), value(other)];
        if (isEmpty(first) || isEmpty(second)) return isEmpty(first) - isEmpty(second);
        return sign * (typeof first === "number" && typeof second === "number" ? first - second : String(first).localeCompare(String(second)));
      });
    }
    return found;
  }

  function draw() {
    const found = rows();
    total.textContent = `${found.length.toLocaleString("en-US")} of ${data.count.toLocaleString("en-US")} items`;
    head.replaceChildren(...shown.map((column) => {
      const isSorted = state.sort === column.key;
      const sort = () => change({ sort: column.key, down: isSorted && !state.down ? "1" : "" });
      const order = isSorted ? (state.down ? "descending" : "ascending") : null;
      return el("th", { scope: "col", class: column.number ? "n" : null, "aria-sort": order }, el("button", { type: "button", onclick: sort }, column.title + (isSorted ? (state.down ? " ↓" : " ↑") : "")));
    }));
    body.replaceChildren(...found.slice(0, limit).map((row) => {
      const line = el("tr", { tabindex: "0" }, ...shown.map((column) => {
        const text = column.text(row);
        if (column.key === "status") return el("td", {}, el("span", { class: `status s-${text}` }, text));
        return el("td", { class: column.number ? "n" : column.long ? "text" : null }, text);
      }));
      const toggle = () => line.classList.toggle("open");
      line.addEventListener("click", toggle);
      line.addEventListener("keydown", (event) => event.key === "Enter" && toggle());
      return line;
    }));
    more.hidden = found.length <= limit;
  }
  draw();
})();
