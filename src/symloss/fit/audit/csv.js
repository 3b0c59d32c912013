// Decisions as CSV. Text that a spreadsheet would take for a formula is quoted, as in every table of symloss.
function harmless(text) {
  if (/^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/.test(text)) return text;
  return /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text) || /^[\t\r\n]/.test(text) ? `'${text}` : text;
}

function cell(text) {
  const safe = harmless(String(text));
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// A settled decision of mine stands alone; else everybody's decisions are written, also those in conflict.
function csvOf(name) {
  const lines = [["index", ...(data.row ? ["row"] : []), ...(data.files ? ["file"] : []), "given_label", "corrected_label", "decision", "annotator"]];
  for (let place = 0; place < SIZE; place++) {
    const made = mine(place)?.settled ? [[ME, mine(place)]] : votes(place);
    const which = [data.index[place], ...(data.row ? [data.row[place]] : []), ...(data.files ? [data.name[place]] : [])];
    for (const [person, { decision, label }] of made) {
      lines.push([...which, data.classes[data.given[place]], data.classes[label] ?? "", decision, person === ME ? name : person]);
    }
  }
  return lines.map((line) => line.map(cell).join(",") + "\n").join("");
}

// The cells of each line. A quoted cell may hold commas, quotes and line ends.
function parsedCsv(text) {
  const lines = [], part = /(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r\n|\n|\r|$)/y;
  let line = [];
  while (part.lastIndex < text.length) {
    const start = part.lastIndex, found = part.exec(text);
    if (found === null) throw new Error(`quotes are not closed after ${JSON.stringify(text.slice(start, start + 20))}`);
    line.push(found[1] === undefined ? found[2] : found[1].replaceAll('""', '"'));
    if (found[3] === "," && part.lastIndex < text.length) continue;
    if (line.length > 1 || line[0] !== "") lines.push(line);
    line = [];
  }
  return lines;
}

// The changes that loading a file makes. Lines with my name are mine; those without a name have the file's.
function changesOf(text, file, name) {
  const [head = [], ...lines] = parsedCsv(text.replace(/^\ufeff/, ""));
  for (const column of ["index", "corrected_label", "decision"]) {
    if (!head.includes(column)) throw new Error(`there is no column "${column}"`);
  }
  const classes = new Map(data.classes.map((label, number) => [harmless(label), number]));
  return lines.map((cells, number) => {
    const of = (column) => cells[head.indexOf(column)] ?? "";
    const wrong = (what) => new Error(`line ${number + 2}: ${what}`);
    const place = /^[0-9]+$/.test(of("index")) ? placeOf.get(Number(of("index"))) : undefined;
    if (place === undefined) throw wrong(`example ${of("index")} is not in this list`);
    if (head.includes("given_label") && of("given_label") !== harmless(data.classes[data.given[place]])) {
      throw wrong(`example ${of("index")} has another label here, so the file belongs to another audit`);
    }
    if (!DECISIONS.includes(of("decision"))) throw wrong(`"${of("decision")}" is not a decision`);
    const label = classes.get(of("corrected_label")), made = decisionFor(place, of("decision"), label);
    if (made.decision !== "unsure" && made.decision !== "unusable" && label === undefined) {
      throw wrong(`"${of("corrected_label")}" is not a class`);
    }
    const person = of("annotator") || file.replace(/\.csv$/i, "") || "somebody";
    return change(person === harmless(name) ? ME : person, place, made);
  });
}
