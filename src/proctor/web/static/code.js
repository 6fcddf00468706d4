// Syntax highlighting of code for patches, line by line: comments, strings, numbers, and keywords.

import { el } from "./dom.js";

const words = (text) => new Set(text.trim().split(/\s+/));
const C_LIKE = { line: "//", block: true, strings: "\"'`" };
const LANGUAGES = {
  python: { line: "#", strings: "\"'", words: words(`
    and as assert async await break class continue def del elif else except False finally for from global if import in is
    lambda match None nonlocal not or pass raise return self True try while with yield case
  `) },
  script: { ...C_LIKE, words: words(`
    async await break case catch class const continue default delete do else export extends false finally for from function
    if import in instanceof interface let new null of return static super switch this throw true try type typeof undefined
    var void while yield enum implements readonly
  `) },
  c: { ...C_LIKE, strings: "\"'", words: words(`
    auto bool break case catch char class const continue default delete do double else enum extern false final float for
    func fn go if impl import int interface let long match mod mut namespace new nil null nullptr package private protected
    public pub return self short signed sizeof static struct super switch template this throw trait true try type typedef
    union unsigned use using var void volatile while chan defer map range select string virtual override
  `) },
  shell: { line: "#", strings: "\"'", words: words("case do done elif else esac exit export fi for function if in local return set shift then until while") },
  data: { line: "#", strings: "\"'", words: words("true false null yes no on off") },
  sql: { line: "--", strings: "'", words: words(`
    select from where insert into values update set delete create table index alter add drop join left right inner outer on
    and or not null primary key order by group having limit offset as distinct union all case when then else end begin
    commit
  `) },
  markup: { strings: "\"'", words: words("") },
};
const ENDINGS = {
  py: "python", pyi: "python", js: "script", mjs: "script", cjs: "script", jsx: "script", ts: "script", tsx: "script",
  json: "data", yaml: "data", yml: "data", toml: "data", ini: "data", cfg: "data",
  c: "c", h: "c", cc: "c", cpp: "c", hpp: "c", cs: "c", java: "c", kt: "c", go: "c", rs: "c", swift: "c", php: "c", scala: "c", dart: "c", css: "c", scss: "c",
  sh: "shell", bash: "shell", zsh: "shell", rb: "shell", mk: "shell", sql: "sql", html: "markup", xml: "markup", svg: "markup", vue: "markup",
};

/** The language of a file by its name; null if it is not highlighted. */
export function languageOf(path) {
  const name = path.split("/").pop().toLowerCase();
  if (name === "makefile" || name === "dockerfile") return LANGUAGES.shell;
  return LANGUAGES[ENDINGS[name.split(".").pop()]] || null;
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

function patternOf(language) {
  if (language.pattern) return language.pattern;
  const strings = [...language.strings].map((mark) => `${mark}(?:\\\\.|[^\\\\${mark}])*${mark}?`);
  const comments = [language.line ? `${escaped(language.line)}.*` : "", language.block ? "\\/\\*.*?(?:\\*\\/|$)" : ""].filter(Boolean);
  const parts = [
    // For a language without comments, use a pattern that never matches.
    `(?<comment>${comments.join("|") || "(?!)"})`,
    `(?<string>${strings.join("|")})`,
    "(?<number>\\b\\d[\\w.]*\\b)",
    "(?<word>[A-Za-z_$][\\w$]*)",
  ];
  language.pattern = new RegExp(parts.join("|"), "g");
  return language.pattern;
}

/** A line of code as text and highlighted spans. */
export function highlighted(line, language) {
  if (!language || line.length > 1000) return [line];
  const nodes = [];
  let at = 0;
  for (const match of line.matchAll(patternOf(language))) {
    const { comment, string, number, word } = match.groups;
    const isWord = word !== undefined && language.words.has(language === LANGUAGES.sql ? word.toLowerCase() : word);
    const kind = comment !== undefined ? "comment" : string !== undefined ? "string" : number !== undefined ? "number" : isWord ? "word" : "";
    if (!kind) continue;
    nodes.push(line.slice(at, match.index), el("span", { class: `k-${kind}` }, match[0]));
    at = match.index + match[0].length;
  }
  nodes.push(line.slice(at));
  return nodes.filter(Boolean);
}
