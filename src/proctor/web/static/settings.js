// Settings: what this browser keeps, what the server stands on.

import { api, byId, chooseTheme, DataTable, el } from "./app.js";
import { state, turn } from "./notify.js";

const chosen = document.documentElement.dataset.theme || "";
for (const choice of document.querySelectorAll("input[name=theme]")) {
  choice.checked = choice.value === chosen;
  choice.addEventListener("change", () => chooseTheme(choice.value));
}

const WHY = {
  denied: "The browser forbids them for this page; its own settings can allow them.",
  unsupported: "This browser has none for pages like this one.",
};
const toggle = byId("notifications");
function drawNotifications(now) {
  toggle.checked = now === "on";
  toggle.disabled = now in WHY;
  if (WHY[now]) byId("about-notifications").textContent = WHY[now];
}
drawNotifications(state());
toggle.addEventListener("change", async () => drawNotifications(await turn(toggle.checked)));

const providers = new DataTable({
  label: "Providers",
  rowKey: (provider) => provider.name,
  columns: [
    { key: "name", title: "Provider", cell: (provider) => el("b", {}, provider.name) },
    { key: "address", title: "Address", class: "address", cell: (provider) => el("span", { class: "soft" }, provider.address || "none yet") },
    { key: "key", title: "Key", cell: (provider) => el("span", { class: `key ${provider.key.split(" ")[0]}` }, provider.key) },
    { key: "variable", title: "Variable", cell: (provider) => (provider.keyVariable ? el("code", {}, provider.keyVariable) : "–") },
  ],
});

try {
  const found = await api.get("/api/settings");
  const facts = {
    Python: found.python,
    Store: found.store,
    Home: found.home,
    Folder: found.folder,
    Token: found.token ? "asked for" : "not asked for: this machine only",
    "Access keys": found.accessKeys.join(", ") || "none",
  };
  for (const [name, value] of Object.entries(facts)) byId("server").append(el("dt", {}, name), el("dd", {}, value));
  found.providers.sort((one, other) => (other.key === "present") - (one.key === "present"));
  providers.show(found.providers);
  byId("providers").replaceChildren(providers.element);
} catch (error) {
  byId("providers").replaceChildren(el("div", { class: "notice bad", role: "alert" }, error.message, " ", error.remedy));
}
