// Format numbers, money, durations, and times.

const whole = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const short = (value) => (value === null || value === undefined ? "–" : compact.format(value));

/** An amount in USD; an unknown amount is shown as –, not as 0. */
export function money(usd) {
  if (usd === null || usd === undefined) return "–";
  if (usd === 0) return "$0.00";
  if (usd < 0.0001) return "< $0.0001";
  return usd >= 1 ? `$${usd.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}` : `$${usd.toFixed(4)}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.9995) return value < 0.00001 ? "< 0.01 ms" : `${value < 0.00995 ? Number((value * 1000).toPrecision(2)) : Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const total = Math.round(value);
  const [hours, minutes] = [Math.floor(total / 3600), Math.floor((total % 3600) / 60)];
  return hours ? `${hours} h ${String(minutes).padStart(2, "0")} min` : `${minutes} min ${String(total % 60).padStart(2, "0")} s`;
}

/** A timestamp in the local format, for a `title`. */
export function moment(text) {
  return text ? new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "";
}

/** The age of a timestamp, such as `3 min ago`. */
export function ago(text, now = Date.now()) {
  if (!text) return "";
  const past = Math.max(0, (now - Date.parse(text)) / 1000);
  if (past < 10) return "just now";
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  if (past < 86400 * 7) return `${Math.floor(past / 86400)} d ago`;
  return new Date(text).toLocaleDateString(undefined, { dateStyle: "medium" });
}

/** How many items of a large run have been read; without progress, `otherwise`. */
export const readingText = (reading, otherwise) => (reading ? `Reading ${number(reading.read)} of ${plural(reading.total, "item")}…` : otherwise);

export const percent = (part, whole_) => (whole_ ? `${Math.floor((100 * part) / whole_)}%` : "–");

/** A share from 0 to 1: 61%, 99.7%. 0% and 100% are exact. */
export function share(value) {
  const hundredths = value * 100;
  const isNearEnd = (hundredths > 99.5 && hundredths < 100) || (hundredths > 0 && hundredths < 0.5);
  if (!isNearEnd) return `${Math.round(hundredths)}%`;
  return hundredths > 99.95 ? ">99.9%" : hundredths < 0.05 ? "<0.1%" : `${hundredths.toFixed(1)}%`;
}

export const plural = (count, noun, many = `${noun}s`) => `${number(count)} ${count === 1 ? noun : many}`;
