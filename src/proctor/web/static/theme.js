// Set before the first paint, so that a page chosen to be dark never flashes white.
try {
  const chosen = localStorage.getItem("proctor-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; then the system's theme holds.
}
