// Completion of keys and values at the caret, from the JSON schema of the plan.

/** Completions at the caret: `{from, options: [{label, insert, info}]}`, or null. */
export function completions(schema, lines, lineNumber, column) {
  const line = lines[lineNumber].slice(0, column);
  if (/(^|\s)#/.test(line)) return null;
  const value = /^(\s*(?:-\s+)*)([\w.-]+):\s+(\S*)$/.exec(line);
  if (value) return valueCompletions(schema, lines, lineNumber, value, column);
  const key = /^(\s*(?:-\s+)*)([\w.-]*)$/.exec(line);
  if (!key) return null;
  const [, before, typed] = key;
  const indent = before.length;
  const node = resolve(schema, schema, pathTo(lines, lineNumber, indent, /-\s+$/.test(before)));
  const used = siblings(lines, lineNumber, indent);
  const options = Object.entries(properties(schema, node))
    .filter(([name]) => name.toLowerCase().startsWith(typed.toLowerCase()) && (name === typed || !used.has(name)))
    .map(([name, about]) => ({ label: name, insert: `${name}:${opens(schema, about) ? "" : " "}`, info: about.description || "" }));
  return options.length && !(options.length === 1 && options[0].label === typed) ? { from: column - typed.length, options } : null;
}

function valueCompletions(schema, lines, lineNumber, [, before, name, typed], column) {
  const parent = resolve(schema, schema, pathTo(lines, lineNumber, before.length, /-\s+$/.test(before)));
  const about = properties(schema, parent)[name];
  if (!about) return null;
  const options = choices(schema, about)
    .map(String)
    .filter((choice) => choice.startsWith(typed) && choice !== typed)
    .map((choice) => ({ label: choice, insert: choice, info: "" }));
  return options.length ? { from: column - typed.length, options } : null;
}

/** The key path of the mapping that a line at this indent belongs to; 0 stands for a list entry. */
export function pathTo(lines, lineNumber, indent, startsEntry) {
  const path = [];
  let limit = indent;
  // This line starts with a dash: its mapping is an entry of the list above.
  if (startsEntry) {
    path.unshift(0);
    limit = lines[lineNumber].search(/\S/);
  }
  let inList = startsEntry;
  for (let number = lineNumber - 1; number >= 0 && (limit > 0 || inList); number -= 1) {
    const match = /^(\s*)((?:-\s+)*)(?:([\w.-]+)\s*:)?/.exec(lines[number]);
    const [, space, dashes, name] = match;
    if (/^\s*(#.*)?$/.test(lines[number])) continue;
    const own = space.length + dashes.length;
    if (dashes && own === limit && !inList) {
      // The first line of the entry that contains this line.
      path.unshift(0);
      limit = space.length;
      inList = true;
    } else if (name && !dashes && (own < limit || (inList && own === limit))) {
      path.unshift(name);
      limit = own;
      inList = false;
    } else if (name && dashes && own < limit) {
      path.unshift(0, name);
      limit = space.length;
      inList = true;
    }
  }
  return path;
}

function siblings(lines, lineNumber, indent) {
  const used = new Set();
  const scan = (step) => {
    for (let number = lineNumber + step; number >= 0 && number < lines.length; number += step) {
      const match = /^(\s*(?:-\s+)*)([\w.-]+)\s*:/.exec(lines[number]);
      const space = lines[number].search(/\S/);
      if (space === -1) continue;
      if (match && match[1].length === indent) {
        if (step > 0 && /-\s+$/.test(match[1])) return;
        used.add(match[2]);
        if (step < 0 && /-\s+$/.test(match[1])) return;
      } else if (space < indent) return;
    }
  };
  if (!/-\s+$/.test(lines[lineNumber].slice(0, indent))) scan(-1);
  scan(1);
  return used;
}

function resolve(root, node, path) {
  let here = [node];
  for (const step of path)
    here = here
      .flatMap((each) => alternatives(root, each))
      .flatMap((each) => {
        if (step === 0) return each.items ? [each.items] : [];
        return each.properties?.[step] ? [each.properties[step]] : typeof each.additionalProperties === "object" ? [each.additionalProperties] : [];
      });
  return { anyOf: here };
}

function alternatives(root, node) {
  if (!node) return [];
  if (node.$ref) return alternatives(root, node.$ref.split("/").slice(1).reduce((target, part) => target?.[part], root));
  const several = node.anyOf || node.oneOf || node.allOf;
  return several ? several.flatMap((each) => alternatives(root, each)) : [node];
}

const properties = (root, node) => Object.assign({}, ...alternatives(root, node).map((each) => each.properties || {}));
const opens = (root, node) => alternatives(root, node).some((each) => each.type === "object" || each.properties) && !alternatives(root, node).some((each) => each.type === "string");
const choices = (root, node) => alternatives(root, node).flatMap((each) => each.enum || (each.const !== undefined ? [each.const] : each.type === "boolean" ? [true, false] : []));
