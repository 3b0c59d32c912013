// What a suspicious label looks like. Names, texts and labels become text nodes, never markup.
const WORDS = { accepted: "Accept", rejected: "Reject", other: "Other…", unsure: "Unsure", unusable: "Unusable" };

function element(tag, name = "", ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

function titled(tag, name, text) {
  const made = element(tag, name, text);
  made.title = text;
  return made;
}

function image(address, name) {
  const made = element("img");
  made.alt = name;
  made.src = address;
  const smooth = () => made.classList.toggle("smooth", made.naturalWidth > 48);
  if (made.complete) smooth();
  else made.addEventListener("load", smooth);
  return made;
}

function button(name, text, attributes) {
  const made = element("button", name, text);
  made.type = "button";
  Object.assign(made.dataset, attributes);
  return made;
}

function pictureOf(place) {
  const address = data.picture[place];
  if (!address) return element("p", "picture missing", "no picture in this page");
  const made = button("picture", image(address, data.name[place]), { act: "zoom" });
  made.title = "Enlarge (z)";
  return made;
}

function cellsOf(cells) {
  const list = element("dl", data.columns.length === 1 ? "cells alone" : "cells");
  data.columns.forEach((name, number) => {
    list.append(element("div", "", element("dt", "", name), element("dd", "", cells[number] || "-")));
  });
  return list;
}

// The most certain examples of a class, to compare with.
function typicalOf(label) {
  const found = data.typical[label];
  if (!found) return "";
  const examples = found.name.map((name, number) => {
    if (found.picture[number]) return image(found.picture[number], `a typical ${data.classes[label]}: ${name}`);
    return titled("p", "", found.cells[number].filter((cell) => cell !== "").join(" · ") || name);
  });
  return element("div", "", titled("h3", "", `typical ${data.classes[label]}`), element("div", "examples", ...examples));
}

function typicalFor(place) {
  const shown = data.kind !== "plain" && element("div", "typical", typicalOf(data.given[place]), typicalOf(data.suggested[place]));
  return shown && shown.querySelector(".examples > *") ? shown : "";
}

function decideButtons() {
  return element("div", "decide", ...Object.entries(WORDS).map(([decision, text]) => button("", text, { decide: decision })));
}

function card(place) {
  const made = element(
    "article", "suspect",
    data.kind === "pictures" ? pictureOf(place) : "",
    element(
      "div", "about",
      element("p", "labels", titled("span", "given", data.classes[data.given[place]]), "→", element("b"), element("span", "state")),
      element("p", "which", titled("span", "name", data.name[place]), element("span", "", `score ${data.score[place]}`)),
      data.columns.length ? cellsOf(data.cells[place]) : "",
      element("p", "votes"),
    ),
    typicalFor(place),
    decideButtons(),
  );
  made.tabIndex = -1;
  made.dataset.place = place;
  mark(made);
  return made;
}

// Show on a card what was decided, and by whom.
function mark(made) {
  const place = Number(made.dataset.place), state = states[place], own = mine(place);
  made.dataset.state = state;
  made.querySelector(".state").textContent = state === "undecided" ? "" : state;
  const label = own?.label ?? counting(place)?.label;
  const other = label === undefined || label === null || label === data.given[place] ? data.suggested[place] : label;
  const to = made.querySelector(".labels b");
  to.textContent = to.title = data.classes[other];
  const loaded = votes(place).filter(([person]) => person !== ME);
  const told = loaded.map(([person, each]) => `${person}: ${each.label === null ? each.decision : data.classes[each.label]}`);
  const text = titled("p", "votes", told.join(", "));
  made.querySelector(".votes").replaceWith(text);
  for (const each of made.querySelectorAll("[data-decide]")) {
    const decision = each.dataset.decide === "other" ? "relabelled" : each.dataset.decide;
    each.setAttribute("aria-pressed", String(decision === (own?.decision ?? "")));
  }
  const from = data.classes[data.given[place]];
  made.setAttribute("aria-label", `${data.name[place]}: ${from}, suggested ${data.classes[data.suggested[place]]}; ${state}`);
}
