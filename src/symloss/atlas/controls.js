// The choice of a loss, its facts and the sliders of its parameters.
const FACT_WORDS = {
  symmetric: ["symmetric", "not symmetric"], non_increasing: ["non-increasing", "can increase"], convex: ["convex", "not convex"], bounded: ["bounded", "not bounded"],
};

function node(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function fillChoices(select, data, optional) {
  const all = data.classes.indexOf(data.threshold.classes);
  const symmetric = (loss) => loss.facts && Boolean(parseInt(loss.facts[loss.positions[startOf(loss).position.join(",")]][all], 16) & 1);
  const option = (loss) => node("option", { value: loss.name, textContent: loss.name });
  if (optional) select.append(node("option", { value: "none", textContent: "none" }));
  for (const [label, wanted] of [["Symmetric", true], ["Not symmetric at the defaults", false], ["Composed, or your own", null]]) {
    const losses = data.losses.filter((loss) => symmetric(loss) === wanted);
    if (losses.length) select.append(node("optgroup", { label }, ...losses.map(option)));
  }
}

// Which of the facts hold, at these parameters and this number of classes. None are known outside the catalogue.
function factsOf(data, side, classes) {
  if (!side.loss.facts) return [];
  const bits = parseInt(side.loss.facts[side.loss.positions[side.position.join(",")]][classes], 16);
  return data.facts.map((name, bit) => [name, Boolean((bits >> bit) & 1)]);
}

function pointInWords(point) {
  return point === null ? "not used" : String(Number(point.toPrecision(4)));
}

function slidersOf(side, name, change) {
  return side.loss.sliders.map((slider, k) => {
    const id = `${name}-${slider.name}`;
    const input = node("input", { type: "range", id, min: 0, max: slider.points.length - 1, step: 1 });
    input.value = side.position[k];
    input.title = `${slider.meaning}; in ${slider.interval}, default ${pointInWords(slider.points[slider.default])}`;
    input.addEventListener("input", () => change(k, Number(input.value)));
    const output = node("output", {});
    output.setAttribute("for", id);
    const label = node("label", { htmlFor: id }, slider.name, node("small", { textContent: slider.meaning }));
    return node("div", { className: "slider" }, label, output, input);
  });
}

function showChoice(box, data, state, name, change) {
  const side = state[name], sliders = box.querySelector(".sliders");
  box.querySelector("select").value = side ? side.loss.name : "none";
  box.querySelector(".formula").textContent = side ? side.loss.formula : "";
  box.querySelector(".facts").replaceChildren();
  box.querySelector(".note").textContent = "";
  if (!side || sliders.dataset.loss !== side.loss.name) {
    sliders.dataset.loss = side ? side.loss.name : "";
    sliders.replaceChildren(...(side ? slidersOf(side, name, change) : []));
  }
  if (!side) return;
  const facts = factsOf(data, side, state.classes).map(([fact, holds]) =>
    node("li", { className: holds ? `yes ${fact}` : `no ${fact}`, textContent: FACT_WORDS[fact][holds ? 0 : 1] }));
  box.querySelector(".facts").append(...facts);
  side.loss.sliders.forEach((slider, k) => {
    const row = sliders.children[k], input = row.querySelector("input"), words = pointInWords(valueAt(side, k));
    const replaced = side.loss.sliders.some((other, i) => other.instead === slider.name && valueAt(side, i) !== null);
    input.value = side.position[k];
    row.querySelector("output").textContent = replaced ? "not used" : words;
    input.setAttribute("aria-valuetext", replaced ? `${slider.name} is not used` : `${slider.name} ${words}`);
  });
  const notes = [`${side.loss.reference[0].toUpperCase()}${side.loss.reference.slice(1)}.`];
  if (!side.loss.facts) notes.push("Its properties are not listed here: symloss certify measures them.");
  if (!side.loss.together) notes.unshift("One of these moves at a time: the others go back to their defaults.");
  if (side.loss.normalize) notes.push("In training the library divides the scores by their norm for this loss; not here.");
  box.querySelector(".note").textContent = notes.join(" ");
}

// A slider outside the two losses: its value, its words, and what it does.
function showSlider(id, value, words) {
  const input = document.getElementById(id);
  input.value = value;
  input.setAttribute("aria-valuetext", words);
  document.querySelector(`output[for="${id}"]`).textContent = words;
}
