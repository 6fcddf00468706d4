// Settings of this browser, and facts about the server.

import { api, byId, chooseTheme, DataTable, el } from "./app.js";
import { state, turn } from "./notify.js";

const chosen = document.documentElement.dataset.theme || "";
for (const choice of document.querySelectorAll("input[name=theme]")) {
  choice.checked = choice.value === chosen;
  choice.addEventListener("change", () => chooseTheme(choice.value));
}

const WHY = {
  denied: "The browser blocks notifications for this page. Allow them in the browser settings.",
  unsupported: "This browser does not support notifications on this page.",
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
    { key: "address", title: "Address", class: "address", cell: (provider) => el("span", { class: "soft" }, provider.address || "not set") },
    { key: "key", title: "Key", cell: (provider) => el("span", { class: `key ${provider.key.split(" ")[0]}` }, provider.key) },
    { key: "variable", title: "Variable", cell: (provider) => (provider.keyVariable ? el("code", {}, provider.keyVariable) : "–") },
  ],
});

try {
  const response = await api.get("/api/settings");
  const facts = {
    Python: response.python,
    Store: response.store,
    Home: response.home,
    Folder: response.folder,
    Token: response.token ? "required" : "not required (local access only)",
    "Access keys": response.accessKeys.join(", ") || "none",
  };
  for (const [name, value] of Object.entries(facts)) byId("server").append(el("dt", {}, name), el("dd", {}, value));
  response.providers.sort((one, other) => (other.key === "present") - (one.key === "present"));
  providers.show(response.providers);
  byId("providers").replaceChildren(providers.element);
} catch (error) {
  byId("providers").replaceChildren(el("div", { class: "notice bad", role: "alert" }, error.message, " ", error.remedy));
}
