// Filters, order and columns of a list of items, as the query of its address. The names are those of the API.

import { query } from "./api.js";
import { seconds } from "./format.js";

const LISTS = ["status", "model", "agent", "reason", "factor", "score", "duration", "tag"];
const FLAGS = ["noted", "starred", "descending"];
const TEXTS = { search: "", group: "", order: "position" };
const FILTERS = ["search", "group", "noted", "starred", ...LISTS];

/** The filters in a query such as `?status=fail&order=costUsd`; every member is there. */
export function readFilters(text = location.search) {
  const parameters = new URLSearchParams(text);
  return {
    ...Object.fromEntries(LISTS.map((name) => [name, parameters.getAll(name).filter(Boolean)])),
    ...Object.fromEntries(FLAGS.map((name) => [name, parameters.get(name) === "true"])),
    ...Object.fromEntries(Object.entries(TEXTS).map(([name, usual]) => [name, parameters.get(name) || usual])),
  };
}

/** The filters without those that have their usual value, as parameters of the API. */
export function parametersOf(filters) {
  const parameters = {};
  for (const name of LISTS) if (filters[name].length) parameters[name] = filters[name];
  for (const name of FLAGS) if (filters[name]) parameters[name] = "true";
  for (const [name, usual] of Object.entries(TEXTS)) if (filters[name] !== usual) parameters[name] = filters[name];
  return parameters;
}

/** Whether all items match. */
export const isUnfiltered = (filters) => !FILTERS.some((name) => (Array.isArray(filters[name]) ? filters[name].length : filters[name]));

/** Whether no filter but the status applies: the counts of the run are those of the list. */
export const isStatusOnly = (filters) => isUnfiltered({ ...filters, status: [] });

/** The columns in the address; null: the usual ones. */
export function readColumns(text = location.search) {
  const columns = new URLSearchParams(text).getAll("column");
  return columns.length ? columns : null;
}

/** The query of a list without `?`, as `from` of a session's address has it. */
export const listQuery = (filters, columns = null) => query({ ...parametersOf(filters), column: columns || [] }).slice(1);

/** Put the state of a list into the address of the page; the open tab and other parameters stay. */
export function writeQuery(filters, columns) {
  const parameters = new URLSearchParams(location.search);
  for (const name of [...LISTS, ...FLAGS, ...Object.keys(TEXTS), "column"]) parameters.delete(name);
  for (const [name, value] of new URLSearchParams(listQuery(filters, columns))) parameters.append(name, value);
  const text = parameters.toString();
  const address = `${location.pathname}${text ? `?${text}` : ""}${location.hash}`;
  if (address !== location.pathname + location.search + location.hash) history.replaceState(history.state, "", address);
}

/** The active filters as [name, value, words], for removing one of them. */
export function activeFilters(filters) {
  const words = { group: () => "failures like one", noted: () => "with a note", starred: () => "with a star" };
  const lists = LISTS.filter((name) => name !== "status").flatMap((name) => filters[name].map((value) => [name, value, wordsOf(name, value)]));
  const flags = ["group", "noted", "starred"].filter((name) => filters[name]).map((name) => [name, filters[name], words[name]()]);
  return [...lists, ...flags];
}

function wordsOf(name, value) {
  const at = name === "score" ? value.lastIndexOf("=") : value.indexOf("=");
  if (name === "factor") return `${value.slice(0, at)}: ${value.slice(at + 1)}`;
  if (name === "duration") return `time: ${durationWords(...value.split(".."))}`;
  if (name !== "score") return `${name}: ${value}`;
  const [low, high] = value.slice(at + 1).split("..");
  return `${value.slice(0, at)}: ${low && high ? `${low} to ${high}` : low ? `at least ${low}` : high ? `at most ${high}` : "any score"}`;
}

function durationWords(low, high) {
  if (!high) return `at least ${seconds(Number(low))}`;
  return Number(low) ? `${seconds(Number(low))} to ${seconds(Number(high))}` : `below ${seconds(Number(high))}`;
}

/** The filters without one value. */
export function without(filters, name, value) {
  return { [name]: LISTS.includes(name) ? filters[name].filter((one) => one !== value) : name === "group" ? "" : false };
}
