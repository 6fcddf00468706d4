// Set before the first paint, so that a dark page does not flash white.
try {
  const chosen = localStorage.getItem("proctor-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without access to storage, the system's theme applies.
}
