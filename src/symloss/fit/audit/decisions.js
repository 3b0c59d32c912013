"use strict";

// Who decided what. A suspect is known by its place in the lists of the data.
const data = JSON.parse(document.getElementById("data").textContent);
const SIZE = data.index.length;
const DECISIONS = ["accepted", "rejected", "relabelled", "unsure", "unusable"];
const ME = ""; // whoever sits before the page; others have a name
const STORAGE = `symloss-audit:${data.key}`;
const NAME = "symloss-annotator";
const placeOf = new Map(data.index.map((index, place) => [index, place]));
const people = new Map([[ME, new Map()]]); // person -> place -> {decision, label, settled}
const states = new Array(SIZE).fill("undecided");
const past = [], future = []; // steps that can be undone, and done again

// A decision for a class has its number as label; "settled" is one made in view of what others decided.
function decisionFor(place, decision, label, settled = false) {
  if (decision === "accepted") label ??= data.suggested[place];
  if (decision === "rejected") label = data.given[place];
  if (decision === "unsure" || decision === "unusable") label = null;
  return { decision, label, settled };
}

function chosenClass(place, label) {
  if (label === data.suggested[place]) return "accepted";
  return label === data.given[place] ? "rejected" : "relabelled";
}

function votes(place) {
  return [...people].map(([person, made]) => [person, made.get(place)]).filter(([, made]) => made !== undefined);
}

function mine(place) {
  return people.get(ME).get(place);
}

// What counts: a settled decision of mine, else what all agree on. Whoever is unsure contradicts nobody.
function counting(place) {
  const own = mine(place);
  if (own?.settled) return own;
  const made = votes(place).map(([, each]) => each);
  const firm = made.filter((each) => each.decision !== "unsure");
  if (firm.some((each) => each.label !== firm[0].label)) return { decision: "conflict" };
  return firm[0] ?? made[0];
}

function set(person, place, decision) {
  if (!people.has(person)) people.set(person, new Map());
  if (decision === undefined) people.get(person).delete(place);
  else people.get(person).set(place, decision);
  if (person !== ME && people.get(person).size === 0) people.delete(person);
  states[place] = counting(place)?.decision ?? "undecided";
}

// History: a step has a name and changes {person, place, before, after}.
function commit(what, changes) {
  const real = changes.filter(({ before, after }) => JSON.stringify(before) !== JSON.stringify(after));
  if (real.length === 0) return false;
  for (const { person, place, after } of real) set(person, place, after);
  past.push({ what, changes: real });
  future.length = 0;
  remember();
  return true;
}

function undo() {
  const step = past.pop();
  if (step === undefined) return undefined;
  for (const { person, place, before } of [...step.changes].reverse()) set(person, place, before);
  future.push(step);
  remember();
  return step;
}

function redo() {
  const step = future.pop();
  if (step === undefined) return undefined;
  for (const { person, place, after } of step.changes) set(person, place, after);
  past.push(step);
  remember();
  return step;
}

function change(person, place, after) {
  return { person, place, before: people.get(person)?.get(place), after };
}

// Change my decisions about some places; without a decision they are cleared.
function decide(what, places, decision, label) {
  const after = (place) => decision && decisionFor(place, decision, label, votes(place).some(([person]) => person !== ME));
  return commit(what, places.map((place) => change(ME, place, after(place))));
}

function forget(person) {
  return commit(`removed ${person}`, [...people.get(person).keys()].map((place) => change(person, place, undefined)));
}

// The browser's storage. A page may be opened where nothing can be stored.
let waiting = null, failed = false;

function remember() {
  waiting ??= setTimeout(store, 200);
}

function store() {
  clearTimeout(waiting);
  waiting = null;
  const line = ([place, { decision, label, settled }]) => [data.index[place], decision, label, settled];
  try {
    localStorage.setItem(STORAGE, JSON.stringify([...people].map(([person, made]) => [person, [...made].map(line)])));
  } catch {
    if (!failed) say("This browser cannot store your decisions. Download them before you leave.");
    failed = true;
  }
}

function restore() {
  for (const [person, lines] of stored()) {
    for (const [index, decision, label, settled] of lines) {
      const place = placeOf.get(index);
      if (place !== undefined && DECISIONS.includes(decision)) set(person, place, decisionFor(place, decision, label, settled));
    }
  }
}

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(STORAGE) ?? "[]");
    if (Array.isArray(found)) return found;
    return [[ME, Object.entries(found).map(([index, decision]) => [Number(index), decision])]]; // of earlier versions
  } catch {
    return [];
  }
}

function storedName() {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return "";
  }
}

function storeName(name) {
  try {
    localStorage.setItem(NAME, name);
  } catch {
    // It stays on the page.
  }
}

// The same page in another window has stored decisions.
addEventListener("storage", (event) => event.key === STORAGE && waiting === null && location.reload());
addEventListener("pagehide", () => waiting === null || store());
addEventListener("visibilitychange", () => waiting === null || store());
